// SPDX-License-Identifier: Apache-2.0
/*
 * peer.c - access of contexts to the memory of other contexts.
 *
 * The driver checks and reports the settings, but they have no effect, since all contexts can
 * access host memory.
 */
#include "arch/sim/sim.h"

/* Find @handle in the list of contexts whose memory @ctx may use, or a free place if @handle is 0.
 * Returns NULL if there is none. */
static uint64_t *peer_place(struct sim_ctx *ctx, uint64_t handle)
{
	int i;

	for (i = 0; i < SIM_DEVICES_MAX; i++)
		if (ctx->peers[i] == handle)
			return &ctx->peers[i];
	return NULL;
}

/* Get the current context and the context of @handle. The two must differ. */
static CUresult both(CUcontext handle, struct sim_ctx **ctx, struct sim_ctx **peer)
{
	SIM_TRY(sim_ctx_current(ctx));
	if (!handle)
		return CUDA_ERROR_INVALID_CONTEXT;
	SIM_TRY(sim_ctx_find(handle, peer));
	return *peer == *ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct sim_ctx *ctx, *peer;
	uint64_t *place;

	SIM_ENTER(cuCtxEnablePeerAccess);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(both(handle, &ctx, &peer));
	if (peer->dev == ctx->dev)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (peer_place(ctx, peer->obj.id))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	place = peer_place(ctx, 0);
	if (!place)
		return CUDA_ERROR_TOO_MANY_PEERS;
	*place = peer->obj.id;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_ctx *ctx, *peer;
	uint64_t *place;

	SIM_ENTER(cuCtxDisablePeerAccess);
	SIM_TRY(both(handle, &ctx, &peer));
	place = peer_place(ctx, peer->obj.id);
	if (!place)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	*place = 0;
	return CUDA_SUCCESS;
}
