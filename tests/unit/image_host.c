// SPDX-License-Identifier: Apache-2.0
/* Unit tests of host memory in copies: declared, sealed, and loaded in another process.
 * image_host_refuse.c tests refusals. */
#include <sys/mman.h>

#include "image/manifest.h"
#include "lib/telemetry.h"
#include "tests/lib/image_host.h"

static void seal_host(void *id)
{
	struct host_work h;

	host_make(&h, false);
	tensors_name(&h);
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	host_end(&h);
}

static float *host_of(struct fdry_image *img, const char *name)
{
	struct fdry_tensor t;
	void *p;

	ok(fdry_image_host(img, name, &p));
	ok(fdry_image_tensor_find(img, name, &t));
	ck_assert_uint_eq(t.addr, (uintptr_t)p);
	ck_assert(t.flags & FDRY_TENSOR_HOST);
	return p;
}

/* v[0..n) is a of @a plus b of @b. */
static void sum_check(const float *v, int n, float a, float b)
{
	int i;

	for (i = 0; i < n; i++)
		ck_assert_msg(v[i] == vector_value(i, a) + vector_value(i, b), "[%d] is %g", i,
			      (double)v[i]);
}

/* --- loading --- */

START_TEST(inputs_are_rewritten_before_every_launch)
{
	struct fdry_image *img;
	float v[N], *in, *out;
	int i;

	test_child(seal_host, NULL);
	img = load_with(0);
	in = host_of(img, "in");
	out = host_of(img, "out");
	ck_assert_uint_eq((uintptr_t)in % 256, 0);
	ok(fdry_image_filled(img, "in"));
	for (i = 0; i < 3; i++) {
		vector_fill(in, (float)(i + 10));
		ok(fdry_image_launch(img, 1, NULL));
		ok(fdry_image_synchronize(img, NULL));
		sum_check(out, N, (float)(i + 10), 1000);
		vector_fill(v, (float)(i + 20));
		ok(fdry_image_write(img, "in", v, BYTES, NULL));
		ok(fdry_image_launch(img, 2, NULL));
		ok(fdry_image_read(img, "out", v, BYTES, NULL));
		sum_check(v, N / 2, (float)(i + 20), 1000);
		sum_check(v + N / 2, 0, 0, 0);
		ck_assert(v[N - 1] ==
			  vector_value(N - 1, (float)(i + 10)) + vector_value(N - 1, 1000));
	}
	fdry_image_unload(img);
}
END_TEST

START_TEST(initial_bytes_of_each_use)
{
	float zeros[N] = { 0 }, poison[N], v[N];
	struct fdry_image *img;

	memset(poison, 0xA5, sizeof(poison));
	test_child(seal_host, NULL);
	img = load_with(_i ? FDRY_LOAD_POISON : 0);
	ck_assert_mem_eq(host_of(img, "in"), _i ? poison : zeros, BYTES);
	ck_assert_mem_eq(host_of(img, "out"), _i ? poison : zeros, BYTES);
	vector_fill(v, 1000);
	ck_assert_mem_eq(host_of(img, "table"), v, BYTES);
	vector_fill(v, 2000);
	ck_assert_mem_eq(host_of(img, "state"), v, BYTES);
	vector_fill(v, 3000);
	ck_assert_mem_eq(host_of(img, "plain"), v, BYTES);
	fdry_image_unload(img);
}
END_TEST

START_TEST(pageable_memory_comes_back_pinned)
{
	struct fdry_image *img;
	unsigned int type = 0;
	float v[N];

	test_child(seal_host, NULL);
	img = load_with(FDRY_LOAD_BUILD);
	ck_assert_int_eq(test_sim()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
							   (uintptr_t)host_of(img, "plain")),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	ok(fdry_image_filled(img, NULL));
	ok(fdry_image_launch(img, 4, NULL));
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	sum_check(v, N, 3000, 100); /* b as it was at the seal */
	fdry_image_unload(img);
}
END_TEST

START_TEST(state_continues_and_is_restored)
{
	struct fdry_image *img;
	float v[N];
	int i;

	test_child(seal_host, NULL);
	img = load_with(0);
	ok(fdry_image_filled(img, NULL));
	for (i = 0; i < 2; i++)
		ok(fdry_image_launch(img, 3, NULL));
	ok(fdry_image_read(img, "state", v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert(v[i] ==
			  vector_value(i, 2000) + vector_value(i, 1000) + vector_value(i, 1000));
	memset(host_of(img, "table"), 0xff, BYTES);
	vector_fill(host_of(img, "in"), 5);
	ok(fdry_image_restore(img, NULL));
	vector_fill(v, 2000);
	ck_assert_mem_eq(host_of(img, "state"), v, BYTES);
	vector_fill(v, 1000);
	ck_assert_mem_eq(host_of(img, "table"), v, BYTES);
	vector_fill(v, 5);
	ck_assert_mem_eq(host_of(img, "in"), v, BYTES);
	fdry_image_unload(img);
}
END_TEST

START_TEST(inputs_must_be_filled)
{
	struct fdry_image *img;
	struct fdry_tensor t;
	float v[N];
	void *p;

	test_child(seal_host, NULL);
	img = load_with(0);
	fails(UNBOUND, "1 external tensor(s) have no content yet, 'in' first",
	      fdry_image_launch(img, 4, NULL));
	fails(STATE, "tensor 'out' is not external", fdry_image_filled(img, "out"));
	fails(STATE, "tensor 'c' lies on the device", fdry_image_host(img, "c", &p));
	fails(NOKEY, "no tensor named 'd'", fdry_image_host(img, "d", &p));
	fails(INVAL, "given no ret", fdry_image_host(img, "in", NULL));
	fails(INVAL, "given no img", fdry_image_host(NULL, "in", &p));
	fails(RANGE, "has 4000 bytes, and 8 were given", fdry_image_write(img, "in", v, 8, NULL));
	ok(fdry_image_tensor_find(img, "c", &t));
	vector_fill(v, 9);
	ok(fdry_image_write(img, "c", v, BYTES, NULL));
	ok(fdry_image_copy(img, "in", t.addr, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "out", v, BYTES, NULL));
	sum_check(v, N, 9, 1000);
	fdry_image_unload(img);
}
END_TEST

/* From the device: counted, and an input is filled by it. */
START_TEST(device_memory_is_copied_there)
{
	uint64_t before[FDRY_METRICS], after[FDRY_METRICS];
	struct fdry_image *img;
	struct fdry_tensor t;
	float v[N];

	test_child(seal_host, NULL);
	img = load_with(0);
	vector_fill(v, 77);
	ok(fdry_image_tensor_find(img, "c", &t));
	ok(fdry_image_write(img, "c", v, BYTES, NULL));
	fdry_telemetry_read(before);
	ok(fdry_image_copy(img, "in", t.addr, BYTES, NULL));
	fdry_telemetry_read(after);
	ck_assert_uint_eq(after[FDRY_METRIC_COPIES_FROM], before[FDRY_METRIC_COPIES_FROM] + 1);
	ck_assert_uint_eq(after[FDRY_METRIC_COPIED_FROM], before[FDRY_METRIC_COPIED_FROM] + BYTES);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	sum_check(host_of(img, "out"), N, 77, 1000);
	fdry_image_unload(img);
}
END_TEST

START_TEST(copies_wait_for_a_capture_to_end)
{
	struct fdry_image *img;
	CUstream stream;
	CUgraph graph;
	float v[N];

	test_child(seal_host, NULL);
	img = load_with(0);
	ck_assert_int_eq(test_sim()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim()->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	fails(STATE, "the stream captures", fdry_image_write(img, "in", v, BYTES, stream));
	fails(STATE, "the stream captures", fdry_image_read(img, "in", v, BYTES, stream));
	ck_assert_int_eq(test_sim()->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

START_TEST(nothing_is_left_whatever_fails)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = FDRY_LOAD_BUILD | FDRY_LOAD_POISON, .threads = 1 };
	struct fdry_image *img;
	unsigned int n, failed = 0;
	char spec[64];
	long before;

	test_child(seal_host, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "%s:%u:%d",
			 _i ? "cuMemHostAlloc" : "cuGraphAddMemcpyNode", n,
			 _i ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		if (!fdry_image_load(load_store(), "img", &opts, &img))
			break;
		failed++;
		if (_i)
			ck_assert_ptr_nonnull(
				strstr(fdry_last_error(),
				       "of pinned host memory, and the driver has not enough"));
		ck_assert_int_eq(live_objects(), before);
	}
	test_sim_fail(NULL);
	ck_assert_uint_eq(failed, _i ? 1 : 9);
	ck_assert_int_eq(test_sim_live("host"), 1);
	fdry_image_unload(img);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* --- the stored content --- */

static void seal_elsewhere(void *id)
{
	struct host_work h;

	host_make(&h, true);
	host_tensor(&h.w, "state", h.state, FDRY_USE_STATE);
	host_tensor(&h.w, "plain", h.plain, FDRY_USE_CONST);
	tensor_add(&h.w, "c", h.w.c, FDRY_USE_OUTPUT, 0);
	host_tensor(&h.w, "table", h.table, FDRY_USE_CONST);
	host_tensor(&h.w, "in", h.in, FDRY_USE_INPUT);
	host_tensor(&h.w, "out", h.out, FDRY_USE_OUTPUT);
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	host_end(&h);
}

/* Other addresses, other bytes in inputs and outputs, another order of naming: the same image. */
START_TEST(addresses_are_not_in_an_image)
{
	char *ids = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(ids, MAP_FAILED);
	test_child(seal_host, ids);
	test_child(seal_elsewhere, ids + PAGE);
	ck_assert_str_eq(ids, ids + PAGE);
	munmap(ids, 2 * PAGE);
}
END_TEST

START_TEST(requirements_are_what_the_load_uses)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_requirements *n;

	test_child(seal_host, NULL);
	ok(fdry_image_requirements(load_store(), "img", NULL, &n));
	img = load_with(0);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(n->host_bytes, 4 * 4096 + BYTES);
	ck_assert_uint_eq(n->copied_bytes, report.content_bytes);
	ck_assert_uint_eq(report.content_bytes % 4096, 3 * BYTES % 4096);
	ck_assert_uint_eq(n->nexternals, 1);
	ck_assert_str_eq(n->externals[0].name, "in");
	ck_assert_uint_eq(n->externals[0].addr, 0);
	ck_assert_uint_eq(n->externals[0].bytes, BYTES);
	free(n);
	fdry_image_unload(img);
}
END_TEST

/* The manifest links host content; a verification hashes it and detects damage. */
START_TEST(content_is_kept_and_verified)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_gc_report gc = { .sz = sizeof(gc) };

	test_child(seal_host, NULL);
	ok(fdry_store_gc(load_store(), NULL, &gc));
	img = load_with(FDRY_LOAD_VERIFY);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.verified_bytes, report.content_bytes);
	ck_assert(host_of(img, "table")[5] == vector_value(5, 1000));
	fdry_image_unload(img);
}
END_TEST

START_TEST(it_is_described)
{
	char *text;

	test_child(seal_host, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 0 4000\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 4 4000\n"));
	ck_assert_ptr_null(strstr(text, "host segment 5"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor in F32 input external host 0+0 [1000:1]\n"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor table F32 const host 4+0 [1000:1]\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nneeds 20384 bytes of pinned host memory\n"));
	free(text);
}
END_TEST

/* Seal tensors that share bytes: an input inside a constant. The input's name determines the
 * segment's place. */
static void seal_overlapping(void *arg)
{
	struct work w;
	char *p, *q;
	int i;

	(void)arg;
	work_make(&w);
	p = (char *)pinned(3u << 20);
	q = (char *)pinned(PAGE);
	for (i = 0; i < 3 << 20; i++)
		p[i] = (char)(i % 251);
	capture_start(&w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.a, p + 20, 100, w.stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.b, p + 2500000, 4, w.stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.c, q + 3, 4, w.stream);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "whole",
							     .addr = (uintptr_t)p + 20,
							     .dtype = FDRY_U8,
							     .use = FDRY_USE_CONST,
							     .flags = FDRY_TENSOR_HOST, .rank = 1,
							     .shape = { 2500000 },
							     .stride = { 1 } }));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "hole",
							     .addr = (uintptr_t)p + 1000,
							     .dtype = FDRY_U8,
							     .use = FDRY_USE_INPUT,
							     .flags = FDRY_TENSOR_HOST, .rank = 1,
							     .shape = { 24 }, .stride = { 1 } }));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "mm", .addr = (uintptr_t)q + 3,
							     .dtype = FDRY_U8,
							     .use = FDRY_USE_STATE,
							     .flags = FDRY_TENSOR_HOST, .rank = 1,
							     .shape = { 4 }, .stride = { 1 } }));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* Content in chunks that end at the hole and at multiples of 2 MiB. */
static void chunks_check(void)
{
	static const struct {
		uint32_t segment;
		uint64_t offset, size;
	} want[] = {
		{ 0, 4, 980 },
		{ 0, 1008, (2 << 20) - 1008 },
		{ 0, 2 << 20, 2500004 - (2 << 20) },
		{ 1, 3, 4 },
	};
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_reader *reader;
	struct fdry_oid id;
	uint32_t i;

	ok(fdry_reader_begin(load_store(), &reader));
	ok(fdry_reader_resolve(reader, "img", &id));
	ok(fdry_reader_copy(reader, &id, &bytes));
	fdry_reader_end(reader);
	ok(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	ck_assert_uint_eq(m.n_host_chunks, 4);
	ck_assert_uint_eq(m.n_host_fingerprints, 4);
	for (i = 0; i < 4; i++) {
		ck_assert_uint_eq(m.host_chunks[i].segment, want[i].segment);
		ck_assert_uint_eq(m.host_chunks[i].offset, want[i].offset);
		ck_assert_uint_eq(m.host_chunks[i].size, want[i].size);
	}
	fdry_buf_release(&bytes);
}

START_TEST(tensors_that_share_bytes)
{
	struct fdry_image *img;
	unsigned char *whole, *hole;
	char *text;
	int i;

	test_child(seal_overlapping, NULL);
	chunks_check();
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 0 2500004\nhost segment 1 7\nmemory"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor hole U8 input external host 0+0x3d8 ["));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor whole U8 const host 0+0x4 ["));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor mm U8 state host 1+0x3 ["));
	free(text);
	img = load_with(0);
	whole = (unsigned char *)host_of(img, "whole");
	hole = (unsigned char *)host_of(img, "hole");
	ck_assert_ptr_eq(hole, whole + 980);
	ck_assert_uint_eq((uintptr_t)whole % 16, 4);
	for (i = 0; i < 2500000 && whole[i] == (i >= 980 && i < 1004 ? 0 : (i + 20) % 251); i++)
		;
	ck_assert_int_eq(i, 2500000);
	ok(fdry_image_filled(img, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_host");
	TCase *tc = tcase_create("host");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, inputs_are_rewritten_before_every_launch);
	tcase_add_loop_test(tc, initial_bytes_of_each_use, 0, 2);
	tcase_add_test(tc, pageable_memory_comes_back_pinned);
	tcase_add_test(tc, state_continues_and_is_restored);
	tcase_add_test(tc, inputs_must_be_filled);
	tcase_add_test(tc, device_memory_is_copied_there);
	tcase_add_test(tc, copies_wait_for_a_capture_to_end);
	tcase_add_loop_test(tc, nothing_is_left_whatever_fails, 0, 2);
	tcase_add_test(tc, addresses_are_not_in_an_image);
	tcase_add_test(tc, requirements_are_what_the_load_uses);
	tcase_add_test(tc, content_is_kept_and_verified);
	tcase_add_test(tc, it_is_described);
	tcase_add_test(tc, tensors_that_share_bytes);
	suite_add_tcase(s, tc);
	return test_main(s);
}
