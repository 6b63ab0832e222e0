// SPDX-License-Identifier: Apache-2.0
/*
 * The features that users of flodl have, row by row of Documentation's table: graphs with pools and
 * modes, the capture helper, and a training step whose parameters change as without graphs. L7, and
 * L5 by way of an image, are at the end, in two processes.
 */
#include <sys/mman.h>

#include "foundry/run.h"
#include "tests/lib/image.h"

#define SAMPLES 8
#define REPLAYS 100

static const struct fdry_driver *drv;

#define cu(fn, ...) ck_assert_int_eq(drv->fn(__VA_ARGS__), CUDA_SUCCESS)

/* A linear layer of one input, its data, its gradients, its optimiser. */
struct model {
	CUmodule module;
	CUdeviceptr w, x, y, target, grad, loss, rate;
	float host_x[SAMPLES], host_target[SAMPLES];
};

static CUdeviceptr mem(size_t bytes)
{
	CUdeviceptr p;

	cu(cuMemAlloc_v2, &p, bytes);
	cu(cuMemsetD8Async, p, 0, bytes, NULL);
	cu(cuCtxSynchronize);
	return p;
}

static CUfunction kernel(const struct model *m, const char *name)
{
	CUfunction f;

	cu(cuModuleGetFunction, &f, m->module, name);
	return f;
}

static void model_make(struct model *m)
{
	const float w[2] = { 0.5f, -0.25f }, rate = 0.05f;
	size_t len;
	void *cubin;

	cubin = test_sim_cubin("train", &len);
	cu(cuModuleLoadDataEx, &m->module, cubin, 0, NULL, NULL);
	free(cubin);
	m->w = mem(sizeof(w));
	m->x = mem(sizeof(m->host_x));
	m->y = mem(sizeof(m->host_x));
	m->target = mem(sizeof(m->host_x));
	m->grad = mem(sizeof(w));
	m->loss = mem(sizeof(float));
	m->rate = mem(sizeof(float));
	cu(cuMemcpyHtoD_v2, m->w, w, sizeof(w));
	cu(cuMemcpyHtoD_v2, m->rate, &rate, sizeof(rate));
}

static void model_free(struct model *m)
{
	CUdeviceptr all[] = { m->w, m->x, m->y, m->target, m->grad, m->loss, m->rate };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		cu(cuMemFree_v2, all[i]);
	cu(cuModuleUnload, m->module);
}

static void start(void)
{
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	drv = test_sim();
}

static struct fdry_cudagraph *graph_new(void)
{
	struct fdry_cudagraph *g = NULL;

	ok(fdry_cudagraph_new(NULL, &g));
	return g;
}

#define run(m, stream, name, ...) \
	do { \
		void *run_args[] = { __VA_ARGS__ }; \
		cu(cuLaunchKernel, kernel(m, name), 1, 1, 1, SAMPLES, 1, 1, 0, stream, run_args, \
		   NULL); \
	} while (0)

/* zero_grad, forward, loss, backward, optimiser step */
static int train_step(void *arg, CUstream stream)
{
	struct model *m = arg;
	int n = SAMPLES, two = 2;

	cu(cuMemsetD32Async, m->grad, 0, 2, stream);
	run(m, stream, "linear", &m->w, &m->x, &m->y, &n);
	run(m, stream, "mse_backward", &m->x, &m->y, &m->target, &m->grad, &m->loss, &n);
	run(m, stream, "sgd", &m->w, &m->grad, &m->rate, &two);
	return 0;
}

/* The data of step @i: of the line y = 2 x - 1. */
static void batch(float *x, float *target, int i)
{
	int k;

	for (k = 0; k < SAMPLES; k++) {
		x[k] = (float)((i * 5 + k * 3) % 11) / 5 - 1;
		target[k] = 2 * x[k] - 1;
	}
}

static void batch_write(struct model *m, int i, CUstream stream)
{
	batch(m->host_x, m->host_target, i);
	cu(cuMemcpyHtoDAsync_v2, m->x, m->host_x, sizeof(m->host_x), stream);
	cu(cuMemcpyHtoDAsync_v2, m->target, m->host_target, sizeof(m->host_x), stream);
}

static void params(struct model *m, float *ret, CUstream stream)
{
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, ret, m->w, 2 * sizeof(float));
}

/* c = a + a, or three times a, as the seed's tests capture */
struct sums {
	CUdeviceptr a, b, c;
	CUfunction vecadd;
	bool three;
};

static int sum_fn(void *arg, CUstream stream)
{
	struct sums *s = arg;
	int n = 4;
	void *args[] = { &s->a, &s->b, &s->c, &n }, *more[] = { &s->a, &s->c, &s->c, &n };

	if (drv->cuLaunchKernel(s->vecadd, 1, 1, 1, 4, 1, 1, 0, stream, args, NULL))
		return 1;
	return s->three && drv->cuLaunchKernel(s->vecadd, 1, 1, 1, 4, 1, 1, 0, stream, more, NULL)
		       ? 2
		       : 0;
}

static void sums_are(const struct sums *s, float want)
{
	float c[4];
	int i;

	cu(cuCtxSynchronize);
	cu(cuMemcpyDtoH_v2, c, s->c, sizeof(c));
	for (i = 0; i < 4; i++)
		ck_assert_msg(c[i] == want, "c[%d] is %g", i, (double)c[i]);
}

static void sums_make(struct sums *s)
{
	const float ones[4] = { 1, 1, 1, 1 };
	CUmodule module;
	size_t len;
	void *cubin = test_sim_cubin("kernels", &len);

	*s = (struct sums){ .a = mem(16), .b = mem(16), .c = mem(16) };
	cu(cuMemcpyHtoD_v2, s->a, ones, sizeof(ones));
	cu(cuMemcpyHtoD_v2, s->b, ones, sizeof(ones));
	cu(cuModuleLoadDataEx, &module, cubin, 0, NULL, NULL);
	free(cubin);
	cu(cuModuleGetFunction, &s->vecadd, module, "vecadd");
}

START_TEST(L1_pools)
{
	struct fdry_graphpool_id id, own_id;
	struct fdry_graphpool *pool, *own, *found;
	struct fdry_cudagraph *g[2], *alone;
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o) };
	fdry_devptr p[2];
	int i;

	start();
	ok(fdry_graphpool_new(NULL, &pool));
	ok(fdry_graphpool_id(pool, &id));
	ck_assert(id.hi || id.lo);
	o.pool = pool;
	for (i = 0; i < 2; i++) {
		g[i] = graph_new();
		ok(fdry_cudagraph_begin(g[i], &o));
		ok(fdry_cudagraph_pool(g[i], &found));
		ck_assert_ptr_eq(found, pool);
		ok(fdry_graphpool_mem_alloc(pool, 100, &p[i]));
		ok(fdry_graphpool_mem_free(pool, p[i]));
		ok(fdry_cudagraph_end(g[i]));
	}
	ck_assert_uint_eq(p[0], p[1]); /* memory is shared */
	alone = graph_new();
	ok(fdry_cudagraph_pool(alone, &own));
	ok(fdry_graphpool_id(own, &own_id));
	ck_assert((own_id.hi || own_id.lo) && (own_id.hi != id.hi || own_id.lo != id.lo));
	fdry_cudagraph_free(alone);
	fdry_cudagraph_free(g[0]);
	fdry_cudagraph_free(g[1]);
	fdry_graphpool_put(pool);
}
END_TEST

START_TEST(L2_modes)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o) };
	struct fdry_cudagraph *g;
	CUdeviceptr p;
	uint32_t mode;

	start();
	for (mode = FDRY_CUDAGRAPH_MODE_DEFAULT; mode <= FDRY_CUDAGRAPH_MODE_RELAXED; mode++) {
		bool relaxed =
			mode == FDRY_CUDAGRAPH_MODE_DEFAULT || mode == FDRY_CUDAGRAPH_MODE_RELAXED;
		CUstreamCaptureMode thread = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

		g = graph_new();
		o.mode = mode;
		ok(fdry_cudagraph_begin(g, &o));
		cu(cuThreadExchangeStreamCaptureMode, &thread);
		ck_assert_int_eq(!drv->cuMemAlloc_v2(&p, 16), relaxed);
		cu(cuThreadExchangeStreamCaptureMode, &thread);
		ck_assert_int_eq(!fdry_cudagraph_end(g), relaxed);
		fdry_cudagraph_free(g);
	}
}
END_TEST

START_TEST(L3_reset_and_capture_again)
{
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = sum_fn, .warmups = 1 };
	struct fdry_cudagraph *g;
	CUstream side;
	struct sums s;
	int i;

	start();
	sums_make(&s);
	o.arg = &s;
	g = graph_new();
	ok(fdry_cudagraph_run(g, &o));
	ok(fdry_cudagraph_launch(g, NULL));
	sums_are(&s, 2);
	ok(fdry_cudagraph_reset(g));
	fails(STATE, "was reset", fdry_cudagraph_launch(g, NULL));
	s.three = true;
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_stream(g, &side));
	ck_assert_int_eq(sum_fn(&s, side), 0);
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_instantiate(g, 0));
	for (i = 0; i < REPLAYS; i++)
		ok(fdry_cudagraph_launch(g, NULL));
	sums_are(&s, 3);
	fdry_cudagraph_free(g);
}
END_TEST

static int counted(void *arg, CUstream stream)
{
	(void)stream;
	++*(int *)arg;
	return 0;
}

START_TEST(L4_capture_helper)
{
	int calls = 0;
	struct fdry_cudagraph_run_opts o = {
		.sz = sizeof(o), .fn = counted, .arg = &calls, .warmups = 3
	};
	struct fdry_cudagraph *g;

	start();
	g = graph_new();
	ok(fdry_cudagraph_run(g, &o));
	ck_assert_int_eq(calls, 4); /* three to warm up, one captured */
	ok(fdry_cudagraph_launch(g, NULL));
	ck_assert_int_eq(calls, 4);
	fdry_cudagraph_free(g);
}
END_TEST

/* 100 replays, each with a batch of its own, beside the same steps without a graph: the same to the
 * bit. */
START_TEST(L5_training_step)
{
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = train_step, .warmups = 3 };
	float graphed[REPLAYS + 1][2], eager[2];
	struct fdry_cudagraph *g;
	struct model m = { 0 }, other = { 0 };
	CUstream stream;
	int i;

	start();
	cu(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	model_make(&m);
	model_make(&other);
	batch_write(&m, 0, NULL);
	batch_write(&other, 0, NULL);
	cu(cuCtxSynchronize);
	g = graph_new();
	o.arg = &m;
	ok(fdry_cudagraph_run(g, &o));
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(train_step(&other, stream), 0);
	params(&m, graphed[0], stream);
	params(&other, eager, stream);
	ck_assert_mem_eq(graphed[0], eager, sizeof(eager));
	for (i = 0; i < REPLAYS; i++) {
		batch_write(&m, i + 1, stream);
		ok(fdry_cudagraph_launch(g, stream));
		params(&m, graphed[i + 1], stream);
		batch_write(&other, i + 1, stream);
		ck_assert_int_eq(train_step(&other, stream), 0);
		params(&other, eager, stream);
		ck_assert_msg(!memcmp(graphed[i + 1], eager, sizeof(eager)),
			      "replay %d: %g %g, not %g %g", i, (double)graphed[i + 1][0],
			      (double)graphed[i + 1][1], (double)eager[0], (double)eager[1]);
		ck_assert_mem_ne(graphed[i + 1], graphed[i], sizeof(eager)); /* they moved */
	}
	ck_assert_float_eq_tol(eager[0], 2, 0.3f); /* and with the expected value */
	ck_assert_float_eq_tol(eager[1], -1, 0.3f);
	fdry_cudagraph_free(g);
	model_free(&m);
	model_free(&other);
	cu(cuStreamDestroy_v2, stream);
}
END_TEST

static void nothing_there(void *arg)
{
	struct fdry_cudagraph *g = NULL;
	struct fdry_graphpool *pool = NULL;

	(void)arg;
	ck_assert(!setenv("FOUNDRY_DRIVER", "/nonexistent/libcuda.so.1", 1));
	fails(NODRIVER, "no CUDA driver", fdry_cudagraph_new(NULL, &g));
	fails(NODRIVER, "no CUDA driver", fdry_graphpool_new(NULL, &pool));
	fails(INVAL, "no graph", fdry_cudagraph_begin(g, NULL));
	fails(INVAL, "no graph", fdry_cudagraph_launch(g, NULL));
	fails(INVAL, "no graph", fdry_cudagraph_reset(g));
	fdry_cudagraph_free(g);
}

START_TEST(L6_without_a_gpu)
{
	test_child(nothing_there, NULL);
}
END_TEST

static int fails_midway(void *arg, CUstream stream)
{
	return sum_fn(arg, stream) ? 1 : 99;
}

START_TEST(L8_side_stream)
{
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = fails_midway };
	struct fdry_cudagraph_begin_opts b = { .sz = sizeof(b) };
	struct fdry_cudagraph *g;
	CUstream mine, side;
	struct sums s;

	start();
	sums_make(&s);
	o.arg = &s;
	cu(cuStreamCreate, &mine, CU_STREAM_NON_BLOCKING);
	(void)fdry_stream_make_current(mine);
	g = graph_new();
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_stream(g, &side));
	ck_assert(side != mine && side == fdry_stream_current());
	ok(fdry_cudagraph_end(g));
	ck_assert_ptr_eq(fdry_stream_current(), mine);
	ok(fdry_cudagraph_reset(g));
	fails(CALLBACK, "failed with 99", fdry_cudagraph_run(g, &o));
	ck_assert_ptr_eq(fdry_stream_current(), mine);
	o.stream = mine;
	fails(CALLBACK, "failed with 99", fdry_cudagraph_run(g, &o));
	ck_assert_int_eq(sum_fn(&s, mine), 0); /* it does not capture any more */
	sums_are(&s, 2);
	b.stream = mine;
	ok(fdry_cudagraph_begin(g, &b)); /* and can again */
	ok(fdry_cudagraph_end(g));
	fdry_cudagraph_free(g);
	(void)fdry_stream_make_current(NULL);
	cu(cuStreamDestroy_v2, mine);
}
END_TEST

/* --- L5 and L7 through an image: another process continues the training step that one captured ---
 */

/* The capturing process' state after REPLAYS more steps; the other process must reach it. */
struct trained {
	float w[REPLAYS][2];
};

static void tensor_named(struct fdry_capture *cap, const char *name, CUdeviceptr addr, int64_t n,
			 uint32_t use)
{
	struct fdry_tensor t = { .name = name, .addr = addr, .dtype = FDRY_F32, .use = use,
				 .rank = 1, .shape = { n }, .stride = { 1 } };

	ok(fdry_capture_tensor(cap, &t));
}

static void model_seal(struct work *w, struct model *m, struct fdry_cudagraph *g)
{
	CUgraph graph;

	ok(fdry_cudagraph_graph(g, &graph));
	ok(fdry_capture_graph(w->cap, 1, "train", graph));
	tensor_named(w->cap, "w", m->w, 2, FDRY_USE_STATE);
	tensor_named(w->cap, "x", m->x, SAMPLES, FDRY_USE_INPUT);
	tensor_named(w->cap, "target", m->target, SAMPLES, FDRY_USE_INPUT);
	ok(work_seal(w, "img"));
}

/* The driver as programs see it under the interposer, as a table. */
static void train_and_seal(void *arg)
{
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = train_step, .warmups = 3 };
	struct trained *t = arg;
	struct fdry_cudagraph *g;
	struct model m = { 0 };
	struct work w;
	int i;

	work_make(&w);
	ok(fdry_driver_open("libcuda.so.1", &drv));
	model_make(&m);
	batch_write(&m, 0, NULL);
	cu(cuCtxSynchronize);
	g = graph_new();
	o.arg = &m;
	ok(fdry_cudagraph_run(g, &o));
	model_seal(&w, &m, g); /* before any replay: as the warm-up left it */
	for (i = 0; i < REPLAYS; i++) {
		batch_write(&m, i + 1, w.stream);
		ok(fdry_cudagraph_launch(g, w.stream));
		params(&m, t->w[i], w.stream);
	}
	fdry_cudagraph_free(g);
	work_end(&w);
}

START_TEST(L5_L7_through_an_image)
{
	struct trained *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	float x[SAMPLES], target[SAMPLES], w[2];
	struct fdry_image *img;
	int i;

	ck_assert_ptr_ne(t, MAP_FAILED);
	test_child(train_and_seal, t);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	for (i = 0; i < REPLAYS; i++) {
		batch(x, target, i + 1);
		ok(fdry_image_write_async(img, "x", x, sizeof(x), NULL));
		ok(fdry_image_write_async(img, "target", target, sizeof(target), NULL));
		ok(fdry_image_launch(img, 1, NULL));
		ok(fdry_image_read(img, "w", w, sizeof(w), NULL));
		ck_assert_msg(!memcmp(w, t->w[i], sizeof(w)), "step %d: %g %g, not %g %g", i,
			      (double)w[0], (double)w[1], (double)t->w[i][0], (double)t->w[i][1]);
	}
	fdry_image_unload(img);
	munmap(t, sizeof(*t));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_training");
	TCase *tc = tcase_create("run_training");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, L1_pools);
	tcase_add_test(tc, L2_modes);
	tcase_add_test(tc, L3_reset_and_capture_again);
	tcase_add_test(tc, L4_capture_helper);
	tcase_add_test(tc, L5_training_step);
	tcase_add_test(tc, L6_without_a_gpu);
	tcase_add_test(tc, L8_side_stream);
	tcase_add_test(tc, L5_L7_through_an_image);
	suite_add_tcase(s, tc);
	return test_main(s);
}
