/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_times.h - how long the graphs of a loaded image take, and each of their kernels. Part of
 * foundry.h, whose rules for errors, threads, handles and units apply.
 */
#ifndef FOUNDRY_KERNEL_TIMES_H
#define FOUNDRY_KERNEL_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_image;

/**
 * struct fdry_kernel_time - How long one kernel node takes alone.
 * @node: its number in the graph, as foundry-store graph prints it
 * @kernel: the number of its kernel in the image
 * @name: of the kernel
 */
struct fdry_kernel_time {
	uint32_t node, kernel;
	const char *name;
	double ms;
};

/**
 * struct fdry_graph_times - How long one graph takes, and its kernels.
 * @left_out: NULL, or why the graph was not measured: then all that follows is 0
 * @launch_ms: a launch of the graph as it is, right after another one
 * @alone_ms: a replay in which each node runs alone, from before the first node to after the last
 * @empty_ms: from one event to the next with nothing between them. The events around a kernel cost
 *         about that much, and the times of kernels include it
 * @kernels: @nkernels kernel nodes, by number
 */
struct fdry_graph_times {
	uint64_t key;
	const char *name;
	const char *left_out;
	double launch_ms, alone_ms, empty_ms;
	const struct fdry_kernel_time *kernels;
	size_t nkernels;
};

/* Called with the times of a graph, which are valid until it returns. */
typedef void (*fdry_graph_times_fn)(void *arg, const struct fdry_graph_times *times);

/**
 * fdry_image_kernel_times() - Measure how long graphs take, and each of their kernels.
 * @keys: of @n graphs; NULL: all graphs of the image
 * @fn: called once for each graph, in the order of @keys
 *
 * For the times of kernels, the call makes the graph again with one event between each node and the
 * next, so that the nodes run one after the other, in an order that the graph allows. Nodes of
 * other kinds run, too. All times are medians of 7 replays, after one more. Kernels that run beside
 * others in a launch, or that start before the end of the kernel before them (programmatic
 * launches), take another time there.
 *
 * Graphs with host nodes, events, semaphores, conditional nodes, or memory operations that wait are
 * left out: alone, such a node may wait for ever, or act outside of the image. Graphs whose kernels
 * wait for other kernels or other processes must not be measured.
 *
 * The call restores content before each replay and at the end, as fdry_image_restore() does; a
 * launch is measured behind another one, so a graph goes two steps from the state that was sealed.
 * Random number generators get their states back. External tensors that are not filled get values
 * as in a self-test (selftest.h): numbers from a seed, or zeros; those with gaps get none. All
 * external tensors must be filled again before the next launch, because replays may have written
 * them. Nothing else may use the image during the call. It waits until the background thread has
 * built its graphs, and builds each graph that it launches.
 *
 * On the software driver, a time is that of the thread that runs the kernel.
 *
 * Errors: FDRY_E_NOKEY: nothing was measured. FDRY_E_STATE: the image was loaded into a capture.
 * After any other error, @fn was called for the graphs before.
 */
int fdry_image_kernel_times(struct fdry_image *img, const uint64_t *keys, size_t n,
			    fdry_graph_times_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
