// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of FDRY_LOAD_CHECK_AT_LAUNCH: content that is compared when it is first used.
 */
#include <pthread.h>

#include "tests/lib/flip.h"
#include "tests/lib/image_small.h"

static void dir_setup_memory(void)
{
	dir_setup_in("/dev/shm");
}

static void seal_small(void *with_pack)
{
	image_small_seal("img", with_pack);
}

static struct fdry_image *late_load(uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = FDRY_LOAD_CHECK_AT_LAUNCH | flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), "img", &opts, &img));
	return img;
}

/* An image whose content was verified before. */
static struct fdry_image *image_make(uint32_t flags)
{
	test_child(seal_small, NULL);
	fdry_image_unload(late_load(FDRY_LOAD_VERIFY));
	return late_load(flags);
}

static struct fdry_load_report report_of(struct fdry_image *img)
{
	struct fdry_load_report report = { .sz = sizeof(report) };

	ok(fdry_image_report(img, &report));
	return report;
}

static const uint32_t ways[] = { 0, FDRY_LOAD_OWN_CONTEXT, FDRY_LOAD_BUILD };

START_TEST(the_first_use_compares)
{
	struct fdry_image *img = image_make(ways[_i % 3]);
	struct fdry_load_report r;
	float v[N];

	ck_assert_uint_eq(report_of(img).checked_bytes, 0);
	ok(fdry_image_wait(img));
	ok(fdry_image_synchronize(img, NULL));
	ck_assert_uint_eq(report_of(img).checked_bytes, 0);
	vector_fill(v, 3);
	switch (_i / 3) {
	case 0:
		ok(fdry_image_launch(img, 1, NULL));
		break;
	case 1:
		ok(fdry_image_read(img, "c", v, BYTES, NULL));
		break;
	case 2:
		ok(fdry_image_write(img, "a", v, BYTES, NULL));
		break;
	case 3:
		ok(fdry_image_check(img, NULL, NULL, NULL));
		break;
	case 4:
		ok(fdry_image_check_content(img));
		break;
	default:
		ok(fdry_image_restore(img, NULL)); /* compares the content that it restores */
		ck_assert_uint_eq(report_of(img).checked_bytes, 0);
		ok(fdry_image_launch(img, 1, NULL));
		ck_assert_uint_eq(report_of(img).checked_bytes, 0);
		fdry_image_unload(img);
		return;
	}
	r = report_of(img);
	ck_assert_uint_ge(r.checked_bytes, (3u << 20) + 2 * BYTES);
	ck_assert(r.check_ms > 0);
	image_check(img, 1, 3, 100); /* writes a, which is content */
	ck_assert_uint_eq(report_of(img).checked_bytes, r.checked_bytes);
	ck_assert(report_of(img).check_ms == r.check_ms);
	fdry_image_unload(img);
}
END_TEST

/* Nothing uses the content from then on, and all that the caller has stays. */
START_TEST(a_difference_makes_it_unusable)
{
	static const char says[] = "image 'img' (";
	struct fdry_image *img = image_make(ways[_i]);
	struct flip_chunk chunk;
	double ms;
	float v[N] = { 0 };

	flip_find(load_store(), "img", "small", &chunk);
	flip_bit(&chunk, 77);
	flip_trust(&chunk);
	fdry_image_unload(img);
	img = late_load(ways[_i]);
	fails(CORRUPT, says, fdry_image_launch(img, 1, NULL));
	ck_assert(strstr(fdry_last_error(), "tensor 'small'"));
	ck_assert(strstr(fdry_last_error(), "is damaged in the store; bring it back with"));
	ms = report_of(img).check_ms;
	fails(CORRUPT, says, fdry_image_launch(img, 1, NULL));
	fails(CORRUPT, says, fdry_image_read(img, "c", v, BYTES, NULL));
	fails(CORRUPT, says, fdry_image_write(img, "a", v, BYTES, NULL));
	fails(CORRUPT, says, fdry_image_check(img, NULL, NULL, NULL));
	fails(CORRUPT, says, fdry_image_check_content(img));
	ck_assert(strstr(fdry_last_error(), "tensor 'small'"));
	ck_assert(report_of(img).check_ms == ms);
	ok(fdry_image_wait(img));
	ok(fdry_image_synchronize(img, NULL));
	fails(CORRUPT, "tensor 'small'", fdry_image_restore(img, NULL));
	fails(STATE, "only a part", fdry_image_launch(img, 1, NULL));
	fails(STATE, "only a part", fdry_image_read(img, "c", v, BYTES, NULL));
	fails(STATE, "only a part", fdry_image_write(img, "a", v, BYTES, NULL));
	fails(STATE, "only a part", fdry_image_check_content(img));
	flip_bit(&chunk, 77);
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	flip_release(&chunk);
}
END_TEST

START_TEST(a_pack_repairs_it)
{
	struct fdry_image *img;
	struct flip_chunk chunk;
	int i;

	test_child(seal_small, "with a pack");
	fdry_image_unload(late_load(FDRY_LOAD_VERIFY));
	for (i = 0; i < 4; i++) {
		flip_find(load_store(), "img", i % 2 ? "a" : "small", &chunk);
		flip_bit(&chunk, (uint64_t)i * 97);
		flip_trust(&chunk);
		img = late_load(0);
		image_check(img, 1, 3, 100);
		fdry_image_unload(img);
		flip_release(&chunk);
		check_sound(load_store());
		fdry_image_unload(late_load(FDRY_LOAD_VERIFY));
	}
	flip_find(load_store(), "img", "small", &chunk);
	img = late_load(0);
	ok(fdry_image_launch(img, 1, NULL));
	flip_bit(&chunk, 5);
	flip_trust(&chunk);
	ok(fdry_image_restore(img, NULL)); /* and so is a restore */
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	flip_release(&chunk);
}
END_TEST

static void byte_change(struct fdry_image *img, const char *name)
{
	const struct fdry_driver *drv = test_sim();
	struct fdry_tensor t;
	uint8_t byte;

	ok(fdry_image_tensor_find(img, name, &t));
	ck_assert_int_eq(drv->cuMemcpyDtoH_v2(&byte, t.addr + 7, 1), CUDA_SUCCESS);
	byte ^= 0x10;
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(t.addr + 7, &byte, 1), CUDA_SUCCESS);
}

START_TEST(memory_that_changes_before_is_found)
{
	struct fdry_image *img = image_make(0);

	byte_change(img, "b");
	fails(CORRUPT, "tensor 'a' and 1 more: chunk", fdry_image_launch(img, 1, NULL));
	ck_assert(strstr(fdry_last_error(), "is whole in the store"));
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	/* Once it was compared, memory is the program's. */
	img = late_load(0);
	ok(fdry_image_check_content(img));
	byte_change(img, "b");
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
}
END_TEST

/* Every driver call of the comparison fails in turn: the next use compares again. */
START_TEST(an_error_of_the_driver_is_no_difference)
{
	struct fdry_image *img = image_make(0);
	char spec[40];
	bool reached = true;
	int n, err;

	fdry_image_unload(img);
	for (n = 1; reached; n++) {
		img = late_load(0);
		test_sim();
		snprintf(spec, sizeof(spec), "*:%d:%d", n, CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		err = fdry_image_check_content(img);
		reached = test_sim_failed() != 0;
		test_sim_fail(NULL);
		ck_assert_int_ne(err, -FDRY_E_CORRUPT);
		image_check(img, 1, 3, 100);
		fdry_image_unload(img);
	}
	ck_assert_int_gt(n, 4);
}
END_TEST

static struct fdry_image *shared;

static void *launches(void *found)
{
	*(int *)found = fdry_image_launch(shared, 1, NULL);
	return NULL;
}

START_TEST(two_threads_use_it_at_once)
{
	pthread_t threads[4];
	struct flip_chunk chunk;
	int found[4], i, round;

	shared = image_make(FDRY_LOAD_BUILD);
	flip_find(load_store(), "img", "small", &chunk);
	for (round = 0; round < 12; round++) {
		for (i = 0; i < 4; i++)
			ck_assert(!pthread_create(&threads[i], NULL, launches, &found[i]));
		for (i = 0; i < 4; i++)
			ck_assert(!pthread_join(threads[i], NULL));
		for (i = 0; i < 4; i++)
			ck_assert_int_eq(found[i], round % 2 ? -FDRY_E_CORRUPT : 0);
		fdry_image_unload(shared);
		if (round % 2) {
			flip_bit(&chunk, 5);
			fdry_image_unload(late_load(FDRY_LOAD_VERIFY));
			flip_release(&chunk);
			flip_find(load_store(), "img", "small", &chunk);
		} else {
			flip_bit(&chunk, 5);
		}
		flip_trust(&chunk);
		shared = late_load(FDRY_LOAD_BUILD);
	}
	fdry_image_unload(shared);
	flip_release(&chunk);
}
END_TEST

/* Whether the progress function's uses are refused. */
static void progress(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	(void)arg, (void)phase, (void)done, (void)total, (void)ms;
	if (shared)
		fails(STATE, "progress function", fdry_image_check_content(shared));
}

START_TEST(its_progress_function_cannot_use_it)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_CHECK_AT_LAUNCH,
				       .progress = progress };

	test_child(seal_small, NULL);
	shared = NULL;
	ok(fdry_image_load(load_store(), "img", &opts, &shared));
	ok(fdry_image_build(shared, 1));
	ok(fdry_image_launch(shared, 1, NULL));
	fdry_image_unload(shared);
	shared = NULL;
}
END_TEST

static void load_into(void *unused)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_CHECK_AT_LAUNCH };
	struct fdry_image *img;
	struct work w;

	(void)unused;
	work_make(&w);
	opts.into = w.cap;
	fails(OPTS, "leave FDRY_LOAD_CHECK_AT_LAUNCH out",
	      fdry_image_load(w.store, "img", &opts, &img));
	work_end(&w);
}

START_TEST(a_placed_image_is_compared_at_once)
{
	test_child(load_into, NULL);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_pack_repairs_it, memory_that_changes_before_is_found,
		an_error_of_the_driver_is_no_difference, two_threads_use_it_at_once,
		its_progress_function_cannot_use_it, a_placed_image_is_compared_at_once,
	};
	Suite *s = suite_create("late");
	TCase *tc = tcase_create("late");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup_memory, dir_teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, the_first_use_compares, 0, 18);
	tcase_add_loop_test(tc, a_difference_makes_it_unusable, 0, 3);
	suite_add_tcase(s, tc);
	return test_main(s);
}
