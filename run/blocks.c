// SPDX-License-Identifier: Apache-2.0
/* blocks.c - cuts pieces into blocks and joins them again; see blocks.h. */
#include "run/blocks.h"

#include <stdlib.h>

struct fdry_block {
	struct fdry_block *next;
	uint64_t addr, size;
	uint64_t piece; /* the address of its piece */
	bool used;
	bool touched;   /* free, and a graph may use it */
};

static struct fdry_block *block_new(uint64_t addr, uint64_t size, uint64_t piece)
{
	struct fdry_block *k = calloc(1, sizeof(*k));

	if (k) {
		k->addr = addr;
		k->size = size;
		k->piece = piece;
	}
	return k;
}

int fdry_blocks_add(struct fdry_blocks *b, uint64_t addr, uint64_t size)
{
	struct fdry_block *k = block_new(addr, size, addr), **p = &b->first;

	if (!k)
		return fdry_nomem();
	while (*p && (*p)->addr < addr)
		p = &(*p)->next;
	k->next = *p;
	*p = k;
	b->reserved += size;
	return 0;
}

static struct fdry_block *best_fit(struct fdry_blocks *b, uint64_t size, bool touched)
{
	struct fdry_block *k, *best = NULL;

	for (k = b->first; k; k = k->next)
		if (!k->used && k->size >= size && (touched || !k->touched) &&
		    (!best || k->size < best->size))
			best = k;
	return best;
}

int fdry_blocks_alloc(struct fdry_blocks *b, uint64_t size, bool touched, uint64_t *ret)
{
	struct fdry_block *k = best_fit(b, size, touched), *rest;

	if (!k) {
		*ret = 0;
		return 0;
	}
	if (k->size > size) {
		rest = block_new(k->addr + size, k->size - size, k->piece);
		if (!rest)
			return fdry_nomem();
		rest->touched = k->touched;
		rest->next = k->next;
		k->next = rest;
		k->size = size;
	}
	k->used = true;
	k->touched = false;
	b->used += k->size;
	*ret = k->addr;
	return 0;
}

/* Join @k and the block after it if both are free; returns whether it did. */
static bool join(struct fdry_block *k)
{
	struct fdry_block *next = k->next;

	if (!next || k->used || next->used || k->piece != next->piece ||
	    k->touched != next->touched)
		return false;
	k->size += next->size;
	k->next = next->next;
	free(next);
	return true;
}

bool fdry_blocks_free(struct fdry_blocks *b, uint64_t addr, bool touched)
{
	struct fdry_block *k, *before = NULL;

	for (k = b->first; k && (k->addr != addr || !k->used); k = k->next)
		before = k;
	if (!k)
		return false;
	k->used = false;
	k->touched = touched;
	b->used -= k->size;
	join(k);
	if (before)
		join(before);
	return true;
}

void fdry_blocks_untouch(struct fdry_blocks *b)
{
	struct fdry_block *k;

	for (k = b->first; k; k = k->next)
		k->touched = false;
	for (k = b->first; k; k = k->next)
		while (join(k))
			;
}

static bool piece_used(const struct fdry_blocks *b, uint64_t piece)
{
	const struct fdry_block *k;

	for (k = b->first; k; k = k->next)
		if (k->piece == piece && k->used)
			return true;
	return false;
}

static void piece_forget(struct fdry_blocks *b, uint64_t piece)
{
	struct fdry_block **p = &b->first, *k;

	while ((k = *p) != NULL) {
		if (k->piece != piece) {
			p = &k->next;
			continue;
		}
		*p = k->next;
		b->reserved -= k->size;
		b->used -= k->used ? k->size : 0;
		free(k);
	}
}

uint64_t fdry_blocks_remove(struct fdry_blocks *b, bool any)
{
	const struct fdry_block *k = b->first;
	uint64_t piece;

	while (k && !any && piece_used(b, k->piece))
		k = k->next;
	if (!k)
		return 0;
	piece = k->piece;
	piece_forget(b, piece);
	return piece;
}
