/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - helpers for tests of kernel caches on the software driver: sources, and a launch
 * whose result is checked.
 */
#ifndef FDRY_TESTS_LIB_KERNELS_H
#define FDRY_TESTS_LIB_KERNELS_H

#include <pthread.h>
#include <string.h>

#include "foundry/run.h"
#include "tests/lib/sim.h"
#include "tests/lib/store.h"

#define N 64

extern char *ptx;
extern void *cubin;
extern size_t ptx_len, cubin_len;
static const char cuda_text[] =
	"#pragma object kernels\nextern \"C\" __global__ void scale(float *x, float by, int n);\n";

/* Begin a test. The driver is not started, so that the test can fork children. */
void kernels_setup(void);
void kernels_teardown(void);
struct fdry_kernels_source code_of(const void *data, size_t len);
struct fdry_kernels_source ptx_source(void);
struct fdry_kernels_source cuda_source(void);
struct fdry_kernels *kernels_open(struct fdry_store *store);
struct fdry_kernels_stats stats_of(struct fdry_kernels *k);

#define ARG(x) { &(x), sizeof(x) }

/* Launch c = a + b by the kernel vecadd of tests/sim/kernels.c, and check c. */
void vecadd_check(struct fdry_kernels *k, CUfunction f);

#endif
