// SPDX-License-Identifier: Apache-2.0
/* fingerprint_rules.c - see fingerprint_rules.h. */
#include "tests/lib/fingerprint_rules.h"

#include <stdlib.h>
#include <string.h>

#include "graph/ptx.h"
#include "tests/lib/drv.h"
#include "tests/lib/test.h"

#define BLOCK ((size_t)FDRY_FINGERPRINT_BLOCK)

int fingerprinter_new(const struct fdry_driver *driver, CUdevice device,
		      struct fdry_fingerprinter **ret)
{
	struct fdry_buf compiled = { 0 };
	struct fdry_span code;
	bool ptx;
	int err = fdry_fingerprint_code_of(driver, device, &code, &ptx);

	if (err)
		return err;
	if (ptx) {
		err = fdry_ptx_compile(driver, code, "fingerprint", &compiled);
		code = (struct fdry_span){ compiled.data, compiled.len };
	}
	err = err ?: fdry_fingerprinter_load(driver, code, ret);
	fdry_buf_release(&compiled);
	return err;
}

/* The copy may end after the call has returned, and the tests' stream waits for no other stream. */
static void put(CUdeviceptr to, const void *bytes, size_t len)
{
	ok(fdry_call(drv, cuMemcpyHtoD_v2, to, bytes, len));
	ok(fdry_call(drv, cuCtxSynchronize));
}

void fingerprint_fixture_begin(struct fingerprint_fixture *b)
{
	uint64_t state = 1, word;
	size_t i;

	b->bytes = malloc(FINGERPRINT_FIXTURE_BYTES);
	ck_assert_ptr_nonnull(b->bytes);
	for (i = 0; i < FINGERPRINT_FIXTURE_BYTES; i += sizeof(word)) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		word = state ^ state >> 29;
		memcpy(b->bytes + i, &word, sizeof(word));
	}
	memset(b->bytes + 3 * BLOCK, 0, 2 * BLOCK);
	ok(fdry_call(drv, cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING));
	ok(fdry_call(drv, cuMemAlloc_v2, &b->memory, FINGERPRINT_FIXTURE_BYTES));
	put(b->memory, b->bytes, FINGERPRINT_FIXTURE_BYTES);
	ok(fingerprinter_new(drv, 0, &b->f));
}

void fingerprint_fixture_end(struct fingerprint_fixture *b)
{
	fdry_fingerprinter_free(b->f);
	ok(fdry_call(drv, cuMemFree_v2, b->memory));
	ok(fdry_call(drv, cuStreamDestroy_v2, b->stream));
	free(b->bytes);
}

/* Compare the device's fingerprints of these ranges of the memory with the processor's. */
static void values_equal(struct fingerprint_fixture *b, const struct fdry_fingerprint_range *r,
			 size_t n)
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

/* Try every length near the ends of units, rows and blocks, at every offset in a unit. */
START_TEST(any_length_at_any_address)
{
	static const size_t lens[] = { 16, 4096, 8192, 61440, BLOCK, 2 * BLOCK };
	static struct fdry_fingerprint_range r[16 * 6 * 35];
	struct fingerprint_fixture b;
	size_t i, at, n = 0;
	int off;

	fingerprint_fixture_begin(&b);
	for (at = 0; at < 16; at++)
		for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
			for (off = -17; off <= 17; off++)
				if (off >= 0 || lens[i] > 17)
					r[n++] = (struct fdry_fingerprint_range){
						b.memory + at + 4096 * (at % 3),
						lens[i] + (size_t)(long)off
					};
	values_equal(&b, r, n);
	fingerprint_fixture_end(&b);
}
END_TEST

START_TEST(many_ranges)
{
	static struct fdry_fingerprint_range r[3000];
	struct fingerprint_fixture b;
	size_t i;

	fingerprint_fixture_begin(&b);
	for (i = 0; i < 3000; i++)
		r[i] = (struct fdry_fingerprint_range){ b.memory + 2048 * i, i * 7 };
	values_equal(&b, r, 3000);
	r[0] = (struct fdry_fingerprint_range){ b.memory, FINGERPRINT_FIXTURE_BYTES };
	r[1] = (struct fdry_fingerprint_range){ b.memory + 8, FINGERPRINT_FIXTURE_BYTES - 8 };
	r[2] = (struct fdry_fingerprint_range){ b.memory + 5, 0 };
	values_equal(&b, r, 3);
	values_equal(&b, r, 0);
	values_equal(&b, r + 2, 1);
	fingerprint_fixture_end(&b);
}
END_TEST

/* A change on the device changes the value of its range, and of no other. */
START_TEST(changes_are_noticed)
{
	struct fdry_fingerprint_range r[4];
	static const size_t at[] = { 0, BLOCK, 3 * BLOCK + 77, 4 * BLOCK - 1 };
	struct fingerprint_fixture b;
	size_t i;

	fingerprint_fixture_begin(&b);
	for (i = 0; i < 4; i++)
		r[i] = (struct fdry_fingerprint_range){ b.memory + i * BLOCK, BLOCK };
	for (i = 0; i < 4; i++) {
		b.bytes[at[i]] ^= 0x10;
		put(b.memory + at[i], b.bytes + at[i], 1);
		values_equal(&b, r, 4);
	}
	fingerprint_fixture_end(&b);
}
END_TEST

/* Compute the fingerprints of @n blocks of the memory in @steps launches. */
static void launch_steps(struct fingerprint_fixture *b, struct fdry_fingerprinter *f, size_t n,
			 size_t steps, struct fdry_fingerprint *got)
{
	struct fdry_fingerprint_range r[64];
	size_t i;

	ck_assert_uint_le(n, 64);
	for (i = 0; i < n; i++)
		r[i] = (struct fdry_fingerprint_range){ b->memory + i * BLOCK / 2,
							i % 5 ? BLOCK + i : 0 };
	ok(fdry_fingerprinter_begin(f, b->stream, r, n));
	for (i = 1; i < steps; i++)
		ok(fdry_fingerprinter_launch(f, n * i / steps));
	if (steps > 1) /* nothing is left to do for these */
		ok(fdry_fingerprinter_launch(f, n / steps));
	ok(fdry_fingerprinter_launch(f, n));
	ok(fdry_fingerprinter_wait(f, got));
}

START_TEST(launches_in_steps)
{
	struct fdry_fingerprint want[50], got[50];
	struct fingerprint_fixture b;
	size_t i, steps;

	fingerprint_fixture_begin(&b);
	for (i = 0; i < 50; i++)
		want[i] = fdry_fingerprint_of(b.bytes + i * BLOCK / 2, i % 5 ? BLOCK + i : 0);
	for (steps = 1; steps <= 50; steps += 7) {
		launch_steps(&b, b.f, 50, steps, got);
		for (i = 0; i < 50; i++)
			ck_assert(fdry_fingerprint_eq(want[i], got[i]));
	}
	fingerprint_fixture_end(&b);
}
END_TEST

/* Two that share a kernel compute at once. What is not launched is no result. */
START_TEST(two_with_one_kernel)
{
	struct fdry_fingerprint want, got, other_got;
	struct fdry_fingerprinter *other;
	struct fdry_fingerprint_range r[2];
	struct fingerprint_fixture b;

	fingerprint_fixture_begin(&b);
	r[0] = (struct fdry_fingerprint_range){ b.memory, 3 * BLOCK };
	r[1] = (struct fdry_fingerprint_range){ b.memory + BLOCK, 5 * BLOCK };
	ok(fdry_fingerprinter_share(b.f, &other));
	ok(fdry_fingerprinter_start(b.f, b.stream, &r[0], 1));
	ok(fdry_fingerprinter_begin(other, b.stream, &r[1], 1));
#ifdef NDEBUG /* a broken invariant stops a debug build */
	fails(BUG, "begun", fdry_fingerprinter_begin(other, b.stream, &r[1], 1));
	fails(BUG, "0 of 1", fdry_fingerprinter_wait(other, &other_got));
#else
	fdry_fingerprinter_cancel(other);
#endif
	ok(fdry_fingerprinter_start(other, b.stream, &r[1], 1));
	ok(fdry_fingerprinter_wait(other, &other_got));
	ok(fdry_fingerprinter_wait(b.f, &got));
	want = fdry_fingerprint_of(b.bytes, 3 * BLOCK);
	ck_assert(fdry_fingerprint_eq(want, got));
	want = fdry_fingerprint_of(b.bytes + BLOCK, 5 * BLOCK);
	ck_assert(fdry_fingerprint_eq(want, other_got));
	ok(fdry_fingerprinter_start(other, b.stream, &r[0], 1));
	fdry_fingerprinter_cancel(other);
	fdry_fingerprinter_cancel(other);
	fdry_fingerprinter_free(other);
	fingerprint_fixture_end(&b);
}
END_TEST

void fingerprint_rules_add(TCase *tc)
{
	tcase_add_test(tc, launches_in_steps);
	tcase_add_test(tc, two_with_one_kernel);
	tcase_add_test(tc, any_length_at_any_address);
	tcase_add_test(tc, many_ranges);
	tcase_add_test(tc, changes_are_noticed);
}
