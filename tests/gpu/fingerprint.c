// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint.c - the tests of fingerprint_rules.h on this machine's GPU; bytes per second of the
 * kernel, compiled and from PTX, beside those of a copy on the device.
 *
 * A copy reads and writes each byte, a fingerprint reads it. Each number is the median of 15, with
 * the least and the most, on a stream with nothing else.
 */
#include <dlfcn.h>

#include "tests/lib/drv.h"
#include "tests/lib/fingerprint_rules.h"
#include "tests/lib/gpu.h"
#include "tests/lib/test.h"

#define TIMES 15
#define SIZES 5

static int float_cmp(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

struct timing {
	CUstream stream;
	CUevent begin, end;
	CUdeviceptr from, to;
	struct fdry_fingerprinter *f;
	struct fdry_fingerprint_range *ranges; /* of 2 MiB */
	struct fdry_fingerprint *values;
};

static void timing_begin(struct timing *t, size_t most)
{
	size_t i;

	ok(fdry_call(drv, cuStreamCreate, &t->stream, CU_STREAM_NON_BLOCKING));
	ok(fdry_call(drv, cuEventCreate, &t->begin, 0));
	ok(fdry_call(drv, cuEventCreate, &t->end, 0));
	ok(fdry_call(drv, cuMemAlloc_v2, &t->from, most));
	ok(fdry_call(drv, cuMemAlloc_v2, &t->to, most));
	ok(fdry_call(drv, cuMemsetD32Async, t->from, 0x3f8ccccd, most / 4, t->stream));
	ok(fingerprinter_new(drv, 0, &t->f));
	t->ranges = calloc(most >> 21, sizeof(*t->ranges));
	t->values = calloc(most >> 21, sizeof(*t->values));
	ck_assert(t->ranges && t->values);
	for (i = 0; i < most >> 21; i++)
		t->ranges[i] = (struct fdry_fingerprint_range){ t->from + (i << 21), 2u << 20 };
}

static void timing_end(struct timing *t)
{
	fdry_fingerprinter_free(t->f);
	ok(fdry_call(drv, cuMemFree_v2, t->from));
	ok(fdry_call(drv, cuMemFree_v2, t->to));
	ok(fdry_call(drv, cuEventDestroy_v2, t->begin));
	ok(fdry_call(drv, cuEventDestroy_v2, t->end));
	ok(fdry_call(drv, cuStreamDestroy_v2, t->stream));
	free(t->ranges);
	free(t->values);
}

/* Milliseconds on the device; with @copy, of a copy instead. */
static float once_ms(struct timing *t, size_t len, bool copy)
{
	CUresult CUDAAPI (*elapsed)(float *ms, CUevent begin, CUevent end);
	float ms = 0;

	*(void **)&elapsed = dlsym(drv->handle, "cuEventElapsedTime");
	ck_assert_ptr_nonnull(elapsed);
	ok(fdry_call(drv, cuEventRecord, t->begin, t->stream));
	if (copy)
		ok(fdry_call(drv, cuMemcpyDtoDAsync_v2, t->to, t->from, len, t->stream));
	else
		ok(fdry_fingerprinter_start(t->f, t->stream, t->ranges, len >> 21));
	ok(fdry_call(drv, cuEventRecord, t->end, t->stream));
	if (!copy)
		ok(fdry_fingerprinter_wait(t->f, t->values));
	ok(fdry_call(drv, cuEventSynchronize, t->end));
	ck_assert_int_eq(elapsed(&ms, t->begin, t->end), 0);
	return ms;
}

static void row(struct timing *t, size_t len)
{
	float ms[2][TIMES];
	double gb = (double)len * 1e-9 * 1e3;
	int i, copy;

	for (i = -2; i < TIMES; i++)
		for (copy = 0; copy < 2; copy++)
			ms[copy][i < 0 ? 0 : i] = once_ms(t, len, copy);
	for (copy = 0; copy < 2; copy++)
		qsort(ms[copy], TIMES, sizeof(float), float_cmp);
	printf("note: %6zu MiB: fingerprint %7.0f GB/s (%.0f to %.0f), copy %7.0f GB/s (%.0f to "
	       "%.0f), %.2f of the copy's time\n",
	       len >> 20, gb / ms[0][TIMES / 2], gb / ms[0][TIMES - 1], gb / ms[0][0],
	       gb / ms[1][TIMES / 2], gb / ms[1][TIMES - 1], gb / ms[1][0],
	       ms[0][TIMES / 2] / ms[1][TIMES / 2]);
}

START_TEST(speed)
{
	static const size_t mib[SIZES] = { 2, 64, 256, 1024, 4096 };
	struct timing t = { 0 };
	size_t i;

	timing_begin(&t, mib[SIZES - 1] << 20);
	for (i = 0; i < SIZES; i++)
		row(&t, mib[i] << 20);
	timing_end(&t);
}
END_TEST

/* A device that no cubin is for. */
static CUresult CUDAAPI newer_device(int *ret, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	*ret = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 99 : 0;
	return CUDA_SUCCESS;
}

/* The driver's code for the PTX gives the same values. */
START_TEST(ptx_gives_the_same)
{
	struct fdry_fingerprint_range r;
	struct fdry_fingerprint by_ptx, by_cubin;
	struct fdry_driver newer = *drv;
	struct fdry_fingerprinter *f;
	struct fingerprint_fixture b;

	newer.cuDeviceGetAttribute = newer_device;
	fingerprint_fixture_begin(&b);
	r = (struct fdry_fingerprint_range){ b.memory, FINGERPRINT_FIXTURE_BYTES - 3 };
	ok(fdry_fingerprinter_start(b.f, b.stream, &r, 1));
	ok(fdry_fingerprinter_wait(b.f, &by_cubin));
	ok(fingerprinter_new(&newer, 0, &f));
	ok(fdry_fingerprinter_start(f, b.stream, &r, 1));
	ok(fdry_fingerprinter_wait(f, &by_ptx));
	ck_assert(fdry_fingerprint_eq(by_ptx, by_cubin));
	fdry_fingerprinter_free(f);
	fingerprint_fixture_end(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fingerprint");
	TCase *tc = tcase_create("fingerprint");

	drv = gpu_driver();
	gpu_context(drv);
	fingerprint_rules_add(tc);
	tcase_add_test(tc, ptx_gives_the_same);
	tcase_add_test(tc, speed);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
