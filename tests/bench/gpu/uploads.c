// SPDX-License-Identifier: Apache-2.0
/*
 * uploads.c - whether executable graphs should be uploaded, and when.
 *
 *   uploads [-n ROUNDS] [-k CODE]
 *
 * A process builds eight chains of 1,850 kernels and launches each, in one of three ways: each
 * graph is uploaded when it is instantiated; none is uploaded; all are uploaded after the last one
 * was instantiated. The first chain is launched after all were built, or before the other seven
 * are built. The first table has medians of the rounds, with the least and the most: milliseconds
 * to build, MiB of device memory that building and launching took, milliseconds of first launches
 * (the call, and until the end; beside a busy stream), of second ones, and of replays: of the first
 * chain before the others are launched, and of the slowest chain at the end.
 *
 * The second table says what happens if device memory is short: how many chains could be built,
 * which call failed then (0 none, 1 instantiate, 2 upload) with which result, how many could be
 * launched, with which result, and how many of the others after memory was freed; milliseconds of
 * the slowest first launch.
 *
 * -k names a file with kernels for the software driver (build/sim/kernels.cubin), on which the
 * figures say nothing about a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "tests/bench/gpu/chains.h"

#define CHAINS 8
#define CHAINS_MAX 40
#define REPLAYS 20
#define ROUNDS_MAX 16
#define MIB (1024.0 * 1024)

enum way { EACH, NONE, LATE, WAYS };
static const char *const ways[WAYS] = { "each uploaded", "none uploaded", "all uploaded late" };

enum value {
	BUILD, BUILD_MIB, FIRST, FIRST_END, BUSY, BUSY_END, LAUNCH_MIB, SECOND, BEFORE, SLOWEST,
	VALUES
};
static const char *const names[VALUES] = {
	"build 8", "MiB", "1st call", "its end", "busy: call", "its end", "MiB", "2nd call",
	"replay of 1", "slowest"
};

static const char *code_file;
static double (*shared)[ROUNDS_MAX]; /* values of the rounds of one line, from the processes */

static double free_mib(const struct bench *b)
{
	size_t bytes = 0, total;

	cu(b, cuMemGetInfo_v2, &bytes, &total);
	return (double)bytes / MIB;
}

/* --- times --- */

static void chains_build(const struct bench *b, enum way way, CUgraphExec *exec, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		exec[i] = exec_new(b, NODES, 1);
		if (way == EACH)
			exec_upload(b, exec[i]);
	}
	if (way != LATE)
		return;
	for (i = 0; i < n; i++)
		cu(b, cuGraphUpload, exec[i], b->uploads);
	cu(b, cuStreamSynchronize, b->uploads);
}

/* Milliseconds of the call, and @end until the launch has ended. */
static double launch_ms(const struct bench *b, CUgraphExec exec, double *end)
{
	double mark = fdry_now_ms(), call;

	cu(b, cuGraphLaunch, exec, b->launches);
	call = fdry_now_ms() - mark;
	cu(b, cuStreamSynchronize, b->launches);
	*end = fdry_now_ms() - mark;
	return call;
}

static void chains_launch(const struct bench *b, CUgraphExec *exec, double *values)
{
	double end, ms, before = free_mib(b);
	int i;

	for (i = 1; i < CHAINS - 1; i++) {
		values[FIRST] += launch_ms(b, exec[i], &end) / (CHAINS - 2);
		values[FIRST_END] += end / (CHAINS - 2);
	}
	for (i = 0; i < CHAINS; i++)
		cu(b, cuGraphLaunch, exec[0], b->uploads);
	values[BUSY] = launch_ms(b, exec[CHAINS - 1], &values[BUSY_END]);
	cu(b, cuStreamSynchronize, b->uploads);
	values[LAUNCH_MIB] += before - free_mib(b);
	for (i = 1; i < CHAINS; i++)
		values[SECOND] += launch_ms(b, exec[i], &end) / (CHAINS - 1);
	for (i = 0; i < CHAINS; i++) {
		ms = replay_ms(b, exec[i], REPLAYS);
		if (values[SLOWEST] < ms)
			values[SLOWEST] = ms;
	}
}

static void times_run(enum way way, bool between, double *values)
{
	struct bench b = { 0 };
	CUgraphExec exec[CHAINS];
	int first = between ? 1 : CHAINS;
	double mark, end, before;

	bench_begin(&b, code_file);
	kernel_launch(&b, b.add, b.launches);
	cu(&b, cuStreamSynchronize, b.launches);
	before = free_mib(&b);
	mark = fdry_now_ms();
	chains_build(&b, way, exec, first);
	values[BUILD] = fdry_elapsed_ms(&mark);
	values[BUILD_MIB] = before - free_mib(&b);
	before = free_mib(&b);
	(void)launch_ms(&b, exec[0], &end);
	values[LAUNCH_MIB] = before - free_mib(&b);
	before = free_mib(&b);
	mark = fdry_now_ms();
	chains_build(&b, way, exec + first, CHAINS - first);
	values[BUILD] += fdry_elapsed_ms(&mark);
	values[BUILD_MIB] += before - free_mib(&b);
	values[BEFORE] = replay_ms(&b, exec[0], REPLAYS);
	chains_launch(&b, exec, values);
}

/* --- short memory --- */

/* Allocate device memory until @leave MiB are free. */
static size_t memory_fill(const struct bench *b, double leave, CUdeviceptr *p, size_t max)
{
	size_t n = 0, piece = (size_t)1 << 30;

	while (n < max && piece >= (size_t)2 << 20) {
		if (free_mib(b) - leave < (double)piece / MIB ||
		    fdry_call_raw(b->drv, cuMemAlloc_v2, &p[n], piece))
			piece /= 2;
		else
			n++;
	}
	return n;
}

/* The number of the call that failed, with its @result. */
static int chain_try(const struct bench *b, enum way way, CUgraphExec *exec, CUresult *result)
{
	CUgraph graph = chain_new(b, NODES, 1);

	*result = fdry_call_raw(b->drv, cuGraphInstantiateWithFlags, exec, graph, 0);
	cu(b, cuGraphDestroy, graph);
	if (*result)
		return 1;
	if (way != EACH)
		return 0;
	*result = fdry_call_raw(b->drv, cuGraphUpload, *exec, b->uploads)
			  ?: fdry_call_raw(b->drv, cuStreamSynchronize, b->uploads);
	if (!*result)
		return 0;
	(void)fdry_call_raw(b->drv, cuGraphExecDestroy, *exec);
	return 2;
}

static CUresult launch_try(const struct bench *b, CUgraphExec exec)
{
	return fdry_call_raw(b->drv, cuGraphLaunch, exec, b->launches)
		       ?: fdry_call_raw(b->drv, cuStreamSynchronize, b->launches);
}

static void short_run(enum way way, double leave)
{
	static CUdeviceptr p[4096];
	struct bench b = { 0 };
	CUgraphExec exec[CHAINS_MAX];
	CUresult build = 0, upload = 0, launch = 0;
	size_t n;
	double mark, took, longest = 0;
	int i, built = 0, launched = 0, later = 0, call = 0;

	bench_begin(&b, code_file);
	kernel_launch(&b, b.add, b.launches);
	cu(&b, cuStreamSynchronize, b.launches);
	n = memory_fill(&b, leave, p, sizeof(p) / sizeof(*p));
	printf("%-18s %6.0f %6.1f", ways[way], leave, free_mib(&b));
	while (built < CHAINS_MAX && !call) {
		call = chain_try(&b, way, &exec[built], &build);
		built += !call;
	}
	for (i = 0; way == LATE && i < built && !upload; i++)
		upload = fdry_call_raw(b.drv, cuGraphUpload, exec[i], b.uploads)
				 ?: fdry_call_raw(b.drv, cuStreamSynchronize, b.uploads);
	printf(" %6d %5d %6d %7d %6.1f", built, upload ? 2 : call, build, upload, free_mib(&b));
	for (i = 0; i < built; i++) {
		mark = fdry_now_ms();
		launch = launch_try(&b, exec[i]);
		took = fdry_elapsed_ms(&mark);
		longest = took > longest ? took : longest;
		if (launch)
			break;
		launched++;
	}
	if (n)
		cu(&b, cuMemFree_v2, p[0]);
	for (i = launched; i < built; i++)
		later += !launch_try(&b, exec[i]);
	printf(" %8d %6d %6d %8.2f\n", launched, launch, later, longest);
	fflush(stdout);
}

/* --- output --- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void line_print(enum way way, bool between, int rounds)
{
	int v, i;

	for (i = 0; i < 3; i++) {
		printf("%-18s %-8s", i ? "" : ways[way],
		       i == 2 ? "most" : i ? "least" : between ? "between" : "after");
		for (v = 0; v < VALUES; v++) {
			if (!i)
				qsort(shared[v], (size_t)rounds, sizeof(double), by_value);
			printf(" %11.3f", shared[v][i == 2 ? rounds - 1 : i ? 0 : rounds / 2]);
		}
		printf("\n");
	}
}

/* The status of a process in which the driver is new. @round: -1 if memory is to be short. */
static int child_run(enum way way, bool between, double leave, int round)
{
	double values[VALUES] = { 0 };
	int status, v;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (round < 0)
			short_run(way, leave);
		else
			times_run(way, between, values);
		for (v = 0; v < VALUES && round >= 0; v++)
			shared[v][round] = values[v];
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(1);
	if (status && !(WIFEXITED(status) && WEXITSTATUS(status) == 77))
		printf("%s: failed, %#x\n", ways[way], status);
	return status;
}

static bool table_times(int rounds)
{
	int line, i;

	printf("%-18s %-8s", "milliseconds", "1st");
	for (i = 0; i < VALUES; i++)
		printf(" %11s", names[i]);
	printf("\n");
	for (line = 0; line < 2 * WAYS; line++) {
		memset(shared, 0, VALUES * sizeof(*shared));
		for (i = 0; i < rounds; i++)
			if (child_run(line % WAYS, line >= WAYS, 0, i))
				return false;
		line_print(line % WAYS, line >= WAYS, rounds);
	}
	return true;
}

static void table_short(void)
{
	static const double leaves[] = { 64, 16, 2 };
	size_t i;
	int way;

	printf("%-18s %6s %6s %6s %5s %6s %7s %6s %8s %6s %6s %8s\n", "MiB are free", "asked",
	       "are", "built", "call", "result", "upload", "are", "launched", "result", "later",
	       "longest");
	for (i = 0; i < sizeof(leaves) / sizeof(*leaves); i++)
		for (way = 0; way < WAYS; way++)
			(void)child_run(way, false, leaves[i], -1);
}

int main(int argc, char **argv)
{
	int opt, rounds = 3;

	while ((opt = getopt(argc, argv, "n:k:")) != -1) {
		switch (opt) {
		case 'n': rounds = atoi(optarg); break;
		case 'k': code_file = optarg; break;
		default: return 2;
		}
	}
	if (rounds < 1 || rounds > ROUNDS_MAX)
		return 2;
	shared = mmap(NULL, VALUES * sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	if (!table_times(rounds))
		return 77;
	table_short();
	return 0;
}
