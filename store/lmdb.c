// SPDX-License-Identifier: Apache-2.0
/*
 * lmdb.c - the only file that knows LMDB, with env_*.c and walk.c; see lmdb.h.
 *
 * What must stay true:
 * - No flag that trades durability or other processes' safety for speed is set
 *   (Documentation/design/store.rst goes through them one by one).
 * - The map is moved only while no transaction of this process is open: a transaction
 *   counts as a user from before it begins until after it ended.
 * - LMDB asserts where it finds pages damaged. Every call that may do so runs in a guard,
 *   so that an assertion comes back as an error; the environment is then only good for
 *   closing.
 */
#include "store/lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/log.h"
#include "store/db.h"
#include "store/internal.h"
#include "store/space.h"
#include "store/step.h"

#define FIT_TRIES 64
#define PLACE_MS_MAX 60000 /* to wait for a place among the readers, if there is no other way to read */
#define PLACE_MS_TURN 20   /* if there is */
#define PLACE_NAP_MS_MAX 100

static const char *const table_names[] = {
#define X(NAME, name) [FDRY_TABLE_##NAME] = name,
	FDRY_TABLES(X)
#undef X
};

/* --- errors --- */

struct db_error {
	int rc;
	enum fdry_errcode code;
	const char *text;
};

static const struct db_error db_errors[] = {
#define DB_ERROR(rc, code, text) { rc, FDRY_E_##code, text },
#include "store/lmdb_errors.def"
#undef DB_ERROR
};

static bool is_damage(int rc)
{
	return rc == DB_ASSERTED || rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_PANIC || rc == MDB_BAD_TXN;
}

int fdry_db_fail(const struct fdry_db *db, int rc, const char *doing)
{
	struct stat st;
	size_t i;

	if (is_damage(rc) && db->home)
		fdry_verified_forget(db->home);
	if (rc == EIO && !fdry_db_stat(db, &st)) /* LMDB's answer where only a part of what it wrote fitted */
		(void)fdry_space_nearly_full(db->dir, (uint64_t)st.st_size, &rc);
	for (i = 0; i < sizeof(db_errors) / sizeof(db_errors[0]); i++)
		if (db_errors[i].rc == rc)
			return fdry_fail(db_errors[i].code, "store %s: cannot %s: %s", db->dir, doing, db_errors[i].text);
	/* LMDB's other answers are not for what we ask, unless pages say what cannot be. */
	if (rc >= MDB_KEYEXIST && rc <= MDB_LAST_ERRCODE)
		return fdry_fail(FDRY_E_CORRUPT, "store %s: cannot %s: pages of data.mdb are damaged (%s); " FDRY_DAMAGE_ADVICE, db->dir, doing,
				 mdb_strerror(rc));
	return fdry_fail(FDRY_E_STORE, "store %s: cannot %s: %s; check the disk, then run foundry-store verify", db->dir, doing, strerror(rc));
}

/* --- transactions --- */

/* In a frame of its own, so that an assertion's jump spoils nobody's variables. */
static __attribute__((noinline)) int begin(struct fdry_db *db, unsigned int flags, MDB_txn **ret)
{
	return guarded(mdb_txn_begin(db->env, NULL, flags, ret));
}

/*
 * Does the number that lock.mdb gives to a transaction fit data.mdb? It is that of the latest meta page, or one less if a
 * writer is committing or died doing so; others may commit while a reader looks. Anything else was not written through
 * LMDB: a copy, written over data.mdb.
 */
static bool txn_fits(const struct fdry_txn *t)
{
	uint64_t id = mdb_txn_id(t->txn) - t->exclusive;
	MDB_envinfo info = { 0 };

	mdb_env_info(t->db->env, &info);
	return info.me_last_txnid == id || info.me_last_txnid == id + 1;
}

static int txn_begin(struct fdry_db *db, unsigned int flags, struct fdry_txn *ret)
{
	bool exclusive = !(flags & MDB_RDONLY), turn = exclusive || db->unlisted;
	struct fdry_xfsz xfsz = { 0 };
	MDB_txn *txn = NULL;
	int rc;

	fdry_step(exclusive ? FDRY_STEP_WRITE : FDRY_STEP_READ);
	rc = turn ? fdry_wlock_lock(&db->wlock) : 0;
	if (rc)
		return rc;
	fdry_db_pin(db);
	if (exclusive)
		fdry_xfsz_hold(&xfsz);
	rc = begin(db, flags, &txn);
	if (rc) {
		if (exclusive)
			fdry_xfsz_release(&xfsz);
		fdry_db_unpin(db);
		if (turn)
			fdry_wlock_unlock(&db->wlock);
		return rc;
	}
	*ret = (struct fdry_txn){ .db = db, .txn = txn, .exclusive = exclusive, .turn = turn, .xfsz = xfsz };
	if (exclusive)
		(void)fdry_db_state(db, &ret->before);
	else
		atomic_fetch_add(&db->places, 1);
	return 0;
}

/* Begin, and once more where the reason why it failed can be removed. */
static int txn_try(struct fdry_db *db, unsigned int flags, const char *doing, struct fdry_txn *ret)
{
	int err = 0, rc = txn_begin(db, flags, ret);

	if (rc == MDB_MAP_RESIZED) {
		err = fdry_db_map_fit(db, 0, true);
		rc = err ? 0 : txn_begin(db, flags, ret);
	}
	if (err)
		return err;
	return rc ? fdry_db_fail(db, rc, doing) : 0;
}

/* All places are taken: give up those of processes that died, and wait for others to end. 0 or LMDB's answer. */
static int place_wait(struct fdry_db *db, struct fdry_txn *ret)
{
	unsigned int ms = 1, waited = 0, ms_max = db->readonly ? PLACE_MS_MAX : PLACE_MS_TURN;
	struct timespec nap;
	int rc;

	for (;;) {
		fdry_readers_check(db->env, db->dir);
		rc = txn_begin(db, MDB_RDONLY, ret);
		if (rc != MDB_READERS_FULL || waited >= ms_max)
			return rc;
		nap = (struct timespec){ 0, (long)ms * 1000000 };
		nanosleep(&nap, NULL);
		waited += ms;
		ms = ms * 2 < PLACE_NAP_MS_MAX ? ms * 2 : PLACE_NAP_MS_MAX;
	}
}

/*
 * A place among LMDB's readers cannot always be had: a process with our id in another PID namespace has it, all are taken,
 * or this process has its share of them. The writers' lock does not care about places: short views under it are
 * right, if slower. A process that may not write can only wait.
 */
static int read_begin(struct fdry_db *db, struct fdry_txn *ret)
{
	bool share = db->readonly || fdry_readers_left(db);
	int rc = share ? txn_begin(db, MDB_RDONLY, ret) : MDB_READERS_FULL;

	if (rc == MDB_READERS_FULL && share)
		rc = place_wait(db, ret);
	if (!rc)
		return 0;
	if ((rc == EAGAIN || rc == MDB_READERS_FULL) && !db->readonly)
		return txn_try(db, 0, "read without a place among the readers", ret);
	return rc == MDB_READERS_FULL ? fdry_db_fail(db, rc, "begin to read") : txn_try(db, MDB_RDONLY, "begin to read", ret);
}

static int overwritten(const struct fdry_db *db)
{
	return fdry_fail(FDRY_E_STALE, "another program wrote into data.mdb of the store %s while processes have it open; close the store "
			 "in all of them and run foundry-store verify (a backup is put in place by renaming a copy, never by "
			 "writing over data.mdb)", db->dir);
}

int fdry_txn_read(struct fdry_db *db, struct fdry_txn *ret)
{
	int i, err = fdry_place_check(&db->place, db->dir);

	if (err)
		return err;
	for (i = 0; i < FIT_TRIES; i++) { /* more than once only if others commit at this moment */
		err = read_begin(db, ret);
		if (err || txn_fits(ret))
			return err;
		fdry_txn_abort(ret);
	}
	return overwritten(db);
}

/* The names are looked at with the turn: waiting for it may have taken long. */
int fdry_txn_write(struct fdry_db *db, uint64_t room, struct fdry_txn *ret)
{
	int err = fdry_db_map_fit(db, room, false);

	if (!err)
		err = txn_try(db, 0, "begin to write", ret);
	if (err)
		return err;
	err = fdry_place_check(&db->place, db->dir);
	if (!err && !txn_fits(ret))
		err = overwritten(db);
	if (err)
		fdry_txn_abort(ret);
	return err;
}

bool fdry_txn_is_behind(const struct fdry_txn *t)
{
	MDB_envinfo info = { 0 };

	mdb_env_info(t->db->env, &info);
	return !t->exclusive && !t->db->readonly && info.me_last_txnid > mdb_txn_id(t->txn);
}

/* With the turn: nobody of ours has written since the transaction began. */
static void state_carry(const struct fdry_txn *t)
{
	struct fdry_db_state now;

	if (!t->exclusive || !t->db->home || t->db->wlock.fd < 0 || !t->before.ino || !fdry_db_state(t->db, &now))
		return;
	if (now.changed != t->before.changed || now.txn != t->before.txn)
		fdry_verified_carry(t->db->home, &t->before, &now);
}

static void txn_over(struct fdry_txn *t)
{
	t->txn = NULL;
	if (!t->exclusive)
		atomic_fetch_sub(&t->db->places, 1);
	state_carry(t);
	if (t->exclusive)
		fdry_xfsz_release(&t->xfsz);
	fdry_db_unpin(t->db);
	if (t->turn)
		fdry_wlock_unlock(&t->db->wlock);
	if (t->exclusive)
		fdry_step(FDRY_STEP_WRITE_DONE);
}

void fdry_txn_abort(struct fdry_txn *t)
{
	if (!t->txn)
		return;
	(void)guarded((mdb_txn_abort(t->txn), 0));
	txn_over(t);
}

int fdry_db_set_length(struct fdry_db *db, uint64_t size)
{
	int fd = -1, rc = mdb_env_get_fd(db->env, &fd);

	return rc ? rc : fdry_truncate(fd, size);
}

/* Nothing may come in between: what was begun on a file that is no longer the store's would be reported and lost. */
static int commit_check(const struct fdry_txn *t)
{
	int err;

	if (!t->exclusive)
		return 0;
	err = fdry_place_check(&t->db->place, t->db->dir);
	return err || txn_fits(t) ? err : overwritten(t->db);
}

int fdry_txn_commit(struct fdry_txn *t)
{
	int rc, err;

	fdry_step(FDRY_STEP_COMMIT);
	err = commit_check(t);
	if (err) {
		fdry_txn_abort(t);
		return err;
	}
	rc = guarded(mdb_txn_commit(t->txn));
	if (rc == DB_ASSERTED) /* LMDB did not come to free it */
		fdry_txn_abort(t);
	else
		txn_over(t);
	if (!rc && t->exclusive)
		fdry_truncated_extend(t->db);
	return rc ? fdry_db_fail(t->db, rc, "commit") : 0;
}

void fdry_txn_damaged(const struct fdry_txn *t)
{
	if (t->db->home)
		fdry_verified_forget(t->db->home);
}

/* --- entries --- */

int fdry_txn_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span *ret)
{
	MDB_val k = val_of(key), v = { 0 };
	int rc = guarded(mdb_get(t->txn, t->db->tables[table], &k, &v));

	if (rc && rc != MDB_NOTFOUND)
		return fdry_db_fail(t->db, rc, "read");
	*ret = rc ? (struct fdry_span){ NULL, 0 } : span_of(v);
	return 0;
}

int fdry_txn_put(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span value)
{
	MDB_val k = val_of(key), v = val_of(value);
	int rc = guarded(mdb_put(t->txn, t->db->tables[table], &k, &v, 0));

	return rc ? fdry_db_fail(t->db, rc, "write") : 0;
}

int fdry_txn_delete(struct fdry_txn *t, enum fdry_table table, struct fdry_span key)
{
	MDB_val k = val_of(key);
	int rc = guarded(mdb_del(t->txn, t->db->tables[table], &k, NULL));

	return rc && rc != MDB_NOTFOUND ? fdry_db_fail(t->db, rc, "delete") : 0;
}

int fdry_txn_count(struct fdry_txn *t, enum fdry_table table, uint64_t *ret)
{
	MDB_stat st = { 0 };
	int rc = mdb_stat(t->txn, t->db->tables[table], &st);

	if (rc)
		return fdry_db_fail(t->db, rc, "count");
	*ret = st.ms_entries;
	return 0;
}

int fdry_txn_bytes(struct fdry_txn *t, uint64_t *ret)
{
	uint64_t pages = 0;
	MDB_stat st = { 0 };
	int i, rc = 0;

	for (i = 0; i < FDRY_TABLE_COUNT && !rc; i++, pages += st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages)
		rc = mdb_stat(t->txn, t->db->tables[i], &st);
	if (!rc)
		*ret = pages * st.ms_psize;
	return rc ? fdry_db_fail(t->db, rc, "count pages") : 0;
}

/* --- opening --- */

/*
 * Readers that died keep pages from being used again. LMDB recognises them by their
 * process id, but takes those with our id to be ours: in containers that always start
 * with the same id they would stay for ever. Closing an environment that has read clears
 * every place under its process' id; nobody else can be alive under it if reading worked.
 */
static int readers_clear(const struct fdry_db_opts *o, MDB_env **env)
{
	MDB_txn *txn = NULL;

	if (o->fixed)
		return 0;
	fdry_readers_check(*env, o->dir);
	if (!fdry_readers_are_ours(*env) || guarded(mdb_txn_begin(*env, NULL, MDB_RDONLY, &txn)))
		return 0;
	mdb_txn_abort(txn);
	mdb_env_close(*env);
	*env = NULL;
	return fdry_env_open(o, env);
}

/* --- the end of the file --- */

int fdry_db_extent(const struct fdry_db *db, struct fdry_extent *ret)
{
	struct stat st = { 0 };
	struct fdry_extent x = { .used_bytes = fdry_db_used(db), .page_size = db->page_size }; /* before the file, which is never made shorter than that */
	int rc = fdry_db_stat(db, &st);

	if (rc)
		return fdry_db_fail(db, rc, "look at its file");
	x.file_bytes = (uint64_t)st.st_size;
	x.map_bytes = fdry_db_mapped(db);
	*ret = x;
	return 0;
}

/* A file that was cut short would be a bus error later on. */
static int size_check(struct fdry_db *db, const struct fdry_db_opts *o)
{
	struct fdry_extent x;
	int err = fdry_db_extent(db, &x);

	if (err || x.file_bytes >= x.used_bytes || fdry_truncated_is_free(o))
		return err;
	return fdry_fail(FDRY_E_CORRUPT, "store %s is cut short: data.mdb has %llu of %llu bytes; bring it back from a copy, "
			 "or remove it and seal anew", db->dir, (unsigned long long)x.file_bytes,
			 (unsigned long long)x.used_bytes);
}

/* --- opening: tables --- */

/* In a frame of its own, as walk_step(). */
static __attribute__((noinline)) int table_open(struct fdry_db *db, MDB_txn *txn, unsigned int flags, int i)
{
	return guarded(mdb_dbi_open(txn, table_names[i], flags, &db->tables[i]));
}

/* Opens all tables, or none: MDB_NOTFOUND. @flags: 0 or MDB_CREATE. */
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

static int tables_make(struct fdry_db *db, int (*fresh)(struct fdry_txn *t))
{
	struct fdry_txn t;
	int rc, err = fdry_txn_write(db, FDRY_MAP_SLACK, &t);

	if (err)
		return err;
	rc = tables_open(db, t.txn, 0); /* somebody else may have been faster */
	if (rc == MDB_NOTFOUND) {
		rc = env_is_empty(t.txn) ? tables_open(db, t.txn, MDB_CREATE) : MDB_INCOMPATIBLE;
		err = rc ? 0 : fresh(&t);
	}
	if (rc)
		err = fdry_db_fail(db, rc, "make its tables");
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
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
	return fdry_fail(FDRY_E_NOSTORE, "store %s is empty: whoever made it was stopped; seal into it, or remove it", db->dir);
}

static int env_ready(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	MDB_stat st = { 0 };
	int rc = fdry_env_open(opts, &db->env);

	db->unlisted = opts->fixed && opts->readonly && !opts->bare;
	if (!rc && !opts->bare)
		rc = readers_clear(opts, &db->env);
	if (!rc)
		rc = mdb_env_stat(db->env, &st);
	db->page_size = st.ms_psize;
	return rc ? fdry_db_fail(db, rc, "open it") : 0;
}

/* Not by who looks at damage, nor by who makes a store, alone. */
static bool is_shared(const struct fdry_db_opts *opts)
{
	return !opts->bare && (!opts->fixed || opts->readonly);
}

static int wlock_fail(const struct fdry_db *db, enum fdry_wlock_answer answer)
{
	if (answer == FDRY_WLOCK_OWN)
		return fdry_fail(FDRY_E_STATE, "this process has the data.mdb of the store %s open already, by another path or with another "
				 "copy of this library, and LMDB allows that only once; use one of them", db->dir);
	if (answer == FDRY_WLOCK_OTHER_DATA)
		return fdry_fail(FDRY_E_LOCKED, "lock.mdb of the store %s is in use with another data.mdb, and could not be replaced; remove "
				 "lock.mdb, and try again", db->dir);
	return fdry_fail(FDRY_E_LOCKED, "live processes have data.mdb of the store %s open with a lock.mdb that was removed or replaced; "
			 "close the store in all of them, and try again", db->dir);
}

/* Before LMDB: what it opens and closes drops the locks that another copy of it in this process may hold. */
static int wlock_open(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	enum fdry_wlock_answer answer;

	db->wlock.fd = db->wlock.lock_fd = -1;
	if (!is_shared(opts))
		return 0;
	answer = fdry_wlock_open(&db->wlock, opts->dir, opts->fixed);
	if (answer == FDRY_WLOCK_OTHER_DATA && opts->entered) {
		fdry_info("store %s: data.mdb was replaced while processes have it open; they keep the old lock.mdb", db->dir);
		fdry_lock_renew(opts->entered);
		answer = fdry_wlock_open(&db->wlock, opts->dir, opts->fixed);
	}
	return answer == FDRY_WLOCK_OPEN ? 0 : wlock_fail(db, answer);
}

/* From here on the names must lead to what LMDB has open; what came in between is noticed at once. */
static int place_take(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	struct stat data, lock;
	bool locked = db->wlock.lock_fd >= 0 && !fstat(db->wlock.lock_fd, &lock);
	int rc;

	if (!is_shared(opts))
		return 0;
	rc = fdry_db_stat(db, &data);
	if (!rc)
		rc = fdry_place_init(&db->place, db->dir, &data, locked ? &lock : NULL);
	return rc ? fdry_db_fail(db, rc, "look at its files") : fdry_place_check(&db->place, db->dir);
}

int fdry_db_open(const struct fdry_db_opts *opts, int (*fresh)(struct fdry_txn *t), struct fdry_db **ret)
{
	struct fdry_db *db = calloc(1, sizeof(*db) + strlen(opts->dir) + 1);
	int err;

	if (!db)
		return fdry_nomem();
	strcpy(db->dir, opts->dir);
	pthread_mutex_init(&db->lock, NULL);
	db->readonly = opts->readonly;
	db->home = opts->entered;
	err = wlock_open(db, opts);
	if (!err)
		err = env_ready(db, opts);
	if (!err)
		err = place_take(db, opts);
	if (!err && !opts->bare)
		err = size_check(db, opts);
	if (!err && !opts->bare)
		err = tables_find(db, opts->create && !opts->readonly, fresh);
	if (err) {
		fdry_db_close(db);
		return err;
	}
	*ret = db;
	return 0;
}

void fdry_db_close(struct fdry_db *db)
{
	if (!db)
		return;
	if (db->env)
		mdb_env_close(db->env);
	fdry_wlock_close(&db->wlock);
	fdry_db_forget(db);
}

void fdry_db_forked(struct fdry_db *db)
{
	fdry_wlock_forget(&db->wlock);
}

void fdry_db_forget(struct fdry_db *db)
{
	fdry_place_release(&db->place);
	pthread_mutex_destroy(&db->lock);
	free(db);
}
