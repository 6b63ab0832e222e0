// SPDX-License-Identifier: Apache-2.0
/*
 * kernels.c - the cost of a function from the cache, and of a checked launch, beside the driver's
 * own calls.
 *
 *   kernels [-p FILE.ptx -e ENTRY] [-n ROUNDS] [-c CALLS]
 *
 * ENTRY takes no arguments. Without -p it is an empty kernel; the software driver needs one with
 * an object of its own: -p build/sim/kernels.ptx -e nothing. Prints lines "name value value ...",
 * nanoseconds a call, one value a round: the driver's cuModuleGetFunction; the cache asked by key,
 * by a source of the file's size, and by one that a comment makes 256 KiB long (what hashing
 * costs); a launch by the driver and one by the cache, each round 1,000 of them and then a wait
 * that is not counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "foundry/run.h"
#include "arch/driver.h"
#include "tests/lib/need.h"

#define LAUNCHES 1000
#define LARGE (256u << 10)

static const char empty[] =
	".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static struct bench {
	const struct fdry_driver *drv;
	struct fdry_kernels *k;
	struct fdry_kernels_source small, large;
	struct fdry_kernels_key key;
	const char *entry;
	CUmodule module;
	CUfunction func;
	long rounds, calls;
} b = { .entry = "nothing", .rounds = 5, .calls = 100000 };

static void by_driver(void)
{
	CUfunction f;

	must(fdry_call(b.drv, cuModuleGetFunction, &f, b.module, b.entry));
}

static void by_key(void)
{
	CUfunction f;

	must(fdry_kernels_find(b.k, &b.key, b.entry, &f));
}

static void by_source(void)
{
	CUfunction f;

	must(fdry_kernels_function(b.k, &b.small, b.entry, &f));
}

static void by_large_source(void)
{
	CUfunction f;

	must(fdry_kernels_function(b.k, &b.large, b.entry, &f));
}

static void launch_driver(void)
{
	must(fdry_call(b.drv, cuLaunchKernel, b.func, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

static void launch_checked(void)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o), .block = { 32 } };

	must(fdry_kernels_launch(b.k, b.func, &o, NULL, 0));
}

static const struct {
	const char *name;
	void (*fn)(void);
	bool launch;
} ways[] = {
	{ "cuModuleGetFunction_ns", by_driver, false },
	{ "find_ns", by_key, false },
	{ "get_ns", by_source, false },
	{ "get_256k_ns", by_large_source, false },
	{ "cuLaunchKernel_ns", launch_driver, true },
	{ "launch_ns", launch_checked, true },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static double measure(size_t way)
{
	long i, n = ways[way].launch ? LAUNCHES
		    : ways[way].fn == by_large_source ? b.calls / 100 + 1
						      : b.calls;
	double begin = fdry_now_ms(), took;

	for (i = 0; i < n; i++)
		ways[way].fn();
	took = fdry_now_ms() - begin;
	if (ways[way].launch)
		must(fdry_call(b.drv, cuCtxSynchronize));
	return 1e6 * took / (double)n;
}

static struct fdry_kernels_source file_read(const char *path)
{
	struct fdry_kernels_source s = { .sz = sizeof(s), .data = empty, .len = sizeof(empty) - 1 };
	FILE *f = path ? fopen(path, "rb") : NULL;
	char *data;

	if (!path)
		return s;
	data = calloc(1, 16u << 20);
	if (!f || !data) {
		fprintf(stderr, "kernels: %s cannot be read\n", path);
		exit(1);
	}
	s.len = fread(data, 1, (16u << 20) - 1, f);
	s.data = data;
	fclose(f);
	return s;
}

/* Return the same source after a long comment. */
static struct fdry_kernels_source lengthened(const struct fdry_kernels_source *from)
{
	struct fdry_kernels_source s = *from;
	char *data = malloc(LARGE + from->len);

	if (!data)
		exit(1);
	memset(data, '/', LARGE);
	data[LARGE - 1] = '\n';
	memcpy(data + LARGE, from->data, from->len);
	s.data = data;
	s.len = LARGE + from->len;
	return s;
}

static void start(const char *path)
{
	CUcontext ctx;
	CUfunction f;

	must(fdry_driver_open(NULL, &b.drv));
	must(fdry_call(b.drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	must(fdry_call(b.drv, cuCtxSetCurrent, ctx));
	b.small = file_read(path);
	b.large = lengthened(&b.small);
	must(fdry_kernels_new(NULL, &b.k));
	must(fdry_kernels_function(b.k, &b.small, b.entry, &b.func));
	must(fdry_kernels_function(b.k, &b.large, b.entry, &f));
	must(fdry_kernels_key(b.k, &b.small, &b.key));
	must(fdry_call(b.drv, cuFuncGetModule, &b.module, b.func));
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	double ns[WAYS][64];
	size_t way;
	long i;
	int opt;

	while ((opt = getopt(argc, argv, "p:e:n:c:")) != -1) {
		switch (opt) {
		case 'p': path = optarg; break;
		case 'e': b.entry = optarg; break;
		case 'n': b.rounds = strtol(optarg, NULL, 10); break;
		case 'c': b.calls = strtol(optarg, NULL, 10); break;
		default: return 2;
		}
	}
	if (b.rounds < 1 || b.rounds > 64 || b.calls < 1)
		return 2;
	start(path);
	for (i = 0; i < b.rounds; i++)
		for (way = 0; way < WAYS; way++)
			ns[way][i] = measure(way);
	for (way = 0; way < WAYS; way++) {
		printf("%s", ways[way].name);
		for (i = 0; i < b.rounds; i++)
			printf(" %.1f", ns[way][i]);
		printf("\n");
	}
	fdry_kernels_free(b.k);
	return 0;
}
