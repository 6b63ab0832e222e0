// SPDX-License-Identifier: Apache-2.0
/*
 * view_check.c - everything in data.mdb that LMDB relies on when it writes; see view.h.
 *
 * Each page is claimed by one user: a tree, a value, or the list of free pages. LMDB would
 * overwrite a page that is in use if the list named it.
 */
#include <stdlib.h>
#include <string.h>

#include "store/db.h"
#include "store/internal.h"
#include "store/view.h"

#define STOP (-1) /* of functions of a walk: the damage is noted */

struct check {
	const struct fdry_txn *t;
	const struct fdry_pages *pages;
	bool heads;      /* also look at the first page of each value */
	uint8_t *used;   /* a bit for each page */
	struct fdry_damage damage;
	const struct fdry_tree *tree;
	uint64_t branches, leaves, overflow, entries; /* of the tree */
};

static int note(struct check *c, const char *what, uint64_t page)
{
	c->damage = (struct fdry_damage){ what, page };
	return STOP;
}

static int claim(struct check *c, uint64_t first, uint64_t count)
{
	uint64_t i;

	for (i = first; i < first + count; i++) {
		if (c->used[i / 8] & 1 << i % 8)
			return note(c, c->tree->numbers ? "it is free and in use, or free twice"
							: "it is used twice", i);
		c->used[i / 8] |= (uint8_t)(1 << i % 8);
	}
	return 0;
}

static int on_page(void *arg, uint64_t number, bool leaf)
{
	struct check *c = arg;

	*(leaf ? &c->leaves : &c->branches) += 1;
	return claim(c, number, 1);
}

/* LMDB may have shortened a value in place: then its run is longer than needed. */
static int value_claim(struct check *c, const struct fdry_page_node *node)
{
	uint64_t run = fdry_run_of(c->pages, node->value.len);
	const char *what = NULL;

	if (c->heads || c->tree->numbers)
		what = fdry_run_check(c->pages, node, &run);
	c->overflow += run;
	return what ? note(c, what, node->big) : claim(c, node->big, run);
}

/* A list of free pages: how many, then their numbers, descending. There can be room behind. */
static int list_claim(struct check *c, const struct fdry_page_node *node)
{
	uint64_t page = node->big ? node->big
				  : (uint64_t)(node->value.data - c->pages->base) / c->pages->size;
	uint64_t i, nr, before = UINT64_MAX, txn = fdry_get64(node->key.data);
	uint64_t n = node->value.len >= 8 ? fdry_get64(node->value.data) : UINT64_MAX;
	int err = 0;

	if (node->value.len % 8 || n > node->value.len / 8 - 1)
		return note(c, "a list of free pages is longer than its space", page);
	if (!txn || txn > mdb_txn_id(c->t->txn))
		return note(c, "a list of free pages is from a later transaction", page);
	for (i = 1; i <= n && !err; i++) {
		nr = fdry_get64(node->value.data + i * 8);
		if (nr < 2 || nr > c->t->view.last)
			return note(c, "a list of free pages names one that is not there", page);
		if (nr >= before)
			return note(c, "a list of free pages is out of order", page);
		before = nr;
		err = claim(c, nr, 1);
	}
	return err;
}

static int on_entry(void *arg, const struct fdry_page_node *node)
{
	struct check *c = arg;
	int err = node->big ? value_claim(c, node) : 0;

	c->entries++;
	return err || !c->tree->numbers ? err : list_claim(c, node);
}

static int tree_check(struct check *c, const struct fdry_tree *tree)
{
	struct fdry_tree_fns fns = { .page = on_page, .entry = on_entry, .arg = c };
	struct fdry_damage d;
	int err;

	c->tree = tree;
	c->branches = c->leaves = c->overflow = c->entries = 0;
	d = fdry_tree_each(c->pages, tree, (struct fdry_span){ 0 }, &fns, &err);
	if (d.what)
		return note(c, d.what, d.page);
	if (err)
		return err;
	if (c->branches != tree->branches || c->leaves != tree->leaves ||
	    c->entries != tree->entries)
		return note(c, "its tree counts other pages or entries than it has", tree->root);
	return 0;
}

/* Unless c->heads is set, each value counts the pages that it needs; its first page may state more.
 * If the sum is not the tree's, *again asks for a check that reads the first pages. */
static int table_check(struct check *c, const struct fdry_tree *tree, bool *again)
{
	int err = tree_check(c, tree);

	if (err || c->overflow == tree->overflow)
		return err;
	*again = !c->heads;
	return c->heads ? note(c, "its tree counts other pages of values than it has", tree->root)
			: STOP;
}

static int all_check(struct check *c, bool *again)
{
	const struct fdry_view *v = &c->t->view;
	int i, err;

	c->damage = (struct fdry_damage){ NULL, 0 };
	memset(c->used, 0, v->last / 8 + 1);
	c->used[0] = 3; /* the meta pages */
	err = table_check(c, &v->roots, again);
	for (i = 0; i < FDRY_TABLE_COUNT && !err; i++)
		err = table_check(c, &v->tables[i], again);
	return err ? err : table_check(c, &v->free, again);
}

int fdry_txn_check(const struct fdry_txn *t, bool values, const char *doing)
{
	struct check c = { .t = t, .pages = &t->view.pages, .heads = values };
	bool again = false;

	c.used = malloc(t->view.last / 8 + 1);
	if (!c.used)
		return fdry_nomem();
	(void)all_check(&c, &again);
	if (again) {
		c.heads = true;
		(void)all_check(&c, &again);
	}
	free(c.used);
	if (c.damage.what)
		return fdry_damage_fail(t->db, c.damage, doing);
	if (c.heads && t->writes)
		t->db->heads = t->before;
	return 0;
}

int fdry_view_check_value(const struct fdry_txn *t, enum fdry_table table, struct fdry_span key)
{
	struct fdry_page_node node;
	struct fdry_damage d;
	uint64_t run = 0;
	bool found;

	d = fdry_tree_find(&t->view.pages, &t->view.tables[table], key, true, &node, &found);
	if (!d.what && found && node.big)
		d = (struct fdry_damage){ fdry_run_check(&t->view.pages, &node, &run), node.big };
	if (d.what)
		return fdry_damage_fail(t->db, d, "write");
	if (!found || !node.big || run == fdry_run_of(&t->view.pages, node.value.len))
		return 0;
	/* The run is longer than needed: check that no other value has pages of it. */
	if (fdry_db_state_eq(&t->db->heads, &t->before))
		return 0;
	return fdry_txn_check(t, true, "write");
}
