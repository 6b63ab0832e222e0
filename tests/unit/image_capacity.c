// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of external tensors with capacity: captured small, loaded at any size, and the memory
 * that graphs must then not use.
 */
#include "image/manifest.h"
#include "tests/lib/image.h"

#define MIB (1ull << 20)
#define ROWS 4            /* of 1 MiB, when captured */
#define ROOM (16 * MIB)
#define ROW_FLOATS ((int64_t)(MIB / sizeof(float)))

static struct fdry_tensor kv_tensor(CUdeviceptr addr, uint32_t flags)
{
	return (struct fdry_tensor){ .name = "kv", .addr = addr, .dtype = FDRY_F32,
				     .use = FDRY_USE_STATE, .flags = flags, .rank = 2,
				     .shape = { ROWS, ROW_FLOATS }, .stride = { ROW_FLOATS, 1 } };
}

/* Allocate a vector after the earlier allocations, such that the next one begins in a block of its
 * own. */
static CUdeviceptr kv_alloc(struct work *w)
{
	struct fdry_tensor t;
	CUdeviceptr p;

	cuda_ok(cuMemAlloc_v2, &p, ROWS * MIB);
	t = kv_tensor(p, FDRY_TENSOR_EXTERNAL);
	ok(fdry_capture_tensor(w->cap, &t));
	return p;
}

static void graph_set(struct work *w, uint64_t key, CUdeviceptr p, size_t floats)
{
	capture_start(w);
	cuda_ok(cuMemsetD32Async, p, 0x3f800000, floats, w->stream);
	ok(fdry_capture_graph(w->cap, key, "set", capture_stop(w)));
}

/* The kind of the image's third graph; the other two use the first row alone. See far_graph(). */
static int far_kind;

/* Launch a kernel whose arguments hold @p at a multiple of 4: at byte 12, across the halves of two
 * parameters. */
static void packed_launch(struct work *w, CUdeviceptr p)
{
	struct {
		uint64_t d;
		short s;
	} e = { .d = p >> 32 };
	long long d = (long long)(p << 32);
	float g = 0;
	short b = 0;
	char zero[3] = { 0 };
	void *args[] = { zero, &b, zero, &d, &e, zero, &w->c, &g, zero };
	CUfunction odd;

	cuda_ok(cuModuleGetFunction, &odd, w->module, "odd");
	cuda_ok(cuLaunchKernel, odd, 1, 1, 1, 1, 1, 1, 0, w->stream, args, NULL);
}

static void far_graph(struct work *w, CUdeviceptr kv)
{
	CUdeviceptr far = kv + 3 * MIB;

	capture_start(w);
	switch (far_kind) {
	case 1:
		cuda_ok(cuMemsetD32Async, kv + 2 * MIB - 4, 0, 2, w->stream);
		break;
	case 2:
		cuda_ok(cuMemcpyDtoDAsync_v2, kv, far, 64, w->stream);
		break;
	case 3:
		cuda_ok(cuMemcpyDtoDAsync_v2, far, kv, 64, w->stream);
		break;
	case 4:
		launch_add(w, w->a, far, w->c);
		break;
	case 6:
		cuda_ok(cuMemsetD32Async, kv + MIB - 4, 0, 1, w->stream);
		break;
	case 7:
		packed_launch(w, far);
		break;
	default:
		cuda_ok(cuMemsetD32Async, kv + 2 * MIB - 4, 0, 1, w->stream);
		break;
	}
	ok(fdry_capture_graph(w->cap, 9, "far", capture_stop(w)));
}

/* Graph 1: c = a + b; 2: the cache's first row becomes ones; 3: c = a + its first row; 9: see
 * above. */
static void seal_kv(void *unused)
{
	struct work w;
	CUdeviceptr kv, behind;

	(void)unused;
	work_make(&w);
	kv = kv_alloc(&w);
	ok(fdry_capture_capacity(w.cap, "kv", ROOM - 1));
	cuda_ok(cuMemAlloc_v2, &behind, 2 * MIB);
	ck_assert_uint_eq(behind, kv + ROOM);
	cuda_ok(cuMemsetD32_v2, behind, 7, 2 * MIB / 4);
	graph_add(&w, 1);
	graph_set(&w, 2, kv, (size_t)ROW_FLOATS);
	capture_start(&w);
	launch_add(&w, w.a, kv, w.c);
	ok(fdry_capture_graph(w.cap, 3, "kv", capture_stop(&w)));
	far_graph(&w, kv);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	tensor_add(&w, "behind", behind, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	if (far_kind == 5)
		tensor_add(&w, "last", kv + 3 * MIB, FDRY_USE_STATE, FDRY_TENSOR_EXTERNAL);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static struct fdry_external sizes[2] = { { "kv", 0 }, { "kv", 0 } };
static struct fdry_load_opts opts = {
	.sz = sizeof(opts), .flags = FDRY_LOAD_POISON, .externals = sizes, .nexternals = 1
};

static struct fdry_image *load_kv(uint64_t bytes)
{
	struct fdry_image *img = NULL;

	sizes[0].bytes = bytes;
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	return img;
}

/* Check that the whole cache can be written and read, graphs use it, and memory behind its capacity
 * is unchanged. */
static void kv_check(struct fdry_image *img, uint64_t bytes)
{
	float *v = malloc(bytes), b[N];
	struct fdry_tensor t;
	int behind[N];
	size_t i, wrong = 0;

	ok(fdry_image_tensor_find(img, "kv", &t));
	ck_assert_int_eq(t.shape[0], (int64_t)(bytes / MIB));
	ck_assert_int_eq(t.shape[1], ROW_FLOATS);
	for (i = 0; i < bytes / 4; i++)
		v[i] = (float)i;
	fails(RANGE, "tensor 'kv' has", fdry_image_write(img, "kv", v, bytes + MIB, NULL));
	ok(fdry_image_write(img, "kv", v, bytes, NULL));
	memset(v, 0, bytes);
	ok(fdry_image_read(img, "kv", v, bytes, NULL));
	for (i = 0; i < bytes / 4; i++)
		wrong += v[i] != (float)i;
	ck_assert_uint_eq(wrong, 0);
	vector_fill(b, 100);
	ok(fdry_image_write(img, "b", b, BYTES, NULL));
	ok(fdry_image_filled(img, NULL));
	image_check(img, 1, 3, 100);
	ok(fdry_image_launch(img, 2, NULL));
	ok(fdry_image_launch(img, 3, NULL));
	ok(fdry_image_read(img, "c", b, BYTES, NULL));
	ck_assert(b[5] == vector_value(5, 3) + 1);
	ok(fdry_image_read(img, "behind", behind, BYTES, NULL));
	ck_assert_int_eq(behind[N - 1], 7);
	free(v);
}

/* The sizes that loads choose. 0: the size of the capture. */
#define NSOME 7
static const uint64_t some[NSOME] = { 0, 1 * MIB, 2 * MIB, 3 * MIB, 5 * MIB, 8 * MIB, ROOM };

START_TEST(any_size)
{
	uint64_t size = some[_i % NSOME], bytes = size ? size : ROWS * MIB,
		 blocks = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = NULL;
	struct fdry_requirements *n;
	long before;

	/* graph 9 sets the last word of the first row or of the second */
	far_kind = size == MIB ? 6 : 0;
	test_child(seal_kv, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	opts.nexternals = size != 0;
	if (_i / NSOME) /* graphs are built while memory is filled */
		opts.flags |= FDRY_LOAD_BUILD;
	img = load_kv(bytes);
	ok(fdry_image_requirements(load_store(), "img", &opts, &n));
	ck_assert_uint_eq(n->mapped_bytes, 2 * MIB + blocks + 2 * MIB);
	ck_assert_uint_eq(n->address_bytes, 2 * MIB + ROOM + 2 * MIB);
	ck_assert_uint_eq(n->external_bytes, bytes + BYTES);
	ck_assert_str_eq(n->externals[1].name, "kv");
	ck_assert_uint_eq(n->externals[1].bytes, bytes);
	ck_assert_uint_eq(n->externals[1].max_bytes, ROOM);
	ck_assert_uint_eq(n->externals[0].max_bytes, BYTES);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.mapped_bytes, n->mapped_bytes);
	free(n);
	kv_check(img, bytes);
	ok(fdry_image_restore(img, NULL));
	fdry_image_unload(img);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

static void seal_last(void *unused)
{
	struct work w;

	(void)unused;
	work_make(&w);
	(void)kv_alloc(&w);
	ok(fdry_capture_capacity(w.cap, "kv", ROOM));
	graph_add(&w, 1);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* No tensor follows it, but its capacity still belongs to the image. */
START_TEST(capacity_at_the_end)
{
	struct fdry_image *img;
	struct fdry_requirements *n;
	uint8_t *bytes = calloc(1, ROOM);

	test_child(seal_last, NULL);
	img = load_kv(ROOM);
	ok(fdry_image_write(img, "kv", bytes, ROOM, NULL));
	ok(fdry_image_requirements(load_store(), "img", &opts, &n));
	ck_assert_uint_eq(n->address_bytes, 2 * MIB + ROOM);
	ck_assert_uint_eq(n->mapped_bytes, 2 * MIB + ROOM);
	fdry_image_unload(img);
	free(bytes);
	free(n);
}
END_TEST

/* Room for more than the device has costs nothing until it is backed. */
START_TEST(larger_than_the_device)
{
	struct fdry_image *img = NULL;

	test_child(seal_kv, NULL);
	ok(setenv("FDRY_SIM_MEMORY", "18M", 1));
	img = load_kv(8 * MIB);
	kv_check(img, 8 * MIB);
	fdry_image_unload(img);
	sizes[0].bytes = ROOM;
	fails(NODEVMEM, "needs 20971520 bytes of device memory, and the device has 18874368",
	      fdry_image_load(load_store(), "img", &opts, &img));
}
END_TEST

/* Less than was captured: nodes that are seen to use the rest are refused. */
START_TEST(missing_bytes_are_not_used)
{
	struct fdry_image *img = NULL;
	long before;

	far_kind = _i;
	test_child(seal_kv, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	sizes[0].bytes = 2 * MIB;
	if (_i == 5)
		fails(RANGE,
		      "with 2097152 bytes for 'kv', tensor 'last' has no memory; ask for "
		      "4194304",
		      fdry_image_load(load_store(), "img", &opts, &img));
	else
		fails(RANGE, "graph 9: node 0 uses memory of tensor 'kv' beyond the 2097152 bytes",
		      fdry_image_load(load_store(), "img", &opts, &img));
	ck_assert_int_eq(live_objects(), before);
	img = load_kv(ROWS * MIB);
	kv_check(img, ROWS * MIB);
	fdry_image_unload(img);
}
END_TEST

START_TEST(sizes_that_do_not_fit)
{
	struct fdry_image *img = NULL;
	struct fdry_requirements *n;
	size_t i;
	static const uint64_t bad[] = { 0, 1, MIB + 1, ROOM + MIB, 3 * MIB / 2, -MIB };

	test_child(seal_kv, NULL);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sizes[0].bytes = bad[i];
		fails(RANGE, "ask for a multiple of its row's 1048576 bytes, at most 16777216",
		      fdry_image_load(load_store(), "img", &opts, &img));
	}
	fails(RANGE, "tensor 'kv' cannot have",
	      fdry_image_requirements(load_store(), "img", &opts, &n));
	sizes[0].bytes = sizes[1].bytes = MIB;
	opts.nexternals = 2;
	fails(OPTS, "'kv' is given twice", fdry_image_load(load_store(), "img", &opts, &img));
	opts.nexternals = 1;
	sizes[0].name = "kw";
	fails(NOKEY, "no tensor named 'kw'", fdry_image_load(load_store(), "img", &opts, &img));
	sizes[0].name = "b";
	fails(STATE, "'b' was captured without a capacity",
	      fdry_image_load(load_store(), "img", &opts, &img));
	sizes[0].name = NULL;
	fails(OPTS, "has no name", fdry_image_load(load_store(), "img", &opts, &img));
	opts.externals = NULL;
	fails(OPTS, "at NULL", fdry_image_load(load_store(), "img", &opts, &img));
	ck_assert_ptr_null(img);
}
END_TEST

START_TEST(described)
{
	char *text;

	test_child(seal_kv, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(
		strstr(text, "needs kv filled, 4194304 bytes, capacity 16777216\n"));
	ck_assert_ptr_nonnull(strstr(text, "needs b filled, 4000 bytes\n"));
	free(text);
}
END_TEST

/* --- capturing --- */

START_TEST(capacity_that_cannot_be_had)
{
	struct fdry_tensor t;
	struct work w;
	CUdeviceptr kv, p;

	work_make(&w);
	fails(NOKEY, "no tensor was named 'kv'", fdry_capture_capacity(w.cap, "kv", ROOM));
	fails(INVAL, "name", fdry_capture_capacity(w.cap, NULL, ROOM));
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	fails(STATE, "'c' has no capacity of its own", fdry_capture_capacity(w.cap, "c", ROOM));
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	fails(RANGE, "'b' (4000 bytes", fdry_capture_capacity(w.cap, "b", ROOM));
	kv = kv_alloc(&w);
	fails(RANGE, "ask for more", fdry_capture_capacity(w.cap, "kv", ROWS * MIB));
	fails(RANGE, "there are no addresses for a capacity of",
	      fdry_capture_capacity(w.cap, "kv", -1ull));
	fails(RANGE, "", fdry_capture_capacity(w.cap, "kv", 1ull << 40));
	ok(fdry_capture_capacity(w.cap, "kv", ROOM));
	fails(EXISTS, "already has a capacity of 16777216 bytes",
	      fdry_capture_capacity(w.cap, "kv", 2 * ROOM));
	cuda_ok(cuMemAlloc_v2, &p, 4 * MIB);
	ck_assert_uint_eq(p, kv + ROOM);
	t = kv_tensor(p, FDRY_TENSOR_EXTERNAL);
	t.name = "late";
	ok(fdry_capture_tensor(w.cap, &t));
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	fails(STATE, "the addresses behind tensor 'late' are in use already",
	      fdry_capture_capacity(w.cap, "late", ROOM));
	graph_add(&w, 1);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* Seal a tensor of one row, whose first stride has no meaning until there are two rows. */
static void seal_row(void *unused)
{
	struct fdry_tensor t;
	struct work w;

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, (CUdeviceptr *)&t.addr, ROWS * MIB);
	t = kv_tensor(t.addr, FDRY_TENSOR_EXTERNAL);
	t.shape[0] = 1;
	t.shape[1] = ROWS * ROW_FLOATS;
	t.stride[0] = 3;
	ok(fdry_capture_tensor(w.cap, &t));
	ok(fdry_capture_capacity(w.cap, "kv", ROOM));
	graph_add(&w, 1);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(a_row_of_any_stride)
{
	static float v[3 * ROWS * ROW_FLOATS], got[3 * ROWS * ROW_FLOATS];
	struct fdry_image *img;
	struct fdry_tensor t;
	size_t i;

	test_child(seal_row, NULL);
	img = load_kv(sizeof(v));
	ok(fdry_image_tensor_find(img, "kv", &t));
	ck_assert_int_eq(t.shape[0], 3);
	ck_assert_int_eq(t.stride[0], ROWS * ROW_FLOATS);
	for (i = 0; i < 3 * ROWS * ROW_FLOATS; i++)
		v[i] = (float)i;
	ok(fdry_image_write(img, "kv", v, sizeof(v), NULL));
	ok(fdry_image_read(img, "kv", got, sizeof(got), NULL));
	ck_assert(!memcmp(v, got, sizeof(v)));
	fdry_image_unload(img);
}
END_TEST

/* External tensors may have any order of dimensions; a capacity makes only the outermost longer. */
START_TEST(dimensions_in_another_order)
{
	struct fdry_tensor t;
	struct work w;
	CUdeviceptr kv;

	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &kv, ROWS * MIB);
	t = kv_tensor(kv, FDRY_TENSOR_EXTERNAL);
	t.stride[0] = 1;
	t.stride[1] = ROWS;
	ok(fdry_capture_tensor(w.cap, &t));
	fails(STATE, "first dimension of tensor 'kv' is not its outermost",
	      fdry_capture_capacity(w.cap, "kv", ROOM));
	t.name = "nchw";
	t.rank = 4;
	memcpy(t.shape, (int64_t[]){ ROWS, 4, 256, 256, 0, 0, 0, 0 }, sizeof(t.shape));
	memcpy(t.stride, (int64_t[]){ ROW_FLOATS, 1, 1024, 4, 0, 0, 0, 0 }, sizeof(t.stride));
	ok(fdry_capture_tensor(w.cap, &t));
	ok(fdry_capture_capacity(w.cap, "nchw", ROOM));
	graph_add(&w, 1);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

START_TEST(memory_that_was_freed)
{
	struct work w;

	work_make(&w);
	cuda_ok(cuMemFree_v2, kv_alloc(&w));
	fails(STATE, "the memory of tensor 'kv' was freed",
	      fdry_capture_capacity(w.cap, "kv", ROOM));
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_capacity");
	TCase *tc = tcase_create("capacity");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, any_size, 0, 2 * NSOME);
	tcase_add_test(tc, capacity_at_the_end);
	tcase_add_test(tc, larger_than_the_device);
	tcase_add_loop_test(tc, missing_bytes_are_not_used, 1, 6);
	tcase_add_loop_test(tc, missing_bytes_are_not_used, 7, 8);
	tcase_add_test(tc, sizes_that_do_not_fit);
	tcase_add_test(tc, described);
	tcase_add_test(tc, capacity_that_cannot_be_had);
	tcase_add_test(tc, a_row_of_any_stride);
	tcase_add_test(tc, dimensions_in_another_order);
	tcase_add_test(tc, memory_that_was_freed);
	suite_add_tcase(s, tc);
	return test_main(s);
}
