// SPDX-License-Identifier: Apache-2.0
/* heap.c - see heap.h. */
#include "tests/replace/heap.h"

bool test_heap_used, test_heap_exists;
struct fdry_heap test_heap;
unsigned int test_heap_found;

/* --- in place of graph/heap.c --- */

bool fdry_kernel_set_allocates(const struct fdry_kernel_set *set)
{
	(void)set;
	return test_heap_used;
}

int fdry_heap_used(const struct fdry_driver *drv, bool *ret)
{
	(void)drv;
	*ret = test_heap_exists;
	return 0;
}

int fdry_heap_find(const struct fdry_driver *drv, CUstream stream, struct fdry_heap *ret)
{
	(void)drv, (void)stream;
	if (test_heap.start == test_heap.end)
		return fdry_fail(FDRY_E_REFUSED, "the heap is full");
	test_heap_found++;
	*ret = test_heap;
	return 0;
}
