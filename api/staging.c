// SPDX-License-Identifier: Apache-2.0
/*
 * staging.c - writes in a stream's order; see staging.h.
 *
 * A ring of slots of pinned memory, each with an event. A slot is taken again when its
 * event says that the stream is done with it, so an update that comes faster than the
 * launches that use it waits; no bytes are overwritten that a copy still reads.
 *
 * To device memory a copy is enqueued. A copy from host to host memory would make the
 * driver wait for the stream: there a function is enqueued, which the driver calls.
 */
#include "api/staging.h"
#include "arch/stream.h"
#include "arch/telemetry.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 64u
#define SLOT_BYTES ((size_t)64 << 10)

struct slot {
	uint8_t *bytes; /* SLOT_BYTES */
	CUevent done;
	bool busy;      /* since it was used nobody waited for @done */
	void *to;       /* of a write to host memory */
	size_t len;
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
	err = fdry_call(drv, cuMemHostAlloc, (void **)&st->block, SLOTS * SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE);
	for (i = 0; i < SLOTS && !err; i++) {
		st->slots[i].bytes = st->block + i * SLOT_BYTES;
		err = fdry_call(drv, cuEventCreate, &st->slots[i].done, CU_EVENT_DISABLE_TIMING);
	}
	if (err)
		staging_release(drv, st);
	else
		*ret = st;
	return err;
}

/* Called by the driver, which must not be called from here. */
static void CUDA_CB host_write(void *arg)
{
	const struct slot *s = arg;

	memcpy(s->to, s->bytes, s->len);
}

static int slot_enqueue(const struct fdry_driver *drv, struct slot *s, const struct fdry_staged *w)
{
	fdry_count_copy(TO, w->len);
	if (!w->host)
		return fdry_call(drv, cuMemcpyHtoDAsync_v2, w->addr, s->bytes, w->len, w->stream);
	s->to = (void *)(uintptr_t)w->addr;
	s->len = w->len;
	return fdry_call(drv, cuLaunchHostFunc, w->stream, host_write, s);
}

/* At most SLOT_BYTES. */
static int slot_write(const struct fdry_driver *drv, struct fdry_staging *st, const struct fdry_staged *w)
{
	struct slot *s = &st->slots[st->next];
	int err = s->busy ? fdry_event_wait(drv, s->done) : 0;

	if (err)
		return err;
	s->busy = false;
	memcpy(s->bytes, w->data, w->len);
	err = slot_enqueue(drv, s, w);
	if (err)
		return err;
	s->busy = !fdry_call_raw(drv, cuEventRecord, s->done, w->stream);
	st->next = (st->next + 1) % SLOTS;
	/* Where nothing would say when the slot is free it is waited for: the bytes are on their way. */
	return s->busy ? 0 : fdry_stream_wait(drv, w->stream);
}

static int pieces_write(const struct fdry_driver *drv, struct fdry_staging *st, const struct fdry_staged *w)
{
	struct fdry_staged piece = *w;
	size_t at;
	int err = 0;

	for (at = 0; at < w->len && !err; at += piece.len) {
		piece.addr = w->addr + at;
		piece.data = (const uint8_t *)w->data + at;
		piece.len = w->len - at < SLOT_BYTES ? w->len - at : SLOT_BYTES;
		err = slot_write(drv, st, &piece);
	}
	return err;
}

int fdry_staging_write(struct fdry_image *img, const struct fdry_staged *w)
{
	int err = 0;

	pthread_mutex_lock(&img->staging_lock);
	if (!img->staging)
		err = staging_make(img->drv, &img->staging);
	if (!err)
		err = pieces_write(img->drv, img->staging, w);
	pthread_mutex_unlock(&img->staging_lock);
	return err;
}

void fdry_staging_free(struct fdry_image *img)
{
	if (img->staging)
		staging_release(img->drv, img->staging);
	img->staging = NULL;
}
