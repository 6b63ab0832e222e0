/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - helpers of the tests of graphs, pools and scalars: the software driver as the library
 * opens it, device memory, kernels of tests/sim by name, launches.
 *
 * Each test calls run_open(), and run_close() at its end; everything that the library made must be
 * freed by then.
 */
#ifndef FDRY_TESTS_LIB_RUN_H
#define FDRY_TESTS_LIB_RUN_H

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "foundry/run.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

#define cu(fn, ...) ck_assert_int_eq(drv->fn(__VA_ARGS__), CUDA_SUCCESS)

#define N 64
#define BYTES (N * sizeof(float))

void run_open(void);

/* Shared streams stay with the context. */
void run_close(void);

CUfunction kernel(const char *name);

#define launch(name, stream, ...) \
	do { \
		void *launch_args[] = { __VA_ARGS__ }; \
		cu(cuLaunchKernel, kernel(name), 1, 1, 1, N, 1, 1, 0, stream, launch_args, NULL); \
	} while (0)

CUdeviceptr mem(size_t bytes);

void mem_free(CUdeviceptr p);

CUstream stream_new(void);

void floats_set(CUdeviceptr p, float v);

/* Check that all N numbers are @v after the work of @stream. */
void floats_are(CUdeviceptr p, float v, CUstream stream);

/* c = a + b */
void add(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c);

/* x = x * 6364136223846793005 + salt; slow if @spins is large */
void step(CUstream stream, CUdeviceptr x, uint64_t salt, uint32_t spins);
uint64_t word(CUdeviceptr p);
struct fdry_cudagraph *cudagraph_new(void);
struct fdry_graphpool *pool_new(void);
struct fdry_cudagraph_begin_opts begin_opts(CUstream stream, struct fdry_graphpool *pool,
					    uint32_t mode);

#endif
