// SPDX-License-Identifier: Apache-2.0
/* Unit tests: every driver call that a seal or a load makes fails in turn, and nothing is left half
 * done. */
#include "tests/lib/image.h"

#define CALLS_MAX 2000

/* The errors with which calls fail: an unknown one, and out of memory. */
static const int errors[] = { CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY };
#define ERRORS 2

/* Ways to load and launch, and the errors with which calls fail then. */
static const struct { uint32_t flags; int error; } ways[] = {
	{ FDRY_LOAD_BUILD, CUDA_ERROR_UNKNOWN },
	{ FDRY_LOAD_BUILD, CUDA_ERROR_OUT_OF_MEMORY },
	{ FDRY_LOAD_OWN_CONTEXT, CUDA_ERROR_OUT_OF_MEMORY },
	{ FDRY_LOAD_CHECK_OVERLAP, CUDA_ERROR_UNKNOWN },
};
#define WAYS 4

static void fail_at(int n, int error)
{
	char spec[32];

	snprintf(spec, sizeof(spec), "*:%d:%d", n, error);
	test_sim_fail(spec);
}

/* Whether the failure was reached; nothing fails any more. */
static bool was_reached(void)
{
	bool reached = test_sim_failed() != 0;

	test_sim_fail(NULL);
	return reached;
}

/* Load, run, read: all that can fail. The image, or NULL and a message. */
static struct fdry_image *load_and_run(struct fdry_store *s, uint32_t flags, int *err)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_POISON | flags };
	struct fdry_image *img = NULL;
	float v[N];

	*err = fdry_image_load(s, "img", &opts, &img);
	if (*err)
		return NULL;
	vector_fill(v, 9);
	*err = fdry_image_write(img, "a", v, BYTES, NULL);
	if (!*err)
		*err = fdry_image_launch(img, 1, NULL);
	if (!*err)
		*err = fdry_image_read(img, "c", v, BYTES, NULL);
	if (!*err && v[3] != vector_value(3, 9) + vector_value(3, 100))
		ck_abort_msg("a wrong number came out");
	return img;
}

START_TEST(load_with_every_call_failing)
{
	struct fdry_image *img;
	struct fdry_store *s;
	long before;
	int n, err;

	test_child(seal_plain, NULL);
	s = load_store();
	test_sim();
	before = live_before();
	for (n = 1; n < CALLS_MAX; n++) {
		fail_at(n, ways[_i].error);
		img = load_and_run(s, ways[_i].flags, &err);
		if (!was_reached())
			break;
		fdry_image_unload(img);
		if (!err) {
			/* A call that frees an object failed: the driver keeps it. */
			ck_assert_int_le(live_objects() - before, 1);
			before = live_before();
			continue;
		}
		ck_assert_uint_gt(strlen(fdry_last_error()), 10);
		ck_assert_msg(err == (ways[_i].error == CUDA_ERROR_OUT_OF_MEMORY ? -FDRY_E_NODEVMEM
										 : -FDRY_E_DRIVER),
			      "call %d: %s", n, fdry_last_error());
		ck_assert_msg(live_objects() == before, "call %d left %ld behind: %s", n,
			      live_objects() - before, fdry_last_error());
	}
	ck_assert_int_gt(n, 40);
	ck_assert_int_lt(n, CALLS_MAX);
	ck_assert_int_eq(err, 0);
	image_check(img, 2, 3, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(seal_with_every_call_failing)
{
	struct fdry_oid oid;
	static struct work w;
	long before;
	int n, err;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	/* The second seal is the first to use the fingerprint kernel, which the capture keeps. */
	ok(work_seal(&w, NULL));
	ok(work_seal(&w, NULL));
	before = live_before();
	for (n = 1; n < CALLS_MAX; n++) {
		fail_at(n, errors[_i]);
		err = work_seal(&w, "img");
		if (!was_reached())
			break;
		if (!err) {
			/* A call that frees an object failed: the driver keeps it. */
			ck_assert_int_le(live_objects() - before, 1);
			before = live_before();
			ok(fdry_store_remove(w.store, "img"));
			continue;
		}
		ck_assert_msg(live_objects() == before, "call %d left %ld behind: %s", n,
			      live_objects() - before, fdry_last_error());
		fails(NOENT, "no ref", fdry_ref_get(w.store, "img", &oid));
	}
	ck_assert_int_gt(n, 20);
	ck_assert_int_lt(n, CALLS_MAX);
	ok(err);
	ok(fdry_ref_get(w.store, "img", &oid));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_fail");
	TCase *tc = tcase_create("fail");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, load_with_every_call_failing, 0, WAYS);
	tcase_add_loop_test(tc, seal_with_every_call_failing, 0, ERRORS);
	suite_add_tcase(s, tc);
	return test_main(s);
}
