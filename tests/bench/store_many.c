// SPDX-License-Identifier: Apache-2.0
/*
 * store_many.c - the cost of a store of many small objects beside the parts that it cannot avoid.
 *
 * store_many [COUNT [DIR]]: by default 10,000 objects of 200 to 2,000 bytes, in images of 1,000.
 * Beside each row, measured in the same run: the same bytes hashed, put into and copied out of LMDB
 * alone, deleted from it, or the file copied as cat does. The last column is the time over that of
 * the parts it needs.
 */
#include <fcntl.h>
#include <ftw.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/pack.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define IMAGE 1000 /* objects of each */
#define LEN_MIN 200
#define LEN_SPAN 1801
#define OPENS 50

static char dir[200], path[256], pack[256];
static uint8_t *noise; /* every object is a piece of it, with its number in front */
static size_t count;
static struct fdry_oid *ids;
static uint64_t total;

/* Object number @i: 8 bytes of number, then noise. */
static size_t object(size_t i, uint8_t to[LEN_MIN + LEN_SPAN])
{
	size_t len = LEN_MIN + (i * 2654435761u >> 7) % LEN_SPAN;

	memcpy(to, noise + (i * 40503u) % 65536, len);
	memcpy(to, &i, sizeof(i));
	return len;
}

static void noise_make(void)
{
	uint64_t x = 88172645463325252u;
	size_t i;

	noise = malloc(65536 + LEN_MIN + LEN_SPAN);
	for (i = 0; i < 65536 + LEN_MIN + LEN_SPAN; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		noise[i] = (uint8_t)(x >> 32);
	}
}

/* --- the least work for comparison --- */

static void hash_all(void)
{
	uint8_t b[LEN_MIN + LEN_SPAN];
	size_t i, len;

	for (i = 0, total = 0; i < count; i++, total += len) {
		len = object(i, b);
		need(fdry_oid_of(b, len, &ids[i]), "hash");
	}
}

struct raw {
	MDB_env *env;
	MDB_dbi dbi;
};

static void raw_open(struct raw *r)
{
	MDB_txn *txn;

	need(mdb_env_create(&r->env), "create");
	need(mdb_env_set_mapsize(r->env, 1ul << 40), "mapsize");
	need(mdb_env_open(r->env, path, MDB_NOTLS, 0600), "open");
	need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
	need(mdb_dbi_open(txn, NULL, 0, &r->dbi), "dbi");
	need(mdb_txn_commit(txn), "commit");
}

/* Put every object, or delete those of odd images, with one transaction an image, as the store
 * does. */
static void raw_write(struct raw *r, int (*one)(struct raw *r, MDB_txn *txn, size_t i))
{
	MDB_txn *txn = NULL;
	size_t i;

	for (i = 0; i < count; i++) {
		if (!txn)
			need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
		need(one(r, txn, i), "write");
		if ((i + 1) % IMAGE && i + 1 < count)
			continue;
		need(mdb_txn_commit(txn), "commit");
		txn = NULL;
	}
}

static int raw_put(struct raw *r, MDB_txn *txn, size_t i)
{
	uint8_t b[LEN_MIN + LEN_SPAN];
	MDB_val k = { FDRY_OID_SIZE, ids[i].b }, v = { object(i, b), b };

	return mdb_put(txn, r->dbi, &k, &v, 0);
}

static int raw_delete(struct raw *r, MDB_txn *txn, size_t i)
{
	MDB_val k = { FDRY_OID_SIZE, ids[i].b };

	return i / IMAGE & 1 ? mdb_del(txn, r->dbi, &k, NULL) : 0;
}

static void raw_get(struct raw *r)
{
	uint8_t b[LEN_MIN + LEN_SPAN];
	MDB_txn *txn;
	size_t i;

	need(mdb_txn_begin(r->env, NULL, MDB_RDONLY, &txn), "begin");
	for (i = 0; i < count; i++) {
		MDB_val k = { FDRY_OID_SIZE, ids[i].b }, v;

		need(mdb_get(txn, r->dbi, &k, &v), "get");
		memcpy(b, v.mv_data, v.mv_size);
	}
	mdb_txn_abort(txn);
}

static void raw_opens(void)
{
	struct raw r;
	int i;

	for (i = 0; i < OPENS; i++) {
		need(mdb_env_create(&r.env), "create");
		need(mdb_env_set_mapsize(r.env, 1ul << 40), "mapsize");
		need(mdb_env_open(r.env, path, MDB_NOTLS, 0600), "open");
		mdb_env_close(r.env);
	}
}

/* A file through memory into another, synced. */
static void cat(const char *from, const char *to)
{
	static uint8_t b[1 << 20];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t n;

	need(in < 0 || out < 0, "open");
	while ((n = read(in, b, sizeof(b))) > 0)
		need(write(out, b, (size_t)n) != n, "write");
	need(fsync(out), "fsync");
	close(in);
	close(out);
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

/* --- the store --- */

static void seal_image(struct fdry_store *s, size_t first)
{
	size_t i, n = count - first < IMAGE ? count - first : IMAGE, len;
	uint8_t b[LEN_MIN + LEN_SPAN];
	struct fdry_oid oid;
	struct fdry_writer *p;
	char name[32];

	need(fdry_writer_begin(s, &p), "put");
	for (i = 0; i < n; i++) {
		len = object(first + i, b);
		need(fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, b, len, NULL, 0, &oid), "put");
	}
	snprintf(name, sizeof(name), "i/%zu", first / IMAGE);
	need(fdry_writer_commit(p, name, strlen(name), ids + first, n, name, &oid, NULL), "commit");
}

static void seal_all(struct fdry_store *s)
{
	size_t i;

	for (i = 0; i < count; i += IMAGE)
		seal_image(s, i);
}

static void get_all(struct fdry_store *s)
{
	struct fdry_buf b = { 0 };
	struct fdry_reader *g;
	size_t i;

	need(fdry_reader_begin(s, &g), "get");
	for (i = 0; i < count; i++) {
		b.len = 0;
		need(fdry_reader_copy(g, &ids[i], &b), "get");
	}
	fdry_reader_end(g);
	fdry_buf_release(&b);
}

static void opens(void)
{
	struct fdry_store *s;
	int i;

	for (i = 0; i < OPENS; i++) {
		need(fdry_store_open(path, 0, &s), "open");
		fdry_store_close(s);
	}
}

static void fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	(void)arg, (void)kind, (void)id, (void)other;
	fprintf(stderr, "%s\n", text);
}

static void verify(struct fdry_store *s)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .fault = fault };
	struct fdry_verify_report r = { .sz = sizeof(r) };

	need(fdry_store_verify(fdry_store_path(s), &opts, &r), "verify");
	need(r.faults != 0, "verify");
}

static void export_all(struct fdry_store *s)
{
	struct fdry_export_opts opts = { .sz = sizeof(opts),
					 .flags = FDRY_EXPORT_PLAIN | FDRY_EXPORT_ALL };
	int fd = open(pack, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	need(fd < 0, "open");
	need(fdry_store_export(s, NULL, 0, fd, &opts, NULL), "export");
	need(fsync(fd), "fsync");
	close(fd);
}

static void import_all(struct fdry_store *s)
{
	int fd = open(pack, O_RDONLY);

	need(fd < 0, "open");
	need(fdry_store_import(s, fd, NULL, NULL), "import");
	close(fd);
}

static int count_object(void *arg, const struct fdry_object_info *info)
{
	*(uint64_t *)arg += info->stored;
	return 0;
}

static void usage(struct fdry_store *s)
{
	struct fdry_usage u;

	need(fdry_store_usage(s, NULL, NULL, &u), "usage");
	fdry_usage_release(&u);
}

/* Every other image loses its name. */
static void remove_half(struct fdry_store *s)
{
	char name[32];
	size_t i;

	for (i = 1; i * IMAGE < count; i += 2) {
		snprintf(name, sizeof(name), "i/%zu", i);
		need(fdry_store_remove(s, name), "remove");
	}
}

/* --- */

#define timed(body) ({ \
	double start_ = now_s(); \
	body; \
	now_s() - start_; })

/* @n: the number of items; @parts: the seconds of its parts, or 0 for a row that is a part
 * itself. */
static void row(const char *what, double t, double n, double parts)
{
	printf("%-34s %9.2f s %10.2f us each", what, t, t / n * 1e6);
	if (parts > 0)
		printf("   %6.2f", t / parts);
	printf("\n");
	fflush(stdout);
}

struct plain {
	double sha, put, get, remove, open, cat_file, cat_pack;
};

static void plain_run(struct plain *p)
{
	double n = (double)count;
	struct raw r;

	p->sha = timed(hash_all());
	row("SHA-256 alone", p->sha, n, 0);
	need(mkdir(path, 0700), "mkdir");
	raw_open(&r);
	p->put = timed(raw_write(&r, raw_put));
	row("LMDB put alone", p->put, n, 0);
	p->get = timed(raw_get(&r));
	row("LMDB get alone, and copy", p->get, n, 0);
	mdb_env_close(r.env);
	p->open = timed(raw_opens());
	row("LMDB open and close alone", p->open, OPENS, 0);
	raw_open(&r);
	p->remove = timed(raw_write(&r, raw_delete));
	row("LMDB delete of half alone", p->remove, n / 2, 0);
	mdb_env_close(r.env);
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void pack_rows(struct fdry_store *s, struct plain *p)
{
	double n = (double)count, t;
	struct fdry_store *other;
	char copy[300], second[300];

	snprintf(copy, sizeof(copy), "%s/copy", dir);
	snprintf(second, sizeof(second), "%s/second", dir);
	t = timed(export_all(s));
	p->cat_pack = timed(cat(pack, copy));
	row("cat of the pack alone, synced", p->cat_pack, n, 0);
	row("export, not compressed, synced", t, n, p->get + p->sha + p->cat_pack);
	unlink(copy);
	need(fdry_store_open(second, FDRY_STORE_CREATE, &other), "open");
	row("import", timed(import_all(other)), n, p->sha + p->put);
	row("import of what is there", timed(import_all(other)), n, p->get);
	fdry_store_close(other);
	nftw(second, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	unlink(pack);
}

static void store_run(struct plain *p)
{
	double n = (double)count;
	struct fdry_gc_report gr = { .sz = sizeof(gr) };
	struct fdry_store *s;
	uint64_t stored = 0;

	need(fdry_store_open(path, FDRY_STORE_CREATE, &s), "open");
	row("put, in images of 1,000", timed(seal_all(s)), n, p->sha + p->put);
	row("put of what is known", timed(seal_all(s)), n, p->sha + p->get);
	row("get: copied and verified", timed(get_all(s)), n, p->sha + p->get);
	row("verify", timed(verify(s)), n, p->sha + p->get);
	row("list of all (ls --objects)",
	    timed(need(fdry_store_each(s, count_object, &stored), "list")), n, p->get);
	row("what images take (du)", timed(usage(s)), n, p->get);
	pack_rows(s, p);
	row("gc --dry-run, nothing dead",
	    timed(need(fdry_store_gc(s,
				     &(struct fdry_gc_opts){ .sz = sizeof(struct fdry_gc_opts),
							     .flags = FDRY_GC_DRY_RUN },
				     &gr),
		       "gc")),
	    n, p->get);
	remove_half(s);
	row("gc of half", timed(need(fdry_store_gc(s, NULL, &gr), "gc")), n / 2,
	    p->get + p->remove);
	fdry_store_close(s);
	row("open and close", timed(opens()), OPENS, p->open);
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	struct plain p = { 0 };

	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
	snprintf(dir, sizeof(dir), "%s/foundry-bench-XXXXXX",
		 argc > 2 ? argv[2]
		 : tmp ? tmp
			  : "/tmp");
	ids = calloc(count, sizeof(*ids));
	if (!count || !ids || !mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/store", dir);
	snprintf(pack, sizeof(pack), "%s/pack", dir);
	noise_make();
	hash_all();
	printf("\n%zu objects of %d to %d bytes, %.1f MB; the last column is the time over that of "
	       "the parts it needs\n",
	       count, LEN_MIN, LEN_MIN + LEN_SPAN - 1, (double)total / 1e6);
	plain_run(&p);
	store_run(&p);
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	free(ids);
	free(noise);
	return 0;
}
