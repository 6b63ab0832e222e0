// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose graphs use semaphores of other APIs: a process seals them, this one
 * binds its own semaphores by name.
 */
#include <unistd.h>

#include "image/image.h"
#include "tests/lib/image.h"
#include "tests/lib/semaphore.h"

#define TIMELINE 2u /* the keys of graphs */
#define BINARY 3u
#define CHILD 1u

static CUexternalSemaphore captured(bool timeline)
{
	struct test_semaphore s;
	CUexternalSemaphore ret;

	test_semaphore_make(&s, timeline);
	cuda_ok(cuImportExternalSemaphore, &ret, &s.desc);
	return ret;
}

static void wait_launch(struct work *w, CUexternalSemaphore s, uint64_t value)
{
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS p = { .params.fence.value = value };

	cuda_ok(cuWaitExternalSemaphoresAsync, &s, &p, 1, w->stream);
}

static void signal_launch(struct work *w, CUexternalSemaphore s, uint64_t value)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS p = { .params.fence.value = value };

	cuda_ok(cuSignalExternalSemaphoresAsync, &s, &p, 1, w->stream);
}

/* Wait for @ready, c = a + b, signal @done. */
static CUgraph graph_of(struct work *w, CUexternalSemaphore ready, CUexternalSemaphore done)
{
	capture_start(w);
	wait_launch(w, ready, 1);
	launch_add(w, w->a, w->b, w->c);
	signal_launch(w, done, 2);
	return capture_stop(w);
}

static void seal_semaphores(void *arg)
{
	CUexternalSemaphore ready, done, turn;
	struct work w;
	CUgraph g, inner;
	CUgraphNode n;

	(void)arg;
	work_make(&w);
	ready = captured(true);
	done = captured(true);
	turn = captured(false);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_semaphore(w.cap, "frame.ready", ready));
	ok(fdry_capture_semaphore(w.cap, "frame.done", done));
	fails(EXISTS, "'other' is named 'frame.done' already",
	      fdry_capture_semaphore(w.cap, "other", done));
	fails(EXISTS, "'frame.done' was named before",
	      fdry_capture_semaphore(w.cap, "frame.done", turn));
	fails(NAME, "'no name' cannot name a semaphore",
	      fdry_capture_semaphore(w.cap, "no name", turn));
	fails(INVAL, "semaphore 'none' is NULL", fdry_capture_semaphore(w.cap, "none", NULL));
	g = graph_of(&w, ready, done);
	ok(fdry_capture_graph(w.cap, TIMELINE, NULL, g));
	ok(fdry_capture_graph_fixed(w.cap, TIMELINE, true));
	g = graph_of(&w, turn, turn);
	ok(fdry_capture_graph(w.cap, BINARY, NULL, g));
	fails(REFUSED, "node 0: await: it uses the semaphore 0x", work_seal(&w, "img"));
	ok(fdry_capture_semaphore(w.cap, "turn", turn));
	inner = graph_of(&w, ready, done);
	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphAddChildGraphNode, &n, g, NULL, 0, inner);
	ok(fdry_capture_graph(w.cap, CHILD, NULL, g));
	ok(work_seal(&w, "img"));
	ok(work_seal(&w, "again")); /* uses what the first seal read */
	work_end(&w);
}

static const char *const refs[] = { "img", "again" };

/* The semaphores of the loading process. */
static struct test_semaphore ready, done, turn;
static struct fdry_semaphore bound[3];
static struct fdry_load_opts opts = { .sz = sizeof(opts), .semaphores = bound, .nsemaphores = 3 };

static void bind_all(void)
{
	test_sim();
	bound[0] = (struct fdry_semaphore){ "frame.done", test_semaphore_import(&done, true), 0 };
	bound[1] = (struct fdry_semaphore){ "frame.ready", test_semaphore_import(&ready, true), 0 };
	bound[2] = (struct fdry_semaphore){ "turn", test_semaphore_import(&turn, false), 0 };
}

static struct fdry_image *load(const char *ref)
{
	struct fdry_image *img = NULL;

	bind_all();
	ok(fdry_image_load(load_store(), ref, &opts, &img));
	return img;
}

/* Launch, and check that graph @key runs only once @value is signalled, and signals @then. */
static void launched(struct fdry_image *img, uint64_t key, uint64_t value, uint64_t then)
{
	float a[N], c[N] = { 0 };
	int i;

	vector_fill(a, (float)value);
	ok(fdry_image_write(img, "a", a, BYTES, NULL));
	ok(fdry_image_launch(img, key, NULL));
	usleep(20000);
	ck_assert_uint_ne(__atomic_load_n(done.value, __ATOMIC_ACQUIRE), then);
	__atomic_store_n(ready.value, value, __ATOMIC_RELEASE);
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	ck_assert_uint_eq(*done.value, then);
	for (i = 0; i < N; i++)
		ck_assert(c[i] == vector_value(i, (float)value) + vector_value(i, 100));
}

START_TEST(values_are_those_of_the_capture)
{
	struct fdry_image *img;

	test_child(seal_semaphores, NULL);
	img = load(refs[_i]);
	launched(img, TIMELINE, 1, 2);
	*ready.value = *done.value = 0;
	launched(img, TIMELINE, 1, 2);
	fdry_image_unload(img);
}
END_TEST

/* Before and after graphs are built; in a child graph, too. */
START_TEST(values_grow)
{
	struct fdry_image *img;
	uint64_t i;

	test_child(seal_semaphores, NULL);
	opts.flags = _i ? FDRY_LOAD_BUILD : 0;
	img = load("img");
	for (i = 0; i < 4; i++) {
		ok(fdry_image_semaphore_add(img, "frame.ready", 10 * i));
		ok(fdry_image_semaphore_add(img, "frame.done", 10 * i));
		launched(img, i % 2 ? CHILD : TIMELINE, 10 * i + 1, 10 * i + 2);
	}
	fails(NOKEY, "the load named no semaphore 'frame'",
	      fdry_image_semaphore_add(img, "frame", 1));
	fails(INVAL, "", fdry_image_semaphore_add(img, NULL, 1));
	fdry_image_unload(img);
}
END_TEST

START_TEST(values_begin_at_any_number)
{
	struct fdry_image *img = NULL;

	test_child(seal_semaphores, NULL);
	bind_all();
	bound[0].add = bound[1].add = 100;
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	launched(img, TIMELINE, 101, 102);
	fdry_image_unload(img);
}
END_TEST

/* If the driver does not change an executable graph, it is made anew. If that fails, too, the call
 * says so, and the next launch has the new values. */
START_TEST(graphs_are_made_anew)
{
	struct fdry_image *img;

	test_child(seal_semaphores, NULL);
	img = load("img");
	launched(img, TIMELINE, 1, 2);
	test_sim_fail("cuGraphExecExternalSemaphoresSignalNodeSetParams:1");
	ok(fdry_image_semaphore_add(img, "frame.ready", 4));
	ck_assert_uint_eq(test_sim_failed(), 1);
	ck_assert_uint_eq(test_sim_calls("cuGraphInstantiateWithFlags"), 1);
	ok(fdry_image_semaphore_add(img, "frame.done", 4));
	ck_assert_uint_eq(test_sim_calls("cuGraphInstantiateWithFlags"), 1);
	launched(img, TIMELINE, 5, 6);
	*ready.value = *done.value = 0;
	launched(img, CHILD, 5, 6);
	test_sim_fail("cuGraphInstantiateWithFlags:1");
	fails(DRIVER, "graph 1: cuGraphInstantiateWithFlags failed",
	      fdry_image_semaphore_add(img, "frame.done", 8));
	ok(fdry_image_semaphore_add(img, "frame.ready", 8));
	launched(img, CHILD, 9, 10);
	*ready.value = *done.value = 0;
	launched(img, TIMELINE, 9, 10);
	fdry_image_unload(img);
}
END_TEST

static uint64_t graphs_noted, graphs_total;

static void graphs_note(void *arg, int phase, uint64_t n, uint64_t total, double ms)
{
	(void)arg, (void)ms;
	if (phase != FDRY_PHASE_GRAPHS)
		return;
	graphs_noted = n;
	graphs_total = total;
}

/* If a graph cannot be made anew, those behind it have the new values nevertheless. */
START_TEST(all_graphs_get_the_values)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;

	test_child(seal_semaphores, NULL);
	opts.flags = FDRY_LOAD_BUILD;
	opts.progress = graphs_note;
	img = load("img");
	test_sim_fail("cuGraphInstantiateWithFlags:1"); /* for CHILD, which cannot be changed */
	fails(DRIVER, "graph 1: cuGraphInstantiateWithFlags failed",
	      fdry_image_semaphore_add(img, "frame.done", 4));
	test_sim_fail(NULL);
	launched(img, CHILD, 1, 6);
	*ready.value = *done.value = 0;
	launched(img, TIMELINE, 1, 6);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.graphs_built, graphs_noted);
	ck_assert_uint_eq(graphs_noted, graphs_total);
	fdry_image_unload(img);
}
END_TEST

START_TEST(binary)
{
	struct fdry_image *img;
	float c[N];
	int i;

	test_child(seal_semaphores, NULL);
	img = load(refs[_i]);
	*turn.value = 1;
	for (i = 0; i < 3; i++) /* each signals the next */
		ok(fdry_image_launch(img, BINARY, NULL));
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	ck_assert_uint_eq(*turn.value, 1);
	ck_assert(c[3] == vector_value(3, 7) + vector_value(3, 100));
	fdry_image_unload(img);
}
END_TEST

START_TEST(semaphores_are_bound_at_the_load)
{
	struct fdry_image *img = NULL;

	test_child(seal_semaphores, NULL);
	bind_all();
	opts.nsemaphores = 1;
	fails(NOKEY, "it uses semaphore 'frame.ready', which the load does not name; name it in "
	      "fdry_load_opts.semaphores", fdry_image_load(load_store(), "img", &opts, &img));
	opts.nsemaphores = 3;
	opts.flags = FDRY_LOAD_OWN_CONTEXT;
	fails(OPTS, "load without FDRY_LOAD_OWN_CONTEXT",
	      fdry_image_load(load_store(), "img", &opts, &img));
	opts.flags = 0;
	bound[2].name = "frame.done";
	fails(EXISTS, "the semaphore 'frame.done' was named before",
	      fdry_image_load(load_store(), "img", &opts, &img));
	bound[2].semaphore = NULL;
	bound[2].name = "turn";
	fails(INVAL, "semaphore 'turn' is NULL",
	      fdry_image_load(load_store(), "img", &opts, &img));
	opts.semaphores = NULL;
	fails(OPTS, "fdry_load_opts.nsemaphores is 3, but semaphores is NULL",
	      fdry_image_load(load_store(), "img", &opts, &img));
	ck_assert_ptr_null(img);
}
END_TEST

START_TEST(semaphores_are_described)
{
	test_child(seal_semaphores, NULL);
	described_as("graph 2 holds 1 kernel, 1 signal, 1 await, 2 edges");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_semaphores");
	TCase *tc = tcase_create("semaphores");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, values_are_those_of_the_capture, 0, 2);
	tcase_add_loop_test(tc, values_grow, 0, 2);
	tcase_add_test(tc, values_begin_at_any_number);
	tcase_add_test(tc, graphs_are_made_anew);
	tcase_add_test(tc, all_graphs_get_the_values);
	tcase_add_loop_test(tc, binary, 0, 2);
	tcase_add_test(tc, semaphores_are_bound_at_the_load);
	tcase_add_test(tc, semaphores_are_described);
	suite_add_tcase(s, tc);
	return test_main(s);
}
