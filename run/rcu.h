/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rcu.h - read-copy-update: readers take no lock, and a writer waits until no reader uses the old
 * version.
 *
 * A reader enters, loads a pointer, uses the object behind it, and leaves. A writer publishes
 * another pointer, waits with fdry_rcu_wait(), and frees the old object.
 *
 * Why this is safe: entering adds 1 to a counter and leaving subtracts it. The wait ends only after
 * it has read 0 from each counter, after the publication. The addition, the load after it, the
 * publication and the reads of counters after it are sequentially consistent. So there are two
 * cases. If the writer read the counter before the addition, the reader's load comes after the
 * publication and gets the new pointer. If the addition came first, the writer reads it, or the
 * subtraction that followed. The subtraction is a release and the writer's read acquires it, so all
 * work of the reader is complete and visible.
 *
 * Each counter is a pair. Before the writer waits for one counter of a pair it sends new readers to
 * the other one. So it waits for readers that are inside, and new readers do not delay it. A reader
 * that read an old @side uses the other counter; the argument above covers that. Each pair has its
 * own cache lines, and threads spread over the pairs, so readers on several processors do not share
 * lines.
 *
 * Readers may nest. A writer must not wait inside a reader, and one writer waits at a time.
 */
#ifndef FDRY_RUN_RCU_H
#define FDRY_RUN_RCU_H

#include <stdatomic.h>
#include <stdint.h>

#define FDRY_RCU_STRIPES 32

/* Two cache lines, because processors fetch lines in pairs. */
struct fdry_rcu_stripe {
	_Atomic uint64_t inside[2];
} __attribute__((aligned(128)));

/* Zero it to start. */
struct fdry_rcu {
	struct fdry_rcu_stripe stripes[FDRY_RCU_STRIPES];
	_Atomic unsigned int side;
};

/* The stripe in which this thread counts. */
unsigned int fdry_rcu_stripe(void);

/* Returns the argument of fdry_rcu_leave(). */
static inline _Atomic uint64_t *fdry_rcu_enter(struct fdry_rcu *s)
{
	unsigned int side = atomic_load_explicit(&s->side, memory_order_relaxed);
	_Atomic uint64_t *counter = &s->stripes[fdry_rcu_stripe()].inside[side];

	atomic_fetch_add(counter, 1);
	return counter;
}

static inline void fdry_rcu_leave(_Atomic uint64_t *counter)
{
	atomic_fetch_sub_explicit(counter, 1, memory_order_release);
}

/* Wait until all readers have left that may have loaded an earlier pointer. The caller must not be
 * a reader, and must hold a lock that admits one writer. */
void fdry_rcu_wait(struct fdry_rcu *s);

#endif
