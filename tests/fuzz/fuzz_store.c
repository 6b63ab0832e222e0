// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_store.c - records, names and notes of a store from anybody.
 *
 * What parses must hold together: links inside the value, sizes within limits. The first
 * byte of the input says what the rest is.
 */
#include <stdlib.h>

#include "store/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(int ok)
{
	if (!ok)
		abort();
}

static void record(struct fdry_span value)
{
	struct fdry_object_info info;
	struct fdry_record r;
	struct fdry_oid link;
	uint32_t i;

	if (fdry_record_parse(value, &r))
		return;
	must(r.links.len == (size_t)r.nlinks * FDRY_OID_SIZE && r.stored <= r.size && r.size <= FDRY_OBJECT_SIZE_MAX);
	for (i = 0; i < r.nlinks; i++) {
		link = fdry_record_link(&r, i);
		must(!memcmp(link.b, value.data + FDRY_RECORD_AT_LINKS + (size_t)i * FDRY_OID_SIZE, FDRY_OID_SIZE));
	}
	fdry_record_info(&link, &r, &info);
	must(info.kinds & 1u << info.kind);
}

static void ref(struct fdry_span value)
{
	struct fdry_ref r;

	must(fdry_ref_parse(value, &r) || value.len == FDRY_REF_SIZE);
}

static void name(struct fdry_span value)
{
	char *s = malloc(value.len + 1);
	size_t n;

	must(s != NULL);
	if (value.len)
		memcpy(s, value.data, value.len);
	s[value.len] = '\0';
	n = strlen(s);
	if (!fdry_ref_check(s))
		must(n && n <= FDRY_REF_NAME_MAX && s[0] != '/' && s[n - 1] != '/' && !strstr(s, "//") && !strstr(s, "/../"));
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const ways[])(struct fdry_span) = { record, ref, name };

	if (len)
		ways[data[0] % 3]((struct fdry_span){ data + 1, len - 1 });
	return 0;
}
