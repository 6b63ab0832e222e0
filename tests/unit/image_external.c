// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of external tensors that are compared with their content at the seal.
 */
#include "tests/lib/image_host.h"

#define MIB (1ull << 20)
#define CACHE (2 * MIB)

static struct fdry_tensor cache(CUdeviceptr addr)
{
	return (struct fdry_tensor){ .name = "cache", .addr = addr, .dtype = FDRY_U8,
				     .use = FDRY_USE_CONST, .flags = FDRY_TENSOR_EXTERNAL,
				     .rank = 2, .shape = { 2, MIB }, .stride = { MIB, 1 } };
}

/* External: b, a constant on the device; table, one in host memory; cache, one with a capacity;
 * empty, one without elements; a, an input. */
static void seal_all(void *id)
{
	struct fdry_tensor t;
	struct host_work h;
	CUdeviceptr kv;

	host_make(&h, false);
	cuda_ok(cuMemAlloc_v2, &kv, CACHE);
	cuda_ok(cuMemsetD8_v2, kv, 7, CACHE);
	t = cache(kv);
	ok(fdry_capture_tensor(h.w.cap, &t));
	ok(fdry_capture_capacity(h.w.cap, "cache", 4 * CACHE));
	graph_add(&h.w, 5);
	tensor_add(&h.w, "a", h.w.a, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	tensor_add(&h.w, "b", h.w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	tensor_add(&h.w, "c", h.w.c, FDRY_USE_OUTPUT, 0);
	tensor_add(&h.w, "in", (CUdeviceptr)(uintptr_t)h.in, FDRY_USE_INPUT, FDRY_TENSOR_HOST);
	tensor_add(&h.w, "out", (CUdeviceptr)(uintptr_t)h.out, FDRY_USE_OUTPUT, FDRY_TENSOR_HOST);
	tensor_add(&h.w, "plain", (CUdeviceptr)(uintptr_t)h.plain, FDRY_USE_CONST,
		   FDRY_TENSOR_HOST);
	tensor_add(&h.w, "state", (CUdeviceptr)(uintptr_t)h.state, FDRY_USE_STATE,
		   FDRY_TENSOR_HOST);
	tensor_add(&h.w, "table", (CUdeviceptr)(uintptr_t)h.table, FDRY_USE_CONST,
		   FDRY_TENSOR_HOST | FDRY_TENSOR_EXTERNAL);
	t = vector("empty", h.w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	t.shape[0] = 0;
	ok(fdry_capture_tensor(h.w.cap, &t));
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	host_end(&h);
}

/* Fill the tensors with the sealing process' content. */
static void image_fill(struct fdry_image *img)
{
	struct fdry_tensor t;
	uint8_t *bytes = malloc(4 * CACHE);
	float v[N];

	memset(bytes, 7, 4 * CACHE);
	ok(fdry_image_tensor_find(img, "cache", &t));
	ok(fdry_image_write(img, "cache", bytes, (size_t)t.shape[0] * MIB, NULL));
	free(bytes);
	vector_fill(v, 100);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	vector_fill(v, 1000);
	ok(fdry_image_write(img, "table", v, BYTES, NULL));
	ok(fdry_image_filled(img, NULL));
}

static struct fdry_check_report check(struct fdry_image *img, const char *name)
{
	struct fdry_check_report r = { .sz = sizeof(r) };

	ok(fdry_image_check(img, name, NULL, &r));
	ck_assert_uint_eq(r.differ, 0);
	return r;
}

START_TEST(equal_bytes_are_equal)
{
	/* In turn: here, in a context of its own, and with the processor. */
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = _i == 1 ? FDRY_LOAD_OWN_CONTEXT : 0 };
	struct fdry_check_report r;
	struct fdry_image *img;

	test_child(seal_all, NULL);
	test_sim();
	if (_i == 2)
		test_sim_fail("cuMemAlloc_v2:1+:2"); /* no memory for the tables of the kernel */
	img = load_image("img", &opts);
	image_fill(img);
	r = check(img, "b");
	ck_assert_uint_eq(r.tensors, 1);
	ck_assert_uint_eq(r.bytes, BYTES);
	ck_assert(r.ms > 0);
	r = check(img, "table");
	ck_assert_uint_eq(r.tensors, 1);
	r = check(img, "empty");
	ck_assert_uint_eq(r.tensors + r.bytes + r.skipped, 0);
	r = check(img, NULL);
	ck_assert_uint_eq(r.tensors, 3);
	ck_assert_uint_eq(r.bytes, CACHE + 2 * BYTES);
	ck_assert_uint_eq(r.skipped, 0);
	ok(fdry_image_check(img, NULL, NULL, NULL));
	ck_assert_int_eq(test_sim_failed() != 0, _i == 2);
	test_sim_fail(NULL);
	fdry_image_unload(img);
}
END_TEST

/* Every byte of each tensor counts, and nothing is changed by finding it. */
START_TEST(a_difference_is_named)
{
	static const char *const names[] = { "b", "table" };
	struct fdry_check_report r = { .sz = sizeof(r) };
	struct fdry_image *img;
	uint8_t v[BYTES];
	size_t at;
	int i;

	test_child(seal_all, NULL);
	img = load_image("img", NULL);
	image_fill(img);
	for (i = 0; i < 2; i++)
		for (at = 0; at < BYTES; at += at + 7 < BYTES && at > 100 ? 397 : 1) {
			ok(fdry_image_read(img, names[i], v, BYTES, NULL));
			v[at] ^= (uint8_t)(1 << at % 8);
			ok(fdry_image_write(img, names[i], v, BYTES, NULL));
			fails(CORRUPT, "other bytes than at the seal (1 of 1",
			      fdry_image_check(img, names[i], NULL, NULL));
			fails(CORRUPT, "image 'img' (", fdry_image_check(img, NULL, NULL, &r));
			ck_assert(strstr(fdry_last_error(), names[i]));
			ck_assert_uint_eq(r.differ, 1);
			ck_assert_uint_eq(r.tensors, 3);
			v[at] ^= (uint8_t)(1 << at % 8);
			ok(fdry_image_write(img, names[i], v, BYTES, NULL));
			(void)check(img, NULL);
		}
	ok(fdry_image_launch(img, 5, NULL));
	fdry_image_unload(img);
}
END_TEST

/* The call waits for a copy that is on the stream. */
START_TEST(earlier_work_on_the_stream_counts)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream stream;
	CUcontext ctx;
	uint8_t v[BYTES];

	test_child(seal_all, NULL);
	drv = test_sim();
	img = load_image("img", NULL);
	image_fill(img);
	ok(fdry_image_read(img, "b", v, BYTES, NULL));
	v[5] ^= 1;
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxSetCurrent(ctx), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ok(fdry_image_write_async(img, "b", v, BYTES, stream));
	fails(CORRUPT, "tensor 'b'", fdry_image_check(img, "b", stream, NULL));
	fails(INVAL, "", fdry_image_check(img, "b", (CUstream)(uintptr_t)0x1234, NULL));
	fdry_image_unload(img);
	ck_assert_int_eq(drv->cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}
END_TEST

START_TEST(tensors_that_cannot_be_compared_are_refused)
{
	struct fdry_check_report wrong = { .sz = 1 };
	struct fdry_image *img;

	test_child(seal_all, NULL);
	img = load_image("img", NULL);
	fails(UNBOUND, "tensor 'b' has no content yet", fdry_image_check(img, "b", NULL, NULL));
	fails(UNBOUND, "has no content yet", fdry_image_check(img, NULL, NULL, NULL));
	image_fill(img);
	fails(STATE, "it is no constant", fdry_image_check(img, "a", NULL, NULL));
	fails(STATE, "tensor 'plain' is not external", fdry_image_check(img, "plain", NULL, NULL));
	fails(NOKEY, "no tensor named 'x'", fdry_image_check(img, "x", NULL, NULL));
	fails(OPTS, "", fdry_image_check(img, "b", NULL, &wrong));
	fails(INVAL, "", fdry_image_check(NULL, "b", NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(a_capacity_has_the_size_of_the_seal)
{
	struct fdry_external size = { "cache", 3 * MIB };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .externals = &size, .nexternals = 1 };
	struct fdry_check_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	test_child(seal_all, NULL);
	for (; size.bytes >= MIB; size.bytes -= 2 * MIB) {
		img = load_image("img", &opts);
		image_fill(img);
		fails(STATE, "bytes here and had 2097152 at the seal",
		      fdry_image_check(img, "cache", NULL, NULL));
		ok(fdry_image_check(img, NULL, NULL, &r));
		ck_assert_uint_eq(r.tensors, 2);
		ck_assert_uint_eq(r.skipped, 1);
		fdry_image_unload(img);
		if (size.bytes == MIB)
			break;
	}
}
END_TEST

/* --- seals --- */

static void seal_b(void *salt)
{
	struct work w;
	float v[N];
	char file[340], id[FDRY_ID_SIZE];
	FILE *f;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, FDRY_TENSOR_EXTERNAL);
	vector_fill(v, *(float *)salt);
	cuda_ok(cuMemcpyHtoD_v2, w.b, v, BYTES);
	vector_fill(v, *(float *)salt + 5); /* an input is not recorded */
	cuda_ok(cuMemcpyHtoD_v2, ((float *)salt)[1] ? w.a : w.c, v, BYTES);
	if (((float *)salt)[2])
		test_sim_fail("cuLaunchKernel:1+");
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	test_sim_fail(NULL);
	snprintf(file, sizeof(file), "%s/id", dir);
	f = fopen(file, "w");
	fputs(id, f);
	fclose(f);
	work_end(&w);
}

static void sealed(float salt, float input, float fails, char *id)
{
	float arg[3] = { salt, input, fails };
	char file[340];
	FILE *f;

	test_child(seal_b, arg);
	snprintf(file, sizeof(file), "%s/id", dir);
	f = fopen(file, "r");
	ck_assert_ptr_nonnull(fgets(id, FDRY_ID_SIZE, f));
	fclose(f);
}

START_TEST(equal_constants_are_one_image)
{
	char id[3][FDRY_ID_SIZE];

	sealed(100, 0, 0, id[0]);
	sealed(100, 1, 0, id[1]);
	sealed(200, 0, 0, id[2]);
	ck_assert_str_eq(id[0], id[1]);
	ck_assert_str_ne(id[0], id[2]);
}
END_TEST

/* A GPU that cannot compute fingerprints seals an image as older versions did. */
START_TEST(without_a_record_the_check_is_refused)
{
	struct fdry_image *img;
	char id[FDRY_ID_SIZE];

	sealed(100, 0, 1, id);
	img = load_image("img", NULL);
	ok(fdry_image_filled(img, NULL));
	fails(STATE, "is not recorded: an older version sealed the image",
	      fdry_image_check(img, "b", NULL, NULL));
	fails(STATE, "is not recorded: an older version sealed the image",
	      fdry_image_check(img, NULL, NULL, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_difference_is_named, earlier_work_on_the_stream_counts,
		tensors_that_cannot_be_compared_are_refused, a_capacity_has_the_size_of_the_seal,
		equal_constants_are_one_image, without_a_record_the_check_is_refused,
	};
	Suite *s = suite_create("external");
	TCase *tc = tcase_create("external");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, equal_bytes_are_equal, 0, 3);
	suite_add_tcase(s, tc);
	return test_main(s);
}
