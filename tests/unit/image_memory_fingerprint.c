// SPDX-License-Identifier: Apache-2.0
/* Unit tests of fingerprints of memory that belongs to no image. */
#include "lib/fingerprint.h"
#include "tests/lib/image.h"

#define BYTES_MAX (3u << 16)

static CUdeviceptr memory_of(const uint8_t *bytes)
{
	const struct fdry_driver *drv = test_sim();
	CUdeviceptr addr;
	CUcontext ctx;

	ok(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	ok(fdry_call(drv, cuCtxSetCurrent, ctx));
	ok(fdry_call(drv, cuMemAlloc_v2, &addr, BYTES_MAX));
	ok(fdry_call(drv, cuMemcpyHtoD_v2, addr, bytes, BYTES_MAX));
	return addr;
}

START_TEST(fingerprints_are_those_of_the_processor)
{
	uint8_t *bytes = malloc(BYTES_MAX);
	uint64_t found[3][2] = { { 0 } };
	struct fdry_memory ranges[3];
	struct fdry_fingerprint want;
	CUdeviceptr addr;
	size_t i;

	for (i = 0; i < BYTES_MAX; i++)
		bytes[i] = (uint8_t)(i * 7919 >> 3);
	addr = memory_of(bytes);
	ranges[0] = (struct fdry_memory){ addr, BYTES_MAX };
	ranges[1] = (struct fdry_memory){ addr + 512, 1 };
	ranges[2] = (struct fdry_memory){ addr + 1024, (1u << 16) + 3 };
	ok(fdry_memory_fingerprint(0, NULL, ranges, 3, found));
	for (i = 0; i < 3; i++) {
		want = fdry_fingerprint_of(bytes + (ranges[i].addr - addr), ranges[i].bytes);
		ck_assert_uint_eq(found[i][0], want.a);
		ck_assert_uint_eq(found[i][1], want.b);
	}
	ok(fdry_memory_fingerprint(0, NULL, NULL, 0, NULL));
	free(bytes);
}
END_TEST

static void refused(int err, enum fdry_errcode code, const char *words)
{
	ck_assert_int_eq(err, -(int)code);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), words));
}

START_TEST(misuse_is_refused)
{
	uint8_t *bytes = calloc(1, BYTES_MAX);
	struct fdry_memory range = { memory_of(bytes), 512 };
	const struct fdry_driver *drv = test_sim();
	uint64_t found[1][2];
	CUstream stream;
	CUgraph graph;

	refused(fdry_memory_fingerprint(0, NULL, NULL, 1, found), FDRY_E_INVAL,
		"ranges");
	refused(fdry_memory_fingerprint(0, NULL, &range, 1, NULL), FDRY_E_INVAL,
		"ret");
	refused(fdry_memory_fingerprint(99, NULL, &range, 1, found), FDRY_E_NOGPU,
		"no device 99");
	refused(fdry_memory_fingerprint(-1, NULL, &range, 1, found), FDRY_E_NOGPU,
		"no device -1");
	ok(fdry_call(drv, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
	ok(fdry_call(drv, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	refused(fdry_memory_fingerprint(0, stream, &range, 1, found), FDRY_E_STATE,
		"fingerprint");
	ok(fdry_call(drv, cuStreamEndCapture, stream, &graph));
	ok(fdry_memory_fingerprint(0, stream, &range, 1, found));
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image/memory_fingerprint");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, fingerprints_are_those_of_the_processor);
	tcase_add_test(tc, misuse_is_refused);
	suite_add_tcase(s, tc);
	return test_main(s);
}
