/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb.h - what the store needs of LMDB, and nothing of LMDB's own types.
 *
 * lmdb.c is the only file that includes <lmdb.h>: it turns every LMDB answer into an error
 * of ours, grows the map, clears readers that died, and survives LMDB's assertions. Four
 * tables; keys and values are bytes at any alignment.
 *
 * Locking: an environment may be used from any thread; a transaction by the thread that
 * began it, except that a read transaction that is not exclusive may move between threads.
 */
#ifndef FDRY_STORE_LMDB_H
#define FDRY_STORE_LMDB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arch/buf.h"

/* FDRY_TABLE(NAME, name on disk) */
#define FDRY_TABLES(X) \
	X(META, "meta") \
	X(OBJECTS, "objects") \
	X(DATA, "data") \
	X(REFS, "refs")

enum fdry_table {
#define X(NAME, name) FDRY_TABLE_##NAME,
	FDRY_TABLES(X)
#undef X
	FDRY_TABLE_COUNT
};

struct fdry_db;

struct fdry_db_opts {
	const char *dir;
	bool create;         /* make tables where the environment is empty */
	bool readonly;       /* nothing may be written */
	bool fixed;          /* the medium cannot be written: no lock file, no readers' table */
	mode_t mode;         /* of new files */
	bool bare;           /* neither check the file nor look for tables: for whoever looks at damage */
	uint64_t map_size;   /* address space to reserve; 0: FDRY_MAP_SIZE */
};

/* Reserved address space. Nothing but page tables for what is used is ever taken. */
#define FDRY_MAP_SIZE (1ull << 40)

/**
 * fdry_db_open() - Open the environment in a directory.
 * @fresh: for tables that were just made: puts what a new store starts with
 *
 * Never twice for one directory in a process: closing one would drop the other's locks.
 * Errors: FDRY_E_NOSTORE (not LMDB's, or another program's), FDRY_E_CORRUPT (shorter than
 * its own account), FDRY_E_VERSION, FDRY_E_PERM, FDRY_E_FULL, FDRY_E_STORE, FDRY_E_NOMEM.
 */
struct fdry_txn;
int fdry_db_open(const struct fdry_db_opts *opts, int (*fresh)(struct fdry_txn *t),
		 struct fdry_db **ret) __must_check;
/* No transaction may be open. NULL is fine. */
void fdry_db_close(struct fdry_db *db);
/* Give up the environment without touching it: what a forked child does. */
void fdry_db_forget(struct fdry_db *db);

/* Keep the map where it is although no transaction is open. */
void fdry_db_pin(struct fdry_db *db);
void fdry_db_unpin(struct fdry_db *db);

/* Device and inode of the open file, to tell whether the path still leads to it. */
int fdry_db_file(const struct fdry_db *db, dev_t *dev, ino_t *ino) __must_check;

/* What the environment says it has, and what the file holds. */
struct fdry_extent {
	uint64_t used_bytes; /* up to the last page */
	uint64_t page_size;
	uint64_t file_bytes;
};
int fdry_db_extent(const struct fdry_db *db, struct fdry_extent *ret) __must_check;

/* A transaction, in the caller's storage. */
struct fdry_txn {
	struct fdry_db *db;
	void *txn;
	bool exclusive; /* holds the writers' lock: must be short, begun and ended by one thread */
};

/* A consistent view. Exclusive only where LMDB's readers' table cannot be used because a process
 * with the same id lives in another PID namespace. */
int fdry_txn_read(struct fdry_db *db, struct fdry_txn *ret) __must_check;
/* Write: waits for other writers. At most @room bytes will be put; the map is grown beforehand if need be. */
int fdry_txn_write(struct fdry_db *db, uint64_t room, struct fdry_txn *ret) __must_check;
/* Durable when it returns. Ends the transaction, also on failure. */
int fdry_txn_commit(struct fdry_txn *t) __must_check;
void fdry_txn_abort(struct fdry_txn *t);

/* The value of @key, valid until the transaction ends or writes; data is NULL where there is none. */
int fdry_txn_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span *ret) __must_check;
/* Replaces an earlier value. */
int fdry_txn_put(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span value) __must_check;
/* No error where there is none. */
int fdry_txn_delete(struct fdry_txn *t, enum fdry_table table, struct fdry_span key) __must_check;
/* Entries, as the table's root counts them. */
int fdry_txn_count(struct fdry_txn *t, enum fdry_table table, uint64_t *ret) __must_check;

/* Called for each entry in key order; 0: go on, FDRY_EACH_STOP: enough, negative: fail with it. */
typedef int (*fdry_entry_fn)(void *arg, struct fdry_span key, struct fdry_span value);
#define FDRY_EACH_STOP 1
/* Every entry from @from on (an empty span: from the first). @fn must not write. */
int fdry_txn_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from, fdry_entry_fn fn,
		  void *arg) __must_check;
/* LMDB's own tables. A value of the free ones holds a count and as many page numbers, 64 bits each. */
enum fdry_inner {
	FDRY_INNER_FREE = 0,  /* free pages, by the transaction that freed them */
	FDRY_INNER_ROOTS = 1, /* the roots of all tables, by name */
};
int fdry_txn_each_inner(struct fdry_txn *t, enum fdry_inner inner, fdry_entry_fn fn, void *arg) __must_check;

/* --- tail.c --- */

/* Where the file ends before the last page: is everything that it lacks free? */
bool fdry_tail_is_free(const struct fdry_db_opts *opts);

#endif
