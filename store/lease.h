/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - the objects that live sessions rely on, listed for a collection.
 *
 * A lease is a file in the store's folder "leases": a head, then ids. Its holder keeps it locked
 * with flock(), which ends with the process. An id in a lease keeps its object, and everything that
 * the object links to, from being collected. Documentation/design/collection.rst says how that
 * works without a lock between sessions and collections.
 *
 * If a lease cannot be created (no permission to write, a full disk), the session shares the
 * store's lock instead, which keeps collections out.
 */
#ifndef FDRY_STORE_LEASE_H
#define FDRY_STORE_LEASE_H

#include "store/internal.h"

#define FDRY_LEASES "leases"
#define FDRY_LEASE_NAME_SIZE 32 /* "leases/" and 16 hexadecimal digits */

struct fdry_lease;

/* Fails only if memory is missing or the lock cannot be shared: FDRY_E_LOCKED, FDRY_E_IO,
 * FDRY_E_NOMEM. */
int fdry_lease_begin(struct fdry_env *env, struct fdry_lease **ret) __must_check;
/*
 * Publish ids. If a later view of the store shows no announced collection, the objects that it
 * shows stay as long as the lease lasts. If it shows one, only a look under the writers' lock is
 * certain. One thread at a time.
 */
int fdry_lease_note(struct fdry_lease *l, const struct fdry_oid *oids, size_t count) __must_check;
/* Was the id noted? */
bool fdry_lease_has(const struct fdry_lease *l, const struct fdry_oid *oid);
/* All ids that were noted; NULL if the lease shares the store's lock, which keeps all collections
 * out. */
const struct fdry_idset *fdry_lease_noted(const struct fdry_lease *l);
/* @wrote: the session has committed something. Its objects may link to ids that it noted, so a
 * collection that is running must still see the lease. NULL is fine. */
void fdry_lease_end(struct fdry_lease *l, bool wrote);
/* In a forked child: free only its memory. NULL is fine. */
void fdry_lease_forget(struct fdry_lease *l);

/* Around fork(): no lease is half created meanwhile, and the child closes its copies of the locked
 * files. */
void fdry_leases_before_fork(void);
void fdry_leases_after_fork(void);
void fdry_leases_after_fork_child(void);

/* --- for a collection, which holds the store's lock exclusively --- */

/* How far each lease has been read. Zero it to start. */
struct fdry_leases {
	struct fdry_buf read; /* struct lease_read each */
	uint64_t held;        /* leases at the last scan */
	bool plan;            /* skip leases of dead holders, as if they had been reclaimed */
	uint64_t unheld;      /* leases that were skipped at the last scan */
};
/* Call @fn for each id that was noted since the last scan; a failure of @fn ends the scan and is
 * returned. FDRY_E_PERM if a lease cannot be read, FDRY_E_VERSION if a newer program holds one. */
typedef int (*fdry_lease_fn)(void *arg, const struct fdry_oid *oid);
int fdry_leases_scan(struct fdry_leases *ls, struct fdry_env *env, fdry_lease_fn fn,
		     void *arg) __must_check;
void fdry_leases_release(struct fdry_leases *ls);
/* Remove the files of dead holders; @ret: their number. */
int fdry_leases_reclaim(struct fdry_env *env, uint64_t *ret) __must_check;

#endif
