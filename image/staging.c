// SPDX-License-Identifier: Apache-2.0
/*
 * staging.c - copies through pinned memory; see staging.h.
 *
 * A ring of slots of pinned memory, each with an event. A slot is used again only after its event,
 * when the stream's copy has ended. So no bytes are overwritten that a copy still reads, and writes
 * that come faster than their copies must wait.
 *
 * For device memory, a copy is enqueued. For host memory, a function is enqueued that the driver
 * calls, because a copy from host to host memory would make the driver wait for the stream.
 *
 * Elements lie packed in a slot, in the order of the tensor's memory. The processor puts them into
 * that order, and the driver skips the gaps of the tensor.
 */
#include "image/staging.h"
#include "arch/stream.h"
#include "lib/telemetry.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 64u
#define SLOT_BYTES ((size_t)64 << 10)

struct slot {
	uint8_t *bytes; /* SLOT_BYTES */
	CUevent done;
	bool busy;      /* used, and @done was not awaited since then */
	void *host;     /* the destination of a write to host memory, ... */
	struct fdry_strided how; /* ... and how to copy there; for a read, how to copy out of the
				    slot */
};

struct fdry_staging {
	uint8_t *block;
	uint32_t next;
	struct slot slots[SLOTS];
};

static void staging_release(const struct fdry_driver *drv, struct fdry_staging *st)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++) {
		if (st->slots[i].busy)
			(void)fdry_call_raw(drv, cuEventSynchronize, st->slots[i].done);
		if (st->slots[i].done)
			(void)fdry_call_raw(drv, cuEventDestroy_v2, st->slots[i].done);
	}
	if (st->block)
		(void)fdry_call_raw(drv, cuMemFreeHost, st->block);
	free(st);
}

static int staging_make(const struct fdry_driver *drv, struct fdry_staging **ret)
{
	struct fdry_staging *st = calloc(1, sizeof(*st));
	uint32_t i;
	int err;

	if (!st)
		return fdry_nomem();
	err = fdry_call(drv, cuMemHostAlloc, (void **)&st->block, SLOTS * SLOT_BYTES,
			CU_MEMHOSTALLOC_PORTABLE);
	if (err)
		goto out_release;
	for (i = 0; i < SLOTS; i++) {
		st->slots[i].bytes = st->block + i * SLOT_BYTES;
		err = fdry_call(drv, cuEventCreate, &st->slots[i].done, CU_EVENT_DISABLE_TIMING);
		if (err)
			goto out_release;
	}
	*ret = st;
	return 0;
out_release:
	staging_release(drv, st);
	return err;
}

static struct fdry_place slot_place(const struct slot *s)
{
	return (struct fdry_place){ (uintptr_t)s->bytes, true };
}

static int slot_wait(const struct fdry_driver *drv, struct slot *s)
{
	int err = s->busy ? fdry_event_wait(drv, s->done) : 0;

	if (err)
		return err;
	s->busy = false;
	return 0;
}

/* The state that all pieces of one copy share. */
struct staged {
	const struct fdry_driver *drv;
	struct fdry_staging *st;
	const struct fdry_staged *c;
	struct fdry_strided repeats; /* for a read */
	uint32_t filled;             /* slots that a read has filled and not yet emptied */
};

/* --- writes --- */

/* The driver calls this function, which must not call the driver. */
static void CUDA_CB host_write(void *arg)
{
	const struct slot *s = arg;

	fdry_strided_host(&s->how, s->host, s->bytes);
}

/* @how: how to copy from the slot to the tensor's piece at @addr. */
static int slot_enqueue(const struct staged *g, struct slot *s, const struct fdry_strided *how,
			uint64_t addr)
{
	int err;

	fdry_count_copy(TO, fdry_strided_bytes(how));
	if (g->c->tensor.host) {
		s->host = (void *)(uintptr_t)addr;
		s->how = *how;
		return fdry_call(g->drv, cuLaunchHostFunc, g->c->stream, host_write, s);
	}
	err = fdry_strided_device(g->drv, how, (struct fdry_place){ addr, false }, slot_place(s),
				  g->c->stream);
	/* After an error, copies that read the slot may already be enqueued. */
	if (err)
		(void)fdry_call_raw(g->drv, cuStreamSynchronize, g->c->stream);
	return err;
}

/* Write one piece of at most SLOT_BYTES bytes. */
static int piece_write(void *arg, const struct fdry_strided *piece, int64_t dst, int64_t src)
{
	const struct staged *g = arg;
	struct fdry_staging *st = g->st;
	struct slot *s = &st->slots[st->next];
	struct fdry_strided in = *piece, out = *piece;
	int err = slot_wait(g->drv, s);

	if (err)
		return err;
	fdry_strided_pack_dst(&in);
	fdry_strided_host(&in, s->bytes, (const uint8_t *)g->c->data + src);
	fdry_strided_pack_src(&out);
	err = slot_enqueue(g, s, &out, g->c->tensor.addr + (uint64_t)dst);
	if (err)
		return err;
	s->busy = !fdry_call_raw(g->drv, cuEventRecord, s->done, g->c->stream);
	st->next = (st->next + 1) % SLOTS;
	/* Without the event, nothing would show when the slot is free. So wait for the stream. */
	return s->busy ? 0 : fdry_stream_wait(g->drv, g->c->stream);
}

/* --- reads --- */

static int slots_empty(struct staged *g)
{
	int err = fdry_stream_wait(g->drv, g->c->stream);
	uint32_t i;

	if (err)
		return err;
	for (i = 0; i < g->filled; i++)
		fdry_strided_host(&g->st->slots[i].how, g->st->slots[i].host,
				  g->st->slots[i].bytes);
	g->filled = 0;
	return 0;
}

/* Start reading one piece of at most SLOT_BYTES bytes. */
static int piece_read(void *arg, const struct fdry_strided *piece, int64_t dst, int64_t src)
{
	struct fdry_strided in = *piece;
	struct staged *g = arg;
	struct slot *s = &g->st->slots[g->filled];
	int err = slot_wait(g->drv, s);

	if (err)
		return err;
	fdry_strided_pack_dst(&in);
	s->how = *piece;
	fdry_strided_pack_src(&s->how);
	fdry_strided_join(&s->how, &g->repeats);
	s->host = (uint8_t *)g->c->data + dst;
	g->filled++;
	fdry_count_copy(FROM, fdry_strided_bytes(&in));
	err = fdry_strided_device(g->drv, &in, slot_place(s),
				  (struct fdry_place){ g->c->tensor.addr + (uint64_t)src, false },
				  g->c->stream);
	if (err)
		return err;
	return g->filled == SLOTS ? slots_empty(g) : 0;
}

static int pieces_read(struct staged *g)
{
	struct fdry_strided once = *g->c->how;
	int err;

	/* The tensor may repeat an element (stride 0). Each is read only once. */
	fdry_strided_split(&once, &g->repeats);
	err = fdry_strided_pieces(&once, SLOT_BYTES, piece_read, g);
	if (!err)
		return slots_empty(g);
	/* Copies into the slots may still run. */
	(void)fdry_call_raw(g->drv, cuStreamSynchronize, g->c->stream);
	return err;
}

static int staged_do(struct fdry_image *img, const struct fdry_staged *c, bool write)
{
	struct staged g = { .drv = img->drv, .c = c };
	int err = 0;

	pthread_mutex_lock(&img->staging_lock);
	if (!img->staging)
		err = staging_make(img->drv, &img->staging);
	if (err)
		goto out_unlock;
	g.st = img->staging;
	err = write ? fdry_strided_pieces(c->how, SLOT_BYTES, piece_write, &g) : pieces_read(&g);
out_unlock:
	pthread_mutex_unlock(&img->staging_lock);
	return err;
}

int fdry_staging_write(struct fdry_image *img, const struct fdry_staged *w)
{
	return staged_do(img, w, true);
}

int fdry_staging_read(struct fdry_image *img, const struct fdry_staged *r)
{
	/* Wait for the earlier work of the stream before the lock is taken. */
	int err = fdry_stream_wait(img->drv, r->stream);

	return err ? err : staged_do(img, r, false);
}

void fdry_staging_free(struct fdry_image *img)
{
	if (img->staging)
		staging_release(img->drv, img->staging);
	img->staging = NULL;
}
