// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs, pools, scalars and decode states on a GPU. Kernels are text that the driver compiles.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "foundry/run.h"
#include "tests/lib/parts.h"

#define N 64
#define BYTES (N * sizeof(float))
#define REPLAYS 100

static CUmodule module;

static const char ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	/* y[i] += *alpha * x[i], in two roundings as the host does */
	".visible .entry axpy(.param .u64 a, .param .u64 x, .param .u64 y)\n"
	"{\n"
	"	.reg .u64 %rd<8>; .reg .u32 %r<2>; .reg .f32 %f<5>;\n"
	"	ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y];\n"
	"	mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4;\n"
	"	add.u64 %rd5, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4;\n"
	"	ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd5]; ld.global.f32 %f3, [%rd6];\n"
	"	mul.rn.f32 %f4, %f1, %f2; add.rn.f32 %f3, %f3, %f4;\n"
	"	st.global.f32 [%rd6], %f3; ret;\n"
	"}\n"
	/* log[*pos] = *token << 32 | *len */
	".visible .entry decode(.param .u64 t, .param .u64 p, .param .u64 l, .param .u64 log)\n"
	"{\n"
	"	.reg .u64 %rd<10>; .reg .u32 %r<4>;\n"
	"	ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [p]; ld.param.u64 %rd3, [l]; "
	"ld.param.u64 %rd4, [log];\n"
	"	ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd2]; ld.global.u32 %r3, [%rd3];\n"
	"	mul.wide.u32 %rd5, %r2, 8; add.u64 %rd6, %rd4, %rd5;\n"
	"	cvt.u64.u32 %rd7, %r1; shl.b64 %rd7, %rd7, 32; cvt.u64.u32 %rd8, %r3; or.b64 %rd7, "
	"%rd7, %rd8;\n"
	"	st.global.u64 [%rd6], %rd7; ret;\n"
	"}\n";

static CUfunction kernel(const char *name)
{
	CUfunction f = NULL;

	cu(cuModuleGetFunction, &f, module, name);
	return f;
}

struct axpy {
	CUfunction fn;
	CUdeviceptr alpha, x, y;
	int calls, fail_at;
};

static int axpy_fn(void *arg, CUstream stream)
{
	struct axpy *w = arg;
	void *args[] = { &w->alpha, &w->x, &w->y };

	if (drv->cuLaunchKernel(w->fn, 1, 1, 1, N, 1, 1, 0, stream, args, NULL))
		return 1;
	return ++w->calls == w->fail_at ? 77 : 0;
}

static bool axpy_make(struct axpy *w)
{
	float x[N];
	int i;

	for (i = 0; i < N; i++)
		x[i] = (float)i / 8;
	*w = (struct axpy){ .fn = kernel("axpy"), .alpha = part_mem(8), .x = part_mem(BYTES),
			    .y = part_mem(BYTES) };
	return w->fn && w->alpha && w->x && w->y && cu(cuMemcpyHtoD_v2, w->x, x, BYTES);
}

static float alpha_of(int i)
{
	return 0.125f * (float)(i % 13) - 0.3f;
}

/* A loop of replays with device scalars does not wait, and computes the same numbers as single
 * replays. */
static void scalars(void)
{
	static const uint32_t f32 = FDRY_F32;
	struct fdry_scalars_opts so = { .sz = sizeof(so), .count = 1, .dtypes = &f32 };
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = axpy_fn };
	struct fdry_scalars *s = NULL;
	struct fdry_cudagraph *g = NULL;
	struct axpy w, eager;
	float got[N], want[N];
	CUstream stream;
	fdry_devptr own;
	int i;

	need(axpy_make(&w) && axpy_make(&eager) && (stream = part_stream()));
	need(ok(fdry_scalars_new(&so, &s)) && ok(fdry_scalars_addr(s, 0, &own)) &&
	     ok(fdry_cudagraph_new(NULL, &g)));
	w.alpha = own;
	o.arg = &w;
	o.stream = stream;
	need(ok(fdry_cudagraph_run(g, &o)));
	for (i = 0; i < REPLAYS; i++) {
		union fdry_scalars_value v = { .f32 = alpha_of(i) };

		need(ok(fdry_scalars_update(s, 0, 1, &v, stream)) &&
		     ok(fdry_cudagraph_launch(g, stream)));
	}
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, got, w.y, BYTES);
	for (i = 0; i < REPLAYS; i++) {
		float a = alpha_of(i);

		cu(cuMemcpyHtoD_v2, eager.alpha, &a, sizeof(a));
		cu(cuCtxSynchronize); /* the stream does not wait for that copy */
		check(!axpy_fn(&eager, stream));
		cu(cuStreamSynchronize, stream);
	}
	cu(cuMemcpyDtoH_v2, want, eager.y, BYTES);
	check(!memcmp(got, want, BYTES) && got[N - 1] != 0);
	printf("scalars: y[%d] is %.9g, eagerly %.9g\n", N - 1, (double)got[N - 1],
	       (double)want[N - 1]);
	fdry_cudagraph_free(g);
	fdry_scalars_free(s);
}

struct decoding {
	struct fdry_decode_state_args a;
	CUfunction fn;
	CUdeviceptr log;
};

static int decode_fn(void *arg, CUstream stream)
{
	struct decoding *w = arg;
	void *args[] = { &w->a.token_addr, &w->a.position_addr, &w->a.length_addr, &w->log };

	return drv->cuLaunchKernel(w->fn, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL) ? 1 : 0;
}

static void decode(void)
{
	struct decoding w = { .fn = kernel("decode"), .log = part_mem(REPLAYS * 8) };
	struct fdry_cudagraph_run_opts o = {
		.sz = sizeof(o), .fn = decode_fn, .arg = &w, .warmups = 2
	};
	struct fdry_decode_state *d = NULL;
	struct fdry_cudagraph *g = NULL;
	uint64_t log[REPLAYS];
	CUstream stream = part_stream();
	int i, bad = 0;

	need(ok(fdry_decode_state_new(NULL, &d)) && ok(fdry_decode_state_args(d, &w.a)));
	need(ok(fdry_cudagraph_new(NULL, &g)) && ok(fdry_cudagraph_run(g, &o)));
	for (i = 0; i < REPLAYS; i++)
		need(ok(fdry_decode_state_set(d, 1000 + (uint32_t)i * 7, (uint32_t)i, stream)) &&
		     ok(fdry_cudagraph_launch(g, stream)));
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, log, w.log, sizeof(log));
	for (i = 0; i < REPLAYS; i++)
		bad += log[i] != ((uint64_t)(1000 + i * 7) << 32 | (uint32_t)(i + 1));
	check(!bad);
	printf("decode: %d of %d steps wrong\n", bad, REPLAYS);
	fdry_cudagraph_free(g);
	fdry_decode_state_free(d);
}

/* Test sealed, shared and kept pools, and allocation during captures of each mode. */
static void pools(void)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o) };
	struct fdry_graphpool *p = NULL;
	struct fdry_cudagraph *g = NULL;
	fdry_devptr first = 0, at = 0;
	uint32_t mode;

	need(ok(fdry_graphpool_new(NULL, &p)) && ok(fdry_cudagraph_new(NULL, &g)));
	o.pool = p;
	for (mode = FDRY_CUDAGRAPH_MODE_DEFAULT; mode <= FDRY_CUDAGRAPH_MODE_RELAXED; mode++) {
		o.mode = mode;
		need(ok(fdry_cudagraph_begin(g, &o)));
		ok(fdry_graphpool_mem_alloc(p, BYTES, &at));
		check(!first || at == first);
		first = at;
		cu(cuMemsetD8Async, at, (unsigned char)mode, BYTES, fdry_stream_current());
		ok(fdry_graphpool_mem_free(p, at));
		ok(fdry_cudagraph_end(g));
		ok(fdry_cudagraph_instantiate(g, 0));
		ok(fdry_cudagraph_launch(g, NULL));
		ok(fdry_cudagraph_reset(g));
	}
	ok(fdry_graphpool_seal(p));
	fails(STATE, "is sealed", fdry_cudagraph_begin(g, &o));
	fails(STATE, "is sealed", fdry_graphpool_mem_alloc(p, 8, &at));
	fdry_cudagraph_free(g);
	fdry_graphpool_put(p);
}

/* Test the driver's rules that the library relies on, and the library's errors for them. */
static void errors(void)
{
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o),
					       .mode = FDRY_CUDAGRAPH_MODE_GLOBAL };
	struct fdry_cudagraph_run_opts r = { .sz = sizeof(r), .fn = axpy_fn, .warmups = 1 };
	struct fdry_cudagraph *g = NULL, *ready = NULL;
	struct axpy w;
	CUresult res;

	need(axpy_make(&w) && (o.stream = part_stream()));
	need(ok(fdry_cudagraph_new(NULL, &g)) && ok(fdry_cudagraph_new(NULL, &ready)));
	fails(STATE, "no capture is in progress", fdry_cudagraph_end(g));
	need(ok(fdry_cudagraph_begin(g, &o)));
	res = drv->cuStreamSynchronize(o.stream);
	printf("errors: synchronising what captures gives %d\n", (int)res);
	fails(DRIVER, "the capture made no graph", fdry_cudagraph_end(g));
	w.fail_at = 2;
	r.arg = &w;
	r.stream = o.stream;
	fails(CALLBACK, "failed with 77", fdry_cudagraph_run(g, &r));
	check(!axpy_fn(&w, o.stream)); /* the stream is usable */
	cu(cuStreamSynchronize, o.stream);
	need(ok(fdry_cudagraph_run(ready, &r)));
	need(ok(fdry_cudagraph_begin(g, &o)));
	fails(STATE, "a launch cannot be part of", fdry_cudagraph_launch(ready, o.stream));
	ok(fdry_cudagraph_launch(ready, NULL)); /* beside it, while the mode is global */
	ok(fdry_cudagraph_synchronize(ready));
	ok(fdry_cudagraph_reset(ready));
	fails(STATE, "was reset", fdry_cudagraph_launch(ready, NULL));
	ok(fdry_cudagraph_end(g));
	fdry_cudagraph_free(g);
	fdry_cudagraph_free(ready);
}

/* Only with the flag can an allocating graph be launched again while its memory is allocated. */
static void auto_free(void)
{
	CUresult (*alloc)(CUdeviceptr *, size_t, CUstream);
	struct fdry_cudagraph *g = NULL;
	CUdeviceptr p = 0;
	int i, again;

	*(void **)&alloc = dlsym(drv->handle, "cuMemAllocAsync");
	need(check(alloc != NULL) && ok(fdry_cudagraph_new(NULL, &g)));
	for (i = 0; i < 2; i++) {
		need(ok(fdry_cudagraph_begin(g, NULL)));
		check(!alloc(&p, 4096, fdry_stream_current()));
		cu(cuMemsetD8Async, p, 7, 4096, fdry_stream_current());
		ok(fdry_cudagraph_end(g));
		ok(fdry_cudagraph_instantiate(g, i ? FDRY_INSTANTIATE_AUTO_FREE : 0));
		ok(fdry_cudagraph_launch(g, NULL));
		again = fdry_cudagraph_launch(g, NULL);
		printf("auto_free: second launch %s the flag: %s\n", i ? "with" : "without",
		       again ? fdry_last_error() : "works");
		check((again == 0) == (i == 1));
		ok(fdry_cudagraph_synchronize(g));
		ok(fdry_cudagraph_reset(g));
	}
	fdry_cudagraph_free(g);
}

struct capturer {
	pthread_t thread;
	pthread_barrier_t *both;
	struct axpy w;
	uint32_t mode;
	char why[FDRY_ID_SIZE * 4];
};

static void *capture_beside(void *arg)
{
	struct capturer *c = arg;
	struct fdry_cudagraph_begin_opts o = { .sz = sizeof(o), .mode = c->mode };
	struct fdry_cudagraph *g = NULL;
	struct fdry_graphpool *pool = NULL;
	fdry_devptr extra;
	int i, err = drv->cuCtxSetCurrent(ctx) ? -1 : 0;

	for (i = 0; i < 20; i++) {
		err = err ?: fdry_cudagraph_new(NULL, &g) ?: fdry_cudagraph_begin(g, &o);
		pthread_barrier_wait(c->both);
		err = err ?: fdry_cudagraph_pool(g, &pool) ?:
		      fdry_graphpool_mem_alloc(pool, 3 << 20, &extra) ?:
		      axpy_fn(&c->w, fdry_stream_current());
		pthread_barrier_wait(c->both);
		err = err ?: fdry_cudagraph_end(g) ?: fdry_cudagraph_instantiate(g, 0) ?:
		      fdry_cudagraph_launch(g, NULL);
		if (err && !*c->why)
			snprintf(c->why, sizeof(c->why), "round %d: %d: %s", i, err,
				 fdry_last_error());
		if (!err)
			fdry_cudagraph_free(g);
	}
	return NULL;
}

static void two_threads(void)
{
	static const uint32_t modes[][2] = {
		{ FDRY_CUDAGRAPH_MODE_RELAXED, FDRY_CUDAGRAPH_MODE_RELAXED },
		{ FDRY_CUDAGRAPH_MODE_GLOBAL, FDRY_CUDAGRAPH_MODE_GLOBAL },
		{ FDRY_CUDAGRAPH_MODE_THREAD_LOCAL, FDRY_CUDAGRAPH_MODE_GLOBAL }
	};
	struct capturer c[2];
	pthread_barrier_t both;
	int i, k;

	for (k = 0; k < 3; k++) {
		pthread_barrier_init(&both, NULL, 2);
		memset(c, 0, sizeof(c));
		for (i = 0; i < 2; i++) {
			c[i].both = &both;
			c[i].mode = modes[k][i];
			need(axpy_make(&c[i].w));
		}
		for (i = 0; i < 2; i++)
			pthread_create(&c[i].thread, NULL, capture_beside, &c[i]);
		for (i = 0; i < 2; i++)
			pthread_join(c[i].thread, NULL);
		for (i = 0; i < 2; i++)
			if (!check(!*c[i].why))
				printf("two_threads: modes %u %u, thread %d: %s\n", c[0].mode,
				       c[1].mode, i, c[i].why);
		pthread_barrier_destroy(&both);
	}
}

/* A handle does not identify a stream: driver 580 reuses a handle while work of its former stream
 * is running. */
static void handles(void)
{
	enum { TURNS = 100, NEW = 16, FILLS = 8 };
	CUdeviceptr big = part_mem(1u << 30);
	CUstream old, now[NEW];
	CUevent done;
	int turn, i, busy = 0, again = 0, early = 0;

	need(big && cu(cuEventCreate, &done, CU_EVENT_DISABLE_TIMING));
	for (turn = 0; turn < TURNS; turn++) {
		old = part_stream();
		for (i = 0; i < FILLS; i++)
			cu(cuMemsetD8Async, big, (unsigned char)i, 1u << 30, old);
		cu(cuEventRecord, done, old);
		cu(cuStreamDestroy_v2, old);
		for (i = 0; i < NEW; i++)
			again += (now[i] = part_stream()) == old;
		if (fdry_call_raw(drv, cuEventQuery, done) == CUDA_ERROR_NOT_READY) {
			busy++;
			for (i = 0; i < NEW; i++)
				early += now[i] == old;
		}
		cu(cuEventSynchronize, done);
		for (i = 0; i < NEW; i++)
			cu(cuStreamDestroy_v2, now[i]);
	}
	printf("handles: %d of %d streams gone with work under way; %d handles came again, %d of "
	       "them before that ended\n",
	       busy, TURNS, again, early);
	check(busy > TURNS / 2);
	cu(cuEventDestroy_v2, done);
	cu(cuMemFree_v2, big);
}

int main(void)
{
	static const struct part parts[] = {
		{ "scalars", scalars },	    { "decode", decode },	    { "pools", pools },
		{ "auto_free", auto_free }, { "two_threads", two_threads }, { "errors", errors },
		{ "handles", handles }
	};

	if (parts_begin(NULL) && cu(cuModuleLoadDataEx, &module, ptx, 0, NULL, NULL))
		parts_run(parts, sizeof(parts) / sizeof(parts[0]));
	return gpu_end(checks, failures);
}
