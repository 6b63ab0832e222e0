// SPDX-License-Identifier: Apache-2.0
/*
 * db.c - opening and closing a store's LMDB environment: its locks, its files, its tables.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/log.h"
#include "store/db.h"
#include "store/internal.h"
#include "store/view.h"

static const char *const table_names[] = {
#define X(NAME, name) [FDRY_TABLE_##NAME] = name,
	FDRY_TABLES(X)
#undef X
};

/* --- readers that died --- */

/*
 * Readers that died keep pages from being used again. LMDB recognises them by their process id, but
 * it believes that places with our id are ours: in containers whose processes always have the same
 * id they would stay for ever. Closing an environment that has read clears every place of its
 * process id. No other process with this id can be alive if reading worked.
 */
static int readers_clear(const struct fdry_db_opts *o, struct fdry_db *db)
{
	MDB_txn *txn = NULL;

	if (o->fixed)
		return 0;
	fdry_readers_check(db->env, o->dir);
	if (!fdry_readers_are_ours(db->env) ||
	    guarded(mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn)))
		return 0;
	mdb_txn_abort(txn);
	mdb_env_close(db->env);
	db->env = NULL;
	return fdry_env_open(o, db);
}

/* --- the end of the file --- */

/* Reading a file that was cut short would be a bus error later. */
static int size_check(struct fdry_db *db)
{
	struct fdry_extent x;
	int err = fdry_db_extent(db, &x);

	if (err || x.file_bytes >= x.used_bytes || fdry_truncated_is_free(db))
		return err;
	return fdry_fail(FDRY_E_CORRUPT,
			 "store %s is cut short: data.mdb has %llu of %llu bytes; bring it back "
			 "from a copy, or remove it and seal anew",
			 db->dir, (unsigned long long)x.file_bytes,
			 (unsigned long long)x.used_bytes);
}

/* --- tables --- */

/* In its own frame, as step() of walk.c. */
static __attribute__((noinline)) int table_open(struct fdry_db *db, MDB_txn *txn,
						unsigned int flags, int i)
{
	return guarded(mdb_dbi_open(txn, table_names[i], flags, &db->tables[i]));
}

/* Open all tables; MDB_NOTFOUND if one is missing. @flags: 0 or MDB_CREATE. */
static int tables_open(struct fdry_db *db, MDB_txn *txn, unsigned int flags)
{
	int i, rc = 0;

	for (i = 0; i < FDRY_TABLE_COUNT && !rc; i++)
		rc = table_open(db, txn, flags, i);
	return rc;
}

static bool env_is_empty(MDB_txn *txn)
{
	MDB_stat st = { 0 };
	MDB_dbi root;

	return !mdb_dbi_open(txn, NULL, 0, &root) && !mdb_stat(txn, root, &st) && !st.ms_entries;
}

/* Create the tables of an empty environment; another process may have been faster. */
static int tables_make_in(struct fdry_db *db, struct fdry_txn *t,
			  int (*fresh)(struct fdry_txn *t))
{
	int rc = tables_open(db, t->txn, 0);

	if (!rc)
		return 0;
	if (rc == MDB_NOTFOUND)
		rc = env_is_empty(t->txn) ? tables_open(db, t->txn, MDB_CREATE) : MDB_INCOMPATIBLE;
	return rc ? fdry_db_fail(db, rc, "make its tables") : fresh(t);
}

static int tables_make(struct fdry_db *db, int (*fresh)(struct fdry_txn *t))
{
	struct fdry_txn t;
	int err = fdry_txn_write(db, FDRY_MAP_SLACK, &t);

	return err ? err : fdry_txn_end(&t, tables_make_in(db, &t, fresh));
}

static int tables_find(struct fdry_db *db, bool create, int (*fresh)(struct fdry_txn *t))
{
	struct fdry_txn t;
	int rc, err = fdry_txn_read(db, &t);
	bool empty;

	if (err)
		return err;
	rc = tables_open(db, t.txn, 0);
	if (!rc)
		return fdry_txn_commit(&t); /* keeps the tables open */
	empty = env_is_empty(t.txn);
	fdry_txn_abort(&t);
	if (rc != MDB_NOTFOUND)
		return fdry_db_fail(db, rc, "open its tables");
	if (!empty)
		return fdry_db_fail(db, MDB_INCOMPATIBLE, "open it");
	if (create)
		return tables_make(db, fresh);
	return fdry_fail(FDRY_E_NOSTORE,
			 "store %s is empty, since the process that created it was stopped; seal "
			 "into it, or remove it",
			 db->dir);
}

/* --- opening and closing --- */

/* A process that makes a store has it alone. */
static bool is_shared(const struct fdry_db_opts *opts)
{
	return !opts->fixed || opts->readonly;
}

static int wlock_fail(const struct fdry_db *db, enum fdry_wlock_answer answer)
{
	if (answer == FDRY_WLOCK_SAME_PROCESS)
		return fdry_fail(
			FDRY_E_STATE,
			"this process has the data.mdb of the store %s open already, by another "
			"path or with another copy of this library, and LMDB allows that only "
			"once; use one of them",
			db->dir);
	if (answer == FDRY_WLOCK_OTHER_DATA)
		return fdry_fail(FDRY_E_LOCKED,
				 "lock.mdb of the store %s is in use with another data.mdb, and "
				 "could not be replaced; remove lock.mdb, and try again",
				 db->dir);
	return fdry_fail(FDRY_E_LOCKED,
			 "live processes have data.mdb of the store %s open with a lock.mdb that "
			 "was removed or replaced; close the store in all of them, and try again",
			 db->dir);
}

/* Before LMDB opens its files: closing them again would release locks of another copy of LMDB in
 * this process. */
static int wlock_open(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	enum fdry_wlock_answer answer;

	if (!is_shared(opts))
		return 0;
	answer = fdry_wlock_open(&db->wlock, opts->dir, opts->fixed);
	if (answer == FDRY_WLOCK_OTHER_DATA && opts->entered) {
		fdry_info("store %s: data.mdb was replaced while processes have it open; they keep "
			  "the old lock.mdb",
			  db->dir);
		fdry_lock_renew(opts->entered);
		answer = fdry_wlock_open(&db->wlock, opts->dir, opts->fixed);
	}
	return answer == FDRY_WLOCK_OPEN ? 0 : wlock_fail(db, answer);
}

/* From now on the names must lead to the files that LMDB has open. */
static int place_note(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	struct stat data, lock;
	bool locked = db->wlock.lock_fd >= 0 && !fstat(db->wlock.lock_fd, &lock);
	int rc;

	if (!is_shared(opts))
		return 0;
	rc = fdry_db_stat(db, &data);
	if (!rc)
		rc = fdry_place_init(&db->place, db->dir, &data, locked ? &lock : NULL);
	return rc ? fdry_db_fail(db, rc, "look at its files")
		  : fdry_place_check(&db->place, db->dir);
}

int fdry_db_open(const struct fdry_db_opts *opts, int (*fresh)(struct fdry_txn *t),
		 struct fdry_db **ret)
{
	struct fdry_db *db = fdry_db_new(opts);
	int rc, err;

	if (!db)
		return fdry_nomem();
	err = wlock_open(db, opts);
	if (err)
		goto out_close;
	err = fdry_metas_check(db);
	if (err)
		goto out_close;
	db->unlisted = opts->fixed && opts->readonly;
	rc = fdry_env_open(opts, db);
	if (!rc)
		rc = readers_clear(opts, db);
	err = rc ? fdry_db_fail(db, rc, "open it") : place_note(db, opts);
	if (err)
		goto out_close;
	err = size_check(db);
	if (err)
		goto out_close;
	err = tables_find(db, opts->create && !opts->readonly, fresh);
	if (err)
		goto out_close;
	*ret = db;
	return 0;
out_close:
	fdry_db_close(db);
	return err;
}

void fdry_db_close(struct fdry_db *db)
{
	if (!db)
		return;
	if (db->env)
		mdb_env_close(db->env);
	fdry_wlock_close(&db->wlock);
	fdry_db_free(db);
}

void fdry_db_forked(struct fdry_db *db)
{
	fdry_wlock_forget(&db->wlock);
}
