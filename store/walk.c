// SPDX-License-Identifier: Apache-2.0
/*
 * walk.c - listing a table entry by entry.
 *
 * A view is read from its pages, which are checked (pages.h). LMDB lists what a writer has changed
 * itself; every page was checked when the writer began.
 */
#include "store/db.h"
#include "store/view.h"

/* In its own frame, so that the jump of an assertion spoils no variables. */
static __attribute__((noinline)) int step(MDB_cursor *cursor, MDB_val *key, MDB_val *value,
					  MDB_cursor_op op)
{
	return guarded(mdb_cursor_get(cursor, key, value, op));
}

static int writer_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from,
		       fdry_entry_fn fn, void *arg)
{
	MDB_val key = val_of(from), value;
	MDB_cursor *cursor = NULL;
	int err = 0, rc = guarded(mdb_cursor_open(t->txn, t->db->tables[table], &cursor));

	if (rc)
		return fdry_db_fail(t->db, rc, "list entries");
	rc = step(cursor, &key, &value, from.len ? MDB_SET_RANGE : MDB_FIRST);
	while (!rc && !err) {
		err = fn(arg, span_of(key), span_of(value));
		if (!err)
			rc = step(cursor, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	if (err)
		return err == FDRY_EACH_STOP ? 0 : err;
	return rc == MDB_NOTFOUND ? 0 : fdry_db_fail(t->db, rc, "list entries");
}

struct visit {
	fdry_entry_fn fn;
	void *arg;
};

static int visit_entry(void *arg, const struct fdry_page_node *node)
{
	const struct visit *v = arg;

	return v->fn(v->arg, node->key, node->value);
}

static int view_each(struct fdry_txn *t, const struct fdry_tree *tree, struct fdry_span from,
		     const char *doing, struct visit visit)
{
	struct fdry_tree_fns fns = { .entry = visit_entry, .arg = &visit };
	struct fdry_damage d;
	int err;

	d = fdry_tree_each(&t->view.pages, tree, from, &fns, &err);
	if (d.what)
		return fdry_damage_fail(t->db, d, doing);
	return err == FDRY_EACH_STOP ? 0 : err;
}

int fdry_txn_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from,
		  fdry_entry_fn fn, void *arg)
{
	if (t->writes)
		return writer_each(t, table, from, fn, arg);
	return view_each(t, &t->view.tables[table], from, "list entries",
			 (struct visit){ fn, arg });
}

int fdry_txn_each_free(struct fdry_txn *t, fdry_entry_fn fn, void *arg)
{
	return view_each(t, &t->view.free, (struct fdry_span){ NULL, 0 }, "list free pages",
			 (struct visit){ fn, arg });
}
