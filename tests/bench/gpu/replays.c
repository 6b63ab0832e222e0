// SPDX-License-Identifier: Apache-2.0
/*
 * replays.c - which earlier work in a context makes replays of a graph slower.
 *
 *   replays [-s] [-c CASE] [-k CODE] [-f FLAGS]
 *
 * Each case is a process of its own with one context. It builds a chain of small kernels, replays
 * it, does what the case is about, and replays the chain again; then a chain that is built after
 * that. Prints one line a case: milliseconds of a replay before, after, and of the new chain; how
 * long the history took; and microseconds a node to add, instantiate and upload the first chain
 * after it, and seven more. Graphs that are thrown away may leave the driver memory for those: the
 * last case makes and destroys them while content is copied, and the one before copies alone. It
 * took as long as the copy and the graph that was being made when the copy ended.
 *
 * With -s, each line is a sequence of steps on chains, with the milliseconds of each replay:
 * I makes a chain, U and V make and upload one, on a stream of its own and on that of the launches;
 * l launches it once, L replays it; C and D run a kernel, on the stream of the uploads and on that
 * of the launches; S and T launch a new graph of one kernel, without and with an upload; E uploads
 * such a graph; R makes another context and destroys it.
 *
 * On the software driver, where the figures say nothing about a GPU, CODE is a file with its
 * kernels (build/sim/kernels.cubin). FLAGS: of cuGraphInstantiateWithFlags().
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "tests/bench/gpu/chains.h"

#define SMALL 64 /* nodes of graphs that are only there */
#define REPLAYS 40

static const char *code_file;
static unsigned long long flags;

/* --- histories --- */

static void nothing(const struct bench *b, int n)
{
	(void)b, (void)n;
}

static void streams(const struct bench *b, int n)
{
	CUstream s;

	while (n--) {
		cu(b, cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
		kernel_launch(b, b->add, s);
		cu(b, cuStreamSynchronize, s);
	}
}

static void execs_made(const struct bench *b, int n)
{
	while (n--)
		(void)exec_new(b, NODES, 1);
}

static void execs_uploaded(const struct bench *b, int n)
{
	while (n--)
		(void)exec_uploaded(b, NODES, 1);
}

static void execs_destroyed(const struct bench *b, int n)
{
	while (n--)
		cu(b, cuGraphExecDestroy, exec_uploaded(b, NODES, 1));
}

/* Kept at the same time, then destroyed, as an image that is unloaded. */
static void execs_round(const struct bench *b, int n)
{
	CUgraphExec exec[256];
	int i;

	for (i = 0; i < n; i++)
		exec[i] = exec_uploaded(b, NODES, 1);
	for (i = 0; i < n; i++)
		cu(b, cuGraphExecDestroy, exec[i]);
}

/* One graph with the nodes of @n. */
static void large_destroyed(const struct bench *b, int n)
{
	cu(b, cuGraphExecDestroy, exec_uploaded(b, n * NODES, 1));
}

static void execs_unused(const struct bench *b, int n)
{
	CUgraphExec exec[256];
	int i;

	for (i = 0; i < n; i++)
		exec[i] = exec_new(b, NODES, 1);
	for (i = 0; i < n; i++)
		cu(b, cuGraphExecDestroy, exec[i]);
}

static void rounds(const struct bench *b, int n)
{
	while (n--)
		execs_round(b, 32);
}

static void rounds_launched(const struct bench *b, int n)
{
	CUgraphExec exec;

	while (n--) {
		exec = exec_uploaded(b, NODES, 1);
		cu(b, cuGraphLaunch, exec, NULL);
		execs_round(b, 31);
		cu(b, cuCtxSynchronize);
		cu(b, cuGraphExecDestroy, exec);
	}
}

/* Measure a graph whose chains run concurrently, on the driver's own streams. */
static void branches(const struct bench *b, int n)
{
	CUgraphExec exec = exec_uploaded(b, n * 8, n);

	cu(b, cuGraphLaunch, exec, b->launches);
	cu(b, cuStreamSynchronize, b->launches);
}

static void branches_uploaded(const struct bench *b, int n)
{
	(void)exec_uploaded(b, n * 8, n);
}

static void modules(const struct bench *b, int n)
{
	CUfunction f;
	CUmodule *m = calloc((size_t)n, sizeof(*m));
	int i;

	for (i = 0; m && i < n; i++) {
		cu(b, cuModuleLoadDataEx, &m[i], b->code, 0, NULL, NULL);
		cu(b, cuModuleGetFunction, &f, m[i], "vecadd");
		kernel_launch(b, f, b->launches);
	}
	cu(b, cuCtxSynchronize);
	for (i = 0; m && i < n; i++)
		cu(b, cuModuleUnload, m[i]);
	free(m);
}

static void local_memory(const struct bench *b, int n)
{
	(void)n;
	kernel_launch(b, b->deep, b->launches);
	cu(b, cuCtxSynchronize);
}

static void printf_limit(const struct bench *b, int n)
{
	cu(b, cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE, (size_t)n << 20);
}

static void copies(const struct bench *b, int n)
{
	CUdeviceptr p;
	void *host;

	cu(b, cuMemAlloc_v2, &p, 4u << 20);
	cu(b, cuMemHostAlloc, &host, 4u << 20, 0);
	while (n--) {
		cu(b, cuMemcpyHtoDAsync_v2, p, host, 4u << 20, b->uploads);
		cu(b, cuMemsetD8Async, p, 0, 4u << 20, b->uploads);
	}
	cu(b, cuStreamSynchronize, b->uploads);
	cu(b, cuMemFree_v2, p);
	cu(b, cuMemFreeHost, host);
}

static void *thread_work(void *arg)
{
	const struct bench *b = arg;

	cu(b, cuCtxSetCurrent, b->ctx);
	kernel_launch(b, b->add, b->uploads);
	(void)exec_uploaded(b, SMALL, 1);
	return NULL;
}

static void threads(const struct bench *b, int n)
{
	pthread_t t;

	while (n--)
		if (pthread_create(&t, NULL, thread_work, (void *)b) || pthread_join(t, NULL))
			abort();
}

static void memory_mapped(const struct bench *b, int n)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, b->device } };
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, b->device },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	size_t size = (size_t)n << 20;
	CUdeviceptr p;

	cu(b, cuMemAddressReserve, &p, size, 0, 0, 0);
	cu(b, cuMemCreate, &handle, size, &prop, 0);
	cu(b, cuMemMap, p, size, 0, handle, 0);
	cu(b, cuMemSetAccess, p, size, &access, 1);
	cu(b, cuMemsetD8Async, p, 0, size, b->uploads);
	cu(b, cuStreamSynchronize, b->uploads);
	cu(b, cuMemUnmap, p, size);
	cu(b, cuMemRelease, handle);
	cu(b, cuMemAddressFree, p, size);
}

/* --- while content travels --- */

static struct {
	const struct bench *b;
	int mib;
	_Atomic bool ended;
} copying;

static void *copy_run(void *arg)
{
	const struct bench *b = copying.b;
	const size_t piece = 4u << 20, size = 64u << 20;
	size_t at, end = (size_t)copying.mib << 20;
	CUdeviceptr p;
	void *host;

	cu(b, cuCtxSetCurrent, b->ctx);
	cu(b, cuMemAlloc_v2, &p, size);
	cu(b, cuMemHostAlloc, &host, size, 0);
	for (at = 0; at < end; at += piece) {
		cu(b, cuMemcpyHtoDAsync_v2, p + at % size, (char *)host + at % size, piece,
		   b->uploads);
		if (at % size == size - piece)
			cu(b, cuStreamSynchronize, b->uploads);
	}
	cu(b, cuStreamSynchronize, b->uploads);
	copying.ended = true;
	return arg;
}

static void copy_beside(const struct bench *b, int mib, bool graphs)
{
	CUstream own;
	pthread_t t;

	copying.b = b;
	copying.mib = mib;
	if (pthread_create(&t, NULL, copy_run, NULL))
		abort();
	cu(b, cuStreamCreate, &own, CU_STREAM_NON_BLOCKING);
	while (graphs && !copying.ended) {
		CUgraphExec exec = exec_new(b, NODES, 1);

		cu(b, cuGraphUpload, exec, own);
		cu(b, cuStreamSynchronize, own);
		cu(b, cuGraphExecDestroy, exec);
	}
	if (pthread_join(t, NULL))
		abort();
	cu(b, cuStreamDestroy_v2, own);
}

static void copy_alone(const struct bench *b, int mib)
{
	copy_beside(b, mib, false);
}

static void copy_and_graphs(const struct bench *b, int mib)
{
	copy_beside(b, mib, true);
}

static const struct history {
	const char *what;
	void (*fn)(const struct bench *b, int n);
	int n;
	bool fresh; /* it is measured before the first graph of the process */
} histories[] = {
	{ "nothing", nothing, 0, false },
	{ "kernels on so many streams", streams, 8, false },
	{ "kernels on so many streams", streams, 12, false },
	{ "kernels on so many streams", streams, 14, false },
	{ "kernels on so many streams", streams, 16, false },
	{ "kernels on so many streams", streams, 32, false },
	{ "graphs instantiated and kept", execs_made, 32, false },
	{ "graphs uploaded and kept", execs_uploaded, 1, false },
	{ "graphs uploaded and kept", execs_uploaded, 32, false },
	{ "graphs uploaded and kept", execs_uploaded, 160, false },
	{ "graphs uploaded, each destroyed", execs_destroyed, 32, false },
	{ "graphs uploaded, each destroyed", execs_destroyed, 160, false },
	{ "graphs uploaded, then all destroyed", execs_round, 32, false },
	{ "graphs uploaded, then all destroyed", execs_round, 160, false },
	{ "rounds of 32 graphs", rounds, 2, false },
	{ "rounds of 32 graphs", rounds, 5, false },
	{ "rounds of 32 graphs, one launched on NULL", rounds_launched, 2, false },
	{ "rounds of 32 graphs, one launched on NULL", rounds_launched, 5, false },
	{ "branches of a graph, launched", branches, 2, false },
	{ "branches of a graph, launched", branches, 4, false },
	{ "branches of a graph, launched", branches, 8, false },
	{ "branches of a graph, launched", branches, 16, false },
	{ "branches of a graph, launched", branches, 32, false },
	{ "branches of a graph, uploaded", branches_uploaded, 16, false },
	{ "modules loaded, launched, unloaded", modules, 45, false },
	{ "modules loaded, launched, unloaded", modules, 225, false },
	{ "a kernel with 8 KiB of local memory", local_memory, 1, false },
	{ "MiB of the limit of device printf", printf_limit, 8, false },
	{ "copies and memsets of 4 MiB", copies, 400, false },
	{ "threads that launch and upload", threads, 16, false },
	{ "MiB mapped, written, unmapped", memory_mapped, 1024, false },
	{ "before any graph: nothing", nothing, 0, true },
	{ "before any graph: uploaded, then destroyed", execs_round, 1, true },
	{ "before any graph: uploaded, then destroyed", execs_round, 2, true },
	{ "before any graph: uploaded, then destroyed", execs_round, 8, true },
	{ "before any graph: uploaded, then destroyed", execs_round, 32, true },
	{ "before any graph: large, uploaded, destroyed", large_destroyed, 8, true },
	{ "before any graph: uploaded and kept", execs_uploaded, 1, true },
	{ "before any graph: instantiated, destroyed", execs_unused, 8, true },
	{ "before any graph: MiB copied", copy_alone, 1200, true },
	{ "before any graph: MiB copied beside graphs", copy_and_graphs, 1200, true },
};
#define HISTORIES (sizeof(histories) / sizeof(histories[0]))

/* --- sequences --- */

static const char *const sequences[] = {
	"U1 L1 U2 L1 L2 U3 L1 L2 L3 L1 L2 L3",
	"U1 U2 U3 U4 L1 L2 L3 L4 L1 L2 L3 L4",
	"V1 V2 V3 V4 L1 L2 L3 L4 L1 L2 L3 L4",
	"I1 I2 I3 I4 L1 L2 L3 L4 L1 L2 L3 L4",
	"U1 l1 U2 l2 U3 l3 U4 l4 L1 L2 L3 L4",
	"V1 l1 V2 l2 V3 l3 V4 l4 L1 L2 L3 L4",
	"I1 l1 I2 l2 I3 l3 I4 l4 L1 L2 L3 L4 U1 L1 L2 L3 L4",
	"U1 U2 L1 L2 U1 L1 L2 U2 L1 L2",
	"U1 C0 U2 C0 U3 C0 U4 L1 L2 L3 L4",
	"U1 U2 U3 L1 L2 L3 R0 L1 L2 L3 I4 L4 L1 U5 L5 L1 L4",
	"V1 V2 L1 L2 R0 L1 L2 V3 L1 L2 L3",
	"R0 U1 L1 U2 L1 L2",
	/* what ends the slowness that follows the upload of a graph that was not launched */
	"U1 L1 U2 L1 L1 l2 L1 L2 L1",
	"U1 L1 U2 l2 L1 L2",
	"U1 L1 I2 L1 l2 L1 L2",
	"U1 L1 U2 U3 U4 L1 L4 L1 L3 L1 L2 L1",
	"U1 L1 U2 U3 U4 L1 L2 L1 L3 L1 L4 L1",
	"U1 L1 U2 U3 L1 C0 L1 L2 L3 L1",
	"U1 L1 U2 U3 L1 D0 L1 L2 L3 L1",
	"U1 L1 U2 U3 L1 S0 L1 L2 L3 L1",
	"U1 L1 U2 U3 L1 T0 L1 L2 L3 L1",
	"U1 L1 U2 U3 L1 E0 L1 L2 L3 L1",
	"T0 U1 L1 U2 T0 L1 U3 T0 L1 L2 L3 L1",
	"U1 l1 U2 U3 U4 L1 L2 L3 L4 L1 L2",
};
#define SEQUENCES (sizeof(sequences) / sizeof(sequences[0]))

static void context_switch(const struct bench *b)
{
	CUcontext ctx;

	cu(b, cuCtxCreate_v4, &ctx, NULL, 0, b->device);
	cu(b, cuCtxDestroy_v2, ctx);
	cu(b, cuCtxSetCurrent, b->ctx);
}

static void step(const struct bench *b, char what, CUgraphExec *exec)
{
	CUstream stream = what == 'V' ? b->launches : b->uploads;

	if (strchr("IUV", what) && !*exec)
		*exec = exec_new(b, NODES, 1);
	if (what == 'U' || what == 'V') {
		cu(b, cuGraphUpload, *exec, stream);
		cu(b, cuStreamSynchronize, stream);
	} else if (what == 'l') {
		cu(b, cuGraphLaunch, *exec, b->launches);
		cu(b, cuStreamSynchronize, b->launches);
	} else if (what == 'C' || what == 'D') {
		stream = what == 'C' ? b->uploads : b->launches;
		kernel_launch(b, b->add, stream);
		cu(b, cuStreamSynchronize, stream);
	} else if (strchr("STE", what)) {
		*exec = what == 'S' ? exec_new(b, 1, 1) : exec_uploaded(b, 1, 1);
		if (what != 'E')
			cu(b, cuGraphLaunch, *exec, b->launches);
		cu(b, cuStreamSynchronize, b->launches);
	} else if (what == 'R') {
		context_switch(b);
	}
}

static void sequence_run(const char *steps)
{
	CUgraphExec exec[10] = { NULL };
	struct bench b = { .flags = flags };

	bench_begin(&b, code_file);
	for (; *steps; steps += steps[2] ? 3 : 2) {
		if (steps[0] == 'L')
			printf("%.2s %.3f  ", steps, replay_ms(&b, exec[steps[1] - '0'], REPLAYS));
		else
			printf("%.2s  ", steps);
		step(&b, steps[0], &exec[steps[1] - '0']);
	}
	printf("\n");
	fflush(stdout);
}

static void history_run(const struct history *h)
{
	struct bench b = { .flags = flags };
	double before = 0, took, first, more, after = 0, mark;
	CUgraphExec exec = NULL, new;
	int i;

	bench_begin(&b, code_file);
	if (!h->fresh) {
		exec = exec_uploaded(&b, NODES, 1);
		before = replay_ms(&b, exec, REPLAYS);
	}
	mark = fdry_now_ms();
	h->fn(&b, h->n);
	took = fdry_elapsed_ms(&mark);
	new = exec_uploaded(&b, NODES, 1);
	first = fdry_elapsed_ms(&mark);
	for (i = 0; i < 7; i++)
		(void)exec_uploaded(&b, NODES, 1);
	more = fdry_elapsed_ms(&mark);
	if (!h->fresh)
		after = replay_ms(&b, exec, REPLAYS);
	printf("%-44s %4d %8.3f %8.3f %8.3f %9.1f %7.2f %7.2f\n", h->what, h->n, before, after,
	       replay_ms(&b, new, REPLAYS), took, first * 1000 / NODES, more * 1000 / NODES / 7);
	fflush(stdout);
}

/* In a process of its own; whether there is a device. */
static bool child_run(size_t i, bool steps)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (steps)
			sequence_run(sequences[i]);
		else
			history_run(&histories[i]);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(1);
	if (status)
		printf("%s failed: %#x\n", steps ? sequences[i] : histories[i].what, status);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 77;
}

int main(int argc, char **argv)
{
	size_t i, only = SIZE_MAX, n = HISTORIES;
	bool steps = false;
	int opt;

	while ((opt = getopt(argc, argv, "sc:k:f:")) != -1) {
		switch (opt) {
		case 's': steps = true; break;
		case 'c': only = strtoul(optarg, NULL, 10); break;
		case 'k': code_file = optarg; break;
		case 'f': flags = strtoull(optarg, NULL, 0); break;
		default: return 2;
		}
	}
	if (steps)
		n = SEQUENCES;
	else
		printf("%-44s %4s %8s %8s %8s %9s %7s %7s\n",
		       "milliseconds of a replay; build in us a node", "", "before", "after",
		       "new", "took, ms", "first", "more");
	for (i = 0; i < n; i++)
		if ((only == SIZE_MAX || only == i) && !child_run(i, steps))
			return 77;
	return 0;
}
