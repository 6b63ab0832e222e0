// SPDX-License-Identifier: Apache-2.0
/* Unit tests of pinned memory: what is kept for the next load, and until when. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/pinned.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

#define BLOCKS 6u
#define KEPT 4u /* at most */
#define MIB ((size_t)1 << 20)
#define SIZE (4 * MIB) /* of a block */

static const struct fdry_driver *drv;
static CUcontext primary;
static struct fdry_pinned blocks[BLOCKS];
static long live;
static unsigned long registered;

static void setup(void)
{
	drv = test_sim();
	ok(fdry_call(drv, cuCtxGetCurrent, &primary));
	live = test_sim_live(NULL);
	registered = test_sim_calls("cuMemHostRegister_v2");
}

/* Return how often the library asked the driver for pinned memory since the last call. */
static unsigned long registers(void)
{
	unsigned long before = registered;

	registered = test_sim_calls("cuMemHostRegister_v2");
	return registered - before;
}

/* Get @n blocks, write to all of their bytes, and put them back. */
static void use(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		ok(fdry_pinned_get(drv, SIZE, &blocks[i]));
		ck_assert_uint_eq((uintptr_t)blocks[i].bytes % (2 * MIB), 0);
		memset(blocks[i].bytes, (int)i + 1, SIZE);
		fdry_pinned_register(drv, &blocks[i]);
	}
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(blocks[i].bytes[0], (int)i + 1);
		ck_assert_int_eq(blocks[i].bytes[SIZE - 1], (int)i + 1);
		fdry_pinned_put(drv, &blocks[i]);
	}
}

START_TEST(none_is_kept_without_a_holder)
{
	use(2);
	use(2);
	ck_assert_uint_eq(registers(), 4);
	ck_assert_int_eq(test_sim_live(NULL), live);
	fdry_pinned_release(drv, primary);
	use(1);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

START_TEST(some_are_kept_until_the_last_holder_leaves)
{
	fdry_pinned_hold(drv, primary);
	fdry_pinned_hold(drv, primary);
	use(BLOCKS);
	ck_assert_uint_eq(registers(), BLOCKS);
	use(3);
	ck_assert_uint_eq(registers(), 0);
	fdry_pinned_release(drv, primary);
	use(BLOCKS);
	ck_assert_uint_eq(registers(), BLOCKS - KEPT);
	ck_assert_int_gt(test_sim_live(NULL), live);
	fdry_pinned_release(drv, primary);
	ck_assert_int_eq(test_sim_live(NULL), live);
	use(1);
	ck_assert_uint_eq(registers(), 1);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

/* Get, fill and register @sizes, and put them back. */
static void use_sizes(const size_t *sizes, unsigned int n)
{
	unsigned int i, type;

	for (i = 0; i < n; i++) {
		ok(fdry_pinned_get(drv, sizes[i], &blocks[i]));
		ck_assert_uint_ge(blocks[i].size, sizes[i]);
		memset(blocks[i].bytes, 1, sizes[i]);
		fdry_pinned_register(drv, &blocks[i]);
		ok(fdry_call(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			     (CUdeviceptr)(blocks[i].bytes + blocks[i].size - 1)));
		ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	}
	for (i = 0; i < n; i++)
		fdry_pinned_put(drv, &blocks[i]);
}

/* A load gets the smallest that suffices, and what is not kept is unmapped. */
START_TEST(sizes_are_kept)
{
	static const size_t sizes[] = { 36 * MIB, SIZE, 8 * MIB, SIZE };
	static const size_t found[] = { SIZE, 8 * MIB, 36 * MIB };
	unsigned int i;

	fdry_pinned_hold(drv, primary);
	use_sizes(sizes, 4); /* 48 MiB fit */
	ck_assert_uint_eq(registers(), 4);
	ck_assert(test_is_mapped(blocks[2].bytes + 8 * MIB - 1));
	ck_assert(!test_is_mapped(blocks[3].bytes));
	ck_assert(!test_is_mapped(blocks[3].bytes + SIZE - 1));
	for (i = 0; i < 3; i++) {
		ok(fdry_pinned_get(drv, SIZE, &blocks[i]));
		ck_assert_uint_eq(blocks[i].size, found[i]);
	}
	ok(fdry_pinned_get(drv, SIZE, &blocks[3]));
	ck_assert(!blocks[3].registered);
	for (i = 0; i < 4; i++)
		fdry_pinned_put(drv, &blocks[i]);
	fdry_pinned_release(drv, primary);
	ck_assert(!test_is_mapped(blocks[2].bytes + 36 * MIB - 1));
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

/* Larger pieces of a load replace the smaller ones that an earlier load left. */
START_TEST(larger_ones_replace_smaller_ones)
{
	static const size_t small[] = { SIZE, SIZE, 8 * MIB };
	static const size_t large[] = { SIZE, 36 * MIB, 8 * MIB };
	const uint8_t *first, *second;

	fdry_pinned_hold(drv, primary);
	use_sizes(small, 3);
	first = blocks[0].bytes;
	second = blocks[1].bytes;
	use_sizes(large, 3);
	ck_assert_uint_eq(registers(), 4);
	ck_assert(test_is_mapped(first) != test_is_mapped(second));
	use_sizes(large, 3);
	ck_assert_uint_eq(registers(), 0);
	fdry_pinned_release(drv, primary);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

START_TEST(blocks_that_are_not_registered_are_not_kept)
{
	fdry_pinned_hold(drv, primary);
	test_sim_fail("cuMemHostRegister_v2:1:801");
	use(1);
	ck_assert(!blocks[0].registered);
	use(1);
	ck_assert(blocks[0].registered);
	ck_assert_uint_eq(registers(), 2);
	fdry_pinned_release(drv, primary);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

/* The driver forgets a context's blocks when the context is destroyed. */
START_TEST(blocks_of_other_contexts_are_not_kept)
{
	CUcontext own;

	fdry_pinned_hold(drv, primary);
	use(2);
	ok(fdry_call(drv, cuCtxCreate_v4, &own, NULL, 0, 0));
	fdry_pinned_hold(drv, own);
	use(2);
	ck_assert_uint_eq(registers(), 4);
	fdry_pinned_release(drv, own);
	ok(fdry_call(drv, cuCtxDestroy_v2, own));
	use(3);
	ck_assert_uint_eq(registers(), 1);
	fdry_pinned_release(drv, primary);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

/* The threads that fill a block make its pages, before the driver does so in one thread. */
START_TEST(a_block_is_registered_later)
{
	ok(fdry_pinned_get(drv, SIZE, &blocks[0]));
	ck_assert_uint_eq(registers(), 0);
	fdry_pinned_register(drv, &blocks[0]);
	fdry_pinned_register(drv, &blocks[0]);
	ck_assert_uint_eq(registers(), 1);
	fdry_pinned_put(drv, &blocks[0]);
	ok(fdry_pinned_get(drv, SIZE, &blocks[0]));
	fdry_pinned_put(drv, &blocks[0]); /* without having been registered */
	ck_assert_uint_eq(registers(), 0);
	ck_assert_int_eq(test_sim_live(NULL), live);
}
END_TEST

/* The kept blocks are no memory of the child's. */
START_TEST(a_child_has_none)
{
	struct fdry_pinned block;
	int status;
	pid_t pid;

	fdry_pinned_hold(drv, primary);
	use(1);
	pid = fork();
	if (!pid) {
		if (fdry_pinned_get(drv, SIZE, &block))
			_exit(2);
		block.bytes[0] = 1;
		fdry_pinned_release(drv, primary);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
	use(1);
	ck_assert_uint_eq(registers(), 1);
	fdry_pinned_release(drv, primary);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image_pinned");
	TCase *tc = tcase_create("pinned");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, none_is_kept_without_a_holder);
	tcase_add_test(tc, some_are_kept_until_the_last_holder_leaves);
	tcase_add_test(tc, sizes_are_kept);
	tcase_add_test(tc, larger_ones_replace_smaller_ones);
	tcase_add_test(tc, blocks_that_are_not_registered_are_not_kept);
	tcase_add_test(tc, blocks_of_other_contexts_are_not_kept);
	tcase_add_test(tc, a_block_is_registered_later);
	tcase_add_test(tc, a_child_has_none);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
