// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of a launch by slot beside cuGraphLaunch. A graph of one empty kernel is launched by
 * both in turn, in 1, 4 and 8 threads with a stream each; threads have graphs of their own, or
 * share one. The cost of the search alone is that of a replay of a key that no slot has. The driver
 * is FOUNDRY_DRIVER if it is set, such as the software driver, else the machine's own.
 */
#include <pthread.h>
#include <string.h>

#include "foundry/run.h"
#include "tests/lib/backend.h"
#include "tests/lib/clock.h"
#include "tests/lib/gpu.h"
#include "tests/lib/need.h"

#define THREADS_MAX 8
#define ROUNDS 41
#define BATCH 100 /* launches timed together; the stream is idle before and after */
#define MISSING 1000000

static const struct fdry_driver *drv;
static CUcontext ctx;
static struct fdry_slots *table;
static pthread_barrier_t barrier;

struct worker {
	pthread_t thread;
	uint64_t key;
	CUgraphExec exec;
	double plain[ROUNDS], slot[ROUNDS], search[ROUNDS]; /* nanoseconds each */
};

static double plain_batch(const struct worker *w, CUstream s)
{
	double start = now_ns(), end;
	int i;

	for (i = 0; i < BATCH; i++)
		need((int)drv->cuGraphLaunch(w->exec, s), "cuGraphLaunch");
	end = now_ns();
	need((int)drv->cuStreamSynchronize(s), "cuStreamSynchronize");
	return (end - start) / BATCH;
}

static double slot_batch(uint64_t key, CUstream s)
{
	double start = now_ns(), end;
	int i, launched;

	for (i = 0; i < BATCH; i++)
		need(fdry_slots_replay(table, key, s, &launched), "fdry_slots_replay");
	end = now_ns();
	need((int)drv->cuStreamSynchronize(s), "cuStreamSynchronize");
	return (end - start) / BATCH;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	CUstream s;
	int i;

	need((int)drv->cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
	need((int)drv->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	(void)plain_batch(w, s);
	(void)slot_batch(w->key, s);
	for (i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		w->plain[i] = plain_batch(w, s);
		pthread_barrier_wait(&barrier);
		w->slot[i] = slot_batch(w->key, s);
		pthread_barrier_wait(&barrier);
		w->search[i] = slot_batch(MISSING, s);
	}
	pthread_barrier_wait(&barrier);
	need((int)drv->cuStreamDestroy_v2(s), "cuStreamDestroy");
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), ascending);
	return v[ROUNDS / 2];
}

static void run(struct worker *w, unsigned int threads, int shared)
{
	double plain = 0, slot = 0, search = 0;
	unsigned int i;

	pthread_barrier_init(&barrier, NULL, threads);
	for (i = 0; i < threads; i++)
		need(pthread_create(&w[i].thread, NULL, work, &w[i]), "pthread_create");
	for (i = 0; i < threads; i++) {
		pthread_join(w[i].thread, NULL);
		plain += median(w[i].plain) / threads;
		slot += median(w[i].slot) / threads;
		search += median(w[i].search) / threads;
	}
	pthread_barrier_destroy(&barrier);
	printf("%7u  %-6s  %9.0f  %9.0f  %6.3f  %10.0f\n", threads, shared ? "shared" : "own",
	       plain, slot, slot / plain, search);
	fflush(stdout);
}

/* Names its kernel "nothing" on a GPU; "step" on number 0 elsewhere. */
static CUgraph graph_make(void)
{
	static CUdeviceptr x;
	static uint64_t salt = 1;
	static uint32_t spins;
	void *args[] = { &x, &salt, &spins }, *code = NULL;
	CUDA_KERNEL_NODE_PARAMS p = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				      .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = args };
	char path[4096];
	CUmodule module;
	CUgraphNode node;
	CUgraph g;
	FILE *f;

	if (drv->software) {
		snprintf(path, sizeof(path), "%s/sim/kernels.cubin",
			 getenv("BUILD") ? getenv("BUILD") : "build");
		f = fopen(path, "rb");
		code = calloc(1, 1 << 20);
		need(!f || !code || !fread(code, 1, (1 << 20) - 1, f), path);
		fclose(f);
		need((int)drv->cuMemAlloc_v2(&x, 64), "cuMemAlloc");
	}
	need((int)drv->cuModuleLoadDataEx(&module, code ? code : backend_ptx, 0, NULL, NULL),
	     "cuModuleLoadDataEx");
	need((int)drv->cuModuleGetFunction(&p.func, module, drv->software ? "step" : "nothing"),
	     "cuModuleGetFunction");
	need((int)drv->cuGraphCreate(&g, 0), "cuGraphCreate");
	need((int)drv->cuGraphAddKernelNode_v2(&node, g, NULL, 0, &p), "cuGraphAddKernelNode");
	free(code);
	return g;
}

int main(void)
{
	static const unsigned int threads[] = { 1, 4, 8 };
	static struct worker workers[THREADS_MAX];
	unsigned int i, k;
	CUgraph graph;

	if (getenv("FOUNDRY_DRIVER"))
		need(fdry_driver_open(NULL, &drv), "FOUNDRY_DRIVER");
	else
		drv = gpu_driver();
	need((int)drv->cuDevicePrimaryCtxRetain(&ctx, 0), "cuDevicePrimaryCtxRetain");
	need((int)drv->cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
	need(fdry_slots_new(NULL, &table), "fdry_slots_new");
	graph = graph_make();
	for (i = 0; i < THREADS_MAX; i++) {
		need((int)drv->cuGraphInstantiateWithFlags(&workers[i].exec, graph, 0),
		     "cuGraphInstantiateWithFlags");
		need(fdry_slots_install(table, i, NULL, workers[i].exec, 0), "fdry_slots_install");
	}
	printf("a graph of one kernel, on %s; nanoseconds a call: medians of %d rounds of %d\n",
	       drv->path, ROUNDS, BATCH);
	printf("threads  graphs     launch    by slot   ratio  none there\n");
	for (k = 0; k < 2; k++)
		for (i = 0; i < 3; i++) {
			unsigned int w;

			for (w = 0; w < THREADS_MAX; w++) {
				workers[w].key = k ? 0 : w;
				if (k)
					workers[w].exec = workers[0].exec;
			}
			run(workers, threads[i], (int)k);
		}
	fdry_slots_free(table);
	return 0;
}
