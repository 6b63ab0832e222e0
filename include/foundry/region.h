/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - what a capture holds: its allocations and its graphs. Part of foundry.h, whose
 * rules for errors, threads and units hold here.
 */
#ifndef FOUNDRY_REGION_H
#define FOUNDRY_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_capture;
struct fdry_memory;

/**
 * fdry_capture_allocs() - The live allocations of a capture's region.
 * @ret: an array of struct fdry_memory in the order in which they were made, yours to free(); NULL where
 *       there are none
 * @count: how many
 *
 * Sizes are as asked for. What images that were loaded into the region have claimed is among
 * them, as is memory that the program mapped there itself.
 */
int fdry_capture_allocs(struct fdry_capture *cap, struct fdry_memory **ret, size_t *count);

/**
 * fdry_capture_graph_remove() - Take a graph out of a capture again.
 * @key: as it was added with fdry_capture_graph(); FDRY_E_NOKEY
 *
 * To be called before the CUgraph is destroyed, where the capture is to be sealed afterwards.
 * Images that were sealed with it keep it. Its key is free for another graph.
 */
int fdry_capture_graph_remove(struct fdry_capture *cap, uint64_t key);

#ifdef __cplusplus
}
#endif

#endif
