// SPDX-License-Identifier: Apache-2.0
/*
 * upload.c - copies to the device through blocks of pinned memory; see upload.h.
 *
 * If the driver does not register memory, copies from it still work: the driver copies the bytes
 * through its own memory while the thread waits.
 *
 * Free blocks wait in the order in which the driver got them, so the device is done with the first
 * one first. A block is made if none is free, or if the device still has the first one: making
 * memory takes longer than copying it.
 *
 * Blocks lie in few pieces of pinned memory, since each piece costs a call of the driver, during
 * which nothing is copied. The first block is a piece of its own, so that its copy begins soon. The
 * other blocks that threads fill at the same time are the second one: when one of them is filled,
 * most of their pages exist, and the driver need not make them. The rest is the third piece. If few
 * threads fill blocks, the driver makes some of the pages.
 */
#include "image/upload.h"
#include "arch/stream.h"
#include "image/pinned.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* To make a pinned block takes longer than the driver needs to copy this from other memory. */
#define FEW ((uint64_t)1 << 20)

/* Blocks that are filled at a time. The others are on their way to the device. If fewer are filled,
 * threads wait for each other. */
#define FILLING_MAX 6

#define PIECES_MAX 3 /* pieces_divide() makes no more */

struct piece {
	pthread_mutex_t lock; /* guards the memory */
	struct fdry_pinned memory; /* none until a block is used */
	size_t size;
};

struct fdry_upload_block {
	struct fdry_upload_block *next; /* the next free block */
	struct piece *piece;
	size_t at;      /* the block's offset in the piece */
	uint8_t *bytes; /* NULL until first used; set by the thread that took the block */
	CUevent copied;
};

struct fdry_upload {
	const struct fdry_driver *drv;
	CUstream stream;
	pthread_mutex_t lock; /* guards the fields down to @taken, and lists of blocks */
	pthread_cond_t changed, opened;
	bool open, abandoned;
	struct fdry_upload_block *first, **last; /* the list of free blocks that were made */
	unsigned int filling; /* blocks with parts that are not filled */
	unsigned int nblocks, taken; /* the blocks from @taken on were not made */
	size_t few; /* bytes of a block that is not pinned; 0: the blocks are pinned */
	struct piece pieces[PIECES_MAX];
	struct fdry_upload_block blocks[];
};

/* --- free blocks; the caller holds the lock --- */

static void block_free(struct fdry_upload *u, struct fdry_upload_block *b)
{
	b->next = NULL;
	*u->last = b;
	u->last = &b->next;
	pthread_cond_broadcast(&u->changed);
}

/* Return to the front what block_take() took. */
static void block_return(struct fdry_upload *u, struct fdry_upload_block *b)
{
	b->next = u->first;
	if (!u->first)
		u->last = &b->next;
	u->first = b;
}

static struct fdry_upload_block *block_take(struct fdry_upload *u)
{
	struct fdry_upload_block *b = u->first;

	if (!b)
		return &u->blocks[u->taken++];
	u->first = b->next;
	if (!u->first)
		u->last = &u->first;
	return b;
}

static bool block_exists(const struct fdry_upload *u)
{
	return u->first || u->taken < u->nblocks;
}

/* --- making them --- */

static void pieces_divide(struct fdry_upload *u)
{
	struct piece *p = u->pieces;
	unsigned int i;

	for (i = 0; i < u->nblocks; i++) {
		if (i == 1 || i == FILLING_MAX)
			p++;
		u->blocks[i].piece = p;
		u->blocks[i].at = p->size;
		p->size += FDRY_UPLOAD_BLOCK;
	}
}

int fdry_upload_new(const struct fdry_driver *drv, CUstream stream, unsigned int blocks,
		    uint64_t bytes, struct fdry_upload **ret)
{
	struct fdry_upload *u = calloc(1, sizeof(*u) + blocks * sizeof(u->blocks[0]));
	unsigned int i;
	int err;

	if (!u)
		return fdry_nomem();
	u->drv = drv;
	u->stream = stream;
	u->nblocks = blocks;
	u->few = bytes <= FEW ? (size_t)bytes : 0;
	u->last = &u->first;
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->changed, NULL);
	pthread_cond_init(&u->opened, NULL);
	for (i = 0; i < PIECES_MAX; i++)
		pthread_mutex_init(&u->pieces[i].lock, NULL);
	pieces_divide(u);
	for (i = 0; i < blocks; i++) {
		err = fdry_call(drv, cuEventCreate, &u->blocks[i].copied, CU_EVENT_DISABLE_TIMING);
		if (err)
			goto out_free;
	}
	*ret = u;
	return 0;
out_free:
	fdry_upload_free(u);
	return err;
}

static int block_allocate(struct fdry_upload *u, struct fdry_upload_block *b)
{
	struct piece *p = b->piece;
	int err = 0;

	if (u->few) {
		b->bytes = malloc(u->few);
		return b->bytes ? 0 : fdry_nomem();
	}
	pthread_mutex_lock(&p->lock);
	if (!p->memory.bytes)
		err = fdry_pinned_get(u->drv, p->size, &p->memory);
	if (!err)
		b->bytes = p->memory.bytes + b->at;
	pthread_mutex_unlock(&p->lock);
	return err;
}

/* Wait until no copy reads the block's memory, or give it some. */
static int block_ready(struct fdry_upload *u, struct fdry_upload_block *b)
{
	return b->bytes ? fdry_event_wait(u->drv, b->copied) : block_allocate(u, b);
}

static void block_register(struct fdry_upload *u, const struct fdry_upload_block *b)
{
	if (u->few)
		return;
	pthread_mutex_lock(&b->piece->lock);
	fdry_pinned_register(u->drv, &b->piece->memory);
	pthread_mutex_unlock(&b->piece->lock);
}

/* --- copying --- */

void fdry_upload_open(struct fdry_upload *u)
{
	pthread_mutex_lock(&u->lock);
	u->open = true;
	pthread_cond_broadcast(&u->opened);
	pthread_mutex_unlock(&u->lock);
}

void fdry_upload_abandon(struct fdry_upload *u)
{
	pthread_mutex_lock(&u->lock);
	u->abandoned = true;
	pthread_cond_broadcast(&u->opened);
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

static int abandoned_fail(void)
{
	return fdry_fail(FDRY_E_STATE, "the load was stopped, so nothing is copied");
}

static int open_wait(struct fdry_upload *u)
{
	bool abandoned;

	pthread_mutex_lock(&u->lock);
	while (!u->open && !u->abandoned)
		pthread_cond_wait(&u->opened, &u->lock);
	abandoned = u->abandoned;
	pthread_mutex_unlock(&u->lock);
	return abandoned ? abandoned_fail() : 0;
}

/* Take the first free block. If the device still reads from it, take one that was not made yet, if
 * there is any. Called with the lock held; releases it while the driver is asked. */
static struct fdry_upload_block *block_choose(struct fdry_upload *u)
{
	struct fdry_upload_block *b = block_take(u);
	CUresult status;

	if (!b->bytes || u->taken == u->nblocks)
		return b;
	pthread_mutex_unlock(&u->lock);
	status = fdry_call_raw(u->drv, cuEventQuery, b->copied);
	pthread_mutex_lock(&u->lock);
	if (status != CUDA_ERROR_NOT_READY || u->taken == u->nblocks)
		return b;
	block_return(u, b);
	return &u->blocks[u->taken++];
}

/* Called with the lock held; releases it while the block is prepared. */
static int block_prepare(struct fdry_upload *u, struct fdry_upload_batch *batch)
{
	int err;

	batch->preparing = true;
	u->filling++;
	batch->block = block_choose(u);
	pthread_mutex_unlock(&u->lock);
	err = block_ready(u, batch->block);
	pthread_mutex_lock(&u->lock);
	batch->preparing = false;
	if (err) {
		u->filling--;
		block_free(u, batch->block);
		batch->block = NULL;
	}
	pthread_cond_broadcast(&u->changed);
	return err;
}

int fdry_upload_need(struct fdry_upload *u, struct fdry_upload_batch *batch, uint8_t **ret)
{
	int err = 0;

	pthread_mutex_lock(&u->lock);
	while (!err && (!batch->block || batch->preparing)) {
		if (u->abandoned)
			err = abandoned_fail();
		else if (!batch->preparing && block_exists(u) && u->filling < FILLING_MAX)
			err = block_prepare(u, batch);
		else
			pthread_cond_wait(&u->changed, &u->lock);
	}
	if (!err)
		*ret = batch->block->bytes;
	pthread_mutex_unlock(&u->lock);
	return err;
}

bool fdry_upload_filled(struct fdry_upload *u, struct fdry_upload_batch *batch, bool whole)
{
	bool send = false;

	pthread_mutex_lock(&u->lock);
	batch->failed |= !whole;
	if (--batch->left == 0 && batch->block) {
		u->filling--;
		send = !batch->failed;
		if (!send)
			block_free(u, batch->block);
		pthread_cond_broadcast(&u->changed);
	}
	pthread_mutex_unlock(&u->lock);
	return send;
}

int fdry_upload_copy(struct fdry_upload *u, struct fdry_upload_batch *batch, CUdeviceptr to,
		     size_t at, size_t len)
{
	int err;

	block_register(u, batch->block);
	err = open_wait(u);
	if (err)
		return err;
	fdry_count_copy(TO, len);
	return fdry_call(u->drv, cuMemcpyHtoDAsync_v2, to, batch->block->bytes + at, len,
			 u->stream);
}

int fdry_upload_sent(struct fdry_upload *u, struct fdry_upload_batch *batch, int err)
{
	if (err)
		(void)fdry_call_raw(u->drv, cuEventRecord, batch->block->copied, u->stream);
	else
		err = fdry_call(u->drv, cuEventRecord, batch->block->copied, u->stream);
	pthread_mutex_lock(&u->lock);
	block_free(u, batch->block);
	pthread_mutex_unlock(&u->lock);
	return err;
}

int fdry_upload_finish(struct fdry_upload *u)
{
	return fdry_stream_wait(u->drv, u->stream);
}

void fdry_upload_free(struct fdry_upload *u)
{
	struct fdry_upload_block *b;
	struct piece *p;

	if (!u)
		return;
	(void)fdry_call_raw(u->drv, cuStreamSynchronize, u->stream);
	for (b = u->blocks; b < u->blocks + u->nblocks; b++) {
		if (b->copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, b->copied);
		if (u->few)
			free(b->bytes);
	}
	for (p = u->pieces; p < u->pieces + PIECES_MAX; p++) {
		if (p->memory.bytes)
			fdry_pinned_put(u->drv, &p->memory);
		pthread_mutex_destroy(&p->lock);
	}
	pthread_cond_destroy(&u->opened);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
