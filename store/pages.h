/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - LMDB's pages, read without LMDB: every number in them is checked before it is used.
 *
 * LMDB trusts its pages, so that a damaged one can end the process or make a writer overwrite live
 * pages. Views read through these functions instead of LMDB. A writer needs LMDB; before its first
 * change, every page that LMDB may use is checked (fdry_txn_check()).
 *
 * A damaged page never causes an access outside of the map. A view that still changes (another
 * program writes into data.mdb, or cuts it) can cause one.
 */
#ifndef FDRY_STORE_PAGES_H
#define FDRY_STORE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

/* The page format of LMDB 0.9, on hosts with 64 bits. */
#define FDRY_PAGE_AT_NUMBER 0  /* u64: its own */
#define FDRY_PAGE_AT_FLAGS 10  /* u16 */
#define FDRY_PAGE_AT_LOWER 12  /* u16: end of the slots */
#define FDRY_PAGE_AT_UPPER 14  /* u16: begin of the nodes */
#define FDRY_PAGE_AT_RUN 12    /* u32, of an overflow page: pages in its run */
#define FDRY_PAGE_AT_SLOTS 16  /* u16 each: where in the page a node lies */
#define FDRY_PAGE_HEAD 16
enum { FDRY_PAGE_BRANCH = 1, FDRY_PAGE_LEAF = 2, FDRY_PAGE_OVERFLOW = 4, FDRY_PAGE_META = 8 };
/* A node: u32 size of its value (or of the child's number, its low half), u16 flags (or the high
 * part of that number), u16 size of its key, key, value. */
#define FDRY_NODE_HEAD 8
enum { FDRY_NODE_BIG = 1, FDRY_NODE_TREE = 2 };
/* The record of a tree. */
#define FDRY_TREE_AT_FLAGS 4    /* u16 */
#define FDRY_TREE_AT_DEPTH 6    /* u16 */
#define FDRY_TREE_AT_BRANCHES 8 /* u64: pages, as the next two */
#define FDRY_TREE_AT_LEAVES 16
#define FDRY_TREE_AT_OVERFLOW 24
#define FDRY_TREE_AT_ENTRIES 32
#define FDRY_TREE_AT_ROOT 40
#define FDRY_TREE_SIZE 48
#define FDRY_TREE_NONE UINT64_MAX /* the root of an empty tree */
#define FDRY_TREE_NUMBERS 8       /* flag: keys are numbers */
/* A meta page, pages 0 and 1. */
#define FDRY_META_AT_MAGIC 16
#define FDRY_META_AT_FREE 40 /* the tree of free pages; its first u32 is the size of pages */
#define FDRY_META_AT_ROOTS 88
#define FDRY_META_AT_LAST 136 /* u64: number of the last page */
#define FDRY_META_AT_TXN 144
#define FDRY_META_END 152
#define FDRY_META_MAGIC 0xBEEFC0DEu

#define FDRY_PAGE_SIZE_MIN 256
#define FDRY_PAGE_SIZE_MAX 32768
#define FDRY_DEPTH_MAX 32 /* of a tree: LMDB's */
#define FDRY_KEY_MAX 511  /* LMDB's */

struct fdry_tree {
	uint64_t root; /* or FDRY_TREE_NONE */
	uint64_t branches, leaves, overflow, entries;
	uint16_t depth;
	bool numbers;  /* keys are numbers: the tree of free pages */
	bool roots;    /* values are records of trees */
};

/* The pages that a view may see. */
struct fdry_pages {
	const uint8_t *base; /* of the map */
	uint64_t count;
	uint32_t size;
};

/* Why a page is damaged; @what is NULL if none is. */
struct fdry_damage {
	const char *what;
	uint64_t page;
};

/* --- page.c: one page --- */

/* A page whose head is sound. */
struct fdry_page {
	const struct fdry_pages *all;
	const struct fdry_tree *tree;
	const uint8_t *bytes;
	uint64_t number;
	uint32_t upper;
	uint32_t count; /* nodes */
	bool leaf;
};

struct fdry_page_node {
	struct fdry_span key;
	uint64_t child; /* in a branch */
	struct fdry_span value; /* in a leaf; its pages lie in the file */
	uint64_t big;   /* the first page of a value that has its own; 0: it lies in the leaf */
	uint32_t size;  /* in the page */
};

/* The keys of a page lie between these; no data: no bound. */
struct fdry_bounds {
	struct fdry_span low, high;
};

/* Each returns NULL, or what is damaged. */
const char *fdry_page_open(const struct fdry_pages *all, const struct fdry_tree *tree,
			   uint64_t number, bool leaf, struct fdry_page *ret) __must_check;
/* The same, of a page that lies at @bytes. */
const char *fdry_page_open_at(const struct fdry_pages *all, const struct fdry_tree *tree,
			      const uint8_t *bytes, struct fdry_page *ret) __must_check;
const char *fdry_page_node(const struct fdry_page *p, uint32_t i,
			   struct fdry_page_node *ret) __must_check;
/* Every node, that they ascend between the bounds, and that they fill the page. */
const char *fdry_page_check(const struct fdry_page *p,
			    const struct fdry_bounds *bounds) __must_check;
/* The child of a branch that @key belongs to, or the first node of a leaf that is not less. */
const char *fdry_page_search(const struct fdry_page *p, struct fdry_span key, uint32_t *ret,
			     bool *equal) __must_check;
/* Pages that a value of @len bytes takes for itself. */
uint64_t fdry_run_of(const struct fdry_pages *all, uint64_t len);
/* Check the first page of a value with its own pages. @run: the number of pages that it states. */
const char *fdry_run_check(const struct fdry_pages *all, const struct fdry_page_node *node,
			   uint64_t *run) __must_check;

/* --- tree.c: whole trees --- */

/* Read a tree's record of FDRY_TREE_SIZE bytes; @kind: numbers and roots are set. */
const char *fdry_tree_parse(const struct fdry_pages *all, const uint8_t *record,
			    struct fdry_tree *kind) __must_check;
/*
 * Find @key, and check that its value lies in the file. A key that is not found does not exist:
 * then the function has checked each page on the way as a whole. With @sound they count as checked.
 */
struct fdry_damage fdry_tree_find(const struct fdry_pages *all, const struct fdry_tree *tree,
				  struct fdry_span key, bool sound, struct fdry_page_node *ret,
				  bool *found) __must_check;

/* Called for each page before those behind it, and for each entry in key order. An error ends the
 * walk, as FDRY_EACH_STOP does. Either may be NULL. */
struct fdry_tree_fns {
	int (*page)(void *arg, uint64_t number, bool leaf);
	int (*entry)(void *arg, const struct fdry_page_node *node);
	void *arg;
};
/* Every entry whose key is not less than @from; pages are checked as a whole. @err: of a
 * function. */
struct fdry_damage fdry_tree_each(const struct fdry_pages *all, const struct fdry_tree *tree,
				  struct fdry_span from, const struct fdry_tree_fns *fns,
				  int *err) __must_check;

#endif
