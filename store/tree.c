// SPDX-License-Identifier: Apache-2.0
/* tree.c - finding and listing entries in LMDB's trees of pages, checked; see pages.h. */
#include <string.h>

#include "store/lmdb.h"
#include "store/pages.h"

static struct fdry_damage damage(const char *what, uint64_t page)
{
	return (struct fdry_damage){ what, page };
}

/* --- records --- */

const char *fdry_tree_parse(const struct fdry_pages *all, const uint8_t *record,
			    struct fdry_tree *kind)
{
	uint16_t flags = fdry_get16(record + FDRY_TREE_AT_FLAGS);
	struct fdry_tree t = {
		.numbers = kind->numbers, .roots = kind->roots,
		.depth = fdry_get16(record + FDRY_TREE_AT_DEPTH),
		.branches = fdry_get64(record + FDRY_TREE_AT_BRANCHES),
		.leaves = fdry_get64(record + FDRY_TREE_AT_LEAVES),
		.overflow = fdry_get64(record + FDRY_TREE_AT_OVERFLOW),
		.entries = fdry_get64(record + FDRY_TREE_AT_ENTRIES),
		.root = fdry_get64(record + FDRY_TREE_AT_ROOT),
	};

	/* A copy that LMDB's tools made has flags of the environment there, in the high byte. */
	if ((t.numbers ? flags & 0xff : flags) != (t.numbers ? FDRY_TREE_NUMBERS : 0))
		return "a tree has unknown flags";
	if (t.root == FDRY_TREE_NONE ?
		    t.depth || t.entries || t.branches || t.leaves || t.overflow :
	    !t.depth || t.depth > FDRY_DEPTH_MAX || t.root < 2 || t.root >= all->count)
		return "the root of a tree is wrong";
	*kind = t;
	return NULL;
}

/* --- finding --- */

/* The bounds of child @i of @p, within those of the page itself. */
static const char *child_bounds(const struct fdry_page *p, uint32_t i, struct fdry_bounds *b)
{
	struct fdry_page_node node = { 0 };
	const char *what = NULL;

	if (i) {
		what = fdry_page_node(p, i, &node);
		b->low = node.key;
	}
	if (!what && i + 1 < p->count) {
		what = fdry_page_node(p, i + 1, &node);
		b->high = node.key;
	}
	return what;
}

static struct fdry_damage find(const struct fdry_pages *all, const struct fdry_tree *tree,
			       struct fdry_span key, bool check, struct fdry_page_node *ret,
			       bool *found)
{
	struct fdry_bounds bounds = { { NULL, 0 }, { NULL, 0 } };
	struct fdry_page p = { 0 };
	uint64_t number = tree->root;
	const char *what;
	uint32_t i = 0;
	int level;

	*found = false;
	for (level = tree->depth; level > 0; level--) {
		what = fdry_page_open(all, tree, number, level == 1, &p);
		if (!what && check)
			what = fdry_page_check(&p, &bounds);
		if (!what)
			what = fdry_page_search(&p, key, &i, found);
		if (!what && level > 1)
			what = fdry_page_node(&p, i, ret);
		if (!what && level > 1 && check)
			what = child_bounds(&p, i, &bounds);
		if (what)
			return damage(what, number);
		if (level > 1)
			number = ret->child;
	}
	return damage(*found ? fdry_page_node(&p, i, ret) : NULL, number);
}

struct fdry_damage fdry_tree_find(const struct fdry_pages *all, const struct fdry_tree *tree,
				  struct fdry_span key, bool sound, struct fdry_page_node *ret,
				  bool *found)
{
	struct fdry_damage d = find(all, tree, key, false, ret, found);

	if (!d.what && !*found && !sound)
		d = find(all, tree, key, true, ret, found);
	return d;
}

/* --- listing --- */

struct walk {
	const struct fdry_pages *all;
	const struct fdry_tree *tree;
	struct fdry_span from;
	const struct fdry_tree_fns *fns;
	struct fdry_damage damage;
};

static int leaf_each(struct walk *w, const struct fdry_page *p)
{
	struct fdry_page_node node;
	uint32_t i = 0;
	bool equal;
	int err = 0;

	if (w->from.len)
		w->damage = damage(fdry_page_search(p, w->from, &i, &equal), p->number);
	w->from.len = i < p->count ? 0 : w->from.len;
	for (; i < p->count && !err && !w->damage.what; i++) {
		w->damage = damage(fdry_page_node(p, i, &node), p->number);
		if (!w->damage.what)
			err = w->fns->entry(w->fns->arg, &node);
	}
	return err;
}

static int page_each(struct walk *w, uint64_t number, unsigned int level,
		     const struct fdry_bounds *bounds);

static int branch_each(struct walk *w, const struct fdry_page *p, unsigned int level,
		       const struct fdry_bounds *bounds)
{
	struct fdry_bounds inner;
	struct fdry_page_node node;
	uint32_t i = 0;
	bool equal;
	int err = 0;

	if (w->from.len)
		w->damage = damage(fdry_page_search(p, w->from, &i, &equal), p->number);
	for (; i < p->count && !err && !w->damage.what; i++) {
		inner = *bounds;
		w->damage = damage(fdry_page_node(p, i, &node), p->number);
		if (!w->damage.what)
			w->damage = damage(child_bounds(p, i, &inner), p->number);
		if (!w->damage.what)
			err = page_each(w, node.child, level - 1, &inner);
	}
	return err;
}

/* Bounds become narrower with every level, so damaged pages cannot form a circle. */
static int page_each(struct walk *w, uint64_t number, unsigned int level,
		     const struct fdry_bounds *bounds)
{
	const char *what;
	struct fdry_page p;
	int err = 0;

	what = fdry_page_open(w->all, w->tree, number, level == 1, &p);
	if (!what)
		what = fdry_page_check(&p, bounds);
	w->damage = damage(what, number);
	if (what)
		return 0;
	if (w->fns->page)
		err = w->fns->page(w->fns->arg, number, p.leaf);
	if (err || (p.leaf && !w->fns->entry))
		return err;
	return p.leaf ? leaf_each(w, &p) : branch_each(w, &p, level, bounds);
}

struct fdry_damage fdry_tree_each(const struct fdry_pages *all, const struct fdry_tree *tree,
				  struct fdry_span from, const struct fdry_tree_fns *fns, int *err)
{
	struct fdry_bounds bounds = { { NULL, 0 }, { NULL, 0 } };
	struct walk w = { .all = all, .tree = tree, .from = from, .fns = fns };

	*err = tree->depth ? page_each(&w, tree->root, tree->depth, &bounds) : 0;
	return w.damage;
}
