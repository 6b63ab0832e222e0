/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - pieces of device memory, cut into blocks that are used or free.
 *
 * Knows addresses alone: no driver, no lock. A piece is what the driver gave in one call;
 * blocks of different pieces are never joined. A free block is "touched" where a graph may
 * still use it, which the pool decides.
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

/* A new piece, all of it free and untouched. @size is a multiple of FDRY_BLOCK_ALIGN. FDRY_E_NOMEM. */
int fdry_blocks_add(struct fdry_blocks *b, uint64_t addr, uint64_t size) __must_check;
/**
 * fdry_blocks_take() - Use the smallest free block that has room.
 * @size: a multiple of FDRY_BLOCK_ALIGN, not 0
 * @touched: whether a touched one will do
 * @ret: its address; 0 where none has room
 *
 * FDRY_E_NOMEM.
 */
int fdry_blocks_take(struct fdry_blocks *b, uint64_t size, bool touched, uint64_t *ret) __must_check;
/* Free the block in use that begins at @addr; false where there is none. */
bool fdry_blocks_give(struct fdry_blocks *b, uint64_t addr, bool touched) __must_check;
/* No graph uses any free block. */
void fdry_blocks_untouch(struct fdry_blocks *b);
/* Forget a piece, of which nothing is used unless @any; its address, or 0 where there is none. */
uint64_t fdry_blocks_remove(struct fdry_blocks *b, bool any);

#endif
