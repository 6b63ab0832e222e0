// SPDX-License-Identifier: Apache-2.0
/* Unit tests of uploads: several threads, few blocks, a slow device, blocks that are not pinned,
 * failures. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "image/upload.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

#define BYTES ((size_t)24 << 20)
#define HOLE 4096u /* between pieces that do not follow each other on the device */
#define CALLS_MAX 200

static struct {
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUstream stream;
	CUdeviceptr dev;
	uint8_t *host, *back;
	struct fdry_upload *up;
} t;

static void drv_ok(CUresult res)
{
	ck_assert_int_eq(res, CUDA_SUCCESS);
}

static void setup(void)
{
	size_t i;

	t.drv = test_sim();
	drv_ok(t.drv->cuCtxGetCurrent(&t.ctx));
	drv_ok(t.drv->cuMemAlloc_v2(&t.dev, BYTES));
	drv_ok(t.drv->cuMemsetD8Async(t.dev, 0xEE, BYTES, NULL));
	drv_ok(t.drv->cuStreamSynchronize(NULL));
	ok(fdry_stream_shared(t.drv, FDRY_STREAM_MEMORY, &t.stream));
	t.host = malloc(BYTES);
	t.back = malloc(BYTES);
	for (i = 0; i < BYTES; i++)
		t.host[i] = (uint8_t)(i * 0x9E3779B97F4A7C15ull >> 56);
}

static void teardown(void)
{
	free(t.host);
	free(t.back);
}

static void upload_new(unsigned int blocks, uint64_t bytes)
{
	ok(fdry_upload_new(blocks, bytes, &t.up));
	ok(fdry_upload_begin(t.up, t.drv, t.stream));
}

struct piece {
	CUdeviceptr addr; /* its destination */
	struct fdry_span bytes;
};

/* One batch with one part; pieces that follow each other are one copy. */
static int pieces_put(const struct piece *p, size_t n)
{
	struct fdry_upload_batch batch = { .left = 1 };
	size_t i, k, len, at = 0;
	uint8_t *block;
	int err = fdry_upload_need(t.up, &batch, &block);

	if (err)
		return err;
	for (i = 0; i < n; at += p[i++].bytes.len)
		memcpy(block + at, p[i].bytes.data, p[i].bytes.len);
	ck_assert(fdry_upload_filled(t.up, &batch, true));
	for (i = at = 0; i < n && !err; i = k, at += len) {
		len = p[i].bytes.len;
		for (k = i + 1; k < n && p[k].addr == p[i].addr + len; k++)
			len += p[k].bytes.len;
		err = fdry_upload_copy(t.up, &batch, p[i].addr, at, len);
	}
	return fdry_upload_sent(t.up, &batch, err);
}

static struct piece piece(size_t at, size_t len)
{
	return (struct piece){ t.dev + at, { t.host + at, len } };
}

/* Check that [@at, @at + @len) arrived, and that no byte before or behind it changed. */
static void arrived(size_t at, size_t len)
{
	ck_assert_msg(!memcmp(t.back + at, t.host + at, len), "wrong bytes in [%zu, %zu)", at,
		      at + len);
}

static void untouched(size_t at, size_t len)
{
	size_t i;

	for (i = at; i < at + len && t.back[i] == 0xEE; i++)
		;
	ck_assert_uint_eq(i, at + len);
}

static void read_back(void)
{
	drv_ok(t.drv->cuMemcpyDtoHAsync_v2(t.back, t.dev, BYTES, t.stream));
	drv_ok(t.drv->cuStreamSynchronize(t.stream));
}

static void sleep_ms(void *ms)
{
	struct timespec ts = { .tv_nsec = (long)(intptr_t)ms * 1000000 };

	nanosleep(&ts, NULL);
}

/* Every fourth slice of a megabyte, one after the other: a whole one, and one in pieces with holes.
 */
static void *slices_put(void *arg)
{
	struct piece p[4];
	size_t at, i;

	drv_ok(t.drv->cuCtxSetCurrent(t.ctx));
	for (at = (size_t)(uintptr_t)arg << 20; at < BYTES; at += 4u << 20) {
		if (at >> 20 & 4) {
			p[0] = piece(at, 1u << 20);
			ok(pieces_put(p, 1));
			continue;
		}
		for (i = 0; i < 4; i++) /* the first two touch */
			p[i] = piece(at + (i << 18), (1u << 18) - (i ? HOLE : 0));
		ok(pieces_put(p, 4));
	}
	return NULL;
}

static void slices_check(void)
{
	size_t at, i;

	read_back();
	for (at = 0; at < BYTES; at += 1u << 20) {
		if (at >> 20 & 4) {
			arrived(at, 1u << 20);
			continue;
		}
		for (i = 0; i < 4; i++)
			arrived(at + (i << 18), (1u << 18) - (i ? HOLE : 0));
		for (i = 1; i < 4; i++)
			untouched(at + ((i + 1) << 18) - HOLE, HOLE);
	}
}

/* Four threads, one block to many; nothing is copied until it may be. In the second half of the
 * runs nothing can be registered. */
START_TEST(several_threads)
{
	static const unsigned int blocks[] = { 1, 3, 9 };
	pthread_t threads[4];
	uintptr_t i;

	if (_i >= 3)
		test_sim_fail("cuMemHostRegister_v2:1+:801");
	upload_new(blocks[_i % 3], BYTES);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, slices_put, (void *)i), 0);
	sleep_ms((void *)10);
	read_back();
	untouched(0, BYTES);
	fdry_upload_open(t.up);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ok(fdry_upload_finish(t.up));
	slices_check();
	ck_assert_int_eq(test_sim_failed() != 0, _i >= 3);
	fdry_upload_free(t.up);
}
END_TEST

/* Blocks that the device has not yet read are not overwritten, and the caller may free its bytes at
 * once. */
START_TEST(slow_device)
{
	uint8_t *bytes = malloc(FDRY_UPLOAD_BLOCK);
	struct piece p = { .bytes = { bytes, FDRY_UPLOAD_BLOCK } };
	size_t at;

	upload_new(2, BYTES);
	fdry_upload_open(t.up);
	for (at = 0; at < BYTES; at += FDRY_UPLOAD_BLOCK) {
		drv_ok(t.drv->cuLaunchHostFunc(t.stream, sleep_ms, (void *)20));
		memcpy(bytes, t.host + at, FDRY_UPLOAD_BLOCK);
		p.addr = t.dev + at;
		ok(pieces_put(&p, 1));
		memset(bytes, 0, FDRY_UPLOAD_BLOCK);
	}
	ok(fdry_upload_finish(t.up));
	read_back();
	arrived(0, BYTES);
	fdry_upload_free(t.up);
	free(bytes);
}
END_TEST

/* Neighbours on the device are one copy. For few bytes nothing is pinned. */
START_TEST(few_calls)
{
	static const uint64_t bytes[] = { BYTES, 4500 };
	unsigned long copies = test_sim_calls("cuMemcpyHtoDAsync_v2"),
		      pinned = test_sim_calls("cuMemHostRegister_v2");
	struct piece p[3];

	p[0] = piece(0, 1000);
	p[1] = piece(1000, 3000);
	p[2] = piece(8000, 500);
	upload_new(8, bytes[_i]);
	fdry_upload_open(t.up);
	ok(pieces_put(p, 3));
	ok(fdry_upload_finish(t.up));
	fdry_upload_free(t.up);
	ck_assert_uint_eq(test_sim_calls("cuMemcpyHtoDAsync_v2") - copies, 2);
	ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2") - pinned, _i == 0);
	read_back();
	arrived(0, 4000);
	untouched(4000, 4000);
	arrived(8000, 500);
}
END_TEST

/* Copy the mebibyte at @at. Returns the block that it passed through. */
static uint8_t *mebibyte_put(size_t at)
{
	struct fdry_upload_batch batch = { .left = 1 };
	uint8_t *block;

	ok(fdry_upload_need(t.up, &batch, &block));
	memcpy(block, t.host + at, 1u << 20);
	ck_assert(fdry_upload_filled(t.up, &batch, true));
	ok(fdry_upload_sent(t.up, &batch,
			    fdry_upload_copy(t.up, &batch, t.dev + at, 0, 1u << 20)));
	return block;
}

/* Blocks are used in turn, up to as many as are allowed. All lie in memory that is registered once.
 */
START_TEST(blocks_are_used_in_turn)
{
	static const unsigned int blocks[] = { 1, 2, 6 };
	unsigned long pinned = test_sim_calls("cuMemHostRegister_v2");
	uint8_t *first, *block;
	size_t i;

	upload_new(blocks[_i], BYTES);
	fdry_upload_open(t.up);
	first = mebibyte_put(0);
	for (i = 1; i < 8; i++) {
		block = mebibyte_put(i << 20);
		ck_assert_int_eq(block - first, i % blocks[_i] * FDRY_UPLOAD_BLOCK);
	}
	ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2") - pinned, 1);
	ok(fdry_upload_finish(t.up));
	fdry_upload_free(t.up);
	read_back();
	arrived(0, 8u << 20);
}
END_TEST

static bool is_pinned(const uint8_t *at)
{
	unsigned int type = 0;

	return !t.drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     (CUdeviceptr)at) &&
	       type == CU_MEMORYTYPE_HOST;
}

/* The first block has so many bytes of pinned memory, in whole pages, as a content needs that fits
 * into it. */
START_TEST(little_memory_for_little_content)
{
	static const size_t bytes[] = { ((size_t)3 << 20) + 1, FDRY_UPLOAD_BLOCK, BYTES };
	static const size_t pinned[] = { (size_t)4 << 20, FDRY_UPLOAD_BLOCK, FDRY_UPLOAD_BLOCK };
	struct fdry_upload_batch batch = { .left = 1 };
	uint8_t *block;

	upload_new(1, bytes[_i]);
	ok(fdry_upload_need(t.up, &batch, &block));
	ck_assert(is_pinned(block));
	ck_assert(is_pinned(block + pinned[_i] - 1));
	ck_assert(!is_pinned(block + pinned[_i]));
	ck_assert(!fdry_upload_filled(t.up, &batch, false));
	fdry_upload_free(t.up);
}
END_TEST

/* Four threads fill the parts of each block. In every third batch one of them fails: nothing of
 * that batch is copied, and its block is used again. */
#define PARTS 4u
#define PART (FDRY_UPLOAD_BLOCK / PARTS)

static struct fdry_upload_batch batches[BYTES / FDRY_UPLOAD_BLOCK];

static bool fails_in(size_t batch)
{
	return batch % 3 == 1;
}

static void *parts_fill(void *arg)
{
	uintptr_t nr = (uintptr_t)arg;
	size_t i, at;
	uint8_t *block;
	bool whole;

	drv_ok(t.drv->cuCtxSetCurrent(t.ctx));
	for (i = 0; i < BYTES / FDRY_UPLOAD_BLOCK; i++) {
		at = (i + nr) % PARTS * PART;
		whole = !fails_in(i) || nr;
		ok(fdry_upload_need(t.up, &batches[i], &block));
		memcpy(block + at, t.host + i * FDRY_UPLOAD_BLOCK + at, PART);
		if (!fdry_upload_filled(t.up, &batches[i], whole))
			continue;
		ck_assert(!fails_in(i));
		ok(fdry_upload_sent(t.up, &batches[i],
				    fdry_upload_copy(t.up, &batches[i],
						     t.dev + i * FDRY_UPLOAD_BLOCK, 0,
						     FDRY_UPLOAD_BLOCK)));
	}
	return NULL;
}

START_TEST(several_threads_fill_a_block)
{
	pthread_t threads[PARTS];
	size_t k;
	uintptr_t i;

	for (k = 0; k < BYTES / FDRY_UPLOAD_BLOCK; k++)
		batches[k] = (struct fdry_upload_batch){ .left = PARTS };
	upload_new(1 + (unsigned int)_i, BYTES);
	fdry_upload_open(t.up);
	for (i = 0; i < PARTS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, parts_fill, (void *)i), 0);
	for (i = 0; i < PARTS; i++)
		pthread_join(threads[i], NULL);
	ok(fdry_upload_finish(t.up));
	fdry_upload_free(t.up);
	read_back();
	for (k = 0; k < BYTES; k += FDRY_UPLOAD_BLOCK) {
		if (fails_in(k / FDRY_UPLOAD_BLOCK))
			untouched(k, FDRY_UPLOAD_BLOCK);
		else
			arrived(k, FDRY_UPLOAD_BLOCK);
	}
}
END_TEST

/* Threads that take a block each at the same time make one piece of memory, and register it once.
 */
#define TAKERS 4u

static pthread_barrier_t together;

static void *block_get(void *arg)
{
	struct fdry_upload_batch batch = { .left = 1 };

	drv_ok(t.drv->cuCtxSetCurrent(t.ctx));
	pthread_barrier_wait(&together);
	ok(fdry_upload_need(t.up, &batch, arg));
	pthread_barrier_wait(&together);
	ck_assert(!fdry_upload_filled(t.up, &batch, false));
	return NULL;
}

static int by_address(const void *a, const void *b)
{
	const uint8_t *x = *(uint8_t *const *)a, *y = *(uint8_t *const *)b;

	return (x > y) - (x < y);
}

static void blocks_get(uint8_t **blocks)
{
	pthread_t threads[TAKERS];
	unsigned int i;

	pthread_barrier_init(&together, NULL, TAKERS);
	upload_new(TAKERS, BYTES);
	for (i = 0; i < TAKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, block_get, &blocks[i]), 0);
	for (i = 0; i < TAKERS; i++)
		pthread_join(threads[i], NULL);
	fdry_upload_free(t.up);
	pthread_barrier_destroy(&together);
}

START_TEST(blocks_share_memory)
{
	unsigned long pinned = test_sim_calls("cuMemHostRegister_v2");
	uint8_t *blocks[TAKERS];
	unsigned int i, round;

	for (round = 1; round <= 100; round++) {
		blocks_get(blocks);
		ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2") - pinned, round);
		qsort(blocks, TAKERS, sizeof(*blocks), by_address);
		for (i = 1; i < TAKERS; i++)
			ck_assert_int_eq(blocks[i] - blocks[i - 1], FDRY_UPLOAD_BLOCK);
	}
}
END_TEST

/* A later upload of the same size uses memory that was kept, with its registration. */
START_TEST(kept_memory_is_used)
{
	unsigned long pinned = test_sim_calls("cuMemHostRegister_v2");
	uint8_t *block = NULL;
	size_t i;

	fdry_pinned_hold(t.drv, t.ctx);
	for (i = 0; i < 3; i++) {
		upload_new(6, BYTES);
		fdry_upload_open(t.up);
		block = mebibyte_put(i << 20);
		ok(fdry_upload_finish(t.up));
		fdry_upload_free(t.up);
		ck_assert(test_is_mapped(block));
	}
	ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2") - pinned, 1);
	fdry_pinned_release(t.drv, t.ctx);
	ck_assert(!test_is_mapped(block));
	read_back();
	arrived(0, 3u << 20);
}
END_TEST

static void *pages_make(void *arg)
{
	(void)arg;
	drv_ok(t.drv->cuCtxSetCurrent(NULL)); /* no driver is needed */
	fdry_upload_populate(t.up);
	return NULL;
}

/* Threads make all memory before there is a driver. If none follows, it is freed; otherwise the
 * first thread that prepares registers it. */
START_TEST(memory_is_made_early)
{
	unsigned long pinned = test_sim_calls("cuMemHostRegister_v2");
	long before = test_status("VmRSS"), blocks = 6 * (long)(FDRY_UPLOAD_BLOCK >> 10);
	pthread_t threads[4];
	int i;

	ok(fdry_upload_new(6, BYTES, &t.up));
	ck_assert_int_lt(test_status("VmRSS") - before, blocks / 2);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, pages_make, NULL), 0);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_gt(test_status("VmRSS") - before, blocks * 3 / 4);
	if (_i) {
		ok(fdry_upload_begin(t.up, t.drv, t.stream));
		ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2"), pinned);
		fdry_upload_prepare(t.up);
		ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2"), pinned + 1);
		fdry_upload_open(t.up);
		(void)mebibyte_put(0);
		ok(fdry_upload_finish(t.up));
	}
	fdry_upload_free(t.up);
	ck_assert_int_lt(test_status("VmRSS") - before, blocks / 2);
	read_back();
	if (_i)
		arrived(0, 1u << 20);
}
END_TEST

/* A thread that copies when others have made the last page registers the memory, if nobody did. */
START_TEST(registered_by_a_thread_that_copies)
{
	unsigned long pinned = test_sim_calls("cuMemHostRegister_v2");
	pthread_t thread;
	int i;

	for (i = 0; i < 50; i++) {
		upload_new(2, BYTES);
		fdry_upload_open(t.up);
		ck_assert_int_eq(pthread_create(&thread, NULL, pages_make, NULL), 0);
		(void)mebibyte_put(0);
		pthread_join(thread, NULL);
		ok(fdry_upload_finish(t.up));
		fdry_upload_free(t.up);
		ck_assert_uint_eq(test_sim_calls("cuMemHostRegister_v2") - pinned, i + 1);
	}
}
END_TEST

/* A stopped upload makes no more memory. */
START_TEST(no_pages_after_a_stop)
{
	long before = test_status("VmRSS"), blocks = 6 * (long)(FDRY_UPLOAD_BLOCK >> 10);

	ok(fdry_upload_new(6, BYTES, &t.up));
	fdry_upload_abandon(t.up);
	fdry_upload_populate(t.up);
	ck_assert_int_lt(test_status("VmRSS") - before, blocks / 2);
	fdry_upload_free(t.up);
}
END_TEST

static void *put_in_vain(void *arg)
{
	struct piece p = piece(0, 1000);

	(void)arg;
	drv_ok(t.drv->cuCtxSetCurrent(t.ctx));
	ck_assert_int_eq(pieces_put(&p, 1), -FDRY_E_STATE);
	return NULL;
}

/* Threads that wait get an error, with or without a block, and so do later calls. */
START_TEST(abandoned)
{
	pthread_t threads[3];
	int i;

	upload_new(2, BYTES);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, put_in_vain, NULL), 0);
	sleep_ms((void *)10);
	fdry_upload_abandon(t.up);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	(void)put_in_vain(NULL);
	fdry_upload_free(t.up);
	read_back();
	untouched(0, BYTES);
}
END_TEST

static int all_of_it(void)
{
	struct piece p;
	size_t at;
	int err = fdry_upload_new(2, BYTES, &t.up);

	if (err)
		return err;
	err = fdry_upload_begin(t.up, t.drv, t.stream);
	fdry_upload_open(t.up);
	for (at = 0; at < BYTES && !err; at += FDRY_UPLOAD_BLOCK) {
		p = piece(at, FDRY_UPLOAD_BLOCK);
		err = pieces_put(&p, 1);
	}
	err = err ?: fdry_upload_finish(t.up);
	fdry_upload_free(t.up);
	return err;
}

START_TEST(every_call_failing)
{
	long live, before = test_sim_live(NULL);
	bool reached = true;
	char spec[32];
	int n, err = 0;

	for (n = 1; n < CALLS_MAX && reached; n++) {
		snprintf(spec, sizeof(spec), "*:%d:999", n);
		test_sim_fail(spec);
		err = all_of_it();
		reached = test_sim_failed() != 0;
		test_sim_fail(NULL);
		live = test_sim_live(NULL);
		if (err) {
			ck_assert_int_eq(err, -FDRY_E_DRIVER);
			ck_assert_int_eq(live, before);
			continue;
		}
		/* The failed call pinned a block, or freed an object, which the driver then
		 * keeps. */
		ck_assert_int_le(live, before + 1);
		before = live;
		read_back();
		arrived(0, BYTES);
	}
	ck_assert_int_gt(n, 15);
	ck_assert_int_lt(n, CALLS_MAX);
	ok(err);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image_upload");
	TCase *tc = tcase_create("upload");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, several_threads, 0, 6);
	tcase_add_loop_test(tc, several_threads_fill_a_block, 0, 3);
	tcase_add_test(tc, blocks_share_memory);
	tcase_add_test(tc, slow_device);
	tcase_add_loop_test(tc, blocks_are_used_in_turn, 0, 3);
	tcase_add_loop_test(tc, little_memory_for_little_content, 0, 3);
	tcase_add_loop_test(tc, few_calls, 0, 2);
	tcase_add_test(tc, kept_memory_is_used);
	tcase_add_loop_test(tc, memory_is_made_early, 0, 2);
	tcase_add_test(tc, registered_by_a_thread_that_copies);
	tcase_add_test(tc, no_pages_after_a_stop);
	tcase_add_test(tc, abandoned);
	tcase_add_test(tc, every_call_failing);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
