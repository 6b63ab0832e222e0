// SPDX-License-Identifier: Apache-2.0
/* Unit tests of graphs that C callers capture: their results, every refusal, and every driver call
 * failing. */
#include "tests/lib/run_vectors.h"
#include "tests/lib/test.h"

START_TEST(captured_and_launched)
{
	struct fdry_cudagraph *g;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	capture_add(g, s);
	floats_are(c, 0, s); /* recorded, not done */
	ok(fdry_cudagraph_instantiate(g, 0));
	ok(fdry_cudagraph_upload(g, s));
	ok(fdry_cudagraph_launch(g, s));
	floats_are(c, 3, s);
	floats_set(a, 5);
	ok(fdry_cudagraph_launch(g, NULL));
	ok(fdry_cudagraph_synchronize(g));
	floats_are(c, 7, s);
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

START_TEST(side_stream_is_current_until_the_end)
{
	struct fdry_cudagraph *g;
	CUstream side, mine;

	vectors();
	mine = stream_new();
	ck_assert_ptr_null(fdry_stream_make_current(mine));
	g = cudagraph_new();
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_stream(g, &side));
	ck_assert_ptr_nonnull(side);
	ck_assert_ptr_ne(side, mine);
	ck_assert_ptr_eq(fdry_stream_current(), side);
	add(side, a, b, c);
	ok(fdry_cudagraph_end(g));
	ck_assert_ptr_eq(fdry_stream_current(), mine);
	fails(STATE, "no stream", fdry_cudagraph_stream(g, &side));
	ok(fdry_cudagraph_instantiate(g, 0));
	ok(fdry_cudagraph_launch(g, mine));
	floats_are(c, 3, mine);
	fdry_cudagraph_free(g);
	ck_assert_ptr_eq(fdry_stream_make_current(NULL), mine);
	cu(cuStreamDestroy_v2, mine);
	vectors_end();
}
END_TEST

/* Many captures use no more streams than were in use at once: contexts with many are slow. */
START_TEST(side_streams_are_used_again)
{
	struct fdry_cudagraph *g;
	long before;
	int i;

	vectors();
	g = cudagraph_new();
	for (i = 0; i < 20; i++) {
		ok(fdry_cudagraph_begin(g, NULL));
		ok(fdry_cudagraph_end(g));
		ok(fdry_cudagraph_reset(g));
		if (!i)
			before = test_sim_live("stream");
	}
	ck_assert_int_eq(test_sim_live("stream"), before);
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

START_TEST(states_are_named)
{
	struct fdry_cudagraph *g;
	CUgraphExec exec;
	CUgraph graph;

	vectors();
	g = cudagraph_new();
	fails(STATE, "no capture is in progress", fdry_cudagraph_end(g));
	fails(STATE, "nothing is captured", fdry_cudagraph_launch(g, NULL));
	fails(STATE, "nothing is captured", fdry_cudagraph_instantiate(g, 0));
	fails(STATE, "nothing is captured", fdry_cudagraph_upload(g, NULL));
	fails(STATE, "nothing is captured", fdry_cudagraph_graph(g, &graph));
	ok(fdry_cudagraph_begin(g, NULL));
	fails(STATE, "a capture is in progress", fdry_cudagraph_begin(g, NULL));
	fails(STATE, "a capture is in progress", fdry_cudagraph_launch(g, NULL));
	ok(fdry_cudagraph_end(g));
	fails(STATE, "no capture is in progress", fdry_cudagraph_end(g));
	fails(STATE, "captured but not instantiated", fdry_cudagraph_begin(g, NULL));
	fails(STATE, "captured but not instantiated", fdry_cudagraph_launch(g, NULL));
	fails(STATE, "captured but not instantiated", fdry_cudagraph_exec(g, &exec));
	ok(fdry_cudagraph_instantiate(g, 0));
	fails(STATE, "instantiated already", fdry_cudagraph_instantiate(g, 0));
	ok(fdry_cudagraph_graph(g, &graph));
	ok(fdry_cudagraph_exec(g, &exec));
	ck_assert_ptr_nonnull(graph);
	ck_assert_ptr_nonnull(exec);
	ok(fdry_cudagraph_reset(g));
	fails(STATE, "was reset", fdry_cudagraph_launch(g, NULL));
	ok(fdry_cudagraph_reset(g));
	fdry_cudagraph_free(g);
	fdry_cudagraph_free(NULL);
	vectors_end();
}
END_TEST

START_TEST(arguments_are_checked)
{
	struct fdry_cudagraph_begin_opts o = begin_opts(NULL, NULL, 4);
	struct fdry_cudagraph_run_opts r = { .sz = sizeof(r) };
	struct fdry_cudagraph_opts bad = { .sz = sizeof(bad), .device = 7 };
	struct fdry_cudagraph *g, *none = NULL;

	vectors();
	g = cudagraph_new();
	fails(INVAL, "no graph", fdry_cudagraph_begin(NULL, NULL));
	fails(INVAL, "no graph", fdry_cudagraph_end(NULL));
	fails(INVAL, "no graph", fdry_cudagraph_launch(NULL, NULL));
	fails(INVAL, "no capture mode", fdry_cudagraph_begin(g, &o));
	fails(INVAL, "no function", fdry_cudagraph_run(g, &r));
	fails(INVAL, "opts", fdry_cudagraph_run(g, NULL));
	fails(INVAL, "fdry_cudagraph_upload",
	      fdry_cudagraph_instantiate(g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
	fails(NOGPU, "no device 7", fdry_cudagraph_new(&bad, &none));
	ck_assert_ptr_null(none);
	o.sz = 3;
	fails(OPTS, "sz", fdry_cudagraph_begin(g, &o));
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

START_TEST(streams_that_cannot)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g, *other;
	CUstream s, gone;

	vectors();
	s = stream_new();
	gone = stream_new();
	cu(cuStreamDestroy_v2, gone);
	g = cudagraph_new();
	other = cudagraph_new();
	o = begin_opts(gone, NULL, 0);
	fails(INVAL, "alive", fdry_cudagraph_begin(g, &o));
	o = begin_opts(s, NULL, 0);
	ok(fdry_cudagraph_begin(g, &o));
	fails(STATE, "the stream captures", fdry_cudagraph_begin(other, &o));
	add(s, a, b, c);
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_instantiate(g, 0));
	fails(INVAL, "alive", fdry_cudagraph_launch(g, gone));
	/* A launch into a capture is refused and does not harm it. */
	ok(fdry_cudagraph_begin(other, &o));
	fails(STATE, "a launch cannot be part of", fdry_cudagraph_launch(g, s));
	fails(STATE, "an upload cannot be part of", fdry_cudagraph_upload(g, s));
	add(s, a, b, c);
	ok(fdry_cudagraph_end(other));
	ok(fdry_cudagraph_launch(g, s));
	floats_are(c, 3, s);
	fdry_cudagraph_free(g);
	fdry_cudagraph_free(other);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* A forbidden call invalidates the capture: it ends with an error, and the stream is usable. */
START_TEST(spoilt_captures_end)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	o = begin_opts(s, NULL, FDRY_CUDAGRAPH_MODE_GLOBAL);
	ok(fdry_cudagraph_begin(g, &o));
	ck_assert_int_ne(drv->cuStreamSynchronize(s), CUDA_SUCCESS);
	fails(DRIVER, "the capture made no graph", fdry_cudagraph_end(g));
	add(s, a, b, c);
	floats_are(c, 3, s);
	capture_add(g, s); /* and the graph is empty again */
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

START_TEST(modes_forbid_what_they_say)
{
	static const struct {
		uint32_t mode;
		bool allowed;
	} modes[] = { { FDRY_CUDAGRAPH_MODE_DEFAULT, true },
		      { FDRY_CUDAGRAPH_MODE_RELAXED, true },
		      { FDRY_CUDAGRAPH_MODE_GLOBAL, false },
		      { FDRY_CUDAGRAPH_MODE_THREAD_LOCAL, false } };
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g;
	CUstreamCaptureMode relaxed;
	CUdeviceptr p;
	size_t i;

	vectors();
	g = cudagraph_new();
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		o = begin_opts(NULL, NULL, modes[i].mode);
		/* The thread's own mode is global, so the capture's mode decides only if it is not
		 * relaxed. */
		ok(fdry_cudagraph_begin(g, &o));
		relaxed = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
		cu(cuThreadExchangeStreamCaptureMode, &relaxed);
		if (modes[i].allowed) {
			cu(cuMemAlloc_v2, &p, 16);
			mem_free(p);
			ok(fdry_cudagraph_end(g));
		} else {
			ck_assert_int_ne(drv->cuMemAlloc_v2(&p, 16), CUDA_SUCCESS);
			fails(DRIVER, "no graph", fdry_cudagraph_end(g));
		}
		cu(cuThreadExchangeStreamCaptureMode, &relaxed);
		ok(fdry_cudagraph_reset(g));
	}
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

static void *end_elsewhere(void *arg)
{
	struct fdry_cudagraph *g = arg;
	int err = fdry_cudagraph_end(g);

	if (err != -FDRY_E_STATE || !strstr(fdry_last_error(), "another thread"))
		return (void *)1;
	return fdry_cudagraph_reset(g) == -FDRY_E_STATE ? NULL : (void *)2;
}

static void *end_relaxed(void *arg)
{
	return fdry_cudagraph_end(arg) ? (void *)1 : NULL;
}

START_TEST(other_threads_end_only_relaxed_ones)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g;
	pthread_t t;
	CUstream s;
	void *ret;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	ok(fdry_cudagraph_begin(g, NULL));
	ck_assert_int_eq(pthread_create(&t, NULL, end_elsewhere, g), 0);
	pthread_join(t, &ret);
	ck_assert_ptr_null(ret);
	ok(fdry_cudagraph_end(g)); /* the capture was still running */
	ok(fdry_cudagraph_reset(g));
	o = begin_opts(s, NULL, FDRY_CUDAGRAPH_MODE_RELAXED);
	ok(fdry_cudagraph_begin(g, &o));
	ck_assert_int_eq(pthread_create(&t, NULL, end_relaxed, g), 0);
	pthread_join(t, &ret);
	ck_assert_ptr_null(ret);
	ok(fdry_cudagraph_instantiate(g, 0));
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* --- launches in flight --- */

START_TEST(freeing_waits_for_launches)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g;
	CUdeviceptr x;
	CUstream s;
	int i;

	vectors();
	x = mem(8);
	s = stream_new();
	for (i = 0; i < 2; i++) {
		cu(cuMemcpyHtoD_v2, x, &(uint64_t){ 0 }, 8);
		g = cudagraph_new();
		o = begin_opts(s, NULL, 0);
		ok(fdry_cudagraph_begin(g, &o));
		step(s, x, 1, 100000000);
		add(s, a, b, c);
		ok(fdry_cudagraph_end(g));
		ok(fdry_cudagraph_instantiate(g, 0));
		floats_set(c, 0);
		ok(fdry_cudagraph_launch(g, s));
		if (i)
			fdry_cudagraph_free(g);
		else
			ok(fdry_cudagraph_reset(g));
		ck_assert_uint_ne(word(x), 0); /* without waiting for anything here */
		floats_are(c, 3, NULL);
		if (!i)
			fdry_cudagraph_free(g);
	}
	mem_free(x);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* The stream is destroyed before the graph: freeing the graph waits for the event behind the
 * launch. */
START_TEST(streams_may_go_first)
{
	struct fdry_cudagraph *g;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	capture_add(g, s);
	ok(fdry_cudagraph_instantiate(g, 0));
	ok(fdry_cudagraph_launch(g, s));
	cu(cuStreamDestroy_v2, s);
	ok(fdry_cudagraph_synchronize(g));
	floats_are(c, 3, NULL);
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

#define THREADS 4
#define ROUNDS 50

struct launcher {
	pthread_t thread;
	struct fdry_cudagraph *g;
	CUstream stream;
	int bad;
};

static void *launch_often(void *arg)
{
	struct launcher *l = arg;
	int i;

	for (i = 0; i < ROUNDS; i++)
		l->bad += fdry_cudagraph_launch(l->g, l->stream) != 0;
	return NULL;
}

/* Launches of one graph never overlap, so that no step is lost. */
START_TEST(many_threads_launch_one_graph)
{
	struct launcher l[THREADS];
	struct fdry_cudagraph_begin_opts o;
	struct fdry_cudagraph *g;
	CUdeviceptr x;
	CUstream s;
	uint64_t want = 0;
	int i;

	vectors();
	x = mem(8);
	s = stream_new();
	g = cudagraph_new();
	o = begin_opts(s, NULL, 0);
	ok(fdry_cudagraph_begin(g, &o));
	step(s, x, 1, 0);
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_instantiate(g, 0));
	for (i = 0; i < THREADS; i++) {
		l[i] = (struct launcher){ .g = g, .stream = stream_new() };
		ck_assert_int_eq(pthread_create(&l[i].thread, NULL, launch_often, &l[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(l[i].thread, NULL);
		ck_assert_int_eq(l[i].bad, 0);
	}
	ok(fdry_cudagraph_synchronize(g));
	for (i = 0; i < THREADS * ROUNDS; i++)
		want = want * 6364136223846793005u + 1;
	ck_assert_uint_eq(word(x), want);
	fdry_cudagraph_free(g);
	for (i = 0; i < THREADS; i++)
		cu(cuStreamDestroy_v2, l[i].stream);
	cu(cuStreamDestroy_v2, s);
	mem_free(x);
	vectors_end();
}
END_TEST

struct capturer {
	pthread_t thread;
	uint32_t mode;
	CUdeviceptr x;
	pthread_barrier_t *both;
	uint64_t want;
	const char *why;
};

#define must(call) do { if (call) { w->why = #call; return NULL; } } while (0)

/* Begins when the other has, allocates while both capture. */
static void *capture_beside(void *arg)
{
	struct capturer *w = arg;
	struct fdry_cudagraph_begin_opts o = begin_opts(NULL, NULL, w->mode);
	uint64_t salt = 9;
	uint32_t spins = 0;
	void *args[] = { &w->x, &salt, &spins };
	struct fdry_graphpool *pool;
	struct fdry_cudagraph *g;
	fdry_devptr extra;
	CUcontext ctx;
	int i;

	must(drv->cuDevicePrimaryCtxRetain(&ctx, 0) || drv->cuCtxSetCurrent(ctx));
	for (i = 0; i < 20; i++) {
		must(fdry_cudagraph_new(NULL, &g));
		must(fdry_cudagraph_begin(g, &o));
		pthread_barrier_wait(w->both);
		must(fdry_cudagraph_pool(g, &pool));
		must(fdry_graphpool_mem_alloc(pool, 1000, &extra));
		must(drv->cuLaunchKernel(kernel("step"), 1, 1, 1, 1, 1, 1, 0, fdry_stream_current(),
					 args, NULL));
		pthread_barrier_wait(w->both);
		must(fdry_cudagraph_end(g));
		must(fdry_cudagraph_instantiate(g, 0));
		must(fdry_cudagraph_launch(g, NULL));
		fdry_cudagraph_free(g);
		w->want = w->want * 6364136223846793005u + salt;
	}
	must(drv->cuDevicePrimaryCtxRelease_v2(0));
	return NULL;
}

START_TEST(two_threads_capture_at_once)
{
	static const uint32_t modes[][2] = {
		{ FDRY_CUDAGRAPH_MODE_RELAXED, FDRY_CUDAGRAPH_MODE_RELAXED },
		{ FDRY_CUDAGRAPH_MODE_GLOBAL, FDRY_CUDAGRAPH_MODE_GLOBAL },
		{ FDRY_CUDAGRAPH_MODE_THREAD_LOCAL, FDRY_CUDAGRAPH_MODE_GLOBAL }
	};
	struct capturer w[2];
	pthread_barrier_t both;
	int i;

	vectors();
	pthread_barrier_init(&both, NULL, 2);
	for (i = 0; i < 2; i++)
		w[i] = (struct capturer){ .mode = modes[_i][i], .x = mem(8), .both = &both };
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, capture_beside, &w[i]), 0);
	}
	for (i = 0; i < 2; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_msg(!w[i].why, "%s", w[i].why);
	}
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(word(w[i].x), w[i].want);
		mem_free(w[i].x);
	}
	pthread_barrier_destroy(&both);
	vectors_end();
}
END_TEST

/* --- without a driver, after a fork --- */

static void nothing_there(void)
{
	struct fdry_cudagraph *g = NULL;
	struct fdry_graphpool *p = NULL;

	ck_assert(!setenv("FOUNDRY_DRIVER", "/nonexistent/libcuda.so.1", 1));
	fails(NODRIVER, "no CUDA driver", fdry_cudagraph_new(NULL, &g));
	fails(NODRIVER, "no CUDA driver", fdry_graphpool_new(NULL, &p));
	ck_assert(!g && !p);
	ck_assert_ptr_null(fdry_stream_current());
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ck_assert(!setenv("FDRY_SIM_DEVICES", "0", 1));
	fails(NOGPU, "no CUDA device", fdry_cudagraph_new(NULL, &g));
	fails(NOGPU, "no CUDA device", fdry_graphpool_new(NULL, &p));
}

START_TEST(without_a_gpu)
{
	in_child(nothing_there);
}
END_TEST

static struct fdry_cudagraph *inherited;

static void forked(void)
{
	fails(FORKED, "before fork()", fdry_cudagraph_launch(inherited, NULL));
	fails(FORKED, "before fork()", fdry_cudagraph_reset(inherited));
	fdry_cudagraph_free(inherited);
}

START_TEST(after_a_fork)
{
	vectors();
	inherited = cudagraph_new();
	in_child(forked);
	ok(fdry_cudagraph_begin(inherited, NULL));
	ok(fdry_cudagraph_end(inherited));
	fdry_cudagraph_free(inherited);
	vectors_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_graph");
	TCase *tc = tcase_create("run_graph");

	tcase_add_test(tc, captured_and_launched);
	tcase_add_test(tc, side_stream_is_current_until_the_end);
	tcase_add_test(tc, side_streams_are_used_again);
	tcase_add_test(tc, states_are_named);
	tcase_add_test(tc, arguments_are_checked);
	tcase_add_test(tc, streams_that_cannot);
	tcase_add_test(tc, spoilt_captures_end);
	tcase_add_test(tc, modes_forbid_what_they_say);
	tcase_add_test(tc, other_threads_end_only_relaxed_ones);
	tcase_add_test(tc, freeing_waits_for_launches);
	tcase_add_test(tc, streams_may_go_first);
	tcase_add_test(tc, many_threads_launch_one_graph);
	tcase_add_loop_test(tc, two_threads_capture_at_once, 0, 3);
	tcase_add_test(tc, without_a_gpu);
	tcase_add_test(tc, after_a_fork);
	suite_add_tcase(s, tc);
	return test_main(s);
}
