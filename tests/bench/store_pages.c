// SPDX-License-Identifier: Apache-2.0
/*
 * store_pages.c - the cost of checking LMDB's pages.
 *
 * store_pages [COUNT [LEN [DIR]]]: a store of COUNT objects (100,000) of LEN bytes (1,000). Beside
 * LMDB alone: a view, a look for an object in it, a list of all objects; and the check of all pages
 * that a process makes before its first write, the file read before (warm) or not (cold).
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/db.h"
#include "store/internal.h"
#include "store/view.h"
#include "tests/lib/need.h"

#define IMAGE 1000
#define VIEWS 10000
#define ROUNDS 5

static char dir[200], path[256];
static struct fdry_oid *ids;
static size_t count = 100000, len = 1000;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void seal_image(struct fdry_store *s, size_t first, uint8_t *bytes)
{
	size_t i, n = count - first < IMAGE ? count - first : IMAGE;
	struct fdry_writer *w;
	struct fdry_oid oid;
	char name[32];

	need(fdry_writer_begin(s, &w), "seal");
	for (i = first; i < first + n; i++) {
		memcpy(bytes, &i, sizeof(i));
		need(fdry_writer_add_object(w, FDRY_OBJECT_CHUNK, bytes, len, NULL, 0, &ids[i]),
		     "put");
	}
	snprintf(name, sizeof(name), "i/%zu", first / IMAGE);
	need(fdry_writer_commit(w, name, strlen(name), ids + first, n, name, &oid, NULL), "commit");
}

static void make(void)
{
	uint8_t *bytes = malloc(len);
	struct fdry_store *s;
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * i * 31 >> 3);
	ids = calloc(count, sizeof(*ids));
	need(fdry_store_open(path, FDRY_STORE_CREATE, &s), "make");
	for (i = 0; i < count; i += IMAGE)
		seal_image(s, i, bytes);
	fdry_store_close(s);
	free(bytes);
}

/* Remove the file from the page cache. */
static void forget(void)
{
	char file[300];
	int fd;

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	fd = open(file, O_RDONLY);
	need(fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "forget");
	close(fd);
}

static void views(struct fdry_db *db)
{
	struct fdry_txn t;
	double at = now();
	MDB_txn *txn;
	int i;

	for (i = 0; i < VIEWS; i++) {
		need(fdry_txn_read(db, &t), "view");
		fdry_txn_abort(&t);
	}
	printf("%-34s %10.2f us", "a view", (now() - at) / VIEWS * 1e6);
	at = now();
	for (i = 0; i < VIEWS; i++) {
		need(mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn), "begin");
		mdb_txn_abort(txn);
	}
	printf("   LMDB alone %10.2f us\n", (now() - at) / VIEWS * 1e6);
}

static void gets(struct fdry_db *db)
{
	struct fdry_span value;
	struct fdry_txn t;
	MDB_val k, v;
	double at;
	size_t i;

	need(fdry_txn_read(db, &t), "view");
	at = now();
	for (i = 0; i < count; i++)
		need(fdry_txn_get(&t, FDRY_TABLE_DATA, fdry_oid_span(&ids[i]), &value) ||
			     !value.data, "get");
	printf("%-34s %10.2f us", "a get", (now() - at) / (double)count * 1e6);
	at = now();
	for (i = 0; i < count; i++) {
		k = val_of(fdry_oid_span(&ids[i]));
		need(mdb_get(t.txn, db->tables[FDRY_TABLE_DATA], &k, &v), "get");
	}
	printf("   LMDB alone %10.2f us\n", (now() - at) / (double)count * 1e6);
	fdry_txn_abort(&t);
}

static int one_more(void *arg, struct fdry_span key, struct fdry_span value)
{
	(void)key, (void)value;
	++*(size_t *)arg;
	return 0;
}

static void list(struct fdry_db *db)
{
	struct fdry_txn t;
	MDB_cursor *cursor;
	MDB_val k, v;
	size_t n = 0;
	double at;

	need(fdry_txn_read(db, &t), "view");
	at = now();
	need(fdry_txn_each(&t, FDRY_TABLE_OBJECTS, (struct fdry_span){ 0 }, one_more, &n), "list");
	printf("%-34s %10.2f ms", "a list of all objects", (now() - at) * 1e3);
	at = now();
	need(mdb_cursor_open(t.txn, db->tables[FDRY_TABLE_OBJECTS], &cursor), "cursor");
	while (!mdb_cursor_get(cursor, &k, &v, MDB_NEXT))
		n--;
	mdb_cursor_close(cursor);
	printf("   LMDB alone %10.2f ms\n", (now() - at) * 1e3);
	need(n != 0, "list");
	fdry_txn_abort(&t);
}

static void whole(struct fdry_db *db, const char *what)
{
	double at, least = 1e9;
	struct fdry_txn t;
	int i;

	for (i = 0; i < (*what == 'c' ? 1 : ROUNDS); i++) {
		need(fdry_txn_read(db, &t), "view");
		at = now();
		need(fdry_txn_check(&t, false, "write"), "check");
		if (now() - at < least)
			least = now() - at;
		fdry_txn_abort(&t);
	}
	printf("the check before a write, %-8s %10.2f ms\n", what, least * 1e3);
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

int main(int argc, char **argv)
{
	struct fdry_store *s;

	count = argc > 1 ? strtoull(argv[1], NULL, 0) : count;
	len = argc > 2 ? strtoull(argv[2], NULL, 0) : len;
	snprintf(dir, sizeof(dir), "%s/foundry-bench-XXXXXX", argc > 3 ? argv[3] : "/tmp");
	if (!count || len < 8 || !mkdtemp(dir))
		return 2;
	snprintf(path, sizeof(path), "%s/store", dir);
	make();
	printf("%zu objects of %zu bytes\n", count, len);
	forget();
	need(fdry_store_open(path, 0, &s), "open");
	whole(s->env->db, "cold");
	whole(s->env->db, "warm");
	views(s->env->db);
	gets(s->env->db);
	list(s->env->db);
	fdry_store_close(s);
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	free(ids);
	return 0;
}
