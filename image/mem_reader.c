// SPDX-License-Identifier: Apache-2.0
/*
 * mem_reader.c - reads device memory through blocks of pinned memory.
 *
 * Blocks lie in huge pages that the library maps, and are registered with the driver at their first
 * use. That takes a tenth of the time of allocating pinned memory from the driver. All copies are
 * on one stream, since one copy engine executes them anyway. Each block has an event, so a thread
 * waits only for its own copy.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "image/layout.h"
#include "arch/stream.h"

#define HUGE_PAGE ((size_t)2 << 20)

struct fdry_mem_block {
	struct fdry_mem_block *next; /* the next free block */
	uint8_t *bytes;
	CUevent copied;
	bool made, registered;
	bool busy; /* a copy may still write into it */
};

struct fdry_mem_reader {
	const struct fdry_driver *drv;
	CUstream stream;
	uint8_t *map; /* holds the blocks, with extra bytes to align them */
	size_t map_len;
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t freed;
	struct fdry_mem_block *free;
	unsigned int nblocks;
	struct fdry_mem_block blocks[];
};

static int map_make(struct fdry_mem_reader *r)
{
	uintptr_t at;
	unsigned int i;

	r->map_len = r->nblocks * FDRY_MEM_READ_PIECE + HUGE_PAGE;
	r->map = mmap(NULL, r->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->map == MAP_FAILED) {
		r->map = NULL;
		return fdry_nomem();
	}
	(void)madvise(r->map, r->map_len, MADV_HUGEPAGE);
	(void)madvise(r->map, r->map_len, MADV_DONTFORK);
	at = ((uintptr_t)r->map + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	for (i = 0; i < r->nblocks; i++)
		r->blocks[i].bytes = (uint8_t *)at + i * FDRY_MEM_READ_PIECE;
	return 0;
}

int fdry_mem_reader_new(const struct fdry_driver *drv, unsigned int blocks,
			struct fdry_mem_reader **ret)
{
	struct fdry_mem_reader *r = calloc(1, sizeof(*r) + blocks * sizeof(r->blocks[0]));
	unsigned int i;
	int err;

	if (!r)
		return fdry_nomem();
	r->drv = drv;
	r->nblocks = blocks;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->freed, NULL);
	err = map_make(r) ?: fdry_stream_shared(drv, FDRY_STREAM_MEMORY, &r->stream);
	if (err) {
		fdry_mem_reader_free(r);
		return err;
	}
	for (i = blocks; i-- > 0;) {
		r->blocks[i].next = r->free;
		r->free = &r->blocks[i];
	}
	*ret = r;
	return 0;
}

void fdry_mem_reader_free(struct fdry_mem_reader *r)
{
	unsigned int i;

	if (!r)
		return;
	for (i = 0; i < r->nblocks; i++) {
		if (r->blocks[i].registered)
			(void)fdry_call_raw(r->drv, cuMemHostUnregister, r->blocks[i].bytes);
		if (r->blocks[i].copied)
			(void)fdry_call_raw(r->drv, cuEventDestroy_v2, r->blocks[i].copied);
	}
	if (r->map)
		(void)munmap(r->map, r->map_len);
	pthread_cond_destroy(&r->freed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

bool fdry_mem_reader_holds(const struct fdry_mem_reader *r, uint64_t addr)
{
	return addr - (uintptr_t)r->map < r->map_len;
}

/* --- blocks --- */

static struct fdry_mem_block *block_take(struct fdry_mem_reader *r)
{
	struct fdry_mem_block *b;

	pthread_mutex_lock(&r->lock);
	while (!r->free)
		pthread_cond_wait(&r->freed, &r->lock);
	b = r->free;
	r->free = b->next;
	pthread_mutex_unlock(&r->lock);
	return b;
}

/* At a block's first use, create its pages and its event, and register it. Copies to an
 * unregistered block also work, but are slower. */
static int block_make(struct fdry_mem_reader *r, struct fdry_mem_block *b)
{
	size_t at;
	int err = fdry_call(r->drv, cuEventCreate, &b->copied,
			    CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);

	if (err)
		return err;
	for (at = 0; at < FDRY_MEM_READ_PIECE; at += HUGE_PAGE)
		((volatile uint8_t *)b->bytes)[at] = 0;
	b->registered =
		!fdry_call_raw(r->drv, cuMemHostRegister_v2, b->bytes, FDRY_MEM_READ_PIECE, 0);
	b->made = true;
	return 0;
}

int fdry_mem_start(struct fdry_mem_reader *r, uint64_t addr, size_t len,
		   struct fdry_mem_block **ret)
{
	struct fdry_mem_block *b = block_take(r);
	int err = b->made ? 0 : block_make(r, b);

	if (err) {
		fdry_mem_end(r, b);
		return err;
	}
	fdry_count_copy(FROM, len);
	b->busy = true;
	err = fdry_call(r->drv, cuMemcpyDtoHAsync_v2, b->bytes, addr, len, r->stream) ?:
	      fdry_call(r->drv, cuEventRecord, b->copied, r->stream);
	if (err)
		fdry_mem_end(r, b);
	else
		*ret = b;
	return err;
}

int fdry_mem_wait(struct fdry_mem_reader *r, struct fdry_mem_block *b, const uint8_t **ret)
{
	int err = fdry_event_wait(r->drv, b->copied);

	if (err)
		return err;
	b->busy = false;
	*ret = b->bytes;
	return 0;
}

void fdry_mem_end(struct fdry_mem_reader *r, struct fdry_mem_block *b)
{
	if (b->busy)
		(void)fdry_call_raw(r->drv, cuStreamSynchronize, r->stream);
	b->busy = false;
	pthread_mutex_lock(&r->lock);
	b->next = r->free;
	r->free = b;
	pthread_cond_signal(&r->freed);
	pthread_mutex_unlock(&r->lock);
}

/* --- in order --- */

/* Start the copy of the piece at @addr, which ends at the next multiple of FDRY_MEM_READ_PIECE. If
 * @len is 0, start nothing. */
static int piece_start(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, size_t *n,
		       struct fdry_mem_block **ret)
{
	uint64_t most = FDRY_MEM_READ_PIECE - addr % FDRY_MEM_READ_PIECE;

	*ret = NULL;
	*n = most < len ? most : len;
	return *n ? fdry_mem_start(r, addr, *n, ret) : 0;
}

int fdry_mem_read(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, fdry_mem_fn fn, void *arg)
{
	struct fdry_mem_block *now, *next = NULL;
	const uint8_t *bytes = NULL;
	size_t n, more;
	int err = piece_start(r, addr, len, &n, &now);

	while (!err && now) {
		err = piece_start(r, addr + n, len - n, &more, &next) ?:
		      fdry_mem_wait(r, now, &bytes) ?: fn(arg, addr, bytes, n);
		fdry_mem_end(r, now);
		addr += n;
		len -= n;
		n = more;
		now = next;
		next = NULL;
	}
	if (now)
		fdry_mem_end(r, now);
	return err;
}
