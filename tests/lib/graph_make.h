/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_make.h - makes random driver graphs with nodes of all kinds, for any driver.
 *
 * Nodes that do not depend on each other touch different memory, so each graph has one result. A
 * node that copies from the memory of a node before it has another result if their edge is lost.
 */
#ifndef FDRY_TESTS_LIB_GRAPH_MAKE_H
#define FDRY_TESTS_LIB_GRAPH_MAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/driver.h"

#define GRAPH_EVENTS 8u
#define GRAPH_MEM_BYTES 65536u
#define GRAPH_HOST_BYTES 4096u

struct graph_env {
	uint64_t (*below)(uint64_t n); /* a number below n */
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUfunction step, words, nothing, condition; /* the kernels of these names */
	CUdeviceptr mem; /* GRAPH_MEM_BYTES */
	uint8_t *host;   /* GRAPH_HOST_BYTES, pinned */
	CUevent event[GRAPH_EVENTS]; /* for one graph */
	CUhostFn call;   /* gets the address of one of two numbers */
	int *calls;
	CUresult (*alloc)(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
			  CUDA_MEM_ALLOC_NODE_PARAMS *p); /* NULL: no nodes that allocate */
	CUresult (*free)(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
			 CUdeviceptr addr);
	bool body_handles; /* handles of conditions may be of bodies. Then a built graph has the
			      nodes in another order. */
};

/* Make a graph from the numbers that @env has. Asserts that the driver accepts it. @nodes gets the
 * number of chosen nodes. */
CUgraph graph_make_random(const struct graph_env *env, uint32_t *nodes);

#endif
