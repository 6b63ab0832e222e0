// SPDX-License-Identifier: Apache-2.0
/* Unit tests of closed objects: using one is an error, and a call that would wait for itself is
 * refused.
 */
#include <sys/mman.h>

#include "foundry/run.h"
#include "lib/live.h"
#include "tests/lib/image.h"

static const struct fdry_load_opts in_background = { .sz = sizeof(in_background),
						     .flags = FDRY_LOAD_BACKGROUND };

static struct fdry_image *image_load(const struct fdry_load_opts *opts)
{
	struct fdry_image *img = NULL;

	test_child(seal_plain, NULL);
	ok(fdry_image_load(load_store(), "img", opts, &img));
	return img;
}

/* The last error after a call that returns nothing. */
#define says(words, call) \
	do { \
		call; \
		ck_assert_msg(strstr(fdry_last_error(), words), "%s", fdry_last_error()); \
	} while (0)

START_TEST(an_image)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = image_load(NULL);
	struct fdry_slots *t = NULL;

	ok(fdry_slots_new(NULL, &t));
	fdry_image_unload(img);
	fails(STALE, "the image was closed or freed", fdry_image_launch(img, 1, NULL));
	fails(STALE, "the image", fdry_image_report(img, &report));
	fails(STALE, "the image", fdry_image_wait(img));
	fails(STALE, "the image", fdry_slots_install_image(t, 1, img, 1));
	says("the image was closed or freed", fdry_image_unload(img));
	fdry_slots_free(t);
}
END_TEST

START_TEST(a_store)
{
	struct fdry_store *s = NULL;
	struct fdry_image *img = NULL;
	char *text = NULL;

	test_child(seal_plain, NULL);
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);
	fails(STALE, "the store was closed or freed", fdry_image_load(s, "img", NULL, &img));
	fails(STALE, "the store", fdry_image_describe(s, "img", &text));
	fails(STALE, "the store", fdry_store_gc(s, NULL, NULL));
	says("the store was closed or freed", fdry_store_close(s));
	ck_assert_int_eq(fdry_live_check(NULL, "the store"), -FDRY_E_STALE);
}
END_TEST

START_TEST(calls_that_need_a_device)
{
	struct fdry_scalars_opts so = { .sz = sizeof(so), .count = 1,
					.dtypes = (const uint32_t[]){ FDRY_U32 } };
	struct fdry_decode_state_args args;
	struct fdry_graphpool_id id;
	struct fdry_device_caps caps = { .sz = sizeof(caps) };
	struct fdry_slots *t = NULL;
	struct fdry_kernels *k = NULL;
	struct fdry_scalars *s = NULL;
	struct fdry_decode_state *d = NULL;
	struct fdry_cudagraph *g = NULL;
	struct fdry_graphpool *p = NULL;
	struct fdry_device *dev = NULL, *again = NULL;

	ok(setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ok(fdry_slots_new(NULL, &t));
	fdry_slots_free(t);
	fails(STALE, "the table of slots", fdry_slots_invalidate(t, 1));
	says("the table of slots", fdry_slots_free(t));
	ok(fdry_kernels_new(NULL, &k));
	fdry_kernels_free(k);
	fails(STALE, "the cache of kernels", fdry_kernels_clear(k));
	says("the cache of kernels", fdry_kernels_free(k));
	ok(fdry_scalars_new(&so, &s));
	fdry_scalars_free(s);
	fails(STALE, "the array of scalars", fdry_scalars_addr(s, 0, &(fdry_devptr){ 0 }));
	says("the array of scalars", fdry_scalars_free(s));
	ok(fdry_decode_state_new(NULL, &d));
	fdry_decode_state_free(d);
	fails(STALE, "the decode state", fdry_decode_state_args(d, &args));
	says("the decode state", fdry_decode_state_free(d));
	ok(fdry_cudagraph_new(NULL, &g));
	fdry_cudagraph_free(g);
	fails(STALE, "the graph", fdry_cudagraph_reset(g));
	says("the graph", fdry_cudagraph_free(g));
	ok(fdry_graphpool_new(NULL, &p));
	fdry_graphpool_put(p);
	fails(STALE, "the pool", fdry_graphpool_id(p, &id));
	says("the pool", fdry_graphpool_put(p));
	ok(fdry_device_get(0, &dev));
	ok(fdry_device_get(0, &again));
	fdry_device_put(dev);
	ok(fdry_device_caps(again, &caps));
	fdry_device_put(again);
	fails(STALE, "the device", fdry_device_caps(dev, &caps));
	says("the device", fdry_device_put(dev));
}
END_TEST

static int capture_ends(void *arg, struct fdry_capture *cap)
{
	(void)arg;
	says("ends this capture itself", fdry_capture_end(cap));
	ok(fdry_capture_fact(cap, "still", "there"));
	return 7;
}

static void captures_child(void *arg)
{
	const char *const name = "lent";
	struct fdry_capture_opts place = { .sz = sizeof(place), .base = TEST_CAPTURE_BASE,
					   .size = 1ull << 34 };
	struct fdry_start_opts opts = { .sz = sizeof(opts), .names = &name, .nnames = 1,
					.capture = &place, .fn = capture_ends };
	struct fdry_start_report *start = NULL;
	struct fdry_capture *cap = NULL;
	struct fdry_store *s = NULL;

	(void)arg;
	ok(setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	fails(CALLBACK, "returned 7", fdry_load_or_capture(s, &opts, &start));
	ok(fdry_capture_begin(&place, &cap));
	fdry_capture_end(cap);
	fails(STALE, "the capture", fdry_capture_pause(cap));
	says("the capture was closed or freed", fdry_capture_end(cap));
}

START_TEST(a_capture)
{
	test_child(captures_child, NULL);
}
END_TEST

/* --- within their own functions --- */

struct within {
	struct fdry_image *_Atomic img;
	atomic_int calls;
};

static void graph_built(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct within *w = arg;
	struct fdry_image *img;

	(void)done, (void)total, (void)ms;
	if (phase != FDRY_PHASE_GRAPHS)
		return;
	while (!(img = atomic_load(&w->img)))
		usleep(1000);
	fails(STATE, "own progress function", fdry_image_wait(img));
	fails(STATE, "own progress function", fdry_image_build_stop(img));
	fails(STATE, "own progress function", fdry_image_restore(img, NULL));
	says("own progress function", fdry_image_unload(img));
	atomic_fetch_add(&w->calls, 1);
}

START_TEST(a_progress_function)
{
	struct within w = { .img = NULL };
	struct fdry_load_opts opts = in_background;

	opts.progress = graph_built;
	opts.progress_arg = &w;
	if (_i)
		opts.flags = 0;
	atomic_store(&w.img, image_load(&opts));
	ok(fdry_image_wait(w.img));
	ck_assert_int_eq(w.calls, 2);
	ok(fdry_image_launch(w.img, 1, NULL));
	fdry_image_unload(w.img);
}
END_TEST

static struct fdry_store *closing;
static int closed_at;

static void close_inside(void *arg, uint64_t done, uint64_t total)
{
	(void)arg, (void)done, (void)total;
	says("is in use", fdry_store_close(closing));
	closed_at++;
}

static int close_collect(void *arg, int phase, uint64_t done, uint64_t total)
{
	(void)phase;
	close_inside(arg, done, total);
	return 0;
}

START_TEST(a_function_of_the_store)
{
	struct fdry_gc_opts gc = { .sz = sizeof(gc), .progress = close_collect };
	struct fdry_export_opts opts = { .sz = sizeof(opts), .progress = close_inside };
	const char *const name = "img";
	int fd = memfd_create("pack", 0);

	test_child(seal_plain, NULL);
	closing = load_store();
	ok(fdry_store_export(closing, &name, 1, fd, &opts, NULL));
	ck_assert_int_gt(closed_at, 0);
	closed_at = 0;
	ok(fdry_store_gc(closing, &gc, NULL));
	ck_assert_int_gt(closed_at, 0);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_closed");
	TCase *tc = tcase_create("closed");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, an_image);
	tcase_add_test(tc, a_store);
	tcase_add_test(tc, calls_that_need_a_device);
	tcase_add_test(tc, a_capture);
	tcase_add_loop_test(tc, a_progress_function, 0, 2);
	tcase_add_test(tc, a_function_of_the_store);
	suite_add_tcase(s, tc);
	return test_main(s);
}
