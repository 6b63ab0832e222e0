/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - pieces of device memory, cut into blocks that are used or free.
 *
 * These functions only compute with addresses: they call no driver and take no lock. A piece is
 * memory from one call of the driver. Blocks of different pieces are never joined. A free block is
 * "touched" if a graph may still use it; the pool decides that.
 */
#ifndef FDRY_RUN_BLOCKS_H
#define FDRY_RUN_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

#define FDRY_BLOCK_ALIGN 512u

struct fdry_block;

struct fdry_blocks {
	struct fdry_block *first; /* ascending addresses */
	uint64_t reserved, used;
};

/* Add a piece, all of it free and untouched. @size is a multiple of FDRY_BLOCK_ALIGN. FDRY_E_NOMEM.
 */
int fdry_blocks_add(struct fdry_blocks *b, uint64_t addr, uint64_t size) __must_check;
/**
 * fdry_blocks_alloc() - Use the smallest free block that is large enough.
 * @size: a multiple of FDRY_BLOCK_ALIGN, not 0
 * @touched: whether a touched block is allowed
 * @ret: its address; 0 if no block is large enough
 *
 * FDRY_E_NOMEM.
 */
int fdry_blocks_alloc(struct fdry_blocks *b, uint64_t size, bool touched,
		      uint64_t *ret) __must_check;
/* Free the block in use that begins at @addr; false if there is none. */
bool fdry_blocks_free(struct fdry_blocks *b, uint64_t addr, bool touched) __must_check;
/* Mark all free blocks untouched: no graph uses one. */
void fdry_blocks_untouch(struct fdry_blocks *b);
/* Remove a piece without used blocks, or with @any any piece. Returns its address, or 0 if there is
 * none. */
uint64_t fdry_blocks_remove(struct fdry_blocks *b, bool any);

#endif
