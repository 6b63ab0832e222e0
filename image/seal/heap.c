// SPDX-License-Identifier: Apache-2.0
/*
 * heap.c - finds the heap from which kernels allocate, so that pointers into it are refused.
 *
 * The heap belongs to a context, and the driver alone knows what is allocated there. A load has
 * another heap, which is empty. So kernels that allocate can be restored if nothing that the image
 * holds points into the heap.
 */
#include "arch/stream.h"
#include "image/seal/seal.h"

int fdry_seal_heap(struct fdry_seal *s)
{
	CUstream stream;
	int err;

	if (s->heap.start != s->heap.end || !fdry_kernel_set_allocates(s->kernels))
		return 0;
	err = fdry_stream_shared(s->cap->drv, FDRY_STREAM_MEMORY, &stream) ?:
	      fdry_heap_find(s->cap->drv, stream, &s->heap);
	if (err)
		return fdry_fail_at(err, "the device's heap, from which a kernel allocates");
	fdry_pointers_heap(s->pointers, &s->heap);
	return 0;
}
