// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose memory does not come from cuMemAlloc: in the order of a stream,
 * allocated during a capture, and mapped by the program, also far from other memory.
 */
#include <sys/mman.h>

#include "tests/lib/image.h"
#include "tests/lib/test.h"

#define MIB (1ull << 20)

static char *ids; /* shared with the processes of a test */

static void setup(void)
{
	dir_setup();
	ids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(ids, MAP_FAILED);
}

/* The thread sanitizer uses addresses far from the base. */
#define SEGMENT (TEST_SANITIZED_THREAD ? 1ull << 30 : 1ull << 35)

static void segment_grow(CUdeviceptr p, size_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;

	cuda_ok(cuMemCreate, &h, size, &prop, 0);
	cuda_ok(cuMemMap, p, size, 0, h, 0);
	cuda_ok(cuMemSetAccess, p, size, &access, 1);
}

/* Reserve many addresses and map memory at their beginning, as PyTorch's expandable segments do. */
static CUdeviceptr segment(size_t reserve, size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAddressReserve, &p, reserve, 0, 0, 0), "%s", hook->last_error());
	segment_grow(p, size);
	return p;
}

/* Allocate the vectors of @w again: a is mapped, b is allocated in the stream's order, c by the
 * capture (unless @kept). */
static void vectors_move(struct work *w)
{
	CUdeviceptr a = segment(SEGMENT, 2 * MIB), b = 0;

	segment(SEGMENT, 4 * MIB);
	cuda_ok(cuMemAllocAsync, &b, BYTES, w->stream);
	cuda_ok(cuMemcpyDtoDAsync_v2, a, w->a, BYTES, w->stream);
	cuda_ok(cuMemcpyDtoDAsync_v2, b, w->b, BYTES, w->stream);
	cuda_ok(cuStreamSynchronize, w->stream);
	cuda_ok(cuMemFree_v2, w->a);
	cuda_ok(cuMemFreeAsync, w->b, w->stream);
	cuda_ok(cuMemFree_v2, w->c);
	w->a = a;
	w->b = b;
}

/* Capture c = (a + b) + b with temporary memory that the capture allocates and frees. */
static CUgraph sum(struct work *w)
{
	CUdeviceptr half = 0, unused = 0;

	capture_start(w);
	cuda_ok(cuMemAllocAsync, &half, BYTES, w->stream);
	launch_add(w, w->a, w->b, half);
	cuda_ok(cuMemAllocAsync, &w->c, BYTES, w->stream);
	launch_add(w, half, w->b, w->c);
	cuda_ok(cuMemFreeAsync, half, w->stream);
	cuda_ok(cuMemAllocAsync, &unused, BYTES, w->stream);
	ck_assert_uint_eq(unused, half);
	cuda_ok(cuMemFreeAsync, unused, w->stream);
	return capture_stop(w);
}

static void seal_all(void *id)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct work w;

	work_make(&w);
	vectors_move(&w);
	ok(fdry_capture_graph(w.cap, 1, "sum", sum(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &report));
	ck_assert_uint_ge(report.scratch_bytes, 30 * MIB);
	ck_assert_uint_lt(report.content_bytes, MIB);
	work_end(&w);
}

static void vector_is(struct fdry_image *img, const char *name, float a_salt, float b_salt,
		      float twice)
{
	const struct fdry_driver *drv = test_sim();
	struct fdry_tensor t;
	float v[N];
	int i;

	ok(fdry_image_tensor_find(img, name, &t));
	ck_assert_int_eq(drv->cuMemcpyDtoH_v2(v, t.addr, BYTES), 0);
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, a_salt) + twice * vector_value(i, b_salt),
			      "%s[%d] is %f", name, i, (double)v[i]);
}

START_TEST(every_kind_of_memory_comes_back)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_POISON };
	struct fdry_image *img = NULL;

	test_child(seal_all, ids);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	vector_is(img, "c", 7, 100, 2);
	fdry_image_unload(img);
}
END_TEST

START_TEST(two_captures_give_one_image)
{
	test_child(seal_all, ids);
	test_child(seal_all, ids + 128);
	ck_assert_uint_eq(strlen(ids), 64);
	ck_assert_str_eq(ids, ids + 128);
}
END_TEST

/* --- a tensor over several pieces of mapped memory --- */

#define WIDE (3 * MIB + 512) /* from half a piece on, over two more */

static struct fdry_tensor wide(CUdeviceptr addr)
{
	return (struct fdry_tensor){ .name = "wide", .addr = addr, .dtype = FDRY_U8,
				     .use = FDRY_USE_CONST, .rank = 1, .shape = { WIDE },
				     .stride = { 1 } };
}

static void wide_content(uint8_t *bytes)
{
	noise(5, bytes, WIDE);
}

/* Three pieces, the tensor from the middle of the first on. */
static CUdeviceptr wide_make(struct work *w)
{
	uint8_t *bytes = malloc(WIDE);
	CUdeviceptr p;

	work_make(w);
	graph_add(w, 1);
	p = segment(64 * MIB, 2 * MIB);
	segment_grow(p + 2 * MIB, 2 * MIB);
	segment_grow(p + 4 * MIB, 2 * MIB);
	wide_content(bytes);
	cuda_ok(cuMemcpyHtoD_v2, p + MIB, bytes, WIDE);
	free(bytes);
	return p + MIB;
}

static void seal_wide(void *flags)
{
	static struct work w;
	struct fdry_tensor t = wide(wide_make(&w));

	t.flags = *(const uint32_t *)flags;
	ok(fdry_capture_tensor(w.cap, &t));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(tensor_over_several_pieces)
{
	uint32_t flags = _i ? FDRY_TENSOR_EXTERNAL : 0;
	uint8_t *want = malloc(WIDE), *got = malloc(WIDE);
	struct fdry_image *img = NULL;

	wide_content(want);
	test_child(seal_wide, &flags);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	if (flags)
		ok(fdry_image_write(img, "wide", want, WIDE, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "wide", got, WIDE, NULL));
	ck_assert(!memcmp(want, got, WIDE));
	fdry_image_unload(img);
	free(want);
	free(got);
}
END_TEST

/* One piece of the tensor was mapped again, at the same address and with the same size. */
START_TEST(piece_of_a_tensor_was_replaced)
{
	struct work w;
	struct fdry_tensor t = wide(wide_make(&w));
	CUdeviceptr piece = t.addr - MIB + (CUdeviceptr)(2 * MIB * (unsigned int)_i);

	ok(fdry_capture_tensor(w.cap, &t));
	ok(work_seal(&w, "img"));
	cuda_ok(cuMemUnmap, piece, 2 * MIB);
	segment_grow(piece, 2 * MIB);
	ck_assert_int_eq(work_seal(&w, "img"), -FDRY_E_STATE);
	ck_assert_msg(strstr(fdry_last_error(), "tensor 'wide' was freed"), "%s",
		      fdry_last_error());
	work_end(&w);
}
END_TEST

/* One piece replaced all others, with any serial number. */
START_TEST(pieces_of_a_tensor_became_one)
{
	struct work w;
	struct fdry_tensor t = wide(wide_make(&w));
	CUdeviceptr first = t.addr - MIB;
	int i;

	ok(fdry_capture_tensor(w.cap, &t));
	for (i = 0; i < 20; i++) {
		cuda_ok(cuMemUnmap, first, 6 * MIB);
		segment_grow(first, 6 * MIB);
		ck_assert_int_eq(work_seal(&w, "img"), -FDRY_E_STATE);
	}
	work_end(&w);
}
END_TEST

START_TEST(tensor_over_a_hole)
{
	struct work w;
	struct fdry_tensor t = wide(wide_make(&w));

	cuda_ok(cuMemUnmap, t.addr + MIB, 2 * MIB);
	t.shape[0] = 2 * MIB; /* as much as there is on either side */
	ck_assert_int_eq(fdry_capture_tensor(w.cap, &t), -FDRY_E_RANGE);
	t.addr += 4 * MIB; /* over the end */
	ck_assert_int_eq(fdry_capture_tensor(w.cap, &t), -FDRY_E_RANGE);
	work_end(&w);
}
END_TEST

/* Two allocations of cuMemAlloc cannot be one tensor, even if their addresses are adjacent. */
START_TEST(tensor_over_two_allocations)
{
	struct fdry_tensor t = { 0 };
	struct work w;
	CUdeviceptr p, q;

	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &p, 2 * MIB);
	cuda_ok(cuMemAlloc_v2, &q, 2 * MIB);
	ck_assert_uint_eq(q, p + 2 * MIB);
	t = wide(p);
	ck_assert_int_eq(fdry_capture_tensor(w.cap, &t), -FDRY_E_RANGE);
	ck_assert_msg(strstr(fdry_last_error(), "does not lie in one live allocation"), "%s",
		      fdry_last_error());
	work_end(&w);
}
END_TEST

/* --- refused seals --- */

static void refused(struct work *w, CUdeviceptr a, const char *say)
{
	const struct fdry_tensor t = vector("t", a, FDRY_USE_INPUT, 0);

	capture_start(w);
	launch_add(w, a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, 1, "add", capture_stop(w)));
	ck_assert_int_eq(work_seal(w, "img"), -FDRY_E_REFUSED);
	ck_assert_msg(strstr(fdry_last_error(), say) != NULL, "%s", fdry_last_error());
	ck_assert_int_lt(fdry_capture_tensor(w->cap, &t), 0);
}

static uint32_t origin(struct work *w, CUdeviceptr addr)
{
	uint32_t ret = 99;

	ok(fdry_capture_origin(w->cap, addr, &ret));
	return ret;
}

static void map_again(void *arg)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr a, other = 0;
	static struct work w;
	uint32_t unused;

	(void)arg;
	work_make(&w);
	a = segment(64 * MIB, 2 * MIB);
	cuda_ok(cuMemRetainAllocationHandle, &h, (void *)(uintptr_t)a);
	cuda_ok(cuMemAddressReserve, &other, 64 * MIB, 0, 0, 0);
	cuda_ok(cuMemMap, other, 2 * MIB, 0, h, 0);
	ck_assert_uint_eq(origin(&w, w.a), FDRY_MEMORY_REGION);
	ck_assert_uint_eq(origin(&w, a + 2 * MIB - 1), FDRY_MEMORY_SHARED);
	ck_assert_uint_eq(origin(&w, segment(64 * MIB, 2 * MIB)), FDRY_MEMORY_MAPPED);
	fails(RANGE, "no live allocation", fdry_capture_origin(w.cap, a + 2 * MIB, &unused));
	fails(INVAL, "", fdry_capture_origin(w.cap, a, NULL));
	fails(INVAL, "", fdry_capture_code_files(w.cap, NULL, NULL));
	cuda_ok(cuMemSetAccess, other, 2 * MIB, &access, 1);
	refused(&w, a, "mapped at two places");
}

static void use_freed(void *arg)
{
	static struct work w;
	CUdeviceptr a;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAllocAsync, &a, BYTES, w.stream);
	cuda_ok(cuMemFreeAsync, a, w.stream);
	refused(&w, a, "freed");
}

static void use_reserved(void *arg)
{
	static struct work w;

	(void)arg;
	work_make(&w);
	refused(&w, segment(64 * MIB, 2 * MIB) + 2 * MIB, "freed");
}

/* Use unmapped memory far behind the cursor, before a live allocation. */
static void use_unmapped(void *arg)
{
	static struct work w;
	CUdeviceptr a;

	(void)arg;
	work_make(&w);
	a = segment(SEGMENT, 2 * MIB);
	segment(SEGMENT, 2 * MIB);
	cuda_ok(cuMemUnmap, a, 2 * MIB);
	refused(&w, a, "freed");
}

static void use_another_pool(void *arg)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	static struct work w;
	CUmemoryPool pool;
	CUdeviceptr a;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemPoolCreate, &pool, &props);
	cuda_ok(cuMemAllocFromPoolAsync, &a, BYTES, pool, w.stream);
	refused(&w, a, "outside the capture's region");
}

static void (*const refusals[])(void *) = { map_again, use_freed, use_reserved, use_unmapped,
					    use_another_pool };

START_TEST(memory_that_no_image_can_hold)
{
	test_child(refusals[_i], NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_memory");
	TCase *tc = tcase_create("memory");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_add_test(tc, every_kind_of_memory_comes_back);
	tcase_add_test(tc, two_captures_give_one_image);
	tcase_add_loop_test(tc, tensor_over_several_pieces, 0, 2);
	tcase_add_loop_test(tc, piece_of_a_tensor_was_replaced, 0, 3);
	tcase_add_test(tc, pieces_of_a_tensor_became_one);
	tcase_add_test(tc, tensor_over_a_hole);
	tcase_add_test(tc, tensor_over_two_allocations);
	tcase_add_loop_test(tc, memory_that_no_image_can_hold, 0,
			    sizeof(refusals) / sizeof(refusals[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
