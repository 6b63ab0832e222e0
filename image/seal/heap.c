// SPDX-License-Identifier: Apache-2.0
/*
 * heap.c - finds the heap from which kernels allocate, so that pointers into it are refused.
 *
 * The heap belongs to a context, and the driver alone knows what is allocated there. A load has
 * another heap, which is empty. So kernels that allocate can be restored if nothing that the image
 * holds points into the heap. A kernel outside of all graphs may also have stored such a pointer.
 * So a seal searches for them if any kernel of the context has used the heap.
 */
#include "arch/stream.h"
#include "image/seal/seal.h"

/* A heap stays where it is as long as its context, so the first seal's search serves all. */
static int heap_find(struct fdry_capture *cap)
{
	CUstream stream;
	int err;

	if (cap->heap.start != cap->heap.end)
		return 0;
	err = fdry_stream_shared(cap->drv, FDRY_STREAM_MEMORY, &stream) ?:
	      fdry_heap_find(cap->drv, stream, &cap->heap);
	return err ? fdry_fail_at(err, "the device's heap, from which kernels allocate") : 0;
}

int fdry_seal_heap(struct fdry_seal *s)
{
	bool used = fdry_kernel_set_allocates(s->kernels);
	int err;

	if (s->heap.start != s->heap.end)
		return 0;
	err = used ? 0 : fdry_heap_used(s->cap->drv, &used);
	if (err || !used)
		return err;
	err = heap_find(s->cap);
	if (err)
		return err;
	s->heap = s->cap->heap;
	fdry_pointers_heap(s->pointers, &s->heap);
	return 0;
}
