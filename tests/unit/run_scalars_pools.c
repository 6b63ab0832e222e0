// SPDX-License-Identifier: Apache-2.0
/*
 * The features that users of ferrotorch have, row by row of Documentation's table: numbers in
 * device memory, graphs that allocate, pools that are sealed, and errors without a driver.
 */
#include "tests/lib/run.h"

#define REPLAYS 100

/* y += alpha x */
static int axpy_fn(void *arg, CUstream stream)
{
	CUdeviceptr *p = arg; /* alpha, x, y */
	int n = N;

	launch("axpy_at", stream, &p[0], &p[1], &p[2], &n);
	return 0;
}

static void ramp_set(CUdeviceptr p)
{
	float x[N];
	int i;

	for (i = 0; i < N; i++)
		x[i] = (float)i / 8;
	cu(cuMemcpyHtoD_v2, p, x, BYTES);
}

static float alpha_of(int i)
{
	return 0.125f * (float)(i % 13) - 0.3f;
}

/* The same without a graph or a scalar: each value copied by itself and waited for. */
static void eager(CUdeviceptr *p, CUstream stream, float *ret)
{
	int i;

	for (i = 0; i < REPLAYS; i++) {
		cu(cuMemcpyHtoD_v2, p[0], &(float){ alpha_of(i) }, sizeof(float));
		ck_assert_int_eq(axpy_fn(p, stream), 0);
		cu(cuStreamSynchronize, stream);
	}
	cu(cuMemcpyDtoH_v2, ret, p[2], BYTES);
}

START_TEST(T1_replay_loop)
{
	static const uint32_t f32 = FDRY_F32;
	struct fdry_scalars_opts so = { .sz = sizeof(so), .count = 1, .dtypes = &f32 };
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = axpy_fn,
					     .flags = FDRY_INSTANTIATE_AUTO_FREE };
	struct fdry_scalars *alpha = NULL;
	struct fdry_cudagraph *g;
	CUdeviceptr p[3], q[3];
	float want[N], got[N];
	fdry_devptr addr;
	CUstream stream;
	int i;

	run_open();
	stream = stream_new();
	ok(fdry_scalars_new(&so, &alpha));
	ok(fdry_scalars_addr(alpha, 0, &p[0]));
	q[0] = mem(8);
	for (i = 1; i < 3; i++) {
		p[i] = mem(BYTES);
		q[i] = mem(BYTES);
	}
	ramp_set(p[1]);
	ramp_set(q[1]);
	g = cudagraph_new();
	o.arg = p;
	o.stream = stream;
	ok(fdry_cudagraph_run(g, &o));
	for (i = 0; i < REPLAYS; i++) {
		ok(fdry_scalars_update(alpha, 0, 1,
				       &(union fdry_scalars_value){ .f32 = alpha_of(i) }, stream));
		ok(fdry_cudagraph_launch(g, stream));
	}
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, got, p[2], BYTES);
	eager(q, stream, want);
	ck_assert_mem_eq(got, want, BYTES);
	ck_assert(got[N - 1] != 0);
	ok(fdry_scalars_addr(alpha, 0, &addr)); /* the graph keeps it, and its address can be
						   read */
	ck_assert_uint_eq(addr, p[0]);
	fdry_cudagraph_free(g);
	fdry_scalars_free(alpha);
	mem_free(q[0]);
	for (i = 1; i < 3; i++) {
		mem_free(p[i]);
		mem_free(q[i]);
	}
	cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

START_TEST(T1_sizes_and_types)
{
	static const uint32_t dtypes[] = { FDRY_I8, FDRY_U8, FDRY_I16, FDRY_F16, FDRY_I32,
					   FDRY_U32, FDRY_F32, FDRY_I64, FDRY_U64, FDRY_F64 };
	struct fdry_scalars_opts so = { .sz = sizeof(so),
					.count = sizeof(dtypes) / sizeof(dtypes[0]),
					.dtypes = dtypes };
	union fdry_scalars_value v[10] = { { .i8 = -3 },      { .u8 = 200 },
					   { .i16 = -300 },   { .u16 = 0x3c00 },
					   { .i32 = -70000 }, { .u32 = 4000000000u },
					   { .f32 = 0.1f },   { .i64 = -5000000000 },
					   { .u64 = ~0ull },  { .f64 = 0.1 } };
	union fdry_scalars_value got;
	struct fdry_scalars *s = NULL;
	fdry_devptr a, b;
	uint32_t i;

	run_open();
	ok(fdry_scalars_new(&so, &s));
	test_sim_fail(NULL);
	ok(fdry_scalars_update(s, 0, 10, v, NULL)); /* all by one call */
	ck_assert_uint_eq(test_sim_calls("cuStreamBatchMemOp_v2"), 1);
	for (i = 0; i < 10; i++) {
		ok(fdry_scalars_read(s, i, &got, NULL));
		ck_assert_mem_eq(got.bytes, v[i].bytes, fdry_dtype_size(dtypes[i]));
		ok(fdry_scalars_addr(s, i, &a));
		ck_assert(!i || a == b + 8);
		b = a;
	}
	fdry_scalars_free(s);
	run_close();
}
END_TEST

static CUresult alloc_async(CUdeviceptr *ret, size_t size, CUstream stream)
{
	CUresult (*alloc)(CUdeviceptr *, size_t, CUstream);

	*(void **)&alloc = dlsym(drv->handle, "cuMemAllocAsync");
	return alloc(ret, size, stream);
}

/* The next launch frees memory that a launch allocated and left. */
START_TEST(T2_auto_free_on_launch)
{
	struct fdry_cudagraph *g;
	CUdeviceptr p;
	CUstream side;
	int i;

	run_open();
	g = cudagraph_new();
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_stream(g, &side));
	ck_assert_int_eq(alloc_async(&p, BYTES, side), CUDA_SUCCESS);
	cu(cuMemsetD8Async, p, 7, BYTES, side);
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_instantiate(g, FDRY_INSTANTIATE_AUTO_FREE));
	for (i = 0; i < REPLAYS; i++)
		ok(fdry_cudagraph_launch(g, NULL));
	ok(fdry_cudagraph_synchronize(g));
	ck_assert_uint_eq(word(p), 0x0707070707070707);
	fdry_cudagraph_free(g);
	run_close();
}
END_TEST

START_TEST(T3_sealed_pools)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o) };
	struct fdry_graphpool *pool;
	struct fdry_cudagraph *g;
	fdry_devptr p;
	uint32_t sealed;

	run_open();
	pool = pool_new();
	g = cudagraph_new();
	o.pool = pool;
	ok(fdry_graphpool_mem_alloc(pool, BYTES, &p));
	ok(fdry_graphpool_sealed(pool, &sealed));
	ck_assert_uint_eq(sealed, 0);
	ok(fdry_graphpool_seal(pool));
	ok(fdry_graphpool_sealed(pool, &sealed));
	ck_assert_uint_eq(sealed, 1);
	fails(STATE, "no capture can begin: the pool (0, ", fdry_cudagraph_begin(g, &o));
	fails(STATE, ") is sealed; call fdry_graphpool_unseal()", fdry_cudagraph_begin(g, &o));
	fails(STATE, "is sealed", fdry_graphpool_mem_alloc(pool, 8, &p));
	ok(fdry_graphpool_unseal(pool));
	ok(fdry_cudagraph_begin(g, &o));
	ok(fdry_cudagraph_end(g));
	fdry_cudagraph_free(g);
	fdry_graphpool_put(pool);
	run_close();
}
END_TEST

/* A buffer of the pool that a capture used lives as long as the graph, also after the pool's owner
 * has freed the pool. */
START_TEST(T3_buffers_outlive_the_graph)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o) };
	struct fdry_graphpool *pool;
	struct fdry_cudagraph *g;
	fdry_devptr p;
	int i;

	run_open();
	pool = pool_new();
	o.pool = pool;
	for (i = 0; i < 2; i++) {
		g = cudagraph_new();
		ok(fdry_cudagraph_begin(g, &o));
		if (!i)
			ok(fdry_graphpool_mem_alloc(pool, BYTES, &p));
		cu(cuMemsetD8Async, p, (unsigned char)(i + 1), BYTES, fdry_stream_current());
		ok(fdry_cudagraph_end(g));
		ok(fdry_cudagraph_instantiate(g, 0));
		if (i)
			fdry_graphpool_put(pool);
		ok(fdry_cudagraph_launch(g, NULL));
		ok(fdry_cudagraph_synchronize(g));
		ck_assert_uint_eq(word(p) & 0xff, i + 1u);
		fdry_cudagraph_free(g);
		if (!i)
			ck_assert_uint_eq(word(p) & 0xff, 1); /* it outlived the graph */
	}
	run_close();
}
END_TEST

static void no_cuda(void)
{
	static const uint32_t f32 = FDRY_F32;
	struct fdry_scalars_opts so = { .sz = sizeof(so), .count = 1, .dtypes = &f32 };
	struct fdry_scalars *s = NULL;
	struct fdry_cudagraph *g = NULL;
	struct fdry_graphpool *p = NULL;
	struct fdry_decode_state *d = NULL;

	ck_assert(!setenv("FOUNDRY_DRIVER", "/nonexistent/libcuda.so.1", 1));
	fails(NODRIVER, "no CUDA driver", fdry_scalars_new(&so, &s));
	fails(NODRIVER, "no CUDA driver", fdry_cudagraph_new(NULL, &g));
	fails(NODRIVER, "no CUDA driver", fdry_graphpool_new(NULL, &p));
	fails(NODRIVER, "no CUDA driver", fdry_decode_state_new(NULL, &d));
}

START_TEST(T4_no_cuda)
{
	in_child(no_cuda);
}
END_TEST

/* An invalidated capture, or one that was never begun, yields no graph. */
START_TEST(T4_no_graph)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o),
					       .mode = FDRY_CUDAGRAPH_MODE_THREAD_LOCAL };
	struct fdry_cudagraph *g;
	CUstream side;
	CUgraph graph;

	run_open();
	g = cudagraph_new();
	fails(STATE, "no capture is in progress", fdry_cudagraph_end(g));
	ok(fdry_cudagraph_begin(g, &o));
	ok(fdry_cudagraph_stream(g, &side));
	ck_assert_int_ne(drv->cuStreamSynchronize(side), CUDA_SUCCESS);
	fails(DRIVER, "the capture made no graph", fdry_cudagraph_end(g));
	fails(STATE, "nothing is captured", fdry_cudagraph_graph(g, &graph));
	fails(STATE, "nothing is captured", fdry_cudagraph_launch(g, NULL));
	fdry_cudagraph_free(g);
	run_close();
}
END_TEST

int main(void)
{
	static const TTest *tests[7];
	size_t n = 0;

	tests[n++] = T1_replay_loop;
	tests[n++] = T1_sizes_and_types;
	tests[n++] = T2_auto_free_on_launch;
	tests[n++] = T3_sealed_pools;
	tests[n++] = T3_buffers_outlive_the_graph;
	tests[n++] = T4_no_cuda;
	tests[n++] = T4_no_graph;
	return test_list("run_scalars_pools", tests, n);
}
