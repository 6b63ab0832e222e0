/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - the lock in front of LMDB's; see gate.c. For lmdb.c alone.
 */
#ifndef FDRY_STORE_GATE_H
#define FDRY_STORE_GATE_H

#include <pthread.h>
#include <stdbool.h>

struct fdry_gate {
	int fd;      /* data.mdb; -1: there are no turns */
	bool shared; /* this process reads without LMDB's list, and never writes */
	pthread_mutex_t lock;
	unsigned int count; /* of those that have the turn; under the lock */
};

/* Before LMDB opens the environment in @dir. EBUSY where this process has it open already, but not through us; else 0. */
int fdry_gate_open(struct fdry_gate *t, const char *dir, bool shared);
/* Nobody has the turn. */
void fdry_gate_close(struct fdry_gate *t);
/* In a forked child: its copy alone, with which the parent's locks stay. */
void fdry_gate_forget(struct fdry_gate *t);
/* Wait for the turn: alone, or where it is shared together with others that read; 0 or errno. The same thread gives it back. */
int fdry_gate_take(struct fdry_gate *t);
void fdry_gate_give(struct fdry_gate *t);

#endif
