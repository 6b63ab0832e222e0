/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_both.h - fingerprints by the kernel equal those by the processor, on the software
 * driver (graph_fingerprint.c) and on a GPU (tests/gpu/fingerprint.c).
 *
 * Whoever includes this sets @drv, and makes a context of device 0 current.
 */
#ifndef TESTS_UNIT_FINGERPRINT_BOTH_H
#define TESTS_UNIT_FINGERPRINT_BOTH_H

#include <stdlib.h>

#include "graph/fingerprint.h"
#include "tests/lib/test.h"

#define BOTH_BYTES ((size_t)9 << 20)
#define BOTH_BLOCK ((size_t)FDRY_FINGERPRINT_BLOCK)

static const struct fdry_driver *drv;

struct both {
	struct fdry_fingerprinter *f;
	CUstream stream;
	CUdeviceptr memory;
	uint8_t *bytes; /* what is in it */
};

static void both_begin(struct both *b)
{
	uint64_t state = 1, word;
	size_t i;

	b->bytes = malloc(BOTH_BYTES);
	ck_assert_ptr_nonnull(b->bytes);
	for (i = 0; i < BOTH_BYTES; i += sizeof(word)) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		word = state ^ state >> 29;
		memcpy(b->bytes + i, &word, sizeof(word));
	}
	memset(b->bytes + 3 * BOTH_BLOCK, 0, 2 * BOTH_BLOCK);
	ok(fdry_call(drv, cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING));
	ok(fdry_call(drv, cuMemAlloc_v2, &b->memory, BOTH_BYTES));
	ok(fdry_call(drv, cuMemcpyHtoD_v2, b->memory, b->bytes, BOTH_BYTES));
	ok(fdry_fingerprinter_new(drv, 0, &b->f));
}

static void both_end(struct both *b)
{
	fdry_fingerprinter_free(b->f);
	ok(fdry_call(drv, cuMemFree_v2, b->memory));
	ok(fdry_call(drv, cuStreamDestroy_v2, b->stream));
	free(b->bytes);
}

/* The ranges lie in the memory. */
static void both_equal(struct both *b, const struct fdry_fingerprint_range *r, size_t n)
{
	struct fdry_fingerprint *got = calloc(n + 1, sizeof(*got)), want;
	size_t i;

	ck_assert_ptr_nonnull(got);
	ok(fdry_fingerprinter_start(b->f, b->stream, r, n));
	ok(fdry_fingerprinter_wait(b->f, got));
	for (i = 0; i < n; i++) {
		want = fdry_fingerprint_of(b->bytes + (r[i].addr - b->memory), r[i].len);
		ck_assert_msg(fdry_fingerprint_eq(want, got[i]), "%llu bytes at %llu",
			      (unsigned long long)r[i].len,
			      (unsigned long long)(r[i].addr - b->memory));
	}
	free(got);
}

/* Every length about the ends of units, rows and blocks, at every place of a unit. */
START_TEST(both_any_length_at_any_address)
{
	static const size_t lens[] = { 16, 4096, 8192, 61440, BOTH_BLOCK, 2 * BOTH_BLOCK };
	static struct fdry_fingerprint_range r[16 * 6 * 35];
	struct both b;
	size_t i, at, n = 0;
	int off;

	both_begin(&b);
	for (at = 0; at < 16; at++)
		for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
			for (off = -17; off <= 17; off++)
				if (off >= 0 || lens[i] > 17)
					r[n++] = (struct fdry_fingerprint_range){
						b.memory + at + 4096 * (at % 3),
						lens[i] + (size_t)(long)off
					};
	both_equal(&b, r, n);
	both_end(&b);
}
END_TEST

START_TEST(both_many_ranges)
{
	static struct fdry_fingerprint_range r[3000];
	struct both b;
	size_t i;

	both_begin(&b);
	for (i = 0; i < 3000; i++)
		r[i] = (struct fdry_fingerprint_range){ b.memory + 2048 * i, i * 7 };
	both_equal(&b, r, 3000);
	r[0] = (struct fdry_fingerprint_range){ b.memory, BOTH_BYTES };
	r[1] = (struct fdry_fingerprint_range){ b.memory + 8, BOTH_BYTES - 8 };
	r[2] = (struct fdry_fingerprint_range){ b.memory + 5, 0 };
	both_equal(&b, r, 3);
	both_equal(&b, r, 0);
	both_equal(&b, r + 2, 1);
	both_end(&b);
}
END_TEST

/* What changed on the device changes the value, and only of its range. */
START_TEST(both_changes_are_noticed)
{
	struct fdry_fingerprint_range r[4];
	static const size_t at[] = { 0, BOTH_BLOCK, 3 * BOTH_BLOCK + 77, 4 * BOTH_BLOCK - 1 };
	struct both b;
	size_t i;

	both_begin(&b);
	for (i = 0; i < 4; i++)
		r[i] = (struct fdry_fingerprint_range){ b.memory + i * BOTH_BLOCK, BOTH_BLOCK };
	for (i = 0; i < 4; i++) {
		b.bytes[at[i]] ^= 0x10;
		ok(fdry_call(drv, cuMemcpyHtoD_v2, b.memory + at[i], b.bytes + at[i], 1));
		both_equal(&b, r, 4);
	}
	both_end(&b);
}
END_TEST

#endif
