/* SPDX-License-Identifier: Apache-2.0 */
/* graphpool.h - the functions of pools that graphs use; foundry/run/cudagraph.h has the public
 * ones. */
#ifndef FDRY_RUN_GRAPHPOOL_H
#define FDRY_RUN_GRAPHPOOL_H

#include "foundry/run/cudagraph.h"
#include "run/primary.h"

/* Make a pool for one graph, on the same device; release it with fdry_graphpool_put(). */
int fdry_graphpool_new_private(const struct fdry_primary *on,
			       struct fdry_graphpool **ret) __must_check;

/* Begin a capture of this thread with the pool, on @on. FDRY_E_STATE if the pool is sealed or
 * another capture uses it, FDRY_E_INVAL if it lies on another device. The graph holds the pool
 * until fdry_graphpool_leave(). */
int fdry_graphpool_join(struct fdry_graphpool *pool, const struct fdry_primary *on) __must_check;
/* Note that the capture has ended. */
void fdry_graphpool_captured(struct fdry_graphpool *pool);
/* Note that the graph was destroyed and its launches have ended. */
void fdry_graphpool_leave(struct fdry_graphpool *pool);

#endif
