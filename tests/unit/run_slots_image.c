// SPDX-License-Identifier: Apache-2.0
/* Unit tests of slot tables that hold graphs of loaded images. */
#include "foundry/run.h"
#include "tests/lib/image.h"

static bool replay(struct fdry_slots *t, uint64_t key)
{
	int launched = 7;

	ok(fdry_slots_replay(t, key, NULL, &launched));
	return launched;
}

static void sum_check(struct fdry_image *img, float a_salt)
{
	float c[N];

	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	ck_assert(c[7] == vector_value(7, a_salt) + vector_value(7, 100));
}

START_TEST(a_graph_of_an_image)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = _i ? FDRY_LOAD_OWN_CONTEXT : 0 };
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_slots *t = NULL;
	struct fdry_image *img = NULL;
	float v[N];
	long before;

	test_child(seal_plain, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	test_sim();
	before = live_before();
	ok(fdry_slots_new(NULL, &t));
	fails(NOKEY, "no graph with key 5", fdry_slots_install_image(t, 8, img, 5));
	ck_assert(!fdry_slots_has(t, 8));
	ok(fdry_slots_install_image(t, 8, img, 2));
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.graphs_built, 1);
	vector_fill(v, 3);
	ok(fdry_image_write(img, "a", v, BYTES, NULL));
	ck_assert(replay(t, 8) && !replay(t, 2));
	sum_check(img, 3);
	ok(fdry_slots_install_image(t, 8, img, 1));
	ok(fdry_slots_invalidate(t, 8));
	ck_assert(!replay(t, 8));
	ok(fdry_image_launch(img, 1, NULL)); /* still the image's */
	sum_check(img, 3);
	ok(fdry_slots_install_image(t, 8, img, 1));
	fdry_slots_free(t);
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
	ck_assert_int_le(live_objects(), before);
}
END_TEST

/* A replay is refused as a launch is. */
START_TEST(with_its_errors)
{
	struct fdry_slots_opts elsewhere = { .sz = sizeof(elsewhere), .device = 1 };
	struct fdry_slots *t = NULL, *other = NULL;
	struct fdry_image *img = NULL;
	int launched = 5;

	test_child(seal_external, NULL);
	ok(setenv("FDRY_SIM_DEVICES", "2", 1));
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	test_sim();
	ok(fdry_slots_new(NULL, &t));
	ok(fdry_slots_install_image(t, 8, img, 1));
	fails(UNBOUND, "slot 8: 1 external tensor", fdry_slots_replay(t, 8, NULL, &launched));
	ck_assert_int_eq(launched, 5);
	ok(fdry_image_filled(img, NULL));
	ck_assert(replay(t, 8));
	ok(fdry_slots_new(&elsewhere, &other));
	fails(INVAL, "the image is on device 0", fdry_slots_install_image(other, 8, img, 1));
	fails(INVAL, "img", fdry_slots_install_image(t, 8, NULL, 1));
	fdry_slots_free(other);
	fdry_slots_free(t);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slots_image");
	TCase *tc = tcase_create("image");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, a_graph_of_an_image, 0, 2);
	tcase_add_test(tc, with_its_errors);
	suite_add_tcase(s, tc);
	return test_main(s);
}
