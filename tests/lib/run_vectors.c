// SPDX-License-Identifier: Apache-2.0
/* run_vectors.c - see run_vectors.h. */
#include "tests/lib/run_vectors.h"

CUdeviceptr a, b, c;

void vectors(void)
{
	run_open();
	a = mem(BYTES);
	b = mem(BYTES);
	c = mem(BYTES);
	floats_set(a, 1);
	floats_set(b, 2);
}

void vectors_end(void)
{
	mem_free(a);
	mem_free(b);
	mem_free(c);
	run_close();
}

void capture_add(struct fdry_cudagraph *g, CUstream stream)
{
	struct fdry_cudagraph_begin_opts o = begin_opts(stream, NULL, 0);

	ok(fdry_cudagraph_begin(g, &o));
	add(stream, a, b, c);
	ok(fdry_cudagraph_end(g));
}
