/* SPDX-License-Identifier: Apache-2.0 */
/* run_vectors.h - three vectors, and the graph that adds two of them. */
#ifndef FDRY_TESTS_UNIT_RUN_VECTORS_H
#define FDRY_TESTS_UNIT_RUN_VECTORS_H

#include "tests/unit/run.h"

static CUdeviceptr a, b, c;

static inline void vectors(void)
{
	run_open();
	a = mem(BYTES);
	b = mem(BYTES);
	c = mem(BYTES);
	floats_set(a, 1);
	floats_set(b, 2);
}

static inline void vectors_end(void)
{
	mem_free(a);
	mem_free(b);
	mem_free(c);
	run_close();
}

static inline void capture_add(struct fdry_cudagraph *g, CUstream stream)
{
	struct fdry_cudagraph_begin_opts o = begin_opts(stream, NULL, 0);

	ok(fdry_cudagraph_begin(g, &o));
	add(stream, a, b, c);
	ok(fdry_cudagraph_end(g));
}

#endif
