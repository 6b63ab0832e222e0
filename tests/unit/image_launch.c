// SPDX-License-Identifier: Apache-2.0
/* Unit tests of building graphs in the background, at launches and in advance, and of launching
 * them. */
#include <pthread.h>
#include <stdatomic.h>

#include "image/image.h"
#include "tests/lib/image.h"

#define GRAPHS 8

/* Graphs 1 to GRAPHS, all of them c = a + b. @arg: the name of an image elsewhere, or NULL. */
static void seal_many(void *arg)
{
	struct work w;
	uint64_t key;

	if (arg)
		work_base += 1ull << 35;
	work_make(&w);
	for (key = 1; key <= GRAPHS; key++)
		graph_add(&w, key);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, arg ? arg : "img"));
	work_end(&w);
}

/* Progress that a caller received. @hold makes its callback wait at the report that this many
 * graphs are built. */
struct heard {
	_Atomic uint64_t graphs;
	_Atomic uint64_t hold;
	_Atomic uint32_t phases; /* bit n: phase n ended */
	_Atomic bool inside, twice;
	_Atomic uint64_t backwards;
	useconds_t slow;
	double last_ms;
};

static void hear(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct heard *h = arg;

	if (atomic_exchange(&h->inside, true))
		atomic_store(&h->twice, true);
	if (ms < h->last_ms || done > total)
		atomic_fetch_add(&h->backwards, 1);
	h->last_ms = ms;
	if (done == total)
		atomic_fetch_or(&h->phases, 1u << phase);
	if (phase == FDRY_PHASE_GRAPHS) {
		if (done != atomic_load(&h->graphs) + 1 || total != GRAPHS)
			atomic_fetch_add(&h->backwards, 1);
		atomic_store(&h->graphs, done);
		while (atomic_load(&h->hold) == done)
			usleep(100);
	}
	if (h->slow)
		usleep(h->slow);
	atomic_store(&h->inside, false);
}

static void graphs_wait(struct heard *h, uint64_t count)
{
	int i;

	for (i = 0; i < 20000 && atomic_load(&h->graphs) < count; i++)
		usleep(500);
	ck_assert_uint_ge(atomic_load(&h->graphs), count);
}

static struct fdry_image *load(uint32_t flags, struct heard *h)
{
	struct fdry_load_opts opts = {
		.sz = sizeof(opts), .flags = flags, .progress = h ? hear : NULL, .progress_arg = h
	};
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), "img", &opts, &img));
	return img;
}

static struct fdry_load_report report_of(struct fdry_image *img)
{
	struct fdry_load_report r = { .sz = sizeof(r) };

	ok(fdry_image_report(img, &r));
	return r;
}

static unsigned long instantiated(void)
{
	return test_sim_calls("cuGraphInstantiateWithFlags");
}

/* c = a + b, on a stream of one's own. */
static void launch_check(struct fdry_image *img, uint64_t key, float salt, CUstream stream)
{
	float v[N], c[N];

	vector_fill(v, salt);
	ok(fdry_image_write(img, "a", v, BYTES, stream));
	ok(fdry_image_launch(img, key, stream));
	ok(fdry_image_read(img, "c", c, BYTES, stream));
	ck_assert(c[5] == vector_value(5, salt) + vector_value(5, 100));
}

/* --- in the background --- */

START_TEST(all_are_built)
{
	struct heard h = { .hold = 0 };
	struct fdry_load_report r;
	struct fdry_image *img;

	test_child(seal_many, NULL);
	img = load(FDRY_LOAD_BACKGROUND, &h);
	ok(fdry_image_wait(img));
	r = report_of(img);
	ck_assert_uint_eq(r.graphs_built, GRAPHS);
	ck_assert_uint_eq(instantiated(), GRAPHS);
	ck_assert(r.first_ms > 0 && r.first_ms < r.all_ms && r.build_ms > 0);
	launch_check(img, 3, 5, NULL);
	ck_assert_uint_eq(instantiated(), GRAPHS);
	graphs_wait(&h, GRAPHS);
	ck_assert_uint_eq(h.phases, (1u << (FDRY_PHASE_GRAPHS + 1)) - 1);
	ck_assert(!h.twice);
	ck_assert_uint_eq(h.backwards, 0);
	fdry_image_unload(img);
}
END_TEST

START_TEST(in_the_order_asked_for)
{
	static const uint64_t order[] = { 6, 2 };
	struct heard h = { .hold = 2 };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BACKGROUND,
				       .order = order, .norder = 2, .progress = hear,
				       .progress_arg = &h };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	graphs_wait(&h, 2);
	launch_check(img, 6, 4, NULL);
	launch_check(img, 2, 5, NULL);
	ck_assert_uint_eq(instantiated(), 2);
	atomic_store(&h.hold, 0);
	ok(fdry_image_wait(img));
	ck_assert_uint_eq(instantiated(), GRAPHS);
	fdry_image_unload(img);
}
END_TEST

/* The others are built at their first launch. */
START_TEST(only_those_that_are_named)
{
	static const uint64_t order[] = { 6, 2 };
	struct heard h = { .hold = 0 };
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = FDRY_LOAD_BACKGROUND | FDRY_LOAD_ORDERED,
				       .order = order, .norder = 2, .progress = hear,
				       .progress_arg = &h };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	graphs_wait(&h, 2);
	ok(fdry_image_build_stop(img)); /* waits for the thread, which has nothing left to do */
	ck_assert_uint_eq(instantiated(), 2);
	launch_check(img, 3, 4, NULL);
	ck_assert_uint_eq(instantiated(), 3);
	fdry_image_unload(img);
}
END_TEST

/* 130 MiB of content beside the graphs. All bytes are equal: loads copy them all, and the store has
 * few chunks. */
static void seal_many_large(void *arg)
{
	const size_t len = (size_t)130 << 20;
	CUdeviceptr large;
	struct work w;
	uint64_t key;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &large, len);
	cuda_ok(cuMemsetD8_v2, large, 7, len);
	for (key = 1; key <= GRAPHS; key++)
		graph_add(&w, key);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* Graphs are built while much content is copied; those that fail then are built later. */
START_TEST(some_are_built_beside_content)
{
	static const uint64_t order[] = { 6, 2 };
	struct fdry_load_opts opts = { .sz = sizeof(opts),
				       .flags = FDRY_LOAD_BACKGROUND | FDRY_LOAD_ORDERED,
				       .order = order, .norder = 2 };
	struct heard h = { .hold = 1 };
	struct fdry_image *img;

	test_child(seal_many_large, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	ck_assert_uint_eq(instantiated(), 2); /* and not those that @order leaves out */
	launch_check(img, 6, 4, NULL);
	launch_check(img, 3, 4, NULL);
	ck_assert_uint_eq(instantiated(), 3);
	fdry_image_unload(img);

	test_sim_fail("cuGraphInstantiateWithFlags:1");
	img = load(FDRY_LOAD_BACKGROUND, NULL);
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ok(fdry_image_wait(img));
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	launch_check(img, 1, 5, NULL);
	fdry_image_unload(img);

	img = load(FDRY_LOAD_BACKGROUND, &h); /* returns although the function waits for that */
	atomic_store(&h.hold, 0);
	ok(fdry_image_wait(img));
	launch_check(img, 8, 6, NULL);
	fdry_image_unload(img);
}
END_TEST

struct launcher {
	struct fdry_image *img;
	uint64_t key;
	_Atomic bool done;
};

static void *launch_one(void *arg)
{
	struct launcher *l = arg;

	launch_check(l->img, l->key, 7, NULL);
	atomic_store(&l->done, true);
	return NULL;
}

/* A launch does not wait for graphs whose build has not begun. */
START_TEST(a_launch_goes_first)
{
	struct heard h = { .hold = 1 };
	struct launcher l = { .key = GRAPHS };
	pthread_t t;

	test_child(seal_many, NULL);
	l.img = load(FDRY_LOAD_BACKGROUND, &h);
	graphs_wait(&h, 1);
	ck_assert(!pthread_create(&t, NULL, launch_one, &l));
	while (report_of(l.img).graphs_built < 2)
		usleep(100);
	ck_assert_uint_eq(instantiated(), 2);
	atomic_store(&h.hold, 0);
	ck_assert(!pthread_join(t, NULL));
	ok(fdry_image_wait(l.img));
	ck_assert_uint_eq(instantiated(), GRAPHS);
	fdry_image_unload(l.img);
}
END_TEST

START_TEST(unloaded_half_built)
{
	struct heard h = { .slow = 300 };
	struct fdry_image *img;
	long before;
	int i;

	test_child(seal_many, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < 20; i++) {
		img = load(FDRY_LOAD_BACKGROUND, i % 2 ? &h : NULL);
		usleep((useconds_t)i * 100);
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), before);
		h.graphs = 0;
		h.last_ms = 0;
	}
}
END_TEST

START_TEST(stopped)
{
	struct heard h = { .slow = 2000 };
	struct fdry_image *img;
	uint64_t built;

	test_child(seal_many, NULL);
	img = load(FDRY_LOAD_BACKGROUND, &h);
	ok(fdry_image_build_stop(img));
	ok(fdry_image_build_stop(img));
	built = report_of(img).graphs_built;
	ck_assert_uint_lt(built, GRAPHS);
	launch_check(img, GRAPHS, 5, NULL);
	ck_assert_uint_eq(report_of(img).graphs_built, built + 1);
	ok(fdry_image_wait(img));
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	fdry_image_unload(img);
	img = load(0, NULL);
	ok(fdry_image_build_stop(img)); /* the image has no such thread */
	fdry_image_unload(img);
}
END_TEST

/* Graphs that fail are passed over, and tried again when they are wanted. */
START_TEST(a_graph_that_fails)
{
	struct heard h = { .hold = 0 };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	(void)load_store();
	test_sim();
	test_sim_fail("cuGraphInstantiateWithFlags:2");
	img = load(FDRY_LOAD_BACKGROUND, &h);
	graphs_wait(&h, GRAPHS - 1);
	ck_assert_uint_eq(test_sim_failed(), 1);
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS - 1);
	launch_check(img, 2, 5, NULL);
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	fdry_image_unload(img);
}
END_TEST

START_TEST(no_memory_for_a_graph)
{
	struct heard h = { .hold = 3 };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	(void)load_store();
	test_sim();
	img = load(FDRY_LOAD_BACKGROUND, &h);
	graphs_wait(&h, 3);
	test_sim_fail("cuGraphInstantiateWithFlags:1+:2");
	atomic_store(&h.hold, 0);
	fails(NODEVMEM, "graph 4: its 1 nodes need about 3 KiB of device memory",
	      fdry_image_wait(img));
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "3 graphs were built"));
	/* once in the background, which does not try again, and once for the wait */
	ck_assert_uint_eq(test_sim_failed(), 2);
	fails(NODEVMEM, "graph 7: its 1 nodes", fdry_image_launch(img, 7, NULL));
	launch_check(img, 2, 5, NULL);
	test_sim_fail(NULL);
	launch_check(img, 7, 6, NULL);
	ok(fdry_image_wait(img));
	fdry_image_unload(img);
}
END_TEST

/* By this very thread, in the strictest mode. */
START_TEST(a_capture_elsewhere_is_not_broken)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream stream;
	CUgraph graph;

	test_child(seal_many, NULL);
	(void)load_store();
	drv = test_sim();
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	img = load(FDRY_LOAD_BACKGROUND, NULL);
	ok(fdry_image_wait(img));
	ck_assert_int_eq(drv->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

static void *launch_many(void *arg)
{
	struct launcher *l = arg;
	uint64_t i;

	for (i = 0; i < 3 * GRAPHS; i++)
		ok(fdry_image_launch(l->img, 1 + (l->key + i) % GRAPHS, NULL));
	return NULL;
}

START_TEST(launched_by_several_threads)
{
	struct launcher l[4];
	struct fdry_image *img;
	pthread_t t[4];
	int i;

	test_child(seal_many, NULL);
	img = load(FDRY_LOAD_BACKGROUND, NULL);
	for (i = 0; i < 4; i++) {
		l[i] = (struct launcher){ .img = img, .key = (uint64_t)i * 2 };
		ck_assert(!pthread_create(&t[i], NULL, launch_many, &l[i]));
	}
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_join(t[i], NULL));
	ok(fdry_image_wait(img));
	ck_assert_uint_eq(instantiated(), GRAPHS);
	launch_check(img, 1, 3, NULL);
	fdry_image_unload(img);
}
END_TEST

/* --- the end of the process --- */

static void exits_while_building(void *arg)
{
	static struct heard h = { .slow = 3000 };
	struct fdry_image *img = load(FDRY_LOAD_BACKGROUND, &h);

	(void)arg;
	ck_assert_uint_lt(report_of(img).graphs_built, GRAPHS);
	exit(0);
}

START_TEST(the_process_ends_first)
{
	test_child(seal_many, NULL);
	test_child(exits_while_building, NULL);
}
END_TEST

static _Atomic bool exiting;
static struct fdry_image *elsewhere;

static void note_exit(void)
{
	atomic_store(&exiting, true);
}

/* A progress function that unloads one image and loads another while the process exits. */
static void changes_images(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BACKGROUND };

	(void)total, (void)ms;
	if (phase != FDRY_PHASE_GRAPHS || done != 1)
		return;
	atomic_store((_Atomic bool *)arg, true);
	while (!atomic_load(&exiting))
		usleep(100);
	usleep(50000); /* the library's exit handler waits for this thread */
	fdry_image_unload(elsewhere);
	ok(fdry_image_load(load_store(), "elsewhere", &opts, &elsewhere));
}

static void exits_while_images_change(void *arg)
{
	static _Atomic bool inside;
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BACKGROUND };
	struct fdry_image *img;

	(void)arg;
	alarm(20);
	ok(fdry_image_load(load_store(), "elsewhere", &opts, &elsewhere));
	ck_assert(!atexit(note_exit)); /* it runs before the library's */
	opts.progress = changes_images;
	opts.progress_arg = (void *)&inside;
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	while (!atomic_load(&inside))
		usleep(100);
	exit(0);
}

START_TEST(the_process_ends_while_images_change)
{
	test_child(seal_many, NULL);
	test_child(seal_many, (void *)"elsewhere");
	test_child(exits_while_images_change, NULL);
}
END_TEST

static void leaves(void *arg)
{
	fails(FORKED, "fork", fdry_image_wait(arg));
	fails(FORKED, "fork", fdry_image_build_stop(arg));
	fdry_image_unload(arg);
	if (TEST_SANITIZED)
		_exit(0); /* the driver's objects remain in a child, and leak checkers would report
			     them */
	exit(0);
}

START_TEST(a_forked_child_has_no_such_thread)
{
	struct heard h = { .slow = 3000 };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	img = load(FDRY_LOAD_BACKGROUND, &h);
	test_child(leaves, img);
	ok(fdry_image_wait(img));
	fdry_image_unload(img);
}
END_TEST

/* A progress function that keeps a restore, and with it the image's ticket. */
struct kept {
	struct fdry_image *img;
	_Atomic bool keep, restoring;
};

static void restoring(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct kept *k = arg;

	(void)done, (void)total, (void)ms;
	if (phase != FDRY_PHASE_CONTENT)
		return;
	atomic_store(&k->restoring, true);
	while (atomic_load(&k->keep))
		usleep(100);
}

static void *restore_thread(void *arg)
{
	struct kept *k = arg;

	ok(fdry_image_restore(k->img, NULL));
	return NULL;
}

static void *build_thread(void *arg)
{
	struct kept *k = arg;

	ok(fdry_image_build(k->img, 1));
	return NULL;
}

static void unloads(void *img)
{
	alarm(20);
	fdry_image_unload(img);
	_exit(0);
}

/* A thread of the parent waits for the ticket. The child, which has no such thread, does not wait
 * for it. */
START_TEST(a_forked_child_waits_for_no_thread)
{
	struct kept k = { .keep = false };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .progress = restoring,
				       .progress_arg = &k };
	pthread_t restore, build;

	test_child(seal_many, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &k.img));
	atomic_store(&k.restoring, false);
	atomic_store(&k.keep, true);
	ck_assert(!pthread_create(&restore, NULL, restore_thread, &k));
	while (!atomic_load(&k.restoring))
		usleep(100);
	ck_assert(!pthread_create(&build, NULL, build_thread, &k));
	usleep(100000); /* until it waits */
	test_child(unloads, k.img);
	atomic_store(&k.keep, false);
	ck_assert(!pthread_join(restore, NULL));
	ck_assert(!pthread_join(build, NULL));
	fdry_image_unload(k.img);
}
END_TEST

/* --- up front --- */

START_TEST(built_before_the_load_returns)
{
	struct heard h = { .hold = 0 };
	struct fdry_image *img;
	long before;

	test_child(seal_many, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	img = load(FDRY_LOAD_BUILD | FDRY_LOAD_BACKGROUND, &h);
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	ck_assert_uint_eq(h.graphs, GRAPHS);
	fdry_image_unload(img);
	test_sim_fail(_i ? "cuGraphInstantiateWithFlags:5:2" : "cuGraphUpload:5:2");
	fails(NODEVMEM, "graph 5",
	      fdry_image_load(load_store(), "img",
			      &(struct fdry_load_opts){ .sz = sizeof(struct fdry_load_opts),
							.flags = FDRY_LOAD_BUILD },
			      &img));
	test_sim_fail(NULL);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* An upload after a launch would slow down the other graphs of the context. */
START_TEST(no_graph_is_uploaded_after_a_launch)
{
	struct heard h = { .hold = 0 };
	struct fdry_image *img;

	test_child(seal_many, NULL);
	(void)load_store();
	test_sim();
	test_sim_fail(NULL);
	img = load(0, &h);
	ok(fdry_image_build(img, 2));
	ck_assert_uint_eq(test_sim_calls("cuGraphUpload"), 1);
	ok(fdry_image_launch(img, 2, NULL));
	ok(fdry_image_synchronize(img, NULL));
	ok(fdry_image_build(img, 1));
	ok(fdry_image_wait(img));
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	fdry_image_unload(img);
	img = load(FDRY_LOAD_BUILD, &h);
	ck_assert_uint_eq(report_of(img).graphs_built, GRAPHS);
	ck_assert_uint_eq(test_sim_calls("cuGraphUpload"), 1);
	fdry_image_unload(img);
}
END_TEST

/* Capture graph 1 from a stream of high priority, and graph 2 from a normal one. */
static void seal_prior(void *arg)
{
	struct work w;

	(void)arg;
	work_make(&w);
	graph_add(&w, 2);
	cuda_ok(cuStreamCreateWithPriority, &w.stream, CU_STREAM_NON_BLOCKING, -1);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* The driver uses the priorities of nodes if the graph's flags ask for that; otherwise the launch's
 * stream decides. */
START_TEST(priorities_of_nodes_count)
{
	CUresult (*get_flags)(CUgraphExec, cuuint64_t *);
	cuuint64_t flags = 0;
	struct fdry_image *img;

	test_child(seal_prior, NULL);
	img = load(FDRY_LOAD_BUILD, NULL);
	test_sim();
	*(void **)&get_flags = test_sim_symbol("cuGraphExecGetFlags");
	ck_assert_int_eq(get_flags(img->execs[0].exec, &flags), CUDA_SUCCESS);
	ck_assert_uint_eq(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
	ck_assert_int_eq(get_flags(img->execs[1].exec, &flags), CUDA_SUCCESS);
	ck_assert_uint_eq(flags, 0);
	launch_check(img, 1, 5, NULL);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_launch");
	TCase *tc = tcase_create("launch");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, all_are_built);
	tcase_add_test(tc, in_the_order_asked_for);
	tcase_add_test(tc, only_those_that_are_named);
	tcase_add_test(tc, some_are_built_beside_content);
	tcase_add_test(tc, a_launch_goes_first);
	tcase_add_test(tc, unloaded_half_built);
	tcase_add_test(tc, stopped);
	tcase_add_test(tc, a_graph_that_fails);
	tcase_add_test(tc, no_memory_for_a_graph);
	tcase_add_test(tc, a_capture_elsewhere_is_not_broken);
	tcase_add_test(tc, launched_by_several_threads);
	tcase_add_test(tc, the_process_ends_first);
	tcase_add_test(tc, the_process_ends_while_images_change);
	tcase_add_test(tc, a_forked_child_has_no_such_thread);
	tcase_add_test(tc, a_forked_child_waits_for_no_thread);
	tcase_add_loop_test(tc, built_before_the_load_returns, 0, 2);
	tcase_add_test(tc, no_graph_is_uploaded_after_a_launch);
	tcase_add_test(tc, priorities_of_nodes_count);
	suite_add_tcase(s, tc);
	return test_main(s);
}
