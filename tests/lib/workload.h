/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload.h - a capturing program for benchmarks on the software driver: the interposer, a region
 * with three vectors and content, and graphs that launch one kernel from many objects.
 */
#ifndef FDRY_TESTS_LIB_WORKLOAD_H
#define FDRY_TESTS_LIB_WORKLOAD_H

#include <cuda.h>

#include "foundry.h"

#define WORKLOAD_KERNELS_MAX 256

struct workload {
	char build[4096];
	uint64_t base, size; /* of the region */
	unsigned int kernels; /* objects with the kernel */
	unsigned int nodes;   /* of each graph */
	unsigned int blocks;  /* of 2 MiB of content */
	/* set by the functions below */
	const struct fdry_driver *drv;
	struct fdry_capture *cap;
	CUstream stream;
	CUdeviceptr vectors[3];
	CUfunction functions[WORKLOAD_KERNELS_MAX];
};

/* Find the build folder from that of this program, and set FOUNDRY_DRIVER. */
void workload_init(struct workload *w);

/* Load the interposer, begin a capture, and allocate and fill memory. */
void workload_begin(struct workload *w);

/* Load the same kernel from several objects, which differ in a word without a reader: e_flags of
 * the ELF header. */
void workload_functions(struct workload *w);

/* Capture a graph; @key is an argument of its kernels. */
CUgraph workload_graph(struct workload *w, unsigned int key);

/* Run @fn in a process of its own; @ms gets the first @n of the figures that it sets, 512 at most.
 * The program ends if the process fails. */
void workload_run(void (*fn)(double *ms), double *ms, size_t n);

#endif
