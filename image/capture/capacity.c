// SPDX-License-Identifier: Apache-2.0
/*
 * capacity.c - reserves addresses behind an external tensor; see fdry_capture_capacity().
 *
 * The cursor moves past these addresses, so no allocation ever lies there. This works only while
 * the tensor's allocation is the last one below the cursor. The allocation must hold only the
 * tensor, in whole blocks, because a loader maps whole blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "image/capture/capture.h"
#include "lib/opts.h"
#include "image/tensor.h"

static struct fdry_capture_tensor *tensor_find(struct fdry_capture *cap, const char *name)
{
	struct fdry_capture_tensor *t = fdry_array(cap->tensors, struct fdry_capture_tensor);
	size_t i;

	for (i = 0; i < fdry_array_count(cap->tensors, struct fdry_capture_tensor); i++)
		if (!strcmp(t[i].desc.name, name))
			return &t[i];
	return NULL;
}

static int capacity_check(const struct fdry_capture_tensor *t, uint64_t max)
{
	if (!(t->desc.flags & FDRY_TENSOR_EXTERNAL) || t->desc.flags & FDRY_TENSOR_HOST ||
	    !t->desc.rank || !t->extent)
		return fdry_fail(
			FDRY_E_STATE,
			"tensor '%s' has no capacity of its own: only external tensors in "
			"device memory with at least one dimension and element can have it",

			t->desc.name);
	if (!fdry_tensor_extendable(&t->desc))
		return fdry_fail(
			FDRY_E_STATE,
			"the first dimension of tensor '%s' is not its outermost in memory, so "
			"memory behind the tensor would not make it longer; change the order of "
			"its dimensions",
			t->desc.name);
	if (t->capacity)
		return fdry_fail(FDRY_E_EXISTS, "tensor '%s' already has a capacity of %llu bytes",
				 t->desc.name, (unsigned long long)t->capacity);
	if (max <= t->extent)
		return fdry_fail(FDRY_E_RANGE,
				 "a capacity of %llu bytes is not more than tensor '%s' has: %llu; "
				 "ask for more",
				 (unsigned long long)max, t->desc.name,
				 (unsigned long long)t->extent);
	return 0;
}

/* The allocation must hold only the tensor, and the cursor must be at its end. */
static int alloc_check(const struct fdry_capture_tensor *t, const struct fdry_alloc *a,
		       uint64_t cursor)
{
	if (a->addr != t->desc.addr || a->extent != t->extent || t->desc.addr % FDRY_ALLOC_BLOCK ||
	    t->extent % FDRY_ALLOC_BLOCK)
		return fdry_fail(FDRY_E_RANGE,
				 "tensor '%s' (%llu bytes at %#llx) does not fill its allocation "
				 "(%llu at %#llx) in whole units of 2 MiB; allocate it by itself, "
				 "a multiple of 2 MiB",
				 t->desc.name, (unsigned long long)t->extent, t->desc.addr,
				 (unsigned long long)a->extent, a->addr);
	if (a->addr + a->extent != cursor)
		return fdry_fail(FDRY_E_STATE,
				 "the addresses behind tensor '%s' are in use already; call "
				 "fdry_capture_capacity() right after the tensor is allocated at "
				 "new addresses",
				 t->desc.name);
	return 0;
}

static int capacity_take(struct fdry_capture *cap, struct fdry_capture_tensor *t, uint64_t max)
{
	struct fdry_alloc *ledger;
	CUdeviceptr base;
	uint64_t size, offset;
	size_t n, i;
	int err;

	err = fdry_interposer_result(cap->hook, cap->hook->region_offset(&offset));
	if (err)
		return err;
	err = fdry_interposer_result(cap->hook,
				     cap->hook->region_ledger(&base, &size, &ledger, &n));
	if (err)
		return err;
	for (i = 0; i < n && ledger[i].serial != t->serial; i++)
		;
	err = i < n ? alloc_check(t, &ledger[i], base + offset)
		    : fdry_fail(FDRY_E_STATE, "the memory of tensor '%s' was freed; keep it alive",
				t->desc.name);
	free(ledger);
	if (err)
		return err;
	err = fdry_interposer_result(cap->hook,
				  cap->hook->region_set_offset(t->desc.addr - base + max));
	if (err)
		return err;
	t->capacity = max;
	return 0;
}

int fdry_capture_capacity(struct fdry_capture *cap, const char *name, uint64_t max_bytes)
{
	uint64_t max = max_bytes + FDRY_ALLOC_BLOCK - 1;
	struct fdry_capture_tensor *t;
	int err = fdry_capture_check(cap) ?: fdry_need(name);

	if (err)
		return err;
	if (max < max_bytes)
		return fdry_fail(FDRY_E_RANGE,
				 "there are no addresses for a capacity of %llu bytes",
				 (unsigned long long)max_bytes);
	max -= max % FDRY_ALLOC_BLOCK;
	pthread_mutex_lock(&cap->lock);
	t = tensor_find(cap, name);
	err = t ? capacity_check(t, max)
		: fdry_fail(FDRY_E_NOKEY, "no tensor was named '%.80s'; name it first", name);
	err = err ?: capacity_take(cap, t, max);
	pthread_mutex_unlock(&cap->lock);
	return err;
}
