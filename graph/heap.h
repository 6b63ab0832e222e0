/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.h - finds the device's heap, from which malloc() in kernels allocates.
 *
 * Each context has a heap of its own. The driver makes it when a kernel that calls malloc() or
 * free() is launched for the first time, with the size of CU_LIMIT_MALLOC_HEAP_SIZE.
 */
#ifndef FDRY_GRAPH_HEAP_H
#define FDRY_GRAPH_HEAP_H

#include "arch/driver.h"
#include "graph/kernel.h"

/* Addresses that hold the heap. */
struct fdry_heap {
	uint64_t start, end; /* equal: it is not known */
	bool exact;          /* The driver reported the bounds. Otherwise they are further apart,
				and the driver reports no address of the heap as memory. */
};

/* Does a kernel of the set call malloc() or free()? The set must be sliced. */
bool fdry_kernel_set_allocates(const struct fdry_kernel_set *set);

/* Has any kernel used the heap of the current context? Errors: those of the driver. */
int fdry_heap_used(const struct fdry_driver *drv, bool *ret) __must_check;

/**
 * fdry_heap_find() - Find the heap of the current context by a kernel that allocates and frees.
 * @stream: for the kernel; the function waits for it
 *
 * If the context has no heap yet, the driver makes it.
 * Errors: FDRY_E_REFUSED (the heap is full), FDRY_E_NOMEM, FDRY_E_DRIVER.
 */
int fdry_heap_find(const struct fdry_driver *drv, CUstream stream,
		   struct fdry_heap *ret) __must_check;

#endif
