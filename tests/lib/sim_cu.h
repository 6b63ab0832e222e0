/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_cu.h - helpers of the tests of the software driver's graphs: the driver's functions by name,
 * one context with a stream, and the kernel "step", whose result depends on the order in which it
 * is launched: x = x * STEP + salt.
 */
#ifndef FDRY_TESTS_LIB_SIM_CU_H
#define FDRY_TESTS_LIB_SIM_CU_H

#include <string.h>

#include "tests/lib/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

#define STEP 6364136223846793005u

#define CU_NAME2(fn) #fn
#define CU_NAME(fn) CU_NAME2(fn)
/* The driver's function, in the version to which cuda.h maps the name. */
#define CU(fn) ((__typeof__(&fn))cu_symbol(CU_NAME(fn)))

void *cu_symbol(const char *name);

extern struct fixture {
	CUcontext ctx;
	CUdevice dev;
	CUstream stream;
	CUmodule module;
	CUfunction step;
	CUdeviceptr x; /* eight numbers */
} fx;

/* The address of the @i-th number. */
CUdeviceptr at(int i);

uint64_t number(int i);
void number_set(int i, uint64_t v);

/* Launch "step" on the @i-th number. */
CUresult step_launch(CUstream s, int i, uint64_t salt);

/* The same as parameters of a node; they stay valid until the next call. */
CUDA_KERNEL_NODE_PARAMS *step_params(int i, uint64_t salt_);

/* Return @x after these steps, one after the other. */
uint64_t stepped(uint64_t x, const uint64_t *salts, int n);

CUgraph graph_new(void);

CUgraphNode step_add(CUgraph g, const CUgraphNode *deps, size_t ndeps, int i, uint64_t salt);

CUgraphExec exec_new(CUgraph g);

uint64_t exec_value(CUgraphExec x, int i);
uint64_t graph_value(CUgraph g, int i);

/* Run these tests, each with the fixture. */
int cu_main(const char *name, const TTest *const *tests, size_t count);

#endif
