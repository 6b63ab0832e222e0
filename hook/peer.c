// SPDX-License-Identifier: Apache-2.0
/*
 * peer.c - gives other devices access to a region's memory.
 *
 * To the driver, a region is memory that the program mapped, and cuCtxEnablePeerAccess does not
 * open such memory to a peer. So this file notes the program's settings at all times and also
 * applies them to regions. cuCtxEnablePeerAccess opens a region to the device of the current
 * context, and cuMemPoolSetAccess to the devices that it names. A device has access to a whole
 * region until no context and no pool requests it any more. The destruction of contexts is not
 * detected.
 *
 * Locking: one lock around the list, held while regions change, and taken before the regions' lock.
 */
#include "hook/internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/log.h"
#include "mm/vmm.h"

/* A request that @dev may use memory of @owner. */
struct grant {
	struct grant *next;
	const void *requester; /* the context that gets access, or the pool that gives it */
	const void *owner_ctx; /* the context that owns the memory, or NULL */
	CUdevice owner, dev;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct grant *grants;

static bool is_granted(CUdevice owner, CUdevice dev)
{
	const struct grant *g = grants;

	while (g && (g->owner != owner || g->dev != dev))
		g = g->next;
	return g;
}

/* Apply the list's requests for @dev to the regions of @owner; lock held. */
static int apply(CUdevice owner, CUdevice dev)
{
	bool open = is_granted(owner, dev);
	int err = fdry_regions_open(owner, dev, open);

	if (!err || open)
		return err;
	/* The driver has closed its own memory, but the region's memory stays open. */
	fdry_warn("interposer: %s", fdry_last_error());
	return 0;
}

static struct grant **place_of(const struct grant *want)
{
	struct grant **link = &grants;

	while (*link &&
	       ((*link)->requester != want->requester ||
		(*link)->owner_ctx != want->owner_ctx || (*link)->dev != want->dev))
		link = &(*link)->next;
	return link;
}

/* Lock held. */
static void revoke(const struct grant *want)
{
	struct grant **link = place_of(want), *g = *link;

	if (!g)
		return;
	*link = g->next;
	(void)apply(g->owner, g->dev);
	free(g);
}

/* Lock held. */
static int grant_new(const struct grant *want)
{
	struct grant *g = malloc(sizeof(*g));
	int err;

	if (!g)
		return fdry_nomem();
	*g = *want;
	g->next = grants;
	grants = g;
	err = apply(g->owner, g->dev);
	if (err)
		goto out_free;
	return 0;
out_free:
	grants = g->next;
	free(g);
	return err;
}

/* Lock held. @fresh: the request is new. */
static int grant(const struct grant *want, bool *fresh)
{
	const struct grant *g = *place_of(want);

	*fresh = !g || g->owner != want->owner;
	if (!*fresh)
		return 0;
	if (want->owner >= FDRY_VMM_DEVICES || want->dev >= FDRY_VMM_DEVICES)
		return fdry_fail(FDRY_E_LIMIT,
				 "device %d or %d is none of the first %d; hide some with "
				 "CUDA_VISIBLE_DEVICES",
				 want->owner, want->dev, FDRY_VMM_DEVICES);
	revoke(want); /* removes the request of an older context with the same handle */
	return grant_new(want);
}

/* --- contexts --- */

static bool device_of(CUcontext ctx, CUdevice *ret)
{
	CUresult res;

	if (fdry_real(cuCtxPushCurrent_v2)(ctx))
		return false;
	res = fdry_real(cuCtxGetDevice)(ret);
	fdry_real(cuCtxPopCurrent_v2)(&ctx);
	return !res;
}

/* Find the devices of the current context and of @peer; false if no region is concerned. */
static bool pair_of(CUcontext peer, struct grant *ret)
{
	CUcontext ctx = NULL;

	*ret = (struct grant){ .owner_ctx = peer };
	if (fdry_start_is_forked() || fdry_real(cuCtxGetCurrent)(&ctx) ||
	    fdry_real(cuCtxGetDevice)(&ret->dev))
		return false;
	ret->requester = ctx;
	return device_of(peer, &ret->owner) && ret->owner != ret->dev;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult res = fdry_real(cuCtxEnablePeerAccess)(peer, flags);
	struct grant want;
	bool fresh;
	int err;

	if (res || !pair_of(peer, &want))
		return res;
	pthread_mutex_lock(&lock);
	err = grant(&want, &fresh);
	pthread_mutex_unlock(&lock);
	if (!err)
		return CUDA_SUCCESS;
	fdry_warn("interposer: cuCtxEnablePeerAccess: %s", fdry_last_error());
	fdry_real(cuCtxDisablePeerAccess)(peer);
	return fdry_dispatch_alloc_result(err);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult res = fdry_real(cuCtxDisablePeerAccess)(peer);
	struct grant want;

	if (res || !pair_of(peer, &want))
		return res;
	pthread_mutex_lock(&lock);
	revoke(&want);
	pthread_mutex_unlock(&lock);
	return res;
}

/* --- pools --- */

static bool names_peer(const CUmemAccessDesc *desc, CUdevice owner, bool open)
{
	return desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc->location.id != owner &&
	       open == (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/* Remove the requests of @pool for the devices in @map that lose access. */
static void pool_close(CUmemoryPool pool, CUdevice owner, const CUmemAccessDesc *map, size_t count)
{
	struct grant want = { .requester = pool, .owner = owner };
	size_t i;

	for (i = 0; i < count; i++) {
		want.dev = map[i].location.id;
		if (names_peer(&map[i], owner, false))
			revoke(&want);
	}
}

/* *@fresh: the devices that had no access before, also after a failure. */
static int pool_open(CUmemoryPool pool, CUdevice owner, const CUmemAccessDesc *map, size_t count,
		     uint64_t *fresh)
{
	struct grant want = { .requester = pool, .owner = owner };
	bool is_fresh;
	int err;
	size_t i;

	for (i = 0; i < count; i++) {
		want.dev = map[i].location.id;
		if (!names_peer(&map[i], owner, true))
			continue;
		err = grant(&want, &is_fresh);
		if (err)
			return err;
		if (is_fresh)
			*fresh |= 1ull << want.dev;
	}
	return 0;
}

/* Undo pool_open(), and the driver's change since. */
static void pool_undo(CUmemoryPool pool, CUdevice owner, const CUmemAccessDesc *map, size_t count,
		      uint64_t fresh)
{
	struct grant want = { .requester = pool, .owner = owner };
	CUmemAccessDesc was;
	size_t i;

	for (want.dev = 0; want.dev < FDRY_VMM_DEVICES; want.dev++)
		if (fresh >> want.dev & 1)
			revoke(&want);
	for (i = 0; i < count; i++) {
		was = map[i];
		want.dev = was.location.id;
		was.flags = *place_of(&want) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
					     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
		if (names_peer(&map[i], owner, true) || names_peer(&map[i], owner, false))
			fdry_real(cuMemPoolSetAccess)(pool, &was, 1);
	}
}

/* Change the access to a pool that the region may replace. The driver has already changed its
 * own. */
static int pool_set(CUmemoryPool pool, CUdevice owner, const CUmemAccessDesc *map, size_t count)
{
	uint64_t fresh = 0;
	int err;

	pthread_mutex_lock(&lock);
	err = pool_open(pool, owner, map, count, &fresh);
	if (err)
		pool_undo(pool, owner, map, count, fresh);
	else
		pool_close(pool, owner, map, count);
	pthread_mutex_unlock(&lock);
	return err;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUdevice owner;
	CUresult known =
		fdry_start_is_forked() ? CUDA_ERROR_NOT_FOUND : fdry_mempool_device(pool, &owner);
	CUresult res = known && known != CUDA_ERROR_NOT_FOUND
			       ? known
			       : fdry_real(cuMemPoolSetAccess)(pool, map, count);
	int err;

	if (res || known)
		return res;
	err = pool_set(pool, owner, map, count);
	if (err)
		fdry_warn("interposer: cuMemPoolSetAccess: %s", fdry_last_error());
	return fdry_dispatch_alloc_result(err);
}

/* Remove all requests of a pool that was destroyed. */
static void pool_revoke(CUmemoryPool pool)
{
	struct grant *g;

	pthread_mutex_lock(&lock);
	do {
		for (g = grants; g && g->requester != pool; g = g->next)
			;
		if (g)
			revoke(g);
	} while (g);
	pthread_mutex_unlock(&lock);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult res = fdry_real(cuMemPoolDestroy)(pool);

	if (res || fdry_start_is_forked())
		return res;
	fdry_mempool_forget(pool);
	pool_revoke(pool);
	return res;
}
