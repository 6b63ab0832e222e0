// SPDX-License-Identifier: Apache-2.0
/* page.c - one page of LMDB, checked; see pages.h. */
#include "store/pages.h"

#include <string.h>

/* --- heads --- */

const char *fdry_page_open_at(const struct fdry_pages *all, const struct fdry_tree *tree,
			      const uint8_t *bytes, struct fdry_page *ret)
{
	uint16_t flags = fdry_get16(bytes + FDRY_PAGE_AT_FLAGS);
	uint32_t lower = fdry_get16(bytes + FDRY_PAGE_AT_LOWER);
	uint32_t upper = fdry_get16(bytes + FDRY_PAGE_AT_UPPER), least;
	struct fdry_page p = { .all = all, .tree = tree, .bytes = bytes,
			       .number = fdry_get64(bytes), .upper = upper,
			       .leaf = flags == FDRY_PAGE_LEAF };

	if (!p.leaf && flags != FDRY_PAGE_BRANCH)
		return "it is no page of a tree";
	p.count = (lower - FDRY_PAGE_HEAD) / 2;
	/* LMDB can leave a branch with one child in the tree of free pages. */
	least = p.leaf || tree->numbers ? 1 : 2;
	if (lower < FDRY_PAGE_HEAD + 2 * least || lower & 1 || lower > upper || upper & 1 ||
	    upper >= all->size)
		return "its head is wrong";
	*ret = p;
	return NULL;
}

const char *fdry_page_open(const struct fdry_pages *all, const struct fdry_tree *tree,
			   uint64_t number, bool leaf, struct fdry_page *ret)
{
	const char *what;

	if (number < 2 || number >= all->count)
		return "a tree leads to it, and the file has no such page";
	what = fdry_page_open_at(all, tree, all->base + number * all->size, ret);
	if (what)
		return what;
	if (ret->number != number)
		return "it has the number of another page";
	return ret->leaf == leaf ? NULL : "its tree has another depth";
}

/* --- nodes --- */

uint64_t fdry_run_of(const struct fdry_pages *all, uint64_t len)
{
	return (FDRY_PAGE_HEAD - 1 + len) / all->size + 1;
}

/* The value of the node at @off, whose key ends at @end; adds to @end what lies in the page. */
static const char *value_read(const struct fdry_page *p, uint32_t off, uint32_t *end,
			      struct fdry_page_node *ret)
{
	uint16_t flags = fdry_get16(p->bytes + off + 4);
	uint32_t len = fdry_get32(p->bytes + off), left = p->all->size - *end;

	if (flags & ~FDRY_NODE_BIG && (!p->tree->roots || flags != FDRY_NODE_TREE))
		return "an entry is of an unknown kind";
	ret->value = (struct fdry_span){ p->bytes + *end, len };
	ret->big = 0;
	if (!(flags & FDRY_NODE_BIG)) {
		*end += len;
		return len > left ? "an entry is longer than the page" : NULL;
	}
	if (left < 8)
		return "an entry is longer than the page";
	ret->big = fdry_get64(p->bytes + *end);
	*end += 8;
	if (ret->big < 2 || ret->big >= p->all->count ||
	    fdry_run_of(p->all, len) > p->all->count - ret->big)
		return "the value of an entry reaches beyond the file";
	ret->value.data = p->all->base + ret->big * p->all->size + FDRY_PAGE_HEAD;
	return NULL;
}

/* The key of node @i, which begins at @at of the page. */
static const char *key_read(const struct fdry_page *p, uint32_t i, uint32_t *at,
			    struct fdry_span *ret)
{
	uint32_t off = fdry_get16(p->bytes + FDRY_PAGE_AT_SLOTS + 2 * i);
	uint16_t len;

	if (off < p->upper || off & 1 || off > p->all->size - FDRY_NODE_HEAD)
		return "an entry lies outside of the page";
	len = fdry_get16(p->bytes + off + 6);
	if (len > FDRY_KEY_MAX || off + FDRY_NODE_HEAD + len > p->all->size)
		return "a key is longer than the page";
	/* The first key of a branch means nothing. */
	if ((p->leaf || i) && (p->tree->numbers ? len != 8 : !len))
		return "a key has a wrong length";
	*at = off;
	*ret = (struct fdry_span){ p->bytes + off + FDRY_NODE_HEAD, len };
	return NULL;
}

const char *fdry_page_node(const struct fdry_page *p, uint32_t i, struct fdry_page_node *ret)
{
	uint32_t off, end;
	const char *what = key_read(p, i, &off, &ret->key);

	if (what)
		return what;
	end = off + FDRY_NODE_HEAD + (uint32_t)ret->key.len;
	ret->child = fdry_get32(p->bytes + off) | (uint64_t)fdry_get16(p->bytes + off + 4) << 32;
	if (p->leaf)
		what = value_read(p, off, &end, ret);
	ret->size = (end - off + 1) & ~1u;
	return what;
}

const char *fdry_run_check(const struct fdry_pages *all, const struct fdry_page_node *node,
			   uint64_t *run)
{
	const uint8_t *bytes = all->base + node->big * all->size;

	*run = fdry_get32(bytes + FDRY_PAGE_AT_RUN);
	if (fdry_get64(bytes) != node->big ||
	    fdry_get16(bytes + FDRY_PAGE_AT_FLAGS) != FDRY_PAGE_OVERFLOW ||
	    *run < fdry_run_of(all, node->value.len) || *run > all->count - node->big)
		return "its head is wrong";
	return NULL;
}

/* --- keys --- */

/* Order of two keys, as memcmp() gives it. */
static int key_cmp(const struct fdry_tree *tree, struct fdry_span a, struct fdry_span b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int order;

	if (tree->numbers)
		return (fdry_get64(a.data) > fdry_get64(b.data)) -
		       (fdry_get64(a.data) < fdry_get64(b.data));
	order = memcmp(a.data, b.data, n);
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* Only keys are read: a damaged value hides no other one. */
const char *fdry_page_search(const struct fdry_page *p, struct fdry_span key, uint32_t *ret,
			     bool *equal)
{
	uint32_t low = p->leaf ? 0 : 1, high = p->count, mid;
	struct fdry_span other;
	const char *what;
	uint32_t at;
	int order;

	*equal = false;
	while (low < high) {
		mid = (low + high) / 2;
		what = key_read(p, mid, &at, &other);
		if (what)
			return what;
		order = key_cmp(p->tree, key, other);
		if (!order) {
			*equal = true;
			*ret = mid;
			return NULL;
		}
		if (order > 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret = p->leaf ? low : low - 1;
	return NULL;
}

/* --- the whole page --- */

/* A bit for each even offset in a page. */
struct offsets {
	uint64_t bits[FDRY_PAGE_SIZE_MAX / 128 + 1];
};

/* False if it is noted already. */
static bool offset_note(struct offsets *o, uint32_t off)
{
	uint64_t bit = 1ull << (off / 2 % 64), was = o->bits[off / 128];

	o->bits[off / 128] |= bit;
	return !(was & bit);
}

/* Does the key of node @i lie between the one before it and the upper bound? */
static bool ascends(const struct fdry_page *p, uint32_t i, struct fdry_span before,
		    struct fdry_span key, const struct fdry_bounds *bounds)
{
	int order;

	if (!p->leaf && !i)
		return true;
	if (bounds->high.data && key_cmp(p->tree, key, bounds->high) >= 0)
		return false;
	order = before.data ? key_cmp(p->tree, key, before) : 1;
	return order > 0 || (!order && p->leaf && !i);
}

/* If each node begins where another one ends, they fill the page and none overlaps another. */
const char *fdry_page_check(const struct fdry_page *p, const struct fdry_bounds *bounds)
{
	uint32_t i, off, words = p->all->size / 128 + 1;
	struct fdry_span before = bounds->low;
	struct offsets begins, ends;
	struct fdry_page_node node;
	const char *what;

	memset(begins.bits, 0, words * sizeof(begins.bits[0]));
	memset(ends.bits, 0, words * sizeof(ends.bits[0]));
	(void)offset_note(&ends, p->upper);
	(void)offset_note(&begins, p->all->size);
	for (i = 0; i < p->count; i++) {
		what = fdry_page_node(p, i, &node);
		if (what)
			return what;
		if (!ascends(p, i, before, node.key, bounds))
			return "its keys are out of order";
		if (p->leaf || i)
			before = node.key;
		off = fdry_get16(p->bytes + FDRY_PAGE_AT_SLOTS + 2 * i);
		if (!offset_note(&begins, off) || !offset_note(&ends, off + node.size))
			return "its entries overlap";
	}
	return memcmp(begins.bits, ends.bits, words * sizeof(begins.bits[0]))
		       ? "its entries overlap" : NULL;
}
