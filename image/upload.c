// SPDX-License-Identifier: Apache-2.0
/*
 * upload.c - blocks of pinned memory; see upload.h.
 *
 * A block that the driver does not register is copied from all the same; the driver then takes the
 * bytes through memory of its own, while the thread waits.
 *
 * Free blocks wait in the order in which they were given to the driver, so the one in
 * front is the one that the device has first.
 */
#include "image/upload.h"
#include "arch/stream.h"
#include "image/pinned.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* More threads than this, each with a block, are slower: they wait for memory, for the device, and
 * for each other. */
#define HELD_MAX 8

struct block {
	struct block *next; /* that is free */
	struct fdry_pinned memory; /* none until its first use */
	CUevent copied;
};

struct fdry_upload {
	const struct fdry_driver *drv;
	CUstream stream;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t freed, opened;
	bool open, abandoned;
	struct block *first, **last; /* the free ones */
	unsigned int held;
	unsigned int nblocks;
	struct block blocks[];
};

/* --- free blocks --- */

static void block_give(struct fdry_upload *u, struct block *b)
{
	pthread_mutex_lock(&u->lock);
	b->next = NULL;
	*u->last = b;
	u->last = &b->next;
	u->held--;
	pthread_cond_signal(&u->freed);
	pthread_mutex_unlock(&u->lock);
}

static struct block *block_take(struct fdry_upload *u)
{
	struct block *b;

	pthread_mutex_lock(&u->lock);
	while (!u->first || u->held == HELD_MAX)
		pthread_cond_wait(&u->freed, &u->lock);
	u->held++;
	b = u->first;
	u->first = b->next;
	if (!u->first)
		u->last = &u->first;
	pthread_mutex_unlock(&u->lock);
	return b;
}

/* --- making them --- */

int fdry_upload_new(const struct fdry_driver *drv, CUstream stream, unsigned int blocks,
		    struct fdry_upload **ret)
{
	struct fdry_upload *u = calloc(1, sizeof(*u) + blocks * sizeof(u->blocks[0]));
	unsigned int i;
	int err;

	if (!u)
		return fdry_nomem();
	u->drv = drv;
	u->stream = stream;
	u->nblocks = blocks;
	u->held = blocks; /* until each is given */
	u->last = &u->first;
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->freed, NULL);
	pthread_cond_init(&u->opened, NULL);
	for (i = 0; i < blocks; i++) {
		err = fdry_call(drv, cuEventCreate, &u->blocks[i].copied, CU_EVENT_DISABLE_TIMING);
		if (err)
			goto out_free;
		block_give(u, &u->blocks[i]);
	}
	*ret = u;
	return 0;
out_free:
	fdry_upload_free(u);
	return err;
}

/* The block has memory, from which no copy reads any more. */
static int block_ready(struct fdry_upload *u, struct block *b)
{
	if (b->memory.bytes)
		return fdry_event_wait(u->drv, b->copied);
	return fdry_pinned_get(u->drv, &b->memory);
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
	pthread_mutex_unlock(&u->lock);
}

static int open_wait(struct fdry_upload *u)
{
	bool abandoned;

	pthread_mutex_lock(&u->lock);
	while (!u->open && !u->abandoned)
		pthread_cond_wait(&u->opened, &u->lock);
	abandoned = u->abandoned;
	pthread_mutex_unlock(&u->lock);
	return abandoned ? fdry_fail(FDRY_E_STATE, "there is nothing to copy to any more") : 0;
}

/* How many of them follow each other on the device, and so are one copy. */
static size_t run_length(const struct fdry_piece *pieces, size_t n, size_t *len)
{
	size_t i;

	*len = pieces[0].bytes.len;
	for (i = 1; i < n && pieces[i].addr == pieces[0].addr + *len; i++)
		*len += pieces[i].bytes.len;
	return i;
}

static void block_fill(struct block *b, const struct fdry_piece *pieces, size_t n)
{
	size_t i, at = 0;

	for (i = 0; i < n; i++) {
		memcpy(b->memory.bytes + at, pieces[i].bytes.data, pieces[i].bytes.len);
		at += pieces[i].bytes.len;
	}
}

static int block_send(struct fdry_upload *u, struct block *b, const struct fdry_piece *pieces,
		      size_t n)
{
	size_t i, k, len, at = 0;
	int err;

	for (i = 0; i < n; i += k, at += len) {
		k = run_length(pieces + i, n - i, &len);
		fdry_count_copy(TO, len);
		err = fdry_call(u->drv, cuMemcpyHtoDAsync_v2, pieces[i].addr, b->memory.bytes + at,
				len, u->stream);
		if (err)
			return err;
	}
	return fdry_call(u->drv, cuEventRecord, b->copied, u->stream);
}

int fdry_upload_put(struct fdry_upload *u, const struct fdry_piece *pieces, size_t n)
{
	struct block *b = block_take(u);
	int err = block_ready(u, b);

	if (err)
		goto out_give;
	block_fill(b, pieces, n);
	err = open_wait(u);
	if (err)
		goto out_give;
	err = block_send(u, b, pieces, n);
out_give:
	block_give(u, b);
	return err;
}

int fdry_upload_finish(struct fdry_upload *u)
{
	return fdry_stream_wait(u->drv, u->stream);
}

void fdry_upload_free(struct fdry_upload *u)
{
	struct block *b;

	if (!u)
		return;
	(void)fdry_call_raw(u->drv, cuStreamSynchronize, u->stream);
	for (b = u->blocks; b < u->blocks + u->nblocks; b++) {
		if (b->copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, b->copied);
		if (b->memory.bytes)
			fdry_pinned_put(u->drv, &b->memory);
	}
	pthread_cond_destroy(&u->opened);
	pthread_cond_destroy(&u->freed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
