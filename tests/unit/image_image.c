// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a loaded image beside other work: captures, other images, a fork, work in flight,
 * failures half-way; and of missing arguments.
 */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>

#include "image/manifest.h"
#include "tests/lib/image.h"

#define SLOW 3      /* key of a graph that runs long */
#define SPINS 30000000u

static void seal_slow(void *arg)
{
	struct fdry_tensor t = { .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE };
	struct work w;

	(void)arg;
	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &t.addr, 8);
	capture_start(&w);
	launch_step(&w, t.addr, 5, SPINS);
	ok(fdry_capture_graph(w.cap, SLOW, "slow", capture_stop(&w)));
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static CUdeviceptr addr_of(struct fdry_image *img, const char *name)
{
	struct fdry_tensor t;

	ok(fdry_image_tensor_find(img, name, &t));
	return t.addr;
}

/* --- work that is complete on return --- */

START_TEST(writes_wait_for_what_was_launched)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	float v[N];

	test_child(seal_slow, NULL);
	img = load_image("img", NULL);
	drv = test_sim();
	ok(fdry_image_launch(img, SLOW, NULL));
	vector_fill(v, 3);
	ok(fdry_image_write(img, "a", v, BYTES, NULL));
	/* Device memory of the software driver is memory: looked at without asking it. */
	ck_assert(!memcmp((void *)(uintptr_t)addr_of(img, "a"), v, BYTES));
	ck_assert_int_eq(drv->cuStreamSynchronize(NULL), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

START_TEST(reads_and_restores_wait_too)
{
	uint64_t x = 0, zero = 0;
	struct fdry_image *img;

	test_child(seal_slow, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_launch(img, SLOW, NULL));
	ok(fdry_image_read(img, "x", &x, 8, NULL));
	ck_assert_uint_eq(x, step_result(0, 5, SPINS));
	ok(fdry_image_launch(img, SLOW, NULL));
	ok(fdry_image_restore(img, NULL));
	ck_assert(!memcmp((void *)(uintptr_t)addr_of(img, "x"), &zero, 8));
	ok(fdry_image_launch(img, SLOW, NULL));
	ok(fdry_image_synchronize(img, NULL));
	ck_assert(!memcmp((void *)(uintptr_t)addr_of(img, "x"), &x, 8));
	fdry_image_unload(img);
}
END_TEST

START_TEST(unloaded_in_flight)
{
	struct fdry_image *img;
	long before;
	int i;

	test_child(seal_slow, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < 3; i++) {
		img = load_image("img", NULL);
		ok(fdry_image_launch(img, SLOW, NULL));
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), before);
	}
}
END_TEST

/* --- failures between steps --- */

START_TEST(restored_in_part)
{
	struct fdry_image *img;
	float v[N] = { 0 };

	test_child(seal_plain, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	test_sim_fail("cuMemcpyHtoDAsync_v2:1");
	ck_assert_int_eq(fdry_image_restore(img, NULL), -FDRY_E_DRIVER);
	test_sim_fail(NULL);
	fails(STATE, "only a part of the content was restored", fdry_image_launch(img, 1, NULL));
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	/* A failure before the first write leaves the content whole. */
	test_sim_fail("cuStreamSynchronize:1");
	ck_assert_int_eq(fdry_image_restore(img, NULL), -FDRY_E_DRIVER);
	test_sim_fail(NULL);
	image_check(img, 1, 4, 100);
	fdry_image_unload(img);
}
END_TEST

struct job {
	struct fdry_image *img;
	sem_t go;
	int err;
};

static void CUDA_CB wait_for(void *job)
{
	sem_wait(&((struct job *)job)->go);
}

static void *restore(void *arg)
{
	struct job *j = arg;

	j->err = fdry_image_restore(j->img, NULL);
	return NULL;
}

static void *launch(void *arg)
{
	struct job *j = arg;

	j->err = fdry_image_launch(j->img, 1, NULL);
	return NULL;
}

/* The launch's graph is not built, so the launch continues after the restore has failed: content
 * was whole at the call, and is not any more. */
START_TEST(a_launch_that_waits_for_a_restore)
{
	struct job r = { 0 }, l = { 0 };
	const struct fdry_driver *drv;
	unsigned long syncs;
	pthread_t a, b;

	test_child(seal_plain, NULL);
	r.img = l.img = load_image("img", NULL);
	drv = test_sim();
	ck_assert(!sem_init(&r.go, 0, 0));
	ck_assert_int_eq(drv->cuLaunchHostFunc(NULL, wait_for, &r), CUDA_SUCCESS);
	test_sim_fail("cuMemcpyHtoDAsync_v2:1");
	syncs = test_sim_calls("cuStreamSynchronize");
	ck_assert(!pthread_create(&a, NULL, restore, &r));
	while (test_sim_calls("cuStreamSynchronize") == syncs)
		usleep(1000);
	ck_assert(!pthread_create(&b, NULL, launch, &l));
	usleep(20000);
	sem_post(&r.go);
	ck_assert(!pthread_join(a, NULL));
	ck_assert(!pthread_join(b, NULL));
	test_sim_fail(NULL);
	ck_assert_int_eq(r.err, -FDRY_E_DRIVER);
	ck_assert_int_eq(l.err, -FDRY_E_STATE);
	fdry_image_unload(r.img);
}
END_TEST

/* Live memory with a hole of 80 MiB, so that it is backed in two pieces. */
static void seal_apart(void *arg)
{
	CUdeviceptr hole, far;
	struct work w;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &hole, 80 << 20);
	cuda_ok(cuMemAlloc_v2, &far, 4 << 20);
	cuda_ok(cuMemFree_v2, hole);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(too_little_memory)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	long before;

	test_child(seal_apart, NULL);
	ok(setenv("FDRY_SIM_MEMORY", _i ? "6M" : "5M", 1));
	(void)load_store();
	test_sim();
	before = live_before();
	if (_i) {
		img = load_image("img", NULL);
		ok(fdry_image_report(img, &report));
		ck_assert_uint_eq(report.mapped_bytes, 6 << 20);
		image_check(img, 1, 3, 100);
		fdry_image_unload(img);
	} else {
		fails(NODEVMEM, "needs 6291456 bytes of device memory, and the device has 5242880",
		      fdry_image_load(load_store(), "img", NULL, &img));
	}
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

static void seal_deep(void *arg)
{
	struct work w;

	(void)arg;
	work_make(&w);
	cuda_ok(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 7000);
	graph_add(&w, 1);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static size_t stack_limit(const struct fdry_driver *drv)
{
	size_t bytes = 0;

	ck_assert_int_eq(drv->cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	return bytes;
}

/* The stack is as deep as before, during the load and while graphs are built after it. */
START_TEST(the_stack_is_as_deep_as_it_was)
{
	static const char *const calls[] = { "cuModuleLoadDataEx:1",
					     "cuGraphInstantiateWithFlags:1" };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BUILD };
	const struct fdry_driver *drv;
	struct fdry_image *img;
	size_t before;

	test_child(seal_deep, NULL);
	(void)load_store();
	drv = test_sim();
	before = stack_limit(drv);
	ck_assert_uint_lt(before, 7000);
	test_sim_fail(calls[_i]);
	ck_assert_int_eq(fdry_image_load(load_store(), "img", &opts, &img), -FDRY_E_DRIVER);
	test_sim_fail(NULL);
	ck_assert_uint_eq(stack_limit(drv), before);
	img = load_image("img", NULL);
	ck_assert_uint_eq(stack_limit(drv), 7000);
	fdry_image_unload(img);
}
END_TEST

/* Store "img" again as "prints", with the limit of the buffer of printf in place of the stack's. */
static void prints_fake(void)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_mf_limit *l;
	struct fdry_manifest m;

	image_manifest_read(&bytes, &m);
	l = image_manifest_at(&bytes, m.limits);
	ck_assert_uint_eq(m.n_limits, 1);
	*l = (struct fdry_mf_limit){ .limit = CU_LIMIT_PRINTF_FIFO_SIZE, .value = 9 << 20 };
	image_manifest_store(&bytes, &m, "prints");
}

START_TEST(the_buffer_of_printf_is_as_large_as_it_was)
{
	const struct fdry_driver *drv;
	struct fdry_image *img = NULL;
	size_t before = 0, now = 0;

	test_child(seal_deep, NULL);
	prints_fake();
	drv = test_sim();
	ck_assert_int_eq(drv->cuCtxGetLimit(&before, CU_LIMIT_PRINTF_FIFO_SIZE), CUDA_SUCCESS);
	ck_assert_uint_lt(before, 9 << 20);
	test_sim_fail("cuCtxSetLimit:1");
	fails(DRIVER, "the context's limit CU_LIMIT_PRINTF_FIFO_SIZE is ",
	      fdry_image_load(load_store(), "prints", NULL, &img));
	test_sim_fail(NULL);
	ok(fdry_image_load(load_store(), "prints", NULL, &img));
	ck_assert_int_eq(drv->cuCtxGetLimit(&now, CU_LIMIT_PRINTF_FIFO_SIZE), CUDA_SUCCESS);
	ck_assert_uint_eq(now, 9 << 20);
	fdry_image_unload(img);
}
END_TEST

/* --- captures elsewhere --- */

static CUstream capture_elsewhere(const struct fdry_driver *drv)
{
	CUstream stream;

	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	return stream;
}

static void check_capture(const struct fdry_driver *drv, CUstream stream)
{
	CUgraph graph = NULL;

	ck_assert_int_eq(drv->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(graph);
	ck_assert_int_eq(drv->cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* This thread captures in the strictest mode: all calls but unloading work meanwhile. */
START_TEST(a_capture_elsewhere_is_not_broken)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = FDRY_LOAD_POISON | FDRY_LOAD_BUILD };
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream elsewhere, own;

	test_child(seal_plain, NULL);
	(void)load_store();
	drv = test_sim();
	ck_assert_int_eq(drv->cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	elsewhere = capture_elsewhere(drv);
	img = load_image("img", &opts);
	image_check(img, 1, 3, 100);
	ok(fdry_image_restore(img, own));
	ok(fdry_image_synchronize(img, own));
	image_check(img, 2, 4, 100);
	check_capture(drv, elsewhere);
	fdry_image_unload(img);
}
END_TEST

START_TEST(nor_by_a_load_that_is_refused)
{
	struct fdry_fact fact = { "model", "another" };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .facts = &fact, .nfacts = 1 };
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream elsewhere;

	test_child(seal_plain, NULL);
	(void)load_store();
	drv = test_sim();
	elsewhere = capture_elsewhere(drv);
	fails(IDENTITY, "another", fdry_image_load(load_store(), "img", &opts, &img));
	check_capture(drv, elsewhere);
}
END_TEST

START_TEST(copies_do_not_go_into_a_capture)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream stream;
	float v[N];

	test_child(seal_external, NULL);
	img = load_image("img", NULL);
	drv = test_sim();
	stream = capture_elsewhere(drv);
	fails(STATE, "the stream captures", fdry_image_write(img, "a", v, BYTES, stream));
	fails(STATE, "the stream captures", fdry_image_read(img, "a", v, BYTES, stream));
	fails(STATE, "the stream captures",
	      fdry_image_copy(img, "b", addr_of(img, "a"), BYTES, stream));
	fails(STATE, "the stream captures", fdry_image_restore(img, stream));
	fails(STATE, "the stream captures", fdry_image_synchronize(img, stream));
	fails(UNBOUND, "'b'", fdry_image_launch(img, 1, NULL));
	check_capture(drv, stream);
	fdry_image_unload(img);
}
END_TEST

/* --- in a process that captures itself --- */

START_TEST(beside_a_live_capture)
{
	struct fdry_image *img;
	struct work w;

	test_child(seal_plain, NULL);
	work_base += 1ull << 35;
	work_make(&w);
	ok(fdry_image_load(w.store, "img", NULL, &img));
	image_check(img, 1, 3, 100);
	graph_add(&w, 1);
	ok(work_seal(&w, "other"));
	capture_start(&w);
	launch_add(&w, w.a, addr_of(img, "b"), w.c);
	ok(fdry_capture_graph(w.cap, 2, NULL, capture_stop(&w)));
	fails(REFUSED, "points to memory of a loaded image", work_seal(&w, "other"));
	/* The process' image has the addresses of its own memory. */
	ck_assert_int_eq(fdry_image_load(w.store, "other", NULL, &img), -FDRY_E_TAKEN);
	image_check(img, 2, 5, 100);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

/* --- stores --- */

START_TEST(the_store_is_the_one_that_was_opened)
{
	struct fdry_image *img;
	struct fdry_store *s;
	char driver[PATH_MAX];

	test_child(seal_plain, NULL);
	ck_assert_ptr_nonnull(realpath(test_built("foundry/sim/libcuda.so.1"), driver));
	ok(setenv("FOUNDRY_DRIVER", driver, 1));
	ok(chdir(dir));
	ok(fdry_store_open("store", 0, &s));
	ok(chdir("/"));
	ok(fdry_image_load(s, "img", NULL, &img));
	fdry_store_close(s);
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* --- forks --- */

static void use_inherited(void *arg)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = arg, *other;
	struct fdry_store *s;
	float v[N];

	fails(FORKED, "fork", fdry_image_launch(img, 1, NULL));
	fails(FORKED, "fork", fdry_image_build(img, 1));
	fails(FORKED, "fork", fdry_image_write(img, "a", v, BYTES, NULL));
	fails(FORKED, "fork", fdry_image_read(img, "a", v, BYTES, NULL));
	fails(FORKED, "fork", fdry_image_copy(img, "a", 0, BYTES, NULL));
	fails(FORKED, "fork", fdry_image_filled(img, NULL));
	fails(FORKED, "fork", fdry_image_restore(img, NULL));
	fails(FORKED, "fork", fdry_image_synchronize(img, NULL));
	fails(FORKED, "fork", fdry_image_report(img, &report));
	fails(FORKED, "fork", fdry_image_load(load_store(), "img", NULL, &other));
	ok(fdry_store_open(path, 0, &s));
	if (!TEST_SANITIZED) /* the thread sanitizer lets no child of a program with threads start
				any */
		fails(FORKED, "fork before anything uses CUDA",
		      fdry_image_load(s, "img", NULL, &other));
	ck_assert_uint_eq(fdry_image_graph_count(img), 2);
	fdry_image_unload(img);
}

START_TEST(images_do_not_survive_a_fork)
{
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	img = load_image("img", NULL);
	test_child(use_inherited, img);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

static void use_inherited_capture(void *arg)
{
	struct work *w = arg;
	struct fdry_tensor t = vector("t", w->a, 0, 0);
	uint64_t offset;

	fails(FORKED, "fork", work_seal(w, "img"));
	fails(FORKED, "fork", fdry_capture_tensor(w->cap, &t));
	fails(FORKED, "fork", fdry_capture_fact(w->cap, "k", "v"));
	fails(FORKED, "fork", fdry_capture_graph(w->cap, 9, NULL, (CUgraph)1));
	fails(FORKED, "fork", fdry_capture_rng(w->cap, 1));
	fails(FORKED, "fork", fdry_capture_hold(w->cap, 1));
	fails(FORKED, "fork", fdry_capture_pause(w->cap));
	fails(FORKED, "fork", fdry_capture_resume(w->cap));
	fails(FORKED, "fork", fdry_capture_offset(w->cap, &offset));
	fails(FORKED, "fork", fdry_capture_set_offset(w->cap, 0));
	fdry_capture_end(w->cap);
}

START_TEST(captures_do_not_survive_a_fork)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	test_child(use_inherited_capture, &w);
	ok(work_seal(&w, "img"));
	work_end(&w);
}
END_TEST

/* --- missing arguments --- */

START_TEST(nothing_given_to_an_image)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .nfacts = 1 };
	struct fdry_image *img = NULL;
	struct fdry_tensor t;
	char id[FDRY_ID_SIZE];
	const char *text;

	test_child(seal_plain, NULL);
	fails(INVAL, "given no store", fdry_image_load(NULL, "img", NULL, &img));
	fails(INVAL, "given no name", fdry_image_load(load_store(), NULL, NULL, &img));
	fails(INVAL, "given no ret", fdry_image_load(load_store(), "img", NULL, NULL));
	fails(OPTS, "nfacts is 1, but facts is NULL",
	      fdry_image_load(load_store(), "img", &opts, &img));
	fails(INVAL, "given no img", fdry_image_launch(NULL, 1, NULL));
	fails(INVAL, "given no img", fdry_image_build(NULL, 1));
	fails(INVAL, "given no img", fdry_image_write(NULL, "a", id, 1, NULL));
	fails(INVAL, "given no img", fdry_image_restore(NULL, NULL));
	fails(INVAL, "given no img", fdry_image_filled(NULL, NULL));
	fails(INVAL, "given no img", fdry_image_synchronize(NULL, NULL));
	fails(INVAL, "given no img", fdry_image_report(NULL, NULL));
	fails(INVAL, "given no img", fdry_image_graph(NULL, 0, NULL, NULL, NULL));
	fails(INVAL, "given no img", fdry_image_tensor(NULL, 0, &t));
	fails(INVAL, "given no img", fdry_image_tensor_find(NULL, "a", &t));
	fails(INVAL, "given no img", fdry_image_fact(NULL, "model", &text));
	ck_assert_uint_eq(fdry_image_graph_count(NULL) + fdry_image_tensor_count(NULL), 0);
	fdry_image_id(NULL, id);
	ck_assert_str_eq(id, "");
	fdry_image_unload(NULL);
	img = load_image("img", NULL);
	fails(INVAL, "given no name", fdry_image_write(img, NULL, id, 1, NULL));
	fails(INVAL, "'a': the host memory is NULL", fdry_image_write(img, "a", NULL, BYTES, NULL));
	fails(INVAL, "'a': the host memory is NULL", fdry_image_read(img, "a", NULL, BYTES, NULL));
	fails(INVAL, "given no ret", fdry_image_tensor(img, 0, NULL));
	fails(INVAL, "given no ret", fdry_image_tensor_find(img, "a", NULL));
	fails(INVAL, "given no name", fdry_image_tensor_find(img, NULL, &t));
	fails(INVAL, "given no key", fdry_image_fact(img, NULL, &text));
	fails(INVAL, "given no value", fdry_image_fact(img, "model", NULL));
	fails(INVAL, "given no report", fdry_image_report(img, NULL));
	ok(fdry_image_graph(img, 0, NULL, NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(nothing_given_to_a_capture)
{
	struct fdry_tensor t = { .name = NULL };
	struct work w;
	char *text;

	work_make(&w);
	fails(INVAL, "given no ret", fdry_capture_begin(NULL, NULL));
	fails(INVAL, "given no cap", fdry_capture_seal(NULL, w.store, NULL, NULL, NULL));
	fails(INVAL, "given no store", fdry_capture_seal(w.cap, NULL, NULL, NULL, NULL));
	fails(INVAL, "given no cap", fdry_capture_pause(NULL));
	fails(INVAL, "given no cap", fdry_capture_tensor(NULL, &t));
	fails(INVAL, "given no tensor", fdry_capture_tensor(w.cap, NULL));
	fails(NAME, "cannot name a tensor", fdry_capture_tensor(w.cap, &t));
	fails(NAME, "cannot name a fact", fdry_capture_fact(w.cap, NULL, "v"));
	fails(INVAL, "given no ret", fdry_capture_offset(w.cap, NULL));
	fails(INVAL, "given no store", fdry_image_describe(NULL, "img", &text));
	fails(INVAL, "given no name", fdry_image_describe(w.store, NULL, &text));
	fails(INVAL, "given no ret", fdry_image_describe(w.store, "img", NULL));
	fdry_capture_end(NULL);
	work_end(&w);
}
END_TEST

/* Messages about missing arguments name the called function or none, but never a helper. */
START_TEST(helpers_are_not_named)
{
	struct fdry_image *img = NULL;
	struct fdry_tensor t;

	fails(INVAL, "the call was given no img", fdry_image_launch(NULL, 1, NULL));
	fails(INVAL, "the call was given no cap", fdry_capture_pause(NULL));
	fails(INVAL, "the call was given no store", fdry_image_load(NULL, "img", NULL, &img));
	fails(INVAL, "the call was given no img", fdry_image_tensor_find(NULL, "a", &t));
	fails(INVAL, "fdry_image_tensor_find() was given no ret",
	      fdry_image_tensor_find(NULL, "a", NULL));
	fails(INVAL, "fdry_store_pin() was given no store", fdry_store_pin(NULL, "img"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_image");
	TCase *tc = tcase_create("image");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, writes_wait_for_what_was_launched);
	tcase_add_test(tc, reads_and_restores_wait_too);
	tcase_add_test(tc, unloaded_in_flight);
	tcase_add_test(tc, restored_in_part);
	tcase_add_test(tc, a_launch_that_waits_for_a_restore);
	tcase_add_loop_test(tc, too_little_memory, 0, 2);
	tcase_add_loop_test(tc, the_stack_is_as_deep_as_it_was, 0, 2);
	tcase_add_test(tc, the_buffer_of_printf_is_as_large_as_it_was);
	tcase_add_test(tc, a_capture_elsewhere_is_not_broken);
	tcase_add_test(tc, nor_by_a_load_that_is_refused);
	tcase_add_test(tc, copies_do_not_go_into_a_capture);
	tcase_add_test(tc, beside_a_live_capture);
	tcase_add_test(tc, the_store_is_the_one_that_was_opened);
	tcase_add_test(tc, images_do_not_survive_a_fork);
	tcase_add_test(tc, captures_do_not_survive_a_fork);
	tcase_add_test(tc, nothing_given_to_an_image);
	tcase_add_test(tc, nothing_given_to_a_capture);
	tcase_add_test(tc, helpers_are_not_named);
	suite_add_tcase(s, tc);
	return test_main(s);
}
