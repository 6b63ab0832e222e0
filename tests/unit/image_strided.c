// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of tensors whose elements lie in any order: written and read by bytes and by arrays,
 * on the host and on the device, against a copy element by element. Bytes between elements must not
 * change.
 */
#include "tests/lib/image.h"

#define BUF (1u << 20)
#define RANDOM TEST_ROUNDS(60) /* tensors of random layouts */
#define SIDE (BUF / 2)
#define ARRAYS(n) (TEST_SANITIZED_THREAD ? (n) / 2 : (n)) /* each way once or twice */

static const uint32_t types[] = { FDRY_U8, FDRY_BF16, FDRY_F32, FDRY_I64, FDRY_C128 };

/* The named tensors: these first, then random ones. */
static const struct fdry_tensor known[] = {
	{ "channels_last", 0, FDRY_F32, FDRY_USE_STATE, 0, 4, { 2, 3, 5, 7 }, { 105, 1, 21, 3 } },
	{ "transposed", 64, FDRY_BF16, FDRY_USE_OUTPUT, 0, 2, { 300, 500 }, { 1, 300 } },
	{ "columns", 0, FDRY_F32, FDRY_USE_STATE, 0, 2, { 400, 9 }, { 64, 2 } },
	{ "rows", 128, FDRY_U8, FDRY_USE_STATE, 0, 3, { 3, 4, 60000 }, { 240001, 60000, 1 } },
	{ "every_other", 0, FDRY_I64, FDRY_USE_STATE, 0, 1, { 30000 }, { 2 } },
	{ "scalar", 8, FDRY_F32, FDRY_USE_STATE, 0, 0, { 0 }, { 0 } },
	{ "ones", 0, FDRY_F32, FDRY_USE_STATE, 0, 3, { 1, 5, 1 }, { 999, 1, 0 } },
	{ "empty", 0, FDRY_F32, FDRY_USE_STATE, 0, 3, { 4, 0, 5 }, { 9, 1, 77 } },
	{ "emptylong", 0, FDRY_F32, FDRY_USE_STATE, 0, 3, { 1000, 1ll << 60, 0 }, { 1, 1, 1 } },
	{ "expanded", 0, FDRY_F32, FDRY_USE_STATE, 0, 3, { 5, 100, 6 }, { 6, 0, 1 } },
	{ "windows", 0, FDRY_F32, FDRY_USE_STATE, 0, 2, { 50, 4 }, { 1, 1 } },
};

static uint64_t draw_state;

static uint64_t draw(uint64_t below)
{
	draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
	return (draw_state >> 33) % below;
}

static uint64_t elements(const struct fdry_tensor *t)
{
	uint64_t n = 1;
	uint32_t d;

	for (d = 0; d < t->rank; d++)
		n *= (uint64_t)t->shape[d];
	return n;
}

/* Strides for the shape: dimensions in random order, with gaps in some places. Returns the number
 * of elements from the first to the last. */
static int64_t strides_draw(struct fdry_tensor *t)
{
	uint32_t order[FDRY_RANK_MAX], i, k;
	int64_t step = draw(3) ? 1 : 1 + (int64_t)draw(3), last = 1;

	if (!elements(t)) /* any strides will do */
		return 1;
	for (i = 0; i < t->rank; i++) {
		k = (uint32_t)draw(i + 1);
		order[i] = order[k];
		order[k] = i;
	}
	for (i = 0; i < t->rank; i++) {
		t->stride[order[i]] = step;
		last += (t->shape[order[i]] - 1) * step;
		step = step * t->shape[order[i]] + (draw(3) ? 0 : (int64_t)draw(5));
	}
	return last;
}

static struct fdry_tensor tensor_draw(const char *name)
{
	struct fdry_tensor t = { .name = name, .dtype = types[draw(5)], .use = FDRY_USE_STATE,
				 .rank = (uint32_t)draw(6) };
	uint32_t d;

	for (d = 0; d < t.rank; d++)
		t.shape[d] = 1 + (int64_t)draw(draw(4) ? 7 : 40);
	if (elements(&t) > 3000)
		t.shape[0] = 1;
	if (elements(&t) > 3000)
		t.rank = 1;
	t.addr = 16 * draw(8);
	if ((uint64_t)strides_draw(&t) * fdry_dtype_size(t.dtype) + t.addr > SIDE)
		t.rank = 0;
	return t;
}

/* An array of the same shape and type in SIDE bytes of memory, with strides of its own: negative
 * ones, and 0 if it is only read. */
static struct fdry_tensor array_draw(const struct fdry_tensor *t, uint64_t mem, uint32_t flags,
				     bool repeats)
{
	struct fdry_tensor a = *t;
	int64_t size = (int64_t)fdry_dtype_size(t->dtype);
	uint32_t d;

	a.addr = mem;
	a.flags = flags;
	if (elements(t) > 3000)
		return a; /* in the same order */
	if ((uint64_t)(strides_draw(&a) * size) > SIDE)
		return *t;
	for (d = 0; d < a.rank; d++) {
		if (repeats && !draw(4)) {
			a.stride[d] = 0;
		} else if (!draw(3)) {
			a.addr += (uint64_t)((a.shape[d] - 1) * a.stride[d] * size);
			a.stride[d] = -a.stride[d];
		}
	}
	return a;
}

/* Copy element by element; all other copies must give the same result. */
static void reference(uint8_t *dst, const int64_t *dst_stride, const uint8_t *src,
		      const int64_t *src_stride, const struct fdry_tensor *shape, uint32_t d)
{
	size_t size = fdry_dtype_size(shape->dtype);
	int64_t i;

	if (d == shape->rank) {
		memcpy(dst, src, size);
		return;
	}
	for (i = 0; i < shape->shape[d]; i++)
		reference(dst + i * dst_stride[d] * (int64_t)size, dst_stride,
			  src + i * src_stride[d] * (int64_t)size, src_stride, shape, d + 1);
}

static void rows(const struct fdry_tensor *t, int64_t *ret)
{
	int64_t step = 1;
	uint32_t d;

	for (d = t->rank; d-- > 0; step *= t->shape[d])
		ret[d] = step;
}

static char names[RANDOM][8];

static void seal_layouts(void *host)
{
	static struct work w;
	struct fdry_tensor t = { .name = "buf", .dtype = FDRY_U8, .use = FDRY_USE_STATE, .rank = 1,
				 .shape = { BUF }, .stride = { 1 } };
	CUdeviceptr side;
	uint8_t *pinned;
	CUdeviceptr base;
	size_t i;

	draw_state = 11;
	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &base, BUF);
	if (host) {
		cuda_ok(cuMemAllocHost_v2, (void **)&pinned, BUF);
		memset(pinned, 1, BUF);
		base = (uintptr_t)pinned;
	} else {
		cuda_ok(cuMemsetD8Async, base, 1, BUF, w.stream);
		cuda_ok(cuStreamSynchronize, w.stream);
	}
	t.addr = base;
	t.flags = host ? FDRY_TENSOR_HOST : 0;
	ok(fdry_capture_tensor(w.cap, &t));
	cuda_ok(cuMemAlloc_v2, &side, SIDE);
	t = (struct fdry_tensor){ .name = "side", .addr = side, .dtype = FDRY_U8,
				  .use = FDRY_USE_STATE, .rank = 1, .shape = { SIDE },
				  .stride = { 1 } };
	ok(fdry_capture_tensor(w.cap, &t));
	for (i = 0; i < sizeof(known) / sizeof(known[0]) + RANDOM; i++) {
		if (i < RANDOM)
			snprintf(names[i], sizeof(names[i]), "r%zu", i);
		t = i < RANDOM ? tensor_draw(names[i]) : known[i - RANDOM];
		if (host && !elements(&t))
			continue;
		t.addr += base;
		t.flags = host ? FDRY_TENSOR_HOST : 0;
		ok(fdry_capture_tensor(w.cap, &t));
	}
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static uint8_t before[BUF], after[BUF], want[BUF], theirs[SIDE], rowwise[BUF];

static void fill(uint8_t *at, size_t len)
{
	uint32_t word;
	size_t i;

	for (i = 0; i < len; i += sizeof(word)) {
		draw(1);
		word = (uint32_t)(draw_state >> 32);
		memcpy(at + i, &word, len - i < sizeof(word) ? len - i : sizeof(word));
	}
}

static struct fdry_image *load(bool host)
{
	struct fdry_image *img = NULL;

	test_child(seal_layouts, host ? &host : NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	draw_state = 5;
	fill(before, sizeof(before));
	fill(theirs, sizeof(theirs));
	return img;
}

static bool is_tested(const struct fdry_tensor *t)
{
	return strcmp(t->name, "buf") && strcmp(t->name, "side");
}

static bool has_array(const struct fdry_tensor *t)
{
	return is_tested(t) && strcmp(t->name, "rows"); /* larger than SIDE */
}

static uint64_t base_of(struct fdry_image *img, const char *name)
{
	struct fdry_tensor t;

	ok(fdry_image_tensor_find(img, name, &t));
	return t.addr;
}

/* The image's memory is @want, gaps and all. */
static void memory_is_wanted(struct fdry_image *img, const struct fdry_tensor *t, const char *how)
{
	ok(fdry_image_read(img, "buf", after, BUF, NULL));
	ck_assert_msg(!memcmp(after, want, BUF), "%s: %s wrote other bytes", t->name, how);
}

static bool refused(struct fdry_image *img, const struct fdry_tensor *t, uint64_t bytes)
{
	if (strcmp(t->name, "expanded") && strcmp(t->name, "windows"))
		return false;
	fails(INVAL, "share memory", fdry_image_write(img, t->name, theirs, bytes, NULL));
	fails(INVAL, "share memory", fdry_image_write_async(img, t->name, theirs, bytes, NULL));
	fails(INVAL, "share memory",
	      fdry_image_copy(img, t->name, base_of(img, "side"), bytes, NULL));
	memory_is_wanted(img, t, "a refused write");
	return true;
}

/* Bytes, row by row: at once, in the stream's order, from device memory. */
static void bytes_written(struct fdry_image *img, const struct fdry_tensor *t, uint64_t base)
{
	uint64_t bytes = elements(t) * fdry_dtype_size(t->dtype);
	uint8_t *at = want + (t->addr - base);
	int64_t by_row[FDRY_RANK_MAX];
	int way;

	rows(t, by_row);
	for (way = 0; way < 3; way++) {
		if (way == 2 && bytes > SIDE)
			break;
		ok(fdry_image_write(img, "buf", before, BUF, NULL));
		memcpy(want, before, BUF);
		if (!way && refused(img, t, bytes))
			return;
		fill(rowwise, bytes);
		if (elements(t))
			reference(at, t->stride, rowwise, by_row, t, 0);
		if (way == 0)
			ok(fdry_image_write(img, t->name, rowwise, bytes, NULL));
		else if (way == 1)
			ok(fdry_image_write_async(img, t->name, rowwise, bytes, NULL));
		else
			ok(fdry_image_write(img, "side", theirs, SIDE, NULL));
		if (way == 2) {
			memcpy(theirs, rowwise, bytes);
			ok(fdry_image_write(img, "side", theirs, SIDE, NULL));
			ok(fdry_image_copy(img, t->name, base_of(img, "side"), bytes, NULL));
		} else {
			memset(rowwise, 0, bytes); /* nothing needs it any more */
		}
		memory_is_wanted(img, t, way == 0 ? "write" : way == 1 ? "write_async" : "copy");
	}
}

START_TEST(bytes_go_row_by_row)
{
	struct fdry_image *img = load(_i);
	uint64_t base = base_of(img, "buf");
	struct fdry_tensor t;
	size_t i;

	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		ok(fdry_image_tensor(img, i, &t));
		if (is_tested(&t))
			bytes_written(img, &t, base);
	}
	fdry_image_unload(img);
}
END_TEST

START_TEST(bytes_come_row_by_row)
{
	struct fdry_image *img = load(_i);
	uint64_t base = base_of(img, "buf"), bytes;
	int64_t by_row[FDRY_RANK_MAX];
	static uint8_t got[BUF];
	struct fdry_tensor t;
	size_t i;

	ok(fdry_image_write(img, "buf", before, BUF, NULL));
	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		ok(fdry_image_tensor(img, i, &t));
		if (!is_tested(&t))
			continue;
		bytes = elements(&t) * fdry_dtype_size(t.dtype);
		rows(&t, by_row);
		if (bytes)
			reference(rowwise, by_row, before + (t.addr - base), t.stride, &t, 0);
		ok(fdry_image_read(img, t.name, got, bytes, NULL));
		ck_assert_msg(!memcmp(got, rowwise, bytes), "%s", t.name);
		fails(RANGE, "bytes", fdry_image_read(img, t.name, got, bytes + 1, NULL));
	}
	fdry_image_unload(img);
}
END_TEST

/* From the host, sync and async, and from the device. */
static void array_written(struct fdry_image *img, const struct fdry_tensor *t, uint64_t base,
			  int way)
{
	uint64_t side = base_of(img, "side");
	struct fdry_tensor a = array_draw(t, way == 2 ? side : (uintptr_t)theirs,
					  way == 2 ? 0 : FDRY_TENSOR_HOST, true);
	uint64_t offset = a.addr - (way == 2 ? side : (uintptr_t)theirs);

	if (a.addr == t->addr)
		return;
	ok(fdry_image_write(img, "buf", before, BUF, NULL));
	ok(fdry_image_write(img, "side", theirs, SIDE, NULL));
	memcpy(want, before, BUF);
	if (!strcmp(t->name, "expanded") || !strcmp(t->name, "windows")) {
		fails(INVAL, "share memory", fdry_image_write_array(img, t->name, &a, 0, NULL));
		return;
	}
	if (elements(t))
		reference(want + (t->addr - base), t->stride, theirs + offset, a.stride, t, 0);
	ok(fdry_image_write_array(img, t->name, &a, way == 1 ? FDRY_ARRAY_ASYNC : 0, NULL));
	memory_is_wanted(img, t, "an array");
}

START_TEST(arrays_are_written_element_by_element)
{
	struct fdry_image *img = load(_i);
	uint64_t base = base_of(img, "buf");
	struct fdry_tensor t;
	size_t i, k;

	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		ok(fdry_image_tensor(img, i, &t));
		for (k = 0; k < ARRAYS(6) && has_array(&t); k++)
			array_written(img, &t, base, (int)(k % 3));
	}
	fdry_image_unload(img);
}
END_TEST

static void array_read(struct fdry_image *img, const struct fdry_tensor *t, uint64_t base,
		       bool device)
{
	uint64_t side = base_of(img, "side");
	struct fdry_tensor a = array_draw(t, device ? side : (uintptr_t)theirs,
					  device ? 0 : FDRY_TENSOR_HOST, false);
	uint64_t offset = a.addr - (device ? side : (uintptr_t)theirs);
	static uint8_t expected[SIDE];

	if (a.addr == t->addr ||
	    (!strcmp(t->name, "windows") && a.stride[0] == 1 && a.stride[1] == 1))
		return;
	fill(theirs, SIDE);
	ok(fdry_image_write(img, "side", theirs, SIDE, NULL));
	memcpy(expected, theirs, SIDE);
	if (elements(t))
		reference(expected + offset, a.stride, before + (t->addr - base), t->stride, t, 0);
	ok(fdry_image_read_array(img, t->name, &a, NULL));
	if (device)
		ok(fdry_image_read(img, "side", theirs, SIDE, NULL));
	ck_assert_msg(!memcmp(theirs, expected, SIDE), "%s", t->name);
}

START_TEST(arrays_are_read_element_by_element)
{
	struct fdry_image *img = load(_i);
	uint64_t base = base_of(img, "buf");
	struct fdry_tensor t;
	size_t i, k;

	ok(fdry_image_write(img, "buf", before, BUF, NULL));
	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		ok(fdry_image_tensor(img, i, &t));
		for (k = 0; k < ARRAYS(4) && has_array(&t); k++)
			array_read(img, &t, base, k % 2);
	}
	fdry_image_unload(img);
}
END_TEST

/* A write without a wait follows the stream's order, in any number of pieces. */
START_TEST(large_ones_in_the_streams_order)
{
	struct fdry_image *img = load(_i);
	uint64_t base = base_of(img, "buf");
	int64_t by_row[FDRY_RANK_MAX];
	struct fdry_tensor t;
	int i;

	ok(fdry_image_tensor_find(img, "rows", &t));
	rows(&t, by_row);
	ok(fdry_image_write(img, "buf", before, BUF, NULL));
	memcpy(want, before, BUF);
	for (i = 0; i < 20; i++) {
		fill(rowwise, 720000);
		ok(fdry_image_write_async(img, "rows", rowwise, 720000, NULL));
	}
	reference(want + (t.addr - base), t.stride, rowwise, by_row, &t, 0);
	memory_is_wanted(img, &t, "a write in pieces");
	fdry_image_unload(img);
}
END_TEST

START_TEST(arrays_that_cannot_be)
{
	struct fdry_image *img = load(false);
	struct fdry_tensor t, a;

	ok(fdry_image_tensor_find(img, "channels_last", &t));
	a = t;
	a.addr = (uintptr_t)theirs;
	a.flags = FDRY_TENSOR_HOST;
	ok(fdry_image_write_array(img, t.name, &a, 0, NULL));
	fails(INVAL, "flags 0x2", fdry_image_write_array(img, t.name, &a, 2, NULL));
	ck_assert_int_eq(fdry_image_write_array(img, t.name, NULL, 0, NULL), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_image_read_array(img, t.name, NULL, NULL), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_image_write_array(img, "no such", &a, 0, NULL), -FDRY_E_NOKEY);
	a.shape[2] = 6;
	fails(RANGE, "5 elements in dimension 2, and the array has 6",
	      fdry_image_write_array(img, t.name, &a, 0, NULL));
	a.shape[2] = 5;
	a.rank = 3;
	fails(RANGE, "4 dimensions, and the array has 3",
	      fdry_image_read_array(img, t.name, &a, NULL));
	a.rank = 4;
	a.dtype = FDRY_I32;
	fails(INVAL, "elements of type 9, and the array of type 5",
	      fdry_image_write_array(img, t.name, &a, 0, NULL));
	a.dtype = FDRY_F32;
	a.flags |= FDRY_TENSOR_EXTERNAL;
	fails(INVAL, "only FDRY_TENSOR_HOST is allowed",
	      fdry_image_write_array(img, t.name, &a, 0, NULL));
	a.flags = FDRY_TENSOR_HOST;
	a.stride[0] = INT64_MIN;
	fails(INVAL, "larger than the address space",
	      fdry_image_write_array(img, t.name, &a, 0, NULL));
	a.stride[0] = INT64_MAX / 2;
	fails(INVAL, "larger than the address space", fdry_image_read_array(img, t.name, &a, NULL));
	a.stride[0] = 0;
	fails(INVAL, "'channels_last' cannot be read into an array whose",
	      fdry_image_read_array(img, t.name, &a, NULL));
	a.addr = 0;
	fails(INVAL, "NULL", fdry_image_write_array(img, t.name, &a, 0, NULL));
	fdry_image_unload(img);
}
END_TEST

/* On the device each element would be a copy of its own. */
START_TEST(too_many_copies_are_refused)
{
	struct fdry_image *img = load(false);
	struct fdry_tensor t, a;

	ok(fdry_image_tensor_find(img, "transposed", &t));
	a = t;
	a.addr = base_of(img, "side") + 2 * (300 * 500 - 1);
	a.stride[0] = -1;
	a.stride[1] = -300;
	fails(LIMIT, "150000 copies", fdry_image_write_array(img, t.name, &a, 0, NULL));
	a.addr = (uintptr_t)theirs + 2 * (300 * 500 - 1);
	a.flags = FDRY_TENSOR_HOST;
	ok(fdry_image_write_array(img, t.name, &a, 0, NULL));
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_strided");
	TCase *tc = tcase_create("strided");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, bytes_go_row_by_row, 0, 2);
	tcase_add_loop_test(tc, bytes_come_row_by_row, 0, 2);
	tcase_add_loop_test(tc, arrays_are_written_element_by_element, 0, 2);
	tcase_add_loop_test(tc, arrays_are_read_element_by_element, 0, 2);
	tcase_add_loop_test(tc, large_ones_in_the_streams_order, 0, 2);
	tcase_add_test(tc, arrays_that_cannot_be);
	tcase_add_test(tc, too_many_copies_are_refused);
	suite_add_tcase(s, tc);
	return test_main(s);
}
