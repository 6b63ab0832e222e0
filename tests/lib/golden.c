// SPDX-License-Identifier: Apache-2.0
/* golden.c - see golden.h. */
#include "tests/lib/golden.h"

struct fdry_span golden_read(const char *name)
{
	char path[512];
	struct fdry_span s;
	uint8_t *data;
	long len;
	FILE *f;

	snprintf(path, sizeof(path), "tests/golden/cubin/%s", name);
	f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "no %s; run tests from the root of the tree", path);
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	len = ftell(f);
	rewind(f);
	ck_assert_int_gt(len, 0);
	data = malloc((size_t)len);
	ck_assert_uint_eq(fread(data, 1, (size_t)len, f), (size_t)len);
	fclose(f);
	s.data = data;
	s.len = (size_t)len;
	return s;
}

void golden_free(struct fdry_span s)
{
	free((void *)s.data);
}

struct fdry_span golden_cut(struct fdry_span s, size_t len)
{
	struct fdry_span cut = { malloc(len + !len), len };

	ck_assert_ptr_nonnull(cut.data);
	memcpy((void *)cut.data, s.data, len);
	return cut;
}

uint32_t golden_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

void golden_damage(const char *name, unsigned int cuts, unsigned int flips, golden_fn fn)
{
	struct fdry_span whole = golden_read(name), part;
	uint32_t state = 12345;
	unsigned int i;
	size_t at;

	for (i = 0; i < cuts; i++) {
		part = golden_cut(whole, i < 80 ? i : golden_random(&state) % whole.len);
		fn(part);
		golden_free(part);
	}
	for (i = 0; i < TEST_ROUNDS(flips); i++) {
		part = golden_cut(whole, whole.len);
		at = i % 3 ? golden_random(&state) % whole.len : golden_random(&state) % 64;
		((uint8_t *)part.data)[at] ^= (uint8_t)(1u << golden_random(&state) % 8);
		fn(part);
		golden_free(part);
	}
	golden_free(whole);
}
