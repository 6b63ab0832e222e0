// SPDX-License-Identifier: Apache-2.0
/*
 * lmdb.c - transactions and entries of LMDB; see lmdb.h.
 *
 * Invariants:
 * - No flag is set that trades durability, or the safety of other processes, for speed
 *   (Documentation/design/store.rst lists every flag).
 * - The map moves only while no transaction of this process is open: a transaction
 *   counts as a user from before it begins until after it ended.
 * - LMDB asserts if it finds damaged pages. Every call that may assert runs in a guard,
 *   which turns an assertion into an error; the environment can then only be closed.
 */
#include "store/lmdb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "store/db.h"
#include "store/internal.h"
#include "store/step.h"
#include "store/view.h"

#define FIT_TRIES 64
/* to wait for a place among the readers, if there is no other way to read */
#define PLACE_MS_MAX 60000
#define PLACE_MS_LOCKED 20 /* if reading under the writers' lock is possible */
#define PLACE_NAP_MS_MAX 100

#define FILL_MIN (64u << 10) /* values for whose memory the kernel is called */

/* --- transactions --- */

/* In its own frame, so that the jump of an assertion spoils no variables. */
static __attribute__((noinline)) int begin(struct fdry_db *db, unsigned int flags, MDB_txn **ret)
{
	return guarded(mdb_txn_begin(db->env, NULL, flags, ret));
}

/*
 * Does the transaction number in lock.mdb fit data.mdb? It is the number of the latest meta page,
 * or one less if a writer is committing or died while it committed. Any other number means that a
 * copy was written over data.mdb.
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
	bool exclusive = !(flags & MDB_RDONLY), locked = exclusive || db->unlisted;
	struct fdry_xfsz xfsz = { 0 };
	MDB_txn *txn = NULL;
	int rc;

	fdry_step(exclusive ? FDRY_STEP_WRITE : FDRY_STEP_READ);
	rc = locked ? fdry_wlock_lock(&db->wlock) : 0;
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
		if (locked)
			fdry_wlock_unlock(&db->wlock);
		return rc;
	}
	*ret = (struct fdry_txn){
		.db = db, .txn = txn, .exclusive = exclusive, .locked = locked, .xfsz = xfsz
	};
	if (exclusive)
		(void)fdry_db_state(db, &ret->before);
	else
		atomic_fetch_add(&db->places, 1);
	return 0;
}

/* Begin a transaction; if another process grew the map, follow it and try again. */
static int txn_try(struct fdry_db *db, unsigned int flags, const char *doing, struct fdry_txn *ret)
{
	int err, rc = txn_begin(db, flags, ret);

	if (rc == MDB_MAP_RESIZED) {
		err = fdry_db_map_fit(db, 0, true);
		if (err)
			return err;
		rc = txn_begin(db, flags, ret);
	}
	return rc ? fdry_db_fail(db, rc, doing) : 0;
}

/* All places are taken: clear those of dead processes, and wait for other readers to end. 0 or
 * LMDB's error code. */
static int place_wait(struct fdry_db *db, struct fdry_txn *ret)
{
	unsigned int ms = 1, waited = 0, ms_max = db->readonly ? PLACE_MS_MAX : PLACE_MS_LOCKED;
	int rc;

	for (;;) {
		fdry_readers_check(db->env, db->dir);
		rc = txn_begin(db, MDB_RDONLY, ret);
		if (rc != MDB_READERS_FULL || waited >= ms_max)
			return rc;
		fdry_sleep_ms(ms);
		waited += ms;
		ms = ms * 2 < PLACE_NAP_MS_MAX ? ms * 2 : PLACE_NAP_MS_MAX;
	}
}

/*
 * LMDB cannot always list a reader: a process with our id in another PID namespace has the place,
 * all places are taken, or this process has taken its share of them. Short views under the writers'
 * lock need no place; they are correct, if slower. A process that may not write can only wait.
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
	return rc == MDB_READERS_FULL ? fdry_db_fail(db, rc, "begin to read")
				      : txn_try(db, MDB_RDONLY, "begin to read", ret);
}

static int overwritten(const struct fdry_db *db)
{
	return fdry_fail(FDRY_E_STALE,
			 "another program wrote into data.mdb of the store %s while processes have "
			 "it open; close the store in all of them and run foundry-store verify (a "
			 "backup is put in place by renaming a copy, never by writing over "
			 "data.mdb)",
			 db->dir);
}

int fdry_txn_read(struct fdry_db *db, struct fdry_txn *ret)
{
	int i, err = fdry_place_check(&db->place, db->dir);

	if (err)
		return err;
	for (i = 0; i < FIT_TRIES; i++) { /* repeats only if others commit at this moment */
		err = read_begin(db, ret);
		if (err)
			return err;
		err = txn_fits(ret) ? fdry_view_begin(ret) : FDRY_VIEW_AGAIN;
		if (!err)
			return 0;
		fdry_txn_abort(ret);
		if (err != FDRY_VIEW_AGAIN)
			return err;
	}
	return overwritten(db);
}

/* Begin to write, and check no page. The names are checked with the lock held: waiting for it may
 * have taken long. */
static int write_begin(struct fdry_db *db, uint64_t growth, struct fdry_txn *ret)
{
	int err = fdry_db_map_fit(db, growth, false);

	if (err)
		return err;
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

/* With the lock held: nothing changes until @t ends. */
static int pages_check(struct fdry_txn *t)
{
	int err = fdry_view_begin(t);

	if (err == FDRY_VIEW_AGAIN)
		return overwritten(t->db);
	if (err || fdry_db_state_eq(&t->db->sound, &t->before))
		return err;
	if (!t->db->home || !fdry_checked_is(t->db->home, &t->before)) {
		err = fdry_txn_check(t, false, "write");
		if (err)
			return err;
		if (t->db->home)
			fdry_checked_set(t->db->home, &t->before);
	}
	t->db->sound = t->before;
	return 0;
}

int fdry_txn_write(struct fdry_db *db, uint64_t growth, struct fdry_txn *ret)
{
	int err = write_begin(db, growth, ret);

	if (err)
		return err;
	ret->writes = true;
	err = pages_check(ret);
	if (err)
		fdry_txn_abort(ret);
	return err;
}

/* Something was committed that @t does not see: since it began, or by a writer that died. */
static bool is_behind(const struct fdry_txn *t)
{
	MDB_envinfo info = { 0 };

	mdb_env_info(t->db->env, &info);
	return !t->exclusive && !t->db->readonly && info.me_last_txnid > mdb_txn_id(t->txn);
}

/*
 * A committing writer writes the meta page, and then the transaction's number into lock.mdb, from
 * which readers take it. If the writer dies in between, readers see the state before the commit,
 * until the next writer begins and repairs the number. Such a view is whole, but decisions that are
 * based on it may be wrong.
 */
int fdry_txn_read_latest(struct fdry_db *db, struct fdry_txn *ret)
{
	int err = fdry_txn_read(db, ret);
	struct fdry_txn t;

	if (err || !is_behind(ret))
		return err;
	fdry_txn_abort(ret);
	err = write_begin(db, 0, &t);
	if (err)
		return err;
	fdry_txn_abort(&t);
	return fdry_txn_read(db, ret);
}

/* With the lock held: no other process has written since the transaction began. */
static void state_carry(const struct fdry_txn *t)
{
	struct fdry_db_state now;

	if (!t->exclusive || !t->db->home || t->db->wlock.fd < 0 || !t->before.ino ||
	    !fdry_db_state(t->db, &now) || fdry_db_state_eq(&t->before, &now))
		return;
	if (fdry_db_state_eq(&t->db->sound, &t->before))
		t->db->sound = now;
	if (fdry_db_state_eq(&t->db->heads, &t->before))
		t->db->heads = now;
	fdry_checked_carry(t->db->home, &t->before, &now);
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
	if (t->locked)
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

/* --- the length of the file --- */

int fdry_db_extent(const struct fdry_db *db, struct fdry_extent *ret)
{
	struct stat st = { 0 };
	/* read before the file's length, which never becomes smaller */
	struct fdry_extent x = { .used_bytes = fdry_db_used(db), .page_size = db->page_size };
	int rc = fdry_db_stat(db, &st);

	if (rc)
		return fdry_db_fail(db, rc, "look at its file");
	x.file_bytes = (uint64_t)st.st_size;
	x.map_bytes = fdry_db_mapped(db);
	*ret = x;
	return 0;
}

int fdry_db_file(const struct fdry_db *db, dev_t *dev, ino_t *ino)
{
	struct stat st = { 0 };
	int rc = fdry_db_stat(db, &st);

	if (rc)
		return fdry_db_fail(db, rc, "look at its file");
	*dev = st.st_dev;
	*ino = st.st_ino;
	return 0;
}

static int length_set(struct fdry_db *db, uint64_t size)
{
	int fd = -1, rc = mdb_env_get_fd(db->env, &fd);

	return rc ? rc : fdry_truncate(fd, size);
}

/*
 * LMDB does not write pages that a transaction allocated and freed again, so the file may end
 * before its last page. The next process that opens it would have to find out that nothing was cut
 * off. Extending the file with a hole avoids that. Only a writer may make the file longer.
 */
static void file_extend(struct fdry_db *db)
{
	struct fdry_extent x;
	struct fdry_txn t;
	int e = 0;

	if (fdry_db_extent(db, &x) || x.file_bytes >= x.used_bytes || write_begin(db, 0, &t))
		return;
	if (!fdry_db_extent(db, &x) && x.file_bytes < x.used_bytes)
		e = length_set(db, x.used_bytes);
	if (e)
		fdry_debug("cannot extend data.mdb to its last page: %s", strerror(e));
	fdry_txn_abort(&t);
}

/*
 * A transaction that failed for want of space has written pages behind the last page in use. No
 * view reads them, and other files need the space. With the writers' lock held, no process writes
 * there, and no view, however old, reaches further than the latest one.
 */
void fdry_db_trim(struct fdry_db *db)
{
	struct fdry_extent x;
	struct fdry_txn t;
	int e = 0;

	if (write_begin(db, 0, &t))
		return;
	if (!fdry_db_extent(db, &x) && x.file_bytes > x.used_bytes)
		e = length_set(db, x.used_bytes);
	if (e)
		fdry_debug("cannot cut unused pages off data.mdb: %s", strerror(e));
	fdry_txn_abort(&t);
}

/* --- committing --- */

/* A commit to a file that is no longer the store's would be reported as success and lost. */
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
	if (rc == DB_ASSERTED) /* LMDB did not free it */
		fdry_txn_abort(t);
	else
		txn_over(t);
	if (!rc && t->exclusive)
		file_extend(t->db);
	return rc ? fdry_db_fail(t->db, rc, "commit") : 0;
}

int fdry_txn_end(struct fdry_txn *t, int err)
{
	if (!err)
		return fdry_txn_commit(t);
	fdry_txn_abort(t);
	return err;
}

void fdry_txn_damaged(const struct fdry_txn *t)
{
	if (t->db->home)
		fdry_verified_forget(t->db->home);
}

/* --- entries --- */

static int view_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key,
		    struct fdry_span *ret)
{
	struct fdry_damage d;
	struct fdry_page_node node;
	bool found;

	d = fdry_tree_find(&t->view.pages, &t->view.tables[table], key, false, &node, &found);
	if (d.what)
		return fdry_damage_fail(t->db, d, "read");
	*ret = found ? node.value : (struct fdry_span){ NULL, 0 };
	return 0;
}

int fdry_txn_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key,
		 struct fdry_span *ret)
{
	MDB_val k = val_of(key), v = { 0 };
	int rc;

	if (!t->writes)
		return view_get(t, table, key, ret);
	rc = guarded(mdb_get(t->txn, t->db->tables[table], &k, &v));
	if (rc && rc != MDB_NOTFOUND)
		return fdry_db_fail(t->db, rc, "read");
	*ret = rc ? (struct fdry_span){ NULL, 0 } : span_of(v);
	return 0;
}

void fdry_txn_scatter(const struct fdry_txn *t)
{
	const struct fdry_pages *p = &t->view.pages;

	(void)madvise((void *)(uintptr_t)p->base, p->count * p->size, MADV_RANDOM);
}

bool fdry_txn_in_file(const struct fdry_txn *t, struct fdry_span value)
{
	const struct fdry_pages *p = &t->view.pages;
	uintptr_t base = (uintptr_t)p->base, at = (uintptr_t)value.data;

	return at >= base && at - base <= p->count * p->size - value.len;
}

int fdry_txn_copy(const struct fdry_txn *t, struct fdry_span value, void *to)
{
	const struct fdry_pages *p = &t->view.pages;
	uint64_t from = (uint64_t)(value.data - p->base);
	int fd = -1, rc = mdb_env_get_fd(t->db->env, &fd);
	struct fdry_damage d;
	size_t done = 0;
	ssize_t n;

	while (!rc && done < value.len) {
		n = pread(fd, (char *)to + done, value.len - done, (off_t)(from + done));
		if (n > 0) {
			done += (size_t)n;
		} else if (!n || errno == EIO) {
			d.what = n ? "the disk cannot read it" : "the file ends before it";
			d.page = (from + done) / p->size;
			return fdry_damage_fail(t->db, d, "read");
		} else if (errno != EINTR) {
			rc = errno;
		}
	}
	return rc ? fdry_db_fail(t->db, rc, "read") : 0;
}

/* Copy a large value into the new memory that LMDB allocated for it. The kernel makes its pages in
 * one call, in half the time of a fault for each page. An old kernel cannot; then the copy does. */
static void value_fill(void *to, struct fdry_span value)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = ((uintptr_t)to + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)to + value.len) & ~(page - 1);

	(void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
	memcpy(to, value.data, value.len);
}

int fdry_txn_put(struct fdry_txn *t, enum fdry_table table, struct fdry_span key,
		 struct fdry_span value)
{
	unsigned int reserve = value.len < FILL_MIN ? 0 : MDB_RESERVE;
	MDB_val k = val_of(key), v = val_of(value);
	int rc, err = fdry_view_check_value(t, table, key);

	if (err)
		return err;
	rc = guarded(mdb_put(t->txn, t->db->tables[table], &k, &v, reserve));
	if (rc)
		return fdry_db_fail(t->db, rc, "write");
	if (reserve)
		value_fill(v.mv_data, value);
	return 0;
}

int fdry_txn_delete(struct fdry_txn *t, enum fdry_table table, struct fdry_span key)
{
	MDB_val k = val_of(key);
	int rc, err = fdry_view_check_value(t, table, key);

	if (err)
		return err;
	rc = guarded(mdb_del(t->txn, t->db->tables[table], &k, NULL));
	return rc && rc != MDB_NOTFOUND ? fdry_db_fail(t->db, rc, "delete") : 0;
}

/* Read the record of a table's tree as it is now. */
static int table_stat(struct fdry_txn *t, enum fdry_table table, MDB_stat *ret)
{
	const struct fdry_tree *tree = &t->view.tables[table];
	int rc;

	if (t->writes) {
		rc = guarded(mdb_stat(t->txn, t->db->tables[table], ret));
		return rc ? fdry_db_fail(t->db, rc, "count") : 0;
	}
	*ret = (MDB_stat){ .ms_entries = tree->entries, .ms_branch_pages = tree->branches,
			   .ms_leaf_pages = tree->leaves, .ms_overflow_pages = tree->overflow };
	return 0;
}

int fdry_txn_count(struct fdry_txn *t, enum fdry_table table, uint64_t *ret)
{
	MDB_stat st = { 0 };
	int err = table_stat(t, table, &st);

	if (err)
		return err;
	*ret = st.ms_entries;
	return 0;
}

int fdry_txn_bytes(struct fdry_txn *t, uint64_t *ret)
{
	uint64_t pages = 0;
	MDB_stat st = { 0 };
	int i, err;

	for (i = 0; i < FDRY_TABLE_COUNT; i++) {
		err = table_stat(t, (enum fdry_table)i, &st);
		if (err)
			return err;
		pages += st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
	}
	*ret = pages * t->db->page_size;
	return 0;
}
