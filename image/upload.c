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
 * All blocks lie in one piece of pinned memory, since each piece costs a call of the driver, during
 * which nothing is copied. Threads make its pages together, before they fill blocks: the driver
 * would make them in one thread. The thread that makes the last page registers the memory, while
 * others fill blocks already.
 */
#include "image/upload.h"
#include "arch/stream.h"
#include "image/pinned.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* To make a pinned block takes longer than the driver needs to copy this from other memory. */
#define FEW ((uint64_t)1 << 20)

/* Blocks that are filled at a time. The others are on their way to the device. If fewer are filled,
 * threads wait for each other. */
#define FILLING_MAX 4

#define PAGE FDRY_PINNED_PAGE

struct fdry_upload_block {
	struct fdry_upload_block *next; /* the next free block */
	uint8_t *bytes; /* NULL until first used; set by the thread that took the block */
	CUevent copied; /* made at the same time */
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
	struct fdry_pinned memory; /* none until a thread begins; its bytes are never changed */
	size_t size;               /* of the memory to get */
	_Atomic size_t page, made; /* the next page to make; those that are made */
	_Atomic bool ready;        /* the driver was asked to register the memory */
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

int fdry_upload_new(const struct fdry_driver *drv, CUstream stream, unsigned int blocks,
		    uint64_t bytes, struct fdry_upload **ret)
{
	struct fdry_upload *u = calloc(1, sizeof(*u) + blocks * sizeof(u->blocks[0]));

	if (!u)
		return fdry_nomem();
	u->drv = drv;
	u->stream = stream;
	u->nblocks = blocks;
	u->few = bytes <= FEW ? (size_t)bytes : 0;
	u->size = blocks * FDRY_UPLOAD_BLOCK;
	if (blocks == 1 && bytes < u->size)
		u->size = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
	u->last = &u->first;
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->changed, NULL);
	pthread_cond_init(&u->opened, NULL);
	*ret = u;
	return 0;
}

/* Get the memory. Returns whether its pages are to be made, or an error. */
static int memory_get(struct fdry_upload *u, bool *make)
{
	int err = 0;

	pthread_mutex_lock(&u->lock);
	if (!u->memory.bytes) {
		err = fdry_pinned_get(u->drv, u->size, &u->memory);
		atomic_store(&u->ready, !err && u->memory.asked); /* kept memory is registered */
	}
	*make = !err && !atomic_load(&u->ready);
	pthread_mutex_unlock(&u->lock);
	return err;
}

static void memory_register(struct fdry_upload *u)
{
	fdry_pinned_register(u->drv, &u->memory);
	pthread_mutex_lock(&u->lock);
	atomic_store(&u->ready, true);
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

int fdry_upload_begin(struct fdry_upload *u)
{
	size_t page, pages = u->size / PAGE;
	bool make;
	int err;

	if (u->few || atomic_load(&u->ready))
		return 0;
	err = memory_get(u, &make);
	if (!make)
		return err;
	while ((page = atomic_fetch_add(&u->page, 1)) < pages) {
		fdry_pinned_touch(&u->memory, page * PAGE, PAGE);
		if (atomic_fetch_add(&u->made, 1) + 1 == pages)
			memory_register(u);
	}
	return 0;
}

static int block_make(struct fdry_upload *u, struct fdry_upload_block *b)
{
	int err = fdry_upload_begin(u);

	if (!err && !b->copied)
		err = fdry_call(u->drv, cuEventCreate, &b->copied, CU_EVENT_DISABLE_TIMING);
	if (err)
		return err;
	if (!u->few)
		b->bytes = u->memory.bytes + (size_t)(b - u->blocks) * FDRY_UPLOAD_BLOCK;
	else
		b->bytes = malloc(u->few);
	return b->bytes ? 0 : fdry_nomem();
}

/* Wait until no copy reads the block's memory, or give it some. */
static int block_ready(struct fdry_upload *u, struct fdry_upload_block *b)
{
	return b->bytes ? fdry_event_wait(u->drv, b->copied) : block_make(u, b);
}

/* Wait until the memory is registered. Another thread does that, and waits for none. */
static void ready_wait(struct fdry_upload *u)
{
	if (u->few || atomic_load(&u->ready))
		return;
	pthread_mutex_lock(&u->lock);
	while (!atomic_load(&u->ready))
		pthread_cond_wait(&u->changed, &u->lock);
	pthread_mutex_unlock(&u->lock);
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

	ready_wait(u);
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

	if (!u)
		return;
	(void)fdry_call_raw(u->drv, cuStreamSynchronize, u->stream);
	for (b = u->blocks; b < u->blocks + u->nblocks; b++) {
		if (b->copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, b->copied);
		if (u->few)
			free(b->bytes);
	}
	if (u->memory.bytes)
		fdry_pinned_put(u->drv, &u->memory);
	pthread_cond_destroy(&u->opened);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
