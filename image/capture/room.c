// SPDX-License-Identifier: Apache-2.0
/*
 * capture_room.c - addresses left free behind an external tensor; see fdry_capture_capacity().
 *
 * The cursor steps over them, so that nothing is ever handed out there. That can only be
 * done while the tensor's allocation is the last one below the cursor. The allocation must
 * be the tensor's alone, in whole blocks, since a loader maps it in whole blocks.
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

static int room_check(const struct fdry_capture_tensor *t, uint64_t max)
{
	if (!(t->desc.flags & FDRY_TENSOR_EXTERNAL) || t->desc.flags & FDRY_TENSOR_HOST || !t->desc.rank || !t->extent)
		return fdry_fail(FDRY_E_STATE, "tensor '%s' is not an external one in device memory with at least one dimension and "
				 "element; only such can have room", t->desc.name);
	if (!fdry_tensor_extendable(&t->desc))
		return fdry_fail(FDRY_E_STATE, "the first dimension of tensor '%s' is not its outermost in memory, so that room behind the "
				 "tensor would not make it longer; give it another order of dimensions", t->desc.name);
	if (t->room)
		return fdry_fail(FDRY_E_EXISTS, "tensor '%s' has room for %llu bytes already", t->desc.name,
				 (unsigned long long)t->room);
	if (max <= t->extent)
		return fdry_fail(FDRY_E_RANGE, "room for %llu bytes behind tensor '%s', which has %llu itself; ask for more",
				 (unsigned long long)max, t->desc.name, (unsigned long long)t->extent);
	return 0;
}

/* Its allocation holds nothing else, and nothing was handed out behind it. */
static int alloc_check(const struct fdry_capture_tensor *t, const struct fdry_alloc *a, uint64_t cursor)
{
	if (a->addr != t->desc.addr || a->extent != t->extent || t->desc.addr % FDRY_ALLOC_BLOCK || t->extent % FDRY_ALLOC_BLOCK)
		return fdry_fail(FDRY_E_RANGE, "tensor '%s' (%llu bytes at %#llx) does not fill its allocation (%llu at %#llx) in whole units "
				 "of 2 MiB; allocate it by itself, a multiple of 2 MiB", t->desc.name,
				 (unsigned long long)t->extent, t->desc.addr, (unsigned long long)a->extent, a->addr);
	if (a->addr + a->extent != cursor)
		return fdry_fail(FDRY_E_STATE, "memory behind tensor '%s' was handed out already, so there is no room; "
				 "ask for it right after the tensor was allocated, in fresh addresses", t->desc.name);
	return 0;
}

static int room_take(struct fdry_capture *cap, struct fdry_capture_tensor *t, uint64_t max)
{
	struct fdry_alloc *ledger;
	CUdeviceptr base;
	uint64_t size, offset;
	size_t n, i;
	int err;

	err = fdry_standin_result(cap->hook, cap->hook->region_offset(&offset));
	if (!err)
		err = fdry_standin_result(cap->hook, cap->hook->region_ledger(&base, &size, &ledger, &n));
	if (err)
		return err;
	for (i = 0; i < n && ledger[i].serial != t->serial; i++)
		;
	err = i < n ? alloc_check(t, &ledger[i], base + offset) :
		      fdry_fail(FDRY_E_STATE, "the memory of tensor '%s' was freed; keep it alive", t->desc.name);
	free(ledger);
	if (err)
		return err;
	err = fdry_standin_result(cap->hook, cap->hook->region_set_offset(t->desc.addr - base + max));
	if (!err)
		t->room = max;
	return err;
}

int fdry_capture_capacity(struct fdry_capture *cap, const char *name, uint64_t max_bytes)
{
	uint64_t max = max_bytes + FDRY_ALLOC_BLOCK - 1;
	struct fdry_capture_tensor *t;
	int err = fdry_capture_check(cap);

	if (!err)
		err = fdry_need(name);
	if (!err && max < max_bytes)
		err = fdry_fail(FDRY_E_RANGE, "room for %llu bytes is more than there are addresses", (unsigned long long)max_bytes);
	if (err)
		return err;
	max -= max % FDRY_ALLOC_BLOCK;
	pthread_mutex_lock(&cap->lock);
	t = tensor_find(cap, name);
	err = t ? room_check(t, max) : fdry_fail(FDRY_E_NOKEY, "no tensor was named '%.80s'; name it first", name);
	if (!err)
		err = room_take(cap, t, max);
	pthread_mutex_unlock(&cap->lock);
	return err;
}
