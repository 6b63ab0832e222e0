// SPDX-License-Identifier: Apache-2.0
/* Unit tests of capturing a function, of driver calls that fail during it, and of graphs that
 * allocate. */
#include "tests/lib/run_vectors.h"

struct work {
	int calls, fail_at, with;
	CUstream streams[8];
	CUstream currents[8];
};

static int work_fn(void *arg, CUstream stream)
{
	struct work *w = arg;

	w->streams[w->calls] = stream;
	w->currents[w->calls] = fdry_stream_current();
	add(stream, a, b, c);
	add(stream, c, b, a);
	return ++w->calls == w->fail_at ? w->with : 0;
}

static struct fdry_cudagraph_run_opts run_opts(struct work *w, CUstream stream, uint32_t warmups)
{
	return (struct fdry_cudagraph_run_opts){ .sz = sizeof(struct fdry_cudagraph_run_opts),
						 .fn = work_fn, .arg = w, .stream = stream,
						 .warmups = warmups };
}

START_TEST(helper_warms_up_and_captures)
{
	struct fdry_cudagraph_run_opts o;
	struct fdry_cudagraph *g;
	struct work w;
	CUstream mine;
	int i, k;

	vectors();
	mine = stream_new();
	for (k = 0; k < 2; k++) {
		w = (struct work){ 0 };
		g = cudagraph_new();
		floats_set(a, 1);
		o = run_opts(&w, k ? mine : NULL, 3);
		ok(fdry_cudagraph_run(g, &o));
		ck_assert_int_eq(w.calls, 4);
		for (i = 0; i < 4; i++) {
			ck_assert_ptr_eq(w.streams[i], w.streams[0]);
			ck_assert_ptr_eq(w.currents[i], k ? NULL : w.streams[0]);
		}
		ck_assert(k == (w.streams[0] == mine));
		floats_are(a, 13, NULL); /* three times: a += 2 b */
		ok(fdry_cudagraph_launch(g, mine));
		floats_are(a, 17, mine);
		fails(STATE, "instantiated already", fdry_cudagraph_run(g, &o));
		ck_assert_int_eq(w.calls, 4);
		fdry_cudagraph_free(g);
	}
	cu(cuStreamDestroy_v2, mine);
	vectors_end();
}
END_TEST

START_TEST(helper_returns_a_callback_s_error)
{
	struct fdry_cudagraph_run_opts o;
	struct fdry_cudagraph *g;
	struct work w = { .fail_at = 1, .with = 42 };
	CUstream s;
	int k;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	for (k = 0; k < 2; k++) {
		w = (struct work){ .fail_at = 1, .with = 42 };
		o = run_opts(&w, k ? s : NULL, 2);
		fails(CALLBACK, "warm-up run 1 of 2: the function to capture failed with 42",
		      fdry_cudagraph_run(g, &o));
		w = (struct work){ .fail_at = 3, .with = 43 };
		fails(CALLBACK, "failed with 43", fdry_cudagraph_run(g, &o));
		w = (struct work){ .fail_at = 3, .with = -FDRY_E_NOKEY };
		ck_assert_int_eq(fdry_cudagraph_run(g, &o), -FDRY_E_NOKEY);
		ck_assert_ptr_null(fdry_stream_current());
		/* Stream and graph are usable. */
		w = (struct work){ 0 };
		floats_set(a, 1);
		o.warmups = 0;
		ok(fdry_cudagraph_run(g, &o));
		ok(fdry_cudagraph_launch(g, s));
		floats_are(a, 5, s);
		ok(fdry_cudagraph_reset(g));
	}
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* Warm-up runs do not enter another owner's capture, and do not end it. */
START_TEST(helper_leaves_a_capturing_stream_alone)
{
	struct fdry_cudagraph_run_opts o;
	struct fdry_cudagraph *g;
	struct work w = { 0 };
	size_t nodes = 9;
	CUgraph graph;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	o = run_opts(&w, s, 2);
	cu(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fails(STATE, "the stream captures", fdry_cudagraph_run(g, &o));
	ck_assert_int_eq(w.calls, 0);
	cu(cuStreamEndCapture, s, &graph);
	cu(cuGraphGetNodes, graph, NULL, &nodes);
	ck_assert_uint_eq(nodes, 0);
	cu(cuGraphDestroy, graph);
	ok(fdry_cudagraph_run(g, &o));
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	fails(INVAL, "alive", fdry_cudagraph_run(g = cudagraph_new(), &o));
	ck_assert_int_eq(w.calls, 3);
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

/* If any call of the driver fails, nothing is left. When none fails, the same works. */
START_TEST(every_failing_call_is_undone)
{
	struct fdry_cudagraph_run_opts o;
	struct fdry_cudagraph *g;
	struct work w;
	long live;
	CUstreamCaptureMode mode;
	char spec[16];
	int i, err, failures = 0;

	vectors();
	g = cudagraph_new();
	w = (struct work){ 0 };
	o = run_opts(&w, NULL, 0);
	ok(fdry_cudagraph_run(g, &o)); /* all objects that stay with the context exist */
	fdry_cudagraph_free(g);
	cu(cuCtxSynchronize);
	live = test_sim_live(NULL);
	for (i = 1; i < 200; i++) {
		w = (struct work){ 0 };
		snprintf(spec, sizeof(spec), "*:%d", i);
		test_sim_fail(spec);
		g = NULL;
		err = fdry_cudagraph_new(NULL, &g);
		if (!err) {
			err = fdry_cudagraph_begin(g, NULL) ?: fdry_cudagraph_end(g) ?:
			      fdry_cudagraph_instantiate(g, 0) ?: fdry_cudagraph_upload(g, NULL) ?:
			      fdry_cudagraph_launch(g, NULL) ?: fdry_cudagraph_reset(g);
		}
		if (test_sim_failed() && err) {
			ck_assert_msg(err == -FDRY_E_DRIVER || err == -FDRY_E_STATE,
				      "call %d: %d: %s", i, err, fdry_last_error());
			failures++;
		}
		if (!test_sim_failed()) {
			ok(err);
			fdry_cudagraph_free(g);
			break;
		}
		test_sim_fail(NULL);
		mode = CU_STREAM_CAPTURE_MODE_GLOBAL; /* if the call that restores it failed */
		cu(cuThreadExchangeStreamCaptureMode, &mode);
		fdry_cudagraph_free(g);
		ck_assert_msg(test_sim_live(NULL) <= live + 1,
			      "call %d left something: %ld, not %ld", i, test_sim_live(NULL), live);
		live = test_sim_live(NULL);
	}
	ck_assert_int_gt(failures, 15);
	ck_assert_int_lt(i, 200);
	/* Objects that the driver refused to destroy remain, so the test does not call
	 * vectors_end(). */
}
END_TEST

START_TEST(failing_instantiate_and_upload_leave_the_capture)
{
	struct fdry_cudagraph *g;
	CUgraphExec exec;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	capture_add(g, s);
	test_sim_fail("cuGraphInstantiateWithFlags:1");
	fails(DRIVER, "cannot be instantiated", fdry_cudagraph_instantiate(g, 0));
	ck_assert_int_eq(test_sim_live("exec") + test_sim_live("event"), 0);
	ok(fdry_cudagraph_instantiate(g, 0));
	test_sim_fail("cuGraphUpload:1");
	fails(DRIVER, "cannot be uploaded", fdry_cudagraph_upload(g, s));
	ck_assert_int_eq(test_sim_live("exec") + test_sim_live("event"), 0);
	fails(STATE, "not instantiated", fdry_cudagraph_exec(g, &exec));
	fails(STATE, "not instantiated", fdry_cudagraph_launch(g, s));
	ok(fdry_cudagraph_instantiate(g, 0));
	test_sim_fail("cuEventRecord:1");
	ok(fdry_cudagraph_launch(g, s)); /* waited for instead */
	test_sim_fail(NULL);
	floats_are(c, 3, s);
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* A replacement whose end of capture succeeds without a graph. */
static CUresult CUDAAPI end_nothing(CUstream stream, CUgraph *ret)
{
	CUgraph graph;
	CUresult res;
	CUresult (*real)(CUstream, CUgraph *) = dlsym(drv->handle, "cuStreamEndCapture");

	res = real(stream, &graph);
	if (!res)
		res = drv->cuGraphDestroy(graph);
	*ret = NULL;
	return res;
}

START_TEST(a_capture_without_a_graph)
{
	CUresult (*was)(CUstream, CUgraph *);
	struct fdry_driver *changed;
	struct fdry_cudagraph *g;

	vectors();
	changed = (struct fdry_driver *)drv;
	g = cudagraph_new();
	was = drv->cuStreamEndCapture;
	changed->cuStreamEndCapture = end_nothing;
	ok(fdry_cudagraph_begin(g, NULL));
	fails(STATE, "made no graph", fdry_cudagraph_end(g));
	changed->cuStreamEndCapture = was;
	ck_assert_ptr_null(fdry_stream_current());
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_end(g));
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

/* --- allocation nodes --- */

static void capture_alloc(struct fdry_cudagraph *g, CUstream s, CUdeviceptr *ret)
{
	struct fdry_cudagraph_begin_opts o = begin_opts(s, NULL, 0);
	CUresult (*alloc)(CUdeviceptr *, size_t, CUstream);

	*(void **)&alloc = dlsym(drv->handle, "cuMemAllocAsync");
	ok(fdry_cudagraph_begin(g, &o));
	ck_assert_int_eq(alloc(ret, 4096, s), CUDA_SUCCESS);
	ok(fdry_cudagraph_end(g));
}

START_TEST(auto_free_on_launch)
{
	struct fdry_cudagraph *g;
	CUdeviceptr p;
	CUstream s;

	vectors();
	s = stream_new();
	g = cudagraph_new();
	capture_alloc(g, s, &p);
	ok(fdry_cudagraph_instantiate(g, 0));
	ok(fdry_cudagraph_launch(g, s));
	ck_assert_int_eq(fdry_cudagraph_launch(g, s),
			 -FDRY_E_DRIVER); /* the first call's allocation still exists */
	ok(fdry_cudagraph_reset(g));
	capture_alloc(g, s, &p);
	ok(fdry_cudagraph_instantiate(g, FDRY_INSTANTIATE_AUTO_FREE));
	ok(fdry_cudagraph_launch(g, s));
	ok(fdry_cudagraph_launch(g, s));
	fdry_cudagraph_free(g);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

int main(void)
{
	static const TTest *tests[7];
	size_t n = 0;

	tests[n++] = helper_warms_up_and_captures;
	tests[n++] = helper_returns_a_callback_s_error;
	tests[n++] = helper_leaves_a_capturing_stream_alone;
	tests[n++] = every_failing_call_is_undone;
	tests[n++] = failing_instantiate_and_upload_leave_the_capture;
	tests[n++] = a_capture_without_a_graph;
	tests[n++] = auto_free_on_launch;
	return test_list("run_graph_fail", tests, n);
}
