// SPDX-License-Identifier: Apache-2.0
/*
 * view.c - the meta pages of data.mdb, and the roots of its tables; see view.h.
 *
 * LMDB keeps the address of its map to itself: it is computed from the address of a key whose page
 * is known.
 */
#include "store/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/db.h"
#include "store/internal.h"

#define META_TRIES 64
#define META_NAP_NS 1000000
#define PAGES_MAX(size) ((1ull << 46) / (size))
#define ROOTS_DBI 1 /* LMDB's */

int fdry_damage_fail(const struct fdry_db *db, struct fdry_damage d, const char *doing)
{
	if (db->home)
		fdry_verified_forget(db->home);
	return fdry_fail(FDRY_E_CORRUPT,
			 "store %s: cannot %s: page %llu of data.mdb is damaged (%s); "
			 FDRY_DAMAGE_ADVICE,
			 db->dir, doing, (unsigned long long)d.page, d.what);
}

static int meta_fail(const struct fdry_db *db, const char *what, uint64_t page)
{
	return fdry_damage_fail(db, (struct fdry_damage){ what, page }, "open it");
}

/* --- before LMDB opens the file --- */

static bool meta_read(int fd, uint64_t at, uint8_t ret[FDRY_META_END])
{
	return pread(fd, ret, FDRY_META_END, (off_t)at) == FDRY_META_END;
}

static bool meta_is(const uint8_t meta[FDRY_META_END])
{
	return fdry_get32(meta + FDRY_META_AT_MAGIC) == FDRY_META_MAGIC &&
	       fdry_get16(meta + FDRY_PAGE_AT_FLAGS) & FDRY_PAGE_META;
}

static uint32_t meta_page_size(const uint8_t meta[FDRY_META_END])
{
	return fdry_get32(meta + FDRY_META_AT_FREE);
}

/* Transactions write the two pages in turn; a new file has 0 in both. */
static bool metas_alternate(const uint8_t even[FDRY_META_END], const uint8_t odd[FDRY_META_END])
{
	uint64_t a = fdry_get64(even + FDRY_META_AT_TXN), b = fdry_get64(odd + FDRY_META_AT_TXN);

	return (!a && !b) || (!(a & 1) && (a + 1 == b || b + 1 == a));
}

static bool page_count_is_possible(const uint8_t meta[FDRY_META_END])
{
	uint64_t last = fdry_get64(meta + FDRY_META_AT_LAST);

	return last && last < PAGES_MAX(meta_page_size(meta));
}

static int metas_check(const struct fdry_db *db, int fd)
{
	struct timespec nap = { 0, META_NAP_NS };
	uint8_t even[FDRY_META_END], odd[FDRY_META_END];
	uint32_t size;
	int i;

	for (i = 0; i < META_TRIES; i++) { /* repeats only if others commit at this moment */
		if (!meta_read(fd, 0, even) || !meta_is(even))
			return 0;
		size = meta_page_size(even);
		if (size < FDRY_PAGE_SIZE_MIN || size > FDRY_PAGE_SIZE_MAX || size & (size - 1))
			return meta_fail(db, "it states an impossible size of pages", 0);
		if (!page_count_is_possible(even))
			return meta_fail(db, "it counts an impossible number of pages", 0);
		if (!meta_read(fd, size, odd) || !meta_is(odd))
			return 0;
		if (meta_page_size(odd) != size)
			return meta_fail(db, "it states another size of pages than page 0", 1);
		if (!page_count_is_possible(odd))
			return meta_fail(db, "it counts an impossible number of pages", 1);
		if (metas_alternate(even, odd))
			return 0;
		nanosleep(&nap, NULL);
	}
	return meta_fail(db, "the transactions of pages 0 and 1 are not consecutive", 0);
}

int fdry_metas_check(const struct fdry_db *db)
{
	char file[4096 + 16];
	int fd, err;

	snprintf(file, sizeof(file), "%s/data.mdb", db->dir);
	fd = fdry_file_get(AT_FDCWD, file, O_RDONLY);
	if (fd < 0)
		return 0; /* LMDB will report the error */
	err = metas_check(db, fd);
	close(fd);
	return err;
}

/* --- the address of the map --- */

/* In its own frame, so that the jump of an assertion spoils no variables. */
static __attribute__((noinline)) int first_key(struct fdry_txn *t, MDB_val *key)
{
	MDB_cursor *cursor = NULL;
	MDB_val value;
	int rc = guarded(mdb_cursor_open(t->txn, ROOTS_DBI, &cursor));

	if (rc)
		return rc;
	rc = guarded(mdb_cursor_get(cursor, key, &value, MDB_FIRST));
	mdb_cursor_close(cursor);
	return rc;
}

/* Read the first leaf of the roots, and check what LMDB meets on the way to it. @rc: 0, or errno
 * of a read that failed. */
static struct fdry_damage first_leaf(int fd, const struct fdry_view *v, uint8_t *bytes,
				     struct fdry_page_node *ret, uint64_t *number, int *rc)
{
	struct fdry_bounds none = { { NULL, 0 }, { NULL, 0 } };
	const char *what = NULL;
	struct fdry_page p;
	unsigned int level;

	*number = v->roots.root;
	errno = 0;
	for (level = v->roots.depth; level > 0 && !what; level--) {
		if (*number < 2 || *number >= v->pages.count ||
		    pread(fd, bytes, v->pages.size, (off_t)(*number * v->pages.size)) !=
			    (ssize_t)v->pages.size)
			what = "a tree leads to it, and the file has no such page";
		if (!what)
			what = fdry_page_open_at(&v->pages, &v->roots, bytes, &p);
		if (!what && (p.number != *number || p.leaf != (level == 1)))
			what = "it is another page of a tree";
		if (!what)
			what = fdry_page_check(&p, &none);
		if (!what)
			what = fdry_page_node(&p, 0, ret);
		if (!what && !p.leaf)
			*number = ret->child;
	}
	*rc = what ? errno : 0;
	return (struct fdry_damage){ what, *number };
}

static int base_find(struct fdry_txn *t, int fd, const uint8_t **ret)
{
	struct fdry_view *v = &t->view;
	uint8_t *bytes = malloc(v->pages.size);
	struct fdry_damage d;
	struct fdry_page_node node;
	uint64_t number;
	MDB_val key;
	int rc, err = 0;

	if (!bytes)
		return fdry_nomem();
	d = first_leaf(fd, v, bytes, &node, &number, &rc);
	if (rc)
		err = fdry_db_fail(t->db, rc, "open it");
	else if (d.what)
		err = fdry_damage_fail(t->db, d, "open it");
	if (err)
		goto out_free;
	rc = first_key(t, &key);
	if (rc)
		err = fdry_db_fail(t->db, rc, "open it");
	else
		*ret = (const uint8_t *)key.mv_data - (node.key.data - bytes) -
		       number * v->pages.size;
out_free:
	free(bytes);
	return err;
}

/* The map moves only while no transaction is open: see fdry_db_map_fit(). */
static int base_get(struct fdry_txn *t, int fd)
{
	const uint8_t *base = atomic_load(&t->db->base);
	int err = 0;

	if (!base && t->view.roots.depth)
		err = base_find(t, fd, &base);
	if (err)
		return err;
	atomic_store(&t->db->base, base);
	t->view.pages.base = base;
	return 0;
}

/* --- a view --- */

static const char *const table_names[] = {
#define X(NAME, name) [FDRY_TABLE_##NAME] = name,
	FDRY_TABLES(X)
#undef X
};

/* LMDB itself opens a table only if its record is one of a tree. */
static int table_find(struct fdry_txn *t, enum fdry_table table)
{
	const char *name = table_names[table], *what;
	struct fdry_span key = { (const uint8_t *)name, strlen(name) };
	struct fdry_tree *tree = &t->view.tables[table];
	struct fdry_damage d;
	struct fdry_page_node node;
	bool found;

	*tree = (struct fdry_tree){ .root = FDRY_TREE_NONE };
	d = fdry_tree_find(&t->view.pages, &t->view.roots, key, false, &node, &found);
	if (d.what)
		return fdry_damage_fail(t->db, d, "open its tables");
	if (!found || node.value.len != FDRY_TREE_SIZE || node.big)
		return found ? fdry_db_fail(t->db, MDB_INCOMPATIBLE, "open its tables") : 0;
	what = fdry_tree_parse(&t->view.pages, node.value.data, tree);
	d = (struct fdry_damage){ what, (uint64_t)(node.value.data - t->view.pages.base) /
					 t->view.pages.size };
	return what ? fdry_damage_fail(t->db, d, "open its tables") : 0;
}

static int trees_find(struct fdry_txn *t, const uint8_t meta[FDRY_META_END], uint64_t slot, int fd)
{
	struct fdry_view *v = &t->view;
	const char *what;
	int i, err;

	v->free = (struct fdry_tree){ .numbers = true };
	v->roots = (struct fdry_tree){ .roots = true };
	what = fdry_tree_parse(&v->pages, meta + FDRY_META_AT_FREE, &v->free);
	if (!what)
		what = fdry_tree_parse(&v->pages, meta + FDRY_META_AT_ROOTS, &v->roots);
	if (!what && v->free.depth && !v->roots.depth)
		what = "it has lost its tables";
	if (what)
		return meta_fail(t->db, what, slot);
	err = base_get(t, fd);
	for (i = 0; i < FDRY_TABLE_COUNT && !err; i++)
		err = table_find(t, (enum fdry_table)i);
	return err;
}

int fdry_view_begin(struct fdry_txn *t)
{
	uint64_t id = mdb_txn_id(t->txn) - t->exclusive, slot = id & 1, last;
	uint8_t meta[FDRY_META_END], again[FDRY_META_END];
	uint32_t size = (uint32_t)t->db->page_size;
	struct stat st;
	bool there;
	int fd, err, rc = mdb_env_get_fd(t->db->env, &fd);

	if (!rc && fstat(fd, &st))
		rc = errno;
	if (rc)
		return fdry_db_fail(t->db, rc, "begin to read");
	errno = 0;
	there = meta_read(fd, slot * size, meta);
	if (!there && errno)
		return fdry_db_fail(t->db, errno, "begin to read");
	if (!there || !meta_is(meta))
		return meta_fail(t->db, "it is no meta page", slot);
	if (meta_page_size(meta) != size)
		return meta_fail(t->db, "it states another size of pages than before", slot);
	if (fdry_get64(meta + FDRY_META_AT_TXN) != id)
		return FDRY_VIEW_AGAIN;
	if (!page_count_is_possible(meta))
		return meta_fail(t->db, "it counts an impossible number of pages", slot);
	last = fdry_get64(meta + FDRY_META_AT_LAST);
	t->view.pages.size = size;
	t->view.pages.count = (uint64_t)st.st_size / size;
	t->view.last = last;
	if (last < t->view.pages.count)
		t->view.pages.count = last + 1;
	err = trees_find(t, meta, slot, fd);
	/* A commit that overwrites the meta page may have been under way: then @meta can be a mix
	 * of two states, even one that looks sound. */
	if (meta_read(fd, slot * size, again) && memcmp(meta, again, sizeof(meta)))
		return FDRY_VIEW_AGAIN;
	return err;
}
