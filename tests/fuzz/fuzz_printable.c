// SPDX-License-Identifier: Apache-2.0
/* Fuzz target: any text becomes printable UTF-8, which does not change when it is made printable
 * again, for any size of the buffer. */
#include <stdlib.h>

#include "lib/printable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t i, n, cap = len ? data[0] + 1u : 1;
	struct fdry_buf once = { 0 }, twice = { 0 };
	char *text = strndup((const char *)data, len), part[256];
	uint32_t c = 0;

	must(text && !fdry_buf_printable(&once, text));
	for (i = 0; i < once.len; i += n) {
		n = fdry_utf8_next(once.data + i, once.len - i, &c);
		must(n && fdry_is_printable(c));
	}
	must(!fdry_buf_printable(&twice, (const char *)once.data));
	must(twice.len == once.len && !memcmp(twice.data, once.data, once.len));
	n = fdry_printable(part, cap, text);
	must(n < cap && n == strlen(part) && n <= once.len && !memcmp(part, once.data, n));
	fdry_buf_release(&once);
	fdry_buf_release(&twice);
	free(text);
	return 0;
}
