// SPDX-License-Identifier: Apache-2.0
/*
 * walk.c - listing a table of LMDB entry by entry, even if its pages are damaged.
 *
 * LMDB trusts its pages. Every entry is checked before it is used, so a walk over damaged pages
 * ends with an error.
 */
#include <stdlib.h>
#include <string.h>

#include "store/db.h"

#define KEY_MAX 511 /* LMDB's */

/* LMDB's head of a page: number, unused, flags, end of the slots, begin of the entries. */
#define PAGE_AT_FLAGS 10
#define PAGE_AT_LOWER 12
#define PAGE_AT_UPPER 14
#define PAGE_HEAD 16
#define PAGE_LEAF 2

/* A walk from entry to entry, with the state that each step is checked against. */
struct walk {
	const struct fdry_db *db;
	MDB_cursor *cursor;
	MDB_val key, value;
	uint8_t last[KEY_MAX];
	size_t last_len;
	const uint8_t *base; /* address of page 0, computed from the first page */
	bool mapped;         /* keys lie in the map, not in a writer's memory */
};

/* In its own frame, so that the jump of an assertion spoils no variables. */
static __attribute__((noinline)) int walk_step(struct walk *w, MDB_cursor_op op)
{
	return guarded(mdb_cursor_get(w->cursor, &w->key, &w->value, op));
}

/*
 * A key lies in its leaf, whose head is at the beginning of the page. A head that cannot be right
 * would crash a writer sooner or later.
 */
static bool leaf_is_sound(struct walk *w)
{
	const uint8_t *p = w->key.mv_data, *page;
	uint64_t pgno;
	uint16_t lower, upper;

	page = p - ((uintptr_t)p & (w->db->page_size - 1));
	pgno = fdry_get64(page);
	lower = fdry_get16(page + PAGE_AT_LOWER);
	upper = fdry_get16(page + PAGE_AT_UPPER);
	if (fdry_get16(page + PAGE_AT_FLAGS) != PAGE_LEAF || lower <= PAGE_HEAD || lower & 1 ||
	    lower > upper || upper >= w->db->page_size || p < page + upper)
		return false;
	if (!w->base)
		w->base = page - pgno * w->db->page_size;
	return page == w->base + pgno * w->db->page_size;
}

/* Damaged pages can form circles: keys must ascend. */
static bool key_ascends(struct walk *w)
{
	size_t len = w->key.mv_size, n = len < w->last_len ? len : w->last_len;
	int order = len > KEY_MAX ? -1 : memcmp(w->key.mv_data, w->last, n);

	if (order < 0 || (!order && len <= w->last_len && w->last_len))
		return false;
	memcpy(w->last, w->key.mv_data, len);
	w->last_len = len;
	return true;
}

static int walk_run(struct walk *w, MDB_cursor_op first, fdry_entry_fn fn, void *arg)
{
	int err = 0, rc = walk_step(w, first);

	while (!rc && !err) {
		if ((w->mapped && !leaf_is_sound(w)) || !key_ascends(w))
			return fdry_db_fail(w->db, MDB_CORRUPTED, "list entries");
		err = fn(arg, span_of(w->key), span_of(w->value));
		if (!err)
			rc = walk_step(w, MDB_NEXT);
	}
	if (err)
		return err == FDRY_EACH_STOP ? 0 : err;
	return rc == MDB_NOTFOUND ? 0 : fdry_db_fail(w->db, rc, "list entries");
}

static int cursor_open(struct fdry_txn *t, MDB_dbi table, MDB_cursor **ret)
{
	return guarded(mdb_cursor_open(t->txn, table, ret));
}

int fdry_txn_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from,
		  fdry_entry_fn fn, void *arg)
{
	struct walk w = { .db = t->db, .key = val_of(from), .mapped = !t->exclusive };
	int err, rc = cursor_open(t, t->db->tables[table], &w.cursor);

	if (rc)
		return fdry_db_fail(t->db, rc, "list entries");
	err = walk_run(&w, from.len ? MDB_SET_RANGE : MDB_FIRST, fn, arg);
	mdb_cursor_close(w.cursor);
	return err;
}

/* Keys of free pages are numbers in the machine's byte order, so there is no order to check. */
static int inner_step(struct walk *w)
{
	int rc = walk_step(w, MDB_NEXT);

	return !rc && w->mapped && !leaf_is_sound(w) ? MDB_CORRUPTED : rc;
}

static int inner_each(struct fdry_txn *t, enum fdry_inner inner, fdry_entry_fn fn, void *arg)
{
	struct walk w = { .db = t->db, .mapped = !t->exclusive };
	int err = 0, rc = cursor_open(t, (MDB_dbi)inner, &w.cursor);

	if (rc)
		return fdry_db_fail(t->db, rc, "list pages");
	while (!rc && !err) {
		rc = inner_step(&w);
		if (!rc)
			err = fn(arg, span_of(w.key), span_of(w.value));
	}
	mdb_cursor_close(w.cursor);
	return err || rc == MDB_NOTFOUND ? err : fdry_db_fail(t->db, rc, "list pages");
}

/*
 * LMDB lists free pages only in read transactions, and @t holds the writers' lock instead. While it
 * does, a second environment without a lock file shows the same state.
 */
static int aside_begin(const struct fdry_db *db, MDB_env **env, MDB_txn **txn)
{
	int rc = mdb_env_create(env);

	if (rc)
		return rc;
	mdb_env_set_assert(*env, fdry_db_on_assert);
	mdb_env_set_mapsize(*env, fdry_db_mapped(db));
	rc = fdry_env_files(*env, db->place.data.path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_RDONLY, 0);
	if (!rc)
		rc = guarded(mdb_txn_begin(*env, NULL, MDB_RDONLY, txn));
	if (rc)
		mdb_env_close(*env);
	return rc;
}

int fdry_txn_each_inner(struct fdry_txn *t, enum fdry_inner inner, fdry_entry_fn fn, void *arg)
{
	struct fdry_txn aside = { .db = t->db };
	MDB_txn *txn = NULL;
	MDB_env *env;
	int rc, err;

	if (inner != FDRY_INNER_FREE || !t->exclusive)
		return inner_each(t, inner, fn, arg);
	rc = aside_begin(t->db, &env, &txn);
	if (rc)
		return fdry_db_fail(t->db, rc, "list pages");
	aside.txn = txn;
	err = inner_each(&aside, inner, fn, arg);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	return err;
}
