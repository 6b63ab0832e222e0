/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - the workers of the crash and stress tests, the results that the store reported to them,
 * and the check that these still hold.
 *
 * Workers seal, tag, remove, load and collect at random, each under names of its own. Objects come
 * from a pool that all share, so that writes of known objects meet collections. Before a worker
 * changes a name, it notes the value that it wants. After the call has succeeded, it notes that
 * value as reported. If anything happens to the worker in between, a name must have the value that
 * was reported, or the one that was wanted. Notes lie in memory that outlives the worker.
 *
 * Workers also evict, and set a limit at which seals evict: a name that is not pinned may disappear
 * at any time, but never names another image. A name whose pin was reported stays.
 */
#ifndef FDRY_TESTS_CRASH_WORK_H
#define FDRY_TESTS_CRASH_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

#define WORK_WORKERS_MAX 64
#define WORK_NAMES 6 /* of each worker */

/* WORK_OP(NAME, text): the operations of a worker. */
#define WORK_OPS(X) \
	X(IDLE, "between") \
	X(OPEN, "open") X(SEAL, "seal") X(TAG, "tag") X(REMOVE, "remove") X(GC, "collect") \
		X(LOAD, "load") X(CLAIM, "claim") X(REAL, "capture") X(PIN, "pin") \
			X(EVICT, "evict") X(LIMIT, "limit") X(REPAIR, "repair")

enum work_op {
#define X(NAME, text) WORK_##NAME,
	WORK_OPS(X)
#undef X
	WORK_OPS_COUNT
};
extern const char *const work_op_names[];

enum work_intent { INTENT_NONE, INTENT_SET, INTENT_REMOVE, INTENT_ANY };

struct work_name {
	_Atomic uint32_t intent; /* enum work_intent; the fields below hold if it is INTENT_NONE */
	bool there;
	struct fdry_oid reported;   /* the image's id, if the name has one */
	struct fdry_oid wanted; /* by INTENT_SET */
	bool pinned;            /* reported; a removal of the name ends it */
	_Atomic uint32_t pinning; /* that is being changed */
};

/* May an eviction by any worker remove the name? Pinned names stay. */
static inline bool work_may_go(const struct work_name *n)
{
	return !n->pinned || atomic_load(&n->pinning);
}

struct work_counts {
	uint64_t done[WORK_OPS_COUNT];    /* calls that succeeded */
	uint64_t refused[WORK_OPS_COUNT]; /* FDRY_E_LOCKED, and FDRY_E_NOENT for a name of another
					     worker */
	uint64_t objects;                 /* loaded */
};

/* One worker's, in shared memory. */
struct work_notes {
	_Atomic uint32_t op; /* enum work_op, for the process that kills the worker */
	struct work_name name[WORK_NAMES];
	struct work_counts counts;
};

/* How a worker works. */
struct worker {
	const char *path;
	struct work_notes *all; /* of @count workers */
	uint32_t count, nr;
	uint64_t random;
	struct fdry_store *s;
	bool keep;        /* the handle stays open: threads of one process */
	bool locked_fine; /* a collection may meet sessions */
	bool real;        /* seals captures as well, under its last name alone */
	bool forks;       /* it repairs, which forks: not in threads, and not while recorded */
	/* If not NULL, called before and after each change of a name, for a recorder. */
	void (*noted)(struct worker *w, uint32_t name);
};

/* The next number; never 0. */
uint64_t work_random(uint64_t *state);
/* Do one operation. Returns 0, or a fault, which it has printed on standard error. */
int work_step(struct worker *w);
/* "w3/5" */
void work_name(char text[32], uint32_t worker, uint32_t name);
/* Note that a name is about to change, and then the change's result. */
void work_intend(struct worker *w, uint32_t name, enum work_intent intent,
		 const struct fdry_oid *wanted);
void work_reported(struct worker *w, uint32_t name, bool there, const struct fdry_oid *oid);
void work_refused(struct worker *w, uint32_t name);

/*
 * real.c: captures on the software driver. work_real_begin() captures once in this process, which
 * must not fork any more. work_real_seal() puts new content and seals the capture.
 * work_real_check() loads such an image in a process of its own, launches its graph and checks the
 * numbers. All this runs inside test_checks_hold(), which returns false if a check failed.
 */
void work_real_begin(const char *path);
int work_real_seal(struct worker *w);
void work_real_check(const char *path, const char *ref);

/* The results of a check. */
struct work_check {
	uint64_t images, objects; /* loaded and hashed */
	uint64_t undecided;       /* names in the middle of a change */
	uint64_t collected;       /* objects that gc removed */
	uint64_t faults;
};

/*
 * work_check_names() - Load the images that the names of workers @from to @to (not included) must
 * have. The process must not have opened the store. Names in the middle of a change are decided:
 * their current state counts as reported from now on. Faults are printed on standard error.
 */
void work_check_names(const char *path, struct work_notes *all, uint32_t from, uint32_t to,
		      struct work_check *r);
/*
 * work_check_all() - Do the same for all workers, while no process uses the store. Then check that
 * verify finds nothing, gc leaves only objects that refs reach, there is no extra file, and all
 * names are as before.
 */
void work_check_all(const char *path, struct work_notes *all, uint32_t count, struct work_check *r);
/* Run @fn(arg) in a child. Returns false if it failed, after printing that. */
bool work_in_child(void (*fn)(void *arg), void *arg);

#endif
