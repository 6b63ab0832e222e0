/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb.h - the store's interface to LMDB, without LMDB's own types.
 *
 * Only the files that include db.h know <lmdb.h>: they turn every error code of LMDB into an error
 * of ours, grow the map, clear readers that died, and survive LMDB's assertions. There are four
 * tables; keys and values are bytes at any alignment.
 *
 * Locking: any thread may use an environment. Only the thread that began a transaction uses it,
 * except that a read transaction that is not exclusive may move between threads.
 */
#ifndef FDRY_STORE_LMDB_H
#define FDRY_STORE_LMDB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/file.h"
#include "store/pages.h"

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
struct fdry_dir;

struct fdry_db_opts {
	const char *dir;
	/* the same, between fdry_dir_enter() and fdry_dir_leave(): its lock.mdb may be replaced. Or
	 * NULL */
	const struct fdry_dir *entered;
	bool create;         /* create the tables if the environment is empty */
	bool readonly;       /* nothing may be written */
	/* no lock file: it cannot be written or, unless @readonly, no other process knows the
	 * environment */
	bool fixed;
	mode_t mode;         /* of new files */
};

/* Address space to reserve. Only pages in use take memory. */
#ifndef FDRY_MAP_SIZE
#define FDRY_MAP_SIZE (1ull << 40)
#endif

/**
 * fdry_db_open() - Open the environment in a directory.
 * @fresh: called for tables that were just created: writes the first records of a new store
 *
 * Never twice for one directory in a process: closing one would release the other's locks. If live
 * processes use lock.mdb with a data.mdb that was replaced meanwhile, a new lock.mdb is created.
 * Errors: FDRY_E_LOCKED (live processes use data.mdb with a lock.mdb that was replaced meanwhile),
 * FDRY_E_STALE (replaced at this moment), FDRY_E_NOSTORE (not LMDB's, or another program's),
 * FDRY_E_CORRUPT (shorter than its own account), FDRY_E_VERSION, FDRY_E_PERM, FDRY_E_FULL,
 * FDRY_E_STORE, FDRY_E_NOMEM.
 */
struct fdry_txn;
int fdry_db_open(const struct fdry_db_opts *opts, int (*fresh)(struct fdry_txn *t),
		 struct fdry_db **ret) __must_check;
/* No transaction may be open. NULL is fine. */
void fdry_db_close(struct fdry_db *db);
/* In a child, right after fork(): close what would keep a lock of the parent. */
void fdry_db_forked(struct fdry_db *db);
/* Free the handle alone and leave the environment as it is: what a forked child does. */
void fdry_db_free(struct fdry_db *db);

/* Keep the map from moving although no transaction is open. */
void fdry_db_pin(struct fdry_db *db);
void fdry_db_unpin(struct fdry_db *db);

/* Device and inode of the open file, to check whether the path still leads to it. */
int fdry_db_file(const struct fdry_db *db, dev_t *dev, ino_t *ino) __must_check;

/* Changes with every write to data.mdb, through LMDB or not. */
struct fdry_db_state {
	dev_t dev;
	ino_t ino;
	uint64_t changed; /* nanoseconds since 1970; programs cannot set it */
	uint64_t txn;     /* the latest */
};
bool fdry_db_state(const struct fdry_db *db, struct fdry_db_state *ret);
/* Are both known and equal? */
bool fdry_db_state_eq(const struct fdry_db_state *a, const struct fdry_db_state *b);

/* Sizes of the environment and of its file. */
struct fdry_extent {
	uint64_t used_bytes; /* up to the last page */
	uint64_t page_size;
	uint64_t file_bytes;
	uint64_t map_bytes;  /* address space */
};
int fdry_db_extent(const struct fdry_db *db, struct fdry_extent *ret) __must_check;
/* A larger value has its own pages; smaller ones share a page and move when it is written. */
uint64_t fdry_db_small_max(const struct fdry_db *db);

/* transactions that can read at a time: places in a new lock.mdb, 64 bytes each */
#define FDRY_DB_READERS_MAX 8192
/* In the lock.mdb that is in use. */
uint32_t fdry_db_readers_max(const struct fdry_db *db);
/* Transactions that read now, in any process. */
uint32_t fdry_db_readers(const struct fdry_db *db);
/* Clear the places of readers that died: the pages of their views could not be used again. */
void fdry_db_clear_readers(struct fdry_db *db);
/* After a transaction that found the disk full: cut off what it appended to the file. The caller
 * has no open transaction. */
void fdry_db_trim(struct fdry_db *db);

/*
 * Beginning a transaction and committing one return FDRY_E_STALE if data.mdb, lock.mdb or the
 * directory was removed or replaced since the environment was opened, or if another program has
 * written into data.mdb.
 */

/* The pages that a transaction saw when it began. */
struct fdry_view {
	struct fdry_pages pages;
	uint64_t last; /* the last page; the file may end before it, if that is free */
	struct fdry_tree free, roots, tables[FDRY_TABLE_COUNT];
};

/* A transaction, in the caller's storage. */
struct fdry_txn {
	struct fdry_db *db;
	void *txn;
	struct fdry_view view;
	bool exclusive; /* holds the writers' lock; one thread begins and ends it */
	bool writes;    /* LMDB reads and changes it; else it is read through its view */
	struct fdry_db_state before; /* if exclusive: the state before it */
	/* keeps writers out, since it is exclusive or LMDB cannot list it; must be short */
	bool locked;
	struct fdry_xfsz xfsz; /* while it may write */
};

/* Begin a consistent view. It keeps writers out only if LMDB cannot list it: its list of readers
 * cannot be written, a process with the same id lives in another PID namespace, or no place is
 * free. A process that may not write to the store waits up to a minute for a place
 * (FDRY_E_LOCKED). */
int fdry_txn_read(struct fdry_db *db, struct fdry_txn *ret) __must_check;
/* The same, and the view contains every commit, even if a writer died before it could announce its
 * commit. Needed before any decision about what to write or remove. May wait for a writer. */
int fdry_txn_read_latest(struct fdry_db *db, struct fdry_txn *ret) __must_check;
/* Begin to write; waits for other writers. The caller will put at most @growth bytes; the map grows
 * before if needed. If it cannot grow, its free pages may suffice; if not, a put or the commit
 * returns FDRY_E_FULL. */
int fdry_txn_write(struct fdry_db *db, uint64_t growth, struct fdry_txn *ret) __must_check;
/* Durable when it returns. Ends the transaction, also on failure. */
int fdry_txn_commit(struct fdry_txn *t) __must_check;
void fdry_txn_abort(struct fdry_txn *t);
/* Commit; but if @err is an error, abort and return it. */
int fdry_txn_end(struct fdry_txn *t, int err) __must_check;

/* Damage was found in the view @t: cancel the note of verified objects. The last error stays. */
void fdry_txn_damaged(const struct fdry_txn *t);

/* The value of @key, valid until the transaction ends or writes; data is NULL if there is none. */
int fdry_txn_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key,
		 struct fdry_span *ret) __must_check;
/* Tell the kernel that the map's pages are read in any order: a fault then reads one page alone. */
void fdry_txn_scatter(const struct fdry_txn *t);
/* Whether the file has a value that fdry_txn_get() gave: not if this transaction has written it. */
bool fdry_txn_in_file(const struct fdry_txn *t, struct fdry_span value);
/* Copy such a value from the file, not from the map. In the order of the file that is fast, since
 * the kernel reads ahead, and no signal comes if the disk cannot read (FDRY_E_CORRUPT, as if the
 * file ends before). */
int fdry_txn_copy(const struct fdry_txn *t, struct fdry_span value, void *to) __must_check;
/* Replaces an earlier value. */
int fdry_txn_put(struct fdry_txn *t, enum fdry_table table, struct fdry_span key,
		 struct fdry_span value) __must_check;
/* A missing key is no error. */
int fdry_txn_delete(struct fdry_txn *t, enum fdry_table table, struct fdry_span key) __must_check;
/* Entries, as the table's root counts them. */
int fdry_txn_count(struct fdry_txn *t, enum fdry_table table, uint64_t *ret) __must_check;

/* Bytes of the pages of all tables: everything that is not free. */
int fdry_txn_bytes(struct fdry_txn *t, uint64_t *ret) __must_check;

/* Called for each entry in key order; 0: continue, FDRY_EACH_STOP: stop without an error, negative:
 * fail. */
typedef int (*fdry_entry_fn)(void *arg, struct fdry_span key, struct fdry_span value);
#define FDRY_EACH_STOP 1
/* Every entry from @from on (an empty span: from the first). @fn must not write. */
int fdry_txn_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from,
		  fdry_entry_fn fn, void *arg) __must_check;
/*
 * fdry_txn_check() - Check every page of every tree, that no page is used twice, and that no free
 * page is in use: LMDB relies on it when it writes. A writer does that before its first change.
 * @values: also read the first page of each value that has its own pages
 * @doing: "verify"
 */
int fdry_txn_check(const struct fdry_txn *t, bool values, const char *doing) __must_check;

/* The list of free pages, as it was when @t began. A value holds a count and as many page numbers,
 * 64 bits each. */
int fdry_txn_each_free(struct fdry_txn *t, fdry_entry_fn fn, void *arg) __must_check;

/* --- truncated.c --- */

/* If the file ends before the last page: are all missing pages free? */
bool fdry_truncated_is_free(struct fdry_db *db);

#endif
