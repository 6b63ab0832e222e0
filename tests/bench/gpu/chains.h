/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.h - graphs of small kernels in a context of their own, for benchmarks of the driver.
 *
 * The driver is called as a program without the library would call it. An error ends the process.
 */
#ifndef FDRY_TESTS_BENCH_GPU_CHAINS_H
#define FDRY_TESTS_BENCH_GPU_CHAINS_H

#include "arch/driver.h"
#include "tests/lib/need.h"

#define NODES 1850 /* of a graph, as a decoder's step has */

struct bench {
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUdevice device;
	const void *code;
	CUfunction add, deep; /* @deep has local memory */
	CUdeviceptr memory;
	CUstream launches, uploads;
	unsigned long long flags; /* of cuGraphInstantiateWithFlags() */
};

#define cu(b, ...) must(fdry_call((b)->drv, __VA_ARGS__))

/* Load the kernels into device 0's primary context, which becomes current. @code_file: their code
 * for the software driver, or NULL. Exits with 77 if there is no GPU. */
void bench_begin(struct bench *b, const char *code_file);
/* A graph of @width chains side by side, of @nodes nodes in all, which waits to be instantiated. */
CUgraph chain_new(const struct bench *b, int nodes, int width);
CUgraphExec exec_new(const struct bench *b, int nodes, int width);
/* Wait for the upload. */
void exec_upload(const struct bench *b, CUgraphExec exec);
CUgraphExec exec_uploaded(const struct bench *b, int nodes, int width);
/* Milliseconds of a replay, the mean of @n after four that are not counted. */
double replay_ms(const struct bench *b, CUgraphExec exec, int n);
void kernel_launch(const struct bench *b, CUfunction f, CUstream stream);

#endif
