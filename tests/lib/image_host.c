// SPDX-License-Identifier: Apache-2.0
/* image_host.c - see image_host.h. */
#include "tests/lib/image_host.h"

float *pinned(size_t bytes)
{
	void *p;

	cuda_ok(cuMemAllocHost_v2, &p, bytes);
	return p;
}

void host_tensor(struct work *w, const char *name, const void *at, uint32_t use)
{
	tensor_add(w, name, (CUdeviceptr)(uintptr_t)at, use, FDRY_TENSOR_HOST);
}

/*
 * Graph 1: a = in, b = table, c = a + b, out = c. Graph 2: the same by other calls, of the first
 * half. Graph 3: a = state, state = a + table. Graph 4: a = plain, c = a + b.
 */
static void graphs_capture(struct host_work *h)
{
	struct work *w = &h->w;
	CUDA_MEMCPY2D rows = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = h->in,
			       .srcPitch = 400, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = w->a, .dstPitch = 400, .WidthInBytes = 400,
			       .Height = 5 };

	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, h->in, BYTES, w->stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->b, h->table, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyDtoHAsync_v2, h->out, w->c, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpy2DAsync_v2, &rows, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyAsync, (uintptr_t)h->out, w->c, BYTES / 2, w->stream);
	ok(fdry_capture_graph(w->cap, 2, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpyAsync, w->a, (uintptr_t)h->state, BYTES, w->stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->b, h->table, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyDtoHAsync_v2, h->state, w->c, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 3, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, h->plain, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, 4, NULL, capture_stop(w)));
}

void host_make(struct host_work *h, bool swapped)
{
	work_make(&h->w);
	h->in = pinned(swapped ? 5 * BYTES : BYTES);
	h->table = pinned(BYTES);
	if (swapped)
		h->state = pinned(BYTES);
	h->out = pinned(BYTES);
	if (!swapped)
		h->state = pinned(BYTES);
	h->plain = malloc(BYTES);
	vector_fill(h->in, swapped ? 77 : 5);
	vector_fill(h->out, swapped ? 78 : 6);
	vector_fill(h->table, 1000);
	vector_fill(h->state, 2000);
	vector_fill(h->plain, 3000);
	graphs_capture(h);
}

void tensors_name(struct host_work *h)
{
	host_tensor(&h->w, "in", h->in, FDRY_USE_INPUT);
	host_tensor(&h->w, "out", h->out, FDRY_USE_OUTPUT);
	host_tensor(&h->w, "table", h->table, FDRY_USE_CONST);
	host_tensor(&h->w, "state", h->state, FDRY_USE_STATE);
	host_tensor(&h->w, "plain", h->plain, FDRY_USE_CONST);
	tensor_add(&h->w, "c", h->w.c, FDRY_USE_OUTPUT, 0);
}

void host_end(struct host_work *h)
{
	free(h->plain);
	work_end(&h->w);
}
