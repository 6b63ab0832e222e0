// SPDX-License-Identifier: Apache-2.0
/* rcu.c - waits for readers; see rcu.h. */
#include "run/rcu.h"

#include <sched.h>
#include <time.h>

unsigned int fdry_rcu_stripe(void)
{
	static _Atomic unsigned int threads;
	static _Thread_local unsigned int mine; /* 1 more than its number; 0: none yet */

	if (!mine)
		mine = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) %
			       FDRY_RCU_STRIPES +
		       1;
	return mine - 1;
}

/* Most readers leave within a microsecond; a reader that waits for the driver may take long. */
static void pause_briefly(unsigned int tries)
{
	const struct timespec t = { .tv_nsec = 50000 };

	if (tries < 64)
		sched_yield();
	else
		nanosleep(&t, NULL);
}

static void side_wait(struct fdry_rcu *s, unsigned int side)
{
	unsigned int i, tries;

	for (i = 0; i < FDRY_RCU_STRIPES; i++)
		for (tries = 0; atomic_load(&s->stripes[i].inside[side]); tries++)
			pause_briefly(tries);
}

void fdry_rcu_wait(struct fdry_rcu *s)
{
	unsigned int i, side;

	for (i = 0; i < 2; i++) {
		side = atomic_load(&s->side);
		atomic_store(&s->side, !side);
		side_wait(s, side);
	}
}
