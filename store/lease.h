/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - what live sessions have been told exists, for a collector to read.
 *
 * A lease is a file in the store's folder "leases": a head, then ids, one behind the
 * other. Its holder keeps it locked with flock(), which ends with the process. An id in a
 * lease keeps its object, and all that this one links to, from being collected; how that
 * works without a lock between sessions and collector stands in
 * Documentation/design/collection.rst.
 *
 * Where a lease cannot be made (no permission to write, a full disk) the session shares the
 * store's lock instead, which keeps collections out altogether.
 */
#ifndef FDRY_STORE_LEASE_H
#define FDRY_STORE_LEASE_H

#include "store/internal.h"

#define FDRY_LEASES "leases"
#define FDRY_LEASE_NAME_SIZE 32 /* "leases/" and 16 hexadecimal digits */

struct fdry_lease;

/* Only what makes sharing the lock fail, or want of memory, is an error: FDRY_E_LOCKED, FDRY_E_IO, FDRY_E_NOMEM. */
int fdry_lease_begin(struct fdry_env *env, struct fdry_lease **ret) __must_check;
/*
 * Publish ids. Who looks into the store afterwards, and finds no collection announced there,
 * will find them as long as the lease lasts; where one is announced, only a look under the
 * writers' lock tells. One thread at a time.
 */
int fdry_lease_note(struct fdry_lease *l, const struct fdry_oid *oids, size_t count) __must_check;
/* Was the id noted? */
bool fdry_lease_has(const struct fdry_lease *l, const struct fdry_oid *oid);
/* All that were noted; NULL where the lease shares the store's lock, which keeps collections out, the caller's own too. */
const struct fdry_idset *fdry_lease_noted(const struct fdry_lease *l);
/* @wrote: the session has committed something; what it wrote may lead to what it noted, and a collection that is
 * under way must go on knowing that. NULL is fine. */
void fdry_lease_end(struct fdry_lease *l, bool wrote);
/* In a forked child, which inherited it: only its memory. NULL is fine. */
void fdry_lease_forget(struct fdry_lease *l);
/* For tests: what dying does to it (the lock goes, the file stays), and a writer's. */
void fdry_lease_crash(struct fdry_lease *l);
struct fdry_lease *fdry_writer_lease(struct fdry_writer *w);

/* Around fork(): no lease is half made meanwhile, and the child gives up its copies of the locked files. */
void fdry_leases_before_fork(void);
void fdry_leases_after_fork(void);
void fdry_leases_after_fork_child(void);

/* --- the collector's side; with the store's lock held exclusively --- */

/* How far each lease has been read. Zero it to start. */
struct fdry_leases {
	struct fdry_buf read; /* struct lease_read each */
	uint64_t held;        /* files at the last scan */
	bool plan;            /* pass over those whose holders are gone, as if they had been reclaimed */
	uint64_t unheld;      /* these, at the last scan */
};
/* Give each id that was noted since the last scan to @fn. A failure of @fn is handed up. FDRY_E_PERM where a lease
 * cannot be read, FDRY_E_VERSION where a newer program holds one. */
typedef int (*fdry_lease_fn)(void *arg, const struct fdry_oid *oid);
int fdry_leases_scan(struct fdry_leases *ls, struct fdry_env *env, fdry_lease_fn fn, void *arg) __must_check;
void fdry_leases_release(struct fdry_leases *ls);
/* Remove the files whose holders are gone; @ret: how many. */
int fdry_leases_reclaim(struct fdry_env *env, uint64_t *ret) __must_check;

#endif
