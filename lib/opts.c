// SPDX-License-Identifier: Apache-2.0
/* opts.c - see opts.h. */
#include "lib/opts.h"

#include <stdint.h>
#include <string.h>

int fdry_opts_take(const void *opts, void *ret, size_t len)
{
	const uint8_t *bytes = opts;
	size_t sz, i;

	memset(ret, 0, len);
	if (!opts)
		return 0;
	memcpy(&sz, opts, sizeof(sz));
	if (sz < sizeof(sz) || sz > 4096)
		return fdry_fail(FDRY_E_OPTS, "an option struct says that it has %zu bytes; "
				 "set sz to its sizeof", sz);
	for (i = len; i < sz; i++)
		if (bytes[i])
			return fdry_fail(FDRY_E_OPTS,
					 "an option beyond byte %zu is set that this library "
					 "does not know; use a newer library",
					 len);
	memcpy(ret, opts, sz < len ? sz : len);
	return 0;
}

int fdry_need_fail(const char *fn, const char *arg)
{
	if (strncmp(fn, "fdry_", 5))
		return fdry_fail(FDRY_E_INVAL, "the call was given no %s (NULL)", arg);
	return fdry_fail(FDRY_E_INVAL, "%s() was given no %s (NULL)", fn, arg);
}

int fdry_report_check(const void *to)
{
	size_t sz = sizeof(sz);

	if (to)
		memcpy(&sz, to, sizeof(sz));
	if (sz < sizeof(sz) || sz > 4096)
		return fdry_fail(FDRY_E_OPTS,
				 "a report struct says that it has %zu bytes; set sz to its sizeof",
				 sz);
	return 0;
}

int fdry_report_give(const void *report, size_t len, void *to)
{
	size_t sz;
	int err = fdry_report_check(to);

	if (err || !to)
		return err;
	memcpy(&sz, to, sizeof(sz));
	memset((char *)to + sizeof(sz), 0, sz - sizeof(sz));
	if (sz < len)
		len = sz;
	if (len > sizeof(sz))
		memcpy((char *)to + sizeof(sz), (const char *)report + sizeof(sz),
		       len - sizeof(sz));
	return 0;
}
