// SPDX-License-Identifier: Apache-2.0
/*
 * live.c - counts objects that an image cannot hold: texture and surface objects. It also counts
 * launches of graphs, since they change scratch memory.
 *
 * Objects that were destroyed with their context still count. So a seal may refuse a workload
 * needlessly, but never seals one wrongly.
 */
#include "hook/internal.h"

static uint64_t textures, surfaces, launches;
static __thread bool launches_held; /* graph launches of this thread return at once */

static CUresult count(CUresult res, uint64_t *n, uint64_t by)
{
	if (!res)
		__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
	return res;
}

CUresult cuTexObjectCreate(CUtexObject *ret, const CUDA_RESOURCE_DESC *res,
			   const CUDA_TEXTURE_DESC *tex, const CUDA_RESOURCE_VIEW_DESC *view)
{
	return count(fdry_real(cuTexObjectCreate)(ret, res, tex, view), &textures, 1);
}

CUresult cuTexObjectDestroy(CUtexObject object)
{
	return count(fdry_real(cuTexObjectDestroy)(object), &textures, -1ull);
}

CUresult cuSurfObjectCreate(CUsurfObject *ret, const CUDA_RESOURCE_DESC *res)
{
	return count(fdry_real(cuSurfObjectCreate)(ret, res), &surfaces, 1);
}

CUresult cuSurfObjectDestroy(CUsurfObject object)
{
	return count(fdry_real(cuSurfObjectDestroy)(object), &surfaces, -1ull);
}

void fdry_hook_launches_hold(int on)
{
	launches_held = on;
}

/* A launch in a capture adds a child graph, a copy of the executable graph. The nodes of that may
 * be older than any graph that is known, and updates may have changed them. */
static CUresult launched(CUresult res, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!fdry_capture_count() || !fdry_graph_age_any() || fdry_start_is_forked())
		return res;
	if (fdry_real(cuStreamIsCapturing)(stream, &status) ||
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		fdry_graph_age_forget();
	return res;
}

/* The launch counts before it is made, since a launch that fails may have begun. */
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	if (launches_held)
		return CUDA_SUCCESS;
	__atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
	return launched(fdry_real(cuGraphLaunch)(exec, stream), stream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	if (launches_held)
		return CUDA_SUCCESS;
	__atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
	return launched(fdry_real(cuGraphLaunch_ptsz)(exec, stream),
			stream ? stream : CU_STREAM_PER_THREAD);
}

void fdry_hook_live(struct fdry_hook_live *ret)
{
	ret->textures = __atomic_load_n(&textures, __ATOMIC_RELAXED);
	ret->surfaces = __atomic_load_n(&surfaces, __ATOMIC_RELAXED);
	ret->graph_launches = __atomic_load_n(&launches, __ATOMIC_RELAXED);
	ret->captures = fdry_capture_count();
	ret->unwrapped = fdry_proc_unwrapped();
}
