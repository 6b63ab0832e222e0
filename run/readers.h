/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers.h - readers that take no lock, and a writer that waits until none sees the old.
 *
 * A reader enters, loads a pointer, uses what it points to, leaves. A writer publishes another
 * pointer, waits with fdry_readers_wait(), and frees the old one.
 *
 * Why that is safe: entering adds 1 to a counter, leaving subtracts it, and the wait ends only after
 * each counter was seen to be 0 after the publication. All four (the addition and the load after it,
 * the publication and the looks after it) are sequentially consistent, so there are two cases. The look
 * came before the addition: then the load comes after the publication, and sees the new pointer. Or the
 * addition came before the look: then the look sees it, or the subtraction that ended it, which is a
 * release that the look acquires: whatever the reader did is over, and seen.
 *
 * Each counter is a pair, and the writer turns new readers to the other one of the pair before it waits
 * for one: so it waits for readers that were inside, and is not kept waiting by those that come. A reader
 * that was turned late only counts where it does not matter, by the above. Pairs are a cache line each,
 * and threads spread over them, so that readers on several processors do not wait for each other's lines.
 *
 * Readers may nest. Writers do not wait among the readers, and wait one at a time.
 */
#ifndef FDRY_RUN_READERS_H
#define FDRY_RUN_READERS_H

#include <stdatomic.h>
#include <stdint.h>

#define FDRY_READERS_STRIPES 32

/* Two lines: processors fetch them in pairs. */
struct fdry_readers_stripe {
	_Atomic uint64_t inside[2];
} __attribute__((aligned(128)));

/* All zero at first. */
struct fdry_readers {
	struct fdry_readers_stripe stripes[FDRY_READERS_STRIPES];
	_Atomic unsigned int side;
};

/* Which stripe this thread counts in. */
unsigned int fdry_readers_stripe(void);

/* What to leave with. */
static inline _Atomic uint64_t *fdry_readers_enter(struct fdry_readers *s)
{
	unsigned int side = atomic_load_explicit(&s->side, memory_order_relaxed);
	_Atomic uint64_t *counter = &s->stripes[fdry_readers_stripe()].inside[side];

	atomic_fetch_add(counter, 1);
	return counter;
}

static inline void fdry_readers_leave(_Atomic uint64_t *counter)
{
	atomic_fetch_sub_explicit(counter, 1, memory_order_release);
}

/* Until every reader is out that may have loaded what was published before. The caller is not inside and has a lock. */
void fdry_readers_wait(struct fdry_readers *s);

#endif
