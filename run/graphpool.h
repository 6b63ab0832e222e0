/* SPDX-License-Identifier: Apache-2.0 */
/* graphpool.h - pools, as graphs use them; foundry/run/cudagraph.h has what callers see. */
#ifndef FDRY_RUN_GRAPHPOOL_H
#define FDRY_RUN_GRAPHPOOL_H

#include "foundry/run/cudagraph.h"
#include "run/primary.h"

/* A graph's own pool, on the same device. To be given back with fdry_graphpool_put(). */
int fdry_graphpool_own(const struct fdry_primary *on, struct fdry_graphpool **ret) __must_check;

/* A capture of this thread with the pool begins on @on: FDRY_E_STATE where it is sealed or another uses it,
 * FDRY_E_INVAL where it lies elsewhere. The graph holds the pool from here until fdry_graphpool_leave(). */
int fdry_graphpool_join(struct fdry_graphpool *pool, const struct fdry_primary *on) __must_check;
/* The capture has ended. */
void fdry_graphpool_captured(struct fdry_graphpool *pool);
/* The graph is gone and its launches are over. */
void fdry_graphpool_leave(struct fdry_graphpool *pool);

#endif
