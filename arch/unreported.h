/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unreported.h - what the driver does not report of nodes. The interposer notes it, and the reader
 * of graphs asks for it.
 */
#ifndef FDRY_ARCH_UNREPORTED_H
#define FDRY_ARCH_UNREPORTED_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>

/* The handle of a condition: its number is its place in the order of creation, from 1. */
struct fdry_condition {
	CUgraph graph;      /* of which it was created: the graph, or one within it */
	CUcontext ctx;
	unsigned int value; /* at the beginning of each launch, if flags is 1 */
	unsigned int flags; /* CU_GRAPH_COND_ASSIGN_DEFAULT or 0 */
};

struct fdry_conditional {
	uint64_t handle;
	CUgraphConditionalNodeType type;
	unsigned int size;
	const CUgraph *bodies; /* this many; they belong to the driver */
	CUcontext ctx;
	struct fdry_condition condition; /* of the handle */
	uint64_t handles; /* of the graph and of all graphs within it */
};

/* Attributes of kernel nodes that drivers accept and do not report, by CUlaunchAttributeID. */
#define FDRY_UNREPORTED_CLUSTER 11u /* the preferred cluster size */
#define FDRY_UNREPORTED_NVLINK 16u  /* scheduling by NVLink's use */

/* First the preferred cluster size. */
struct fdry_unreported_attrs {
	bool set[2];
	CUlaunchAttributeValue value[2];
};

#endif
