/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.h - what the driver itself takes for the kernels and nodes of a loaded image.
 *
 * Everything that a driver call needs is laid out beforehand; what is timed are the calls
 * alone: load each kernel object and get its functions; add every node, set its attributes,
 * add the edges, instantiate, launch. No loader that gives each graph an exec of its own can
 * be faster than that.
 */
#ifndef FDRY_TESTS_BENCH_GPU_FLOOR_H
#define FDRY_TESTS_BENCH_GPU_FLOOR_H

#include "image/image.h"

struct floor;

/* Lay out the calls for all graphs of @img, which outlives the floor's use. 0 or an error. */
int floor_new(struct fdry_image *img, struct floor **ret);
/* Use the functions of @img, the same image loaded again. */
void floor_functions(struct floor *f, const struct fdry_image *img);
/* Build, instantiate, launch and throw away every graph of @img. @ret: milliseconds to build and
 * instantiate; @launches: of the calls that launch, which upload the graphs. */
int floor_graphs(struct floor *f, const struct fdry_image *img, double *ret, double *launches);
/* Milliseconds to build and instantiate graph @i alone. */
int floor_graph(struct floor *f, const struct fdry_image *img, uint32_t i, double *ret);
/* Load every kernel object and get its functions, in @img's context, and unload them; @ret:
 * milliseconds, without unloading. */
int floor_kernels(struct floor *f, const struct fdry_image *img, double *ret);
/* Copy @bytes to the device from pinned memory. @ret: milliseconds, without the allocations. */
int floor_copy(const struct fdry_image *img, size_t bytes, double *ret);
void floor_free(struct floor *f);

#endif
