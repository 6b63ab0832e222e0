// SPDX-License-Identifier: Apache-2.0
/*
 * upload.c - copies to the device through blocks of pinned memory; see upload.h.
 *
 * If the driver does not register memory, copies from it still work: the driver copies the bytes
 * through its own memory while the thread waits.
 *
 * Free blocks wait in the order in which the driver got them, so the device is done with the first
 * one first.
 *
 * All blocks lie in one piece of pinned memory, since each piece costs a call of the driver, during
 * which nothing is copied. Threads make its pages together, before they fill blocks: the driver
 * would make them in one thread. A block is free when its pages are made. One thread registers the
 * memory when all are made, while others fill blocks already.
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
#define FILLING_MAX 4

#define PAGE FDRY_PINNED_PAGE

struct fdry_upload_block {
	struct fdry_upload_block *next; /* the next free block */
	uint8_t *bytes;
	CUevent copied;
	bool sent; /* the event was recorded */
	unsigned int missing; /* pages that are to be made before the block is free */
};

struct fdry_upload {
	const struct fdry_driver *drv; /* NULL until fdry_upload_begin() */
	CUstream stream;
	size_t few;  /* bytes of a block that is not pinned; 0: the blocks are pinned */
	size_t size; /* of the pinned memory; 0: none */
	unsigned int nblocks;
	pthread_mutex_t lock; /* guards the rest, and lists of blocks */
	pthread_cond_t changed;
	bool begun, open, abandoned;
	struct fdry_upload_block *first, **last; /* the list of free blocks */
	unsigned int filling; /* blocks with parts that are not filled */
	struct fdry_pinned memory;
	size_t pages;      /* of the memory, if they are to be made; else 0 */
	size_t page, made; /* the next page to make; the number of those that are made */
	bool registering;  /* a thread asks the driver to register the memory, or did */
	bool ready;        /* that is done, or need not be done */
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

static struct fdry_upload_block *block_take(struct fdry_upload *u)
{
	struct fdry_upload_block *b = u->first;

	u->first = b->next;
	if (!u->first)
		u->last = &u->first;
	return b;
}

/* --- memory --- */

static struct fdry_upload_block *block_of(struct fdry_upload *u, size_t page)
{
	return &u->blocks[page * PAGE / FDRY_UPLOAD_BLOCK];
}

static void memory_set(struct fdry_upload *u, const struct fdry_pinned *memory)
{
	size_t page;

	pthread_mutex_lock(&u->lock);
	u->memory = *memory;
	u->registering = u->ready = memory->asked; /* kept memory is registered */
	if (!memory->asked)
		u->pages = memory->size / PAGE;
	for (page = 0; page < u->pages; page++)
		block_of(u, page)->missing++;
	pthread_mutex_unlock(&u->lock);
}

/* Only the driver can tell whether kept memory can be used, so memory is made here if none is kept.
 */
static int memory_early(struct fdry_upload *u)
{
	struct fdry_pinned memory;
	int err;

	if (!u->size || fdry_pinned_has_holder())
		return 0;
	err = fdry_pinned_new(u->size, &memory);
	if (!err)
		memory_set(u, &memory);
	return err;
}

int fdry_upload_new(unsigned int blocks, uint64_t bytes, struct fdry_upload **ret)
{
	struct fdry_upload *u = calloc(1, sizeof(*u) + blocks * sizeof(u->blocks[0]));
	int err;

	if (!u)
		return fdry_nomem();
	u->nblocks = blocks;
	u->few = bytes <= FEW ? (size_t)bytes : 0;
	u->last = &u->first;
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->changed, NULL);
	u->size = u->few ? 0 : blocks * FDRY_UPLOAD_BLOCK;
	if (blocks == 1 && bytes < u->size)
		u->size = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
	u->registering = u->ready = !u->size;
	err = memory_early(u);
	if (err)
		fdry_upload_free(u);
	else
		*ret = u;
	return err;
}

/* The page was made. The lock is held. */
static void page_add(struct fdry_upload *u, size_t page)
{
	struct fdry_upload_block *b = block_of(u, page);

	if (--b->missing == 0 && u->begun)
		block_free(u, b);
	if (++u->made == u->pages)
		pthread_cond_broadcast(&u->changed);
}

void fdry_upload_populate(struct fdry_upload *u)
{
	size_t page;

	pthread_mutex_lock(&u->lock);
	while (u->page < u->pages && !u->abandoned) {
		page = u->page++;
		pthread_mutex_unlock(&u->lock);
		fdry_pinned_populate(&u->memory, page * PAGE, PAGE);
		pthread_mutex_lock(&u->lock);
		page_add(u, page);
	}
	pthread_mutex_unlock(&u->lock);
}

/* Register the memory if its pages are made and no other thread does it. Called with the lock held;
 * releases it meanwhile. Returns whether this thread did. */
static bool memory_register(struct fdry_upload *u)
{
	if (u->registering || u->made < u->pages)
		return false;
	u->registering = true;
	pthread_mutex_unlock(&u->lock);
	fdry_pinned_register(u->drv, &u->memory);
	pthread_mutex_lock(&u->lock);
	u->ready = true;
	pthread_cond_broadcast(&u->changed);
	return true;
}

void fdry_upload_prepare(struct fdry_upload *u)
{
	fdry_upload_populate(u);
	pthread_mutex_lock(&u->lock);
	(void)memory_register(u);
	pthread_mutex_unlock(&u->lock);
}

static int block_make(struct fdry_upload *u, struct fdry_upload_block *b)
{
	if (u->few)
		b->bytes = malloc(u->few);
	else
		b->bytes = u->memory.bytes + (size_t)(b - u->blocks) * FDRY_UPLOAD_BLOCK;
	if (!b->bytes)
		return fdry_nomem();
	return fdry_call(u->drv, cuEventCreate, &b->copied, CU_EVENT_DISABLE_TIMING);
}

int fdry_upload_begin(struct fdry_upload *u, const struct fdry_driver *drv, CUstream stream)
{
	struct fdry_pinned memory;
	unsigned int i;
	int err = 0;

	u->drv = drv;
	u->stream = stream;
	if (u->size && !u->memory.bytes) {
		err = fdry_pinned_get(drv, u->size, &memory);
		if (err)
			return err;
		memory_set(u, &memory);
	}
	for (i = 0; i < u->nblocks && !err; i++)
		err = block_make(u, &u->blocks[i]);
	if (err)
		return err;
	pthread_mutex_lock(&u->lock);
	u->begun = true;
	for (i = 0; i < u->nblocks; i++)
		if (!u->blocks[i].missing)
			block_free(u, &u->blocks[i]);
	pthread_mutex_unlock(&u->lock);
	return 0;
}

/* --- copying --- */

void fdry_upload_open(struct fdry_upload *u)
{
	pthread_mutex_lock(&u->lock);
	u->open = true;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

void fdry_upload_abandon(struct fdry_upload *u)
{
	pthread_mutex_lock(&u->lock);
	u->abandoned = true;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

static int abandoned_fail(void)
{
	return fdry_fail(FDRY_E_STATE, "the load was stopped, so nothing is copied");
}

/* Wait until copies may begin and the memory is registered. */
static int open_wait(struct fdry_upload *u)
{
	bool abandoned;

	pthread_mutex_lock(&u->lock);
	while (!(u->open && u->ready) && !u->abandoned)
		if (!memory_register(u))
			pthread_cond_wait(&u->changed, &u->lock);
	abandoned = u->abandoned;
	pthread_mutex_unlock(&u->lock);
	return abandoned ? abandoned_fail() : 0;
}

/* Take the first free block, and wait until the device has read it. Called with the lock held;
 * releases it meanwhile. */
static int block_prepare(struct fdry_upload *u, struct fdry_upload_batch *batch)
{
	int err = 0;

	batch->preparing = true;
	u->filling++;
	batch->block = block_take(u);
	if (batch->block->sent) {
		pthread_mutex_unlock(&u->lock);
		err = fdry_event_wait(u->drv, batch->block->copied);
		pthread_mutex_lock(&u->lock);
	}
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

	fdry_upload_prepare(u);
	pthread_mutex_lock(&u->lock);
	while (!err && (!batch->block || batch->preparing)) {
		if (u->abandoned)
			err = abandoned_fail();
		else if (!batch->preparing && u->first && u->filling < FILLING_MAX)
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
	int err = open_wait(u);

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
	batch->block->sent = true;
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
	if (u->drv)
		(void)fdry_call_raw(u->drv, cuStreamSynchronize, u->stream);
	for (b = u->blocks; b < u->blocks + u->nblocks; b++) {
		if (b->copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, b->copied);
		if (u->few)
			free(b->bytes);
	}
	if (u->memory.bytes)
		fdry_pinned_put(u->drv, &u->memory);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
