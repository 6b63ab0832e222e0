// SPDX-License-Identifier: Apache-2.0
/*
 * pinned.c - allocates, registers and keeps pinned memory; see pinned.h.
 *
 * Memory is mapped in huge pages and registered with the driver. Allocating pinned memory from the
 * driver takes ten times as long, which is longer than all copies of a load.
 */
#include "image/pinned.h"

#include <sys/mman.h>
#include <unistd.h>

#include "lib/fork_lock.h"

#define HUGE_PAGE FDRY_PINNED_PAGE
#define KEPT_MAX 4

/* What is kept: all of it is registered, with one driver in one context. */
static struct {
	const struct fdry_driver *drv;
	CUcontext ctx;
	unsigned int holders, count;
	unsigned int process; /* whose it is, of fork_lock.h */
	struct fdry_pinned memory[KEPT_MAX];
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

/* The current context, or NULL, which no holder has. Called without the lock. */
static CUcontext current(const struct fdry_driver *drv)
{
	CUcontext ctx = NULL;

	return fdry_call_raw(drv, cuCtxGetCurrent, &ctx) ? NULL : ctx;
}

/* --- what is kept; the caller holds the lock --- */

/* Take the smallest kept piece of at least @size bytes. Returns whether there is one. */
static bool kept_take(size_t size, struct fdry_pinned *ret)
{
	struct fdry_pinned *m, *found = NULL;

	for (m = kept.memory; m < kept.memory + kept.count; m++)
		if (m->size >= size && (!found || m->size < found->size))
			found = m;
	if (!found)
		return false;
	*ret = *found;
	*found = kept.memory[--kept.count];
	return true;
}

/* Is there room for @size more bytes, beside the kept pieces of at least @least bytes? */
static bool kept_fits(size_t size, size_t least)
{
	const struct fdry_pinned *m;
	unsigned int n = 0;

	for (m = kept.memory; m < kept.memory + kept.count; m++)
		if (m->size >= least) {
			size += m->size;
			n++;
		}
	return n < KEPT_MAX && size <= FDRY_PINNED_KEPT;
}

/* Keep @memory, in place of smaller pieces if there is no room: a larger piece serves every load, a
 * smaller one does not. Moves those to @unused, and their number to @n. Returns whether @memory is
 * kept. */
static bool kept_add(const struct fdry_pinned *memory, struct fdry_pinned *unused, unsigned int *n)
{
	if (!kept_fits(memory->size, memory->size))
		return false;
	while (!kept_fits(memory->size, 0))
		(void)kept_take(0, &unused[(*n)++]);
	kept.memory[kept.count++] = *memory;
	return true;
}

/* --- pinned memory --- */

/* Map whole huge pages, if the system has some. Children of fork() do not inherit them. */
static uint8_t *bytes_map(size_t size)
{
	uint8_t *map = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t head;

	if (map == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)map & (HUGE_PAGE - 1);
	if (head)
		munmap(map, head);
	map += head;
	munmap(map + size, HUGE_PAGE - head);
	(void)madvise(map, size, MADV_HUGEPAGE);
	(void)madvise(map, size, MADV_DONTFORK);
	return map;
}

void fdry_pinned_populate(const struct fdry_pinned *memory, size_t at, size_t len)
{
	volatile uint8_t *bytes = memory->bytes;
	size_t i, page = (size_t)sysconf(_SC_PAGESIZE);

	/* madvise() would also hold the lock that the driver needs to map device memory. */
	for (i = at; i < at + len; i += page)
		bytes[i] = 0;
}

void fdry_pinned_register(const struct fdry_driver *drv, struct fdry_pinned *memory)
{
	if (!memory->asked)
		memory->registered = !fdry_call_raw(drv, cuMemHostRegister_v2, memory->bytes,
						    memory->size, 0);
	memory->asked = true;
}

/* Free @n pieces. If the driver still uses the pages of one, their addresses must not be mapped
 * again, so they are not unmapped. */
static void memory_free(const struct fdry_driver *drv, const struct fdry_pinned *memory,
			unsigned int n)
{
	for (; n; n--, memory++)
		if (!memory->registered || !fdry_call_raw(drv, cuMemHostUnregister, memory->bytes))
			munmap(memory->bytes, memory->size);
}

int fdry_pinned_new(size_t size, struct fdry_pinned *ret)
{
	*ret = (struct fdry_pinned){ .bytes = bytes_map(size), .size = size };
	return ret->bytes ? 0 : fdry_nomem();
}

int fdry_pinned_get(const struct fdry_driver *drv, size_t size, struct fdry_pinned *ret)
{
	CUcontext ctx = current(drv);
	bool found;

	kept_lock();
	found = is_held(drv, ctx) && kept_take(size, ret);
	kept_unlock();
	return found ? 0 : fdry_pinned_new(size, ret);
}

void fdry_pinned_put(const struct fdry_driver *drv, const struct fdry_pinned *memory)
{
	struct fdry_pinned unused[KEPT_MAX];
	CUcontext ctx = memory->registered ? current(drv) : NULL;
	unsigned int n = 0;

	kept_lock();
	if (!memory->registered || !is_held(drv, ctx) || !kept_add(memory, unused, &n))
		unused[n++] = *memory;
	kept_unlock();
	memory_free(drv, unused, n);
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

bool fdry_pinned_has_holder(void)
{
	bool held;

	kept_lock();
	held = kept.holders;
	kept_unlock();
	return held;
}

void fdry_pinned_release(const struct fdry_driver *drv, CUcontext ctx)
{
	struct fdry_pinned unused[KEPT_MAX];
	unsigned int n = 0;

	kept_lock();
	if (is_held(drv, ctx) && !--kept.holders)
		while (kept_take(0, &unused[n]))
			n++;
	kept_unlock();
	memory_free(drv, unused, n);
}
