/* SPDX-License-Identifier: Apache-2.0 */
/* graphpool.h - pools, as graphs use them; foundry/run/cudagraph.h has the public functions. */
#ifndef FDRY_RUN_GRAPHPOOL_H
#define FDRY_RUN_GRAPHPOOL_H

#include "foundry/run/cudagraph.h"
#include "run/primary.h"

/* Make a graph's own pool, on the same device; fdry_graphpool_put() puts it. */
int fdry_graphpool_new_private(const struct fdry_primary *on,
			       struct fdry_graphpool **ret) __must_check;

/* Begin a capture of this thread with the pool, on @on. FDRY_E_STATE if the pool is sealed or
 * another capture uses it, FDRY_E_INVAL if it lies on another device. The graph holds the pool
 * until fdry_graphpool_leave(). */
int fdry_graphpool_join(struct fdry_graphpool *pool, const struct fdry_primary *on) __must_check;
/* The capture has ended. */
void fdry_graphpool_captured(struct fdry_graphpool *pool);
/* The graph is destroyed and its launches have ended. */
void fdry_graphpool_leave(struct fdry_graphpool *pool);

#endif
