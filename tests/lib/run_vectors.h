/* SPDX-License-Identifier: Apache-2.0 */
/* run_vectors.h - three vectors, and the graph that adds two of them. */
#ifndef FDRY_TESTS_LIB_RUN_VECTORS_H
#define FDRY_TESTS_LIB_RUN_VECTORS_H

#include "tests/lib/run.h"

extern CUdeviceptr a, b, c;
void vectors(void);
void vectors_end(void);
void capture_add(struct fdry_cudagraph *g, CUstream stream);

#endif
