// SPDX-License-Identifier: Apache-2.0
/*
 * pinned.c - allocates, registers and keeps blocks of pinned memory; see pinned.h.
 *
 * Each block is mapped in huge pages and registered with the driver. Allocating pinned memory from
 * the driver takes ten times as long, which is longer than all copies of a load.
 */
#include "image/pinned.h"

#include <sys/mman.h>

#include "lib/fork_lock.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define KEPT_MAX 4

/* The kept blocks: all are registered, with one driver in one context. */
static struct {
	const struct fdry_driver *drv;
	CUcontext ctx;
	unsigned int holders, count;
	unsigned int process; /* whose they are, of fork_lock.h */
	uint8_t *bytes[KEPT_MAX];
} kept;

static void kept_lock(void)
{
	fdry_fork_lock(FDRY_LOCK_PINNED);
	if (kept.process != fdry_fork_count())
		kept.holders = kept.count = 0;
	kept.process = fdry_fork_count();
}

static void kept_unlock(void)
{
	fdry_fork_unlock(FDRY_LOCK_PINNED);
}

/* @drv, @ctx: of a holder */
static bool is_held(const struct fdry_driver *drv, CUcontext ctx)
{
	return kept.holders && kept.drv == drv && kept.ctx == ctx;
}

static bool is_held_here(const struct fdry_driver *drv)
{
	CUcontext ctx = NULL;

	return kept.holders && !fdry_call_raw(drv, cuCtxGetCurrent, &ctx) && is_held(drv, ctx);
}

/* --- blocks --- */

/* Map whole huge pages, if the system has some. Children of fork() do not inherit them. */
static uint8_t *bytes_map(void)
{
	uint8_t *map = mmap(NULL, FDRY_PINNED_SIZE + HUGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t head;

	if (map == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)map & (HUGE_PAGE - 1);
	if (head)
		munmap(map, head);
	map += head;
	munmap(map + FDRY_PINNED_SIZE, HUGE_PAGE - head);
	(void)madvise(map, FDRY_PINNED_SIZE, MADV_HUGEPAGE);
	(void)madvise(map, FDRY_PINNED_SIZE, MADV_DONTFORK);
	return map;
}

void fdry_pinned_register(const struct fdry_driver *drv, struct fdry_pinned *block)
{
	if (!block->asked)
		block->registered = !fdry_call_raw(drv, cuMemHostRegister_v2, block->bytes,
						   FDRY_PINNED_SIZE, 0);
	block->asked = true;
}

/* If the driver still uses the pages, their addresses must not be mapped again, so they are not
 * unmapped. */
static void block_free(const struct fdry_driver *drv, const struct fdry_pinned *block)
{
	if (!block->registered || !fdry_call_raw(drv, cuMemHostUnregister, block->bytes))
		munmap(block->bytes, FDRY_PINNED_SIZE);
}

int fdry_pinned_get(const struct fdry_driver *drv, struct fdry_pinned *ret)
{
	uint8_t *bytes = NULL;

	kept_lock();
	if (kept.count && is_held_here(drv))
		bytes = kept.bytes[--kept.count];
	kept_unlock();
	if (bytes)
		*ret = (struct fdry_pinned){ bytes, true, true };
	else
		*ret = (struct fdry_pinned){ .bytes = bytes_map() };
	return ret->bytes ? 0 : fdry_nomem();
}

void fdry_pinned_put(const struct fdry_driver *drv, const struct fdry_pinned *block)
{
	bool keep;

	kept_lock();
	keep = block->registered && kept.count < KEPT_MAX && is_held_here(drv);
	if (keep)
		kept.bytes[kept.count++] = block->bytes;
	kept_unlock();
	if (!keep)
		block_free(drv, block);
}

/* --- holders --- */

void fdry_pinned_hold(const struct fdry_driver *drv, CUcontext ctx)
{
	kept_lock();
	if (!kept.holders) {
		kept.drv = drv;
		kept.ctx = ctx;
	}
	kept.holders += kept.drv == drv && kept.ctx == ctx;
	kept_unlock();
}

void fdry_pinned_release(const struct fdry_driver *drv, CUcontext ctx)
{
	struct fdry_pinned unused[KEPT_MAX];
	unsigned int i, n = 0;

	kept_lock();
	if (is_held(drv, ctx) && !--kept.holders)
		while (kept.count)
			unused[n++] = (struct fdry_pinned){ kept.bytes[--kept.count], true, true };
	kept_unlock();
	for (i = 0; i < n; i++)
		block_free(drv, &unused[i]);
}
