// SPDX-License-Identifier: Apache-2.0
/*
 * store.c - the cost of the store beside the parts that it cannot avoid, and the best chunk size
 * for LMDB.
 *
 * store [DIR]; the directory decides which disk is measured. Each figure is the median of ROUNDS,
 * and the rows of a table take turns within each round, so that ratios hold also on a busy machine.
 */
#include <fcntl.h>
#include <ftw.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "store/store.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define ROUNDS 5
#define BATCH (32u << 20)
#define TOTAL (192u << 20) /* bytes a round */

static char dir[200], path[256];
static uint8_t *bytes; /* TOTAL, different in each round */

static uint64_t rnd(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	return x;
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static void clear(void)
{
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int double_cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), double_cmp);
	return v[ROUNDS / 2];
}

/* Noise, and every eighth byte alike, as code is: zstd gains something. */
static void fill(bool packs)
{
	uint64_t *p = (uint64_t *)bytes;
	size_t i;

	for (i = 0; i < TOTAL / 8; i++)
		p[i] = packs && i % 3 ? i / 64 : rnd();
}

/* --- raw LMDB --- */

struct raw {
	MDB_env *env;
	MDB_dbi dbi;
};

static void raw_open(struct raw *r)
{
	MDB_txn *txn;

	need(mkdir(path, 0700), "mkdir");
	need(mdb_env_create(&r->env), "create");
	need(mdb_env_set_mapsize(r->env, 1ul << 40), "mapsize");
	need(mdb_env_open(r->env, path, MDB_NOTLS, 0600), "open");
	need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
	need(mdb_dbi_open(txn, NULL, 0, &r->dbi), "dbi");
	need(mdb_txn_commit(txn), "commit");
}

static void raw_close(struct raw *r)
{
	mdb_env_close(r->env);
	clear();
}

static void raw_put(struct raw *r, size_t len, const struct fdry_oid *ids, size_t n)
{
	MDB_txn *txn = NULL;
	size_t i, batch = 0;

	for (i = 0; i < n; i++) {
		MDB_val k = { FDRY_OID_SIZE, (void *)(uintptr_t)ids[i].b },
			v = { len, bytes + i * len };

		if (!txn)
			need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
		need(mdb_put(txn, r->dbi, &k, &v, 0), "put");
		batch += len;
		if (batch < BATCH && i + 1 < n)
			continue;
		need(mdb_txn_commit(txn), "commit");
		txn = NULL;
		batch = 0;
	}
}

static void raw_copy_out(struct raw *r, const struct fdry_oid *ids, size_t n, uint8_t *to)
{
	MDB_txn *txn;
	size_t i;

	need(mdb_txn_begin(r->env, NULL, MDB_RDONLY, &txn), "begin");
	for (i = 0; i < n; i++) {
		MDB_val k = { FDRY_OID_SIZE, (void *)(uintptr_t)ids[i].b }, v;

		need(mdb_get(txn, r->dbi, &k, &v), "get");
		memcpy(to, v.mv_data, v.mv_size);
	}
	mdb_txn_abort(txn);
}

/* --- the store beside it --- */

enum row { ZSTD, UNZSTD, SHA, RAW_PUT, PUT, PUT_KNOWN, RAW_GET, GET, MAP, VERIFY, SEEN, ROWS };

static const char *const row_names[ROWS] = {
	[ZSTD] = "zstd alone",
	[UNZSTD] = "unpacking alone",
	[SHA] = "SHA-256 alone",
	[RAW_PUT] = "LMDB put alone",
	[PUT] = "put",
	[PUT_KNOWN] = "put of what is known",
	[RAW_GET] = "LMDB get alone, and copy",
	[GET] = "get: copied and verified",
	[MAP] = "map",
	[VERIFY] = "map and verify",
	[SEEN] = "map, verification remembered",
};

struct work {
	enum fdry_object_kind kind;
	size_t len, n;
	struct fdry_oid *ids;
	double t[ROWS][ROUNDS];
};

#define timed(w, row, round, body) do { \
	double start_ = now_s(); \
	body; \
	(w)->t[row][round] = now_s() - start_; \
} while (0)

static void hash_all(struct work *w)
{
	size_t i;

	for (i = 0; i < w->n; i++)
		need(fdry_oid_of(bytes + i * w->len, w->len, &w->ids[i]), "hash");
}

static void pack_all(struct work *w, void *to, size_t capacity)
{
	size_t i;

	for (i = 0; i < w->n; i++)
		if (ZSTD_isError(ZSTD_compress(to, capacity, bytes + i * w->len, w->len, 9)))
			exit(1);
}

/* The last one packed, as often. */
static void unpack_all(struct work *w, const void *packed, size_t capacity)
{
	size_t i, len = ZSTD_findFrameCompressedSize(packed, capacity);
	void *to = malloc(w->len);

	for (i = 0; i < w->n; i++)
		if (ZSTD_isError(ZSTD_decompress(to, w->len, packed, len)))
			exit(1);
	free(to);
}

static void seal_all(struct work *w, struct fdry_store *s)
{
	struct fdry_writer *p;
	struct fdry_oid oid;
	size_t i;

	need(fdry_writer_begin(s, &p), "put");
	for (i = 0; i < w->n; i++)
		need(fdry_writer_add_object(p, w->kind, bytes + i * w->len, w->len, NULL, 0, &oid),
		     "put");
	need(fdry_writer_commit(p, "m", 1, w->ids, w->n, "r", &oid, NULL), "commit");
}

static void get_all(struct work *w, struct fdry_store *s)
{
	struct fdry_buf b = { 0 };
	struct fdry_reader *g;
	size_t i;

	need(fdry_reader_begin(s, &g), "get");
	for (i = 0; i < w->n; i++) {
		b.len = 0;
		need(fdry_reader_copy(g, &w->ids[i], &b), "get");
	}
	fdry_reader_end(g);
	fdry_buf_release(&b);
}

/* @verify: 0 not at all, 1 if not remembered, 2 always */
static void map_all(struct work *w, struct fdry_store *s, int verify)
{
	struct fdry_span span;
	struct fdry_reader *g;
	size_t i;

	need(fdry_reader_begin(s, &g), "get");
	for (i = 0; i < w->n; i++) {
		need(fdry_reader_map(g, &w->ids[i], &span), "map");
		if (verify)
			need(fdry_reader_verify(g, &w->ids[i], span, verify == 2, NULL), "verify");
	}
	fdry_reader_end(g);
}

static void store_round(struct work *w, int round)
{
	struct fdry_store *s;

	need(fdry_store_open(path, FDRY_STORE_CREATE, &s), "open");
	timed(w, PUT, round, seal_all(w, s));
	timed(w, PUT_KNOWN, round, seal_all(w, s));
	timed(w, GET, round, get_all(w, s));
	if (w->kind == FDRY_OBJECT_CHUNK) {
		timed(w, MAP, round, map_all(w, s, 0));
		timed(w, VERIFY, round, map_all(w, s, 2));
		timed(w, SEEN, round, map_all(w, s, 1));
	}
	fdry_store_close(s);
	clear();
}

static void row_print(struct work *w, enum row row, double base)
{
	double m = median(w->t[row]);

	if (m == 0)
		return;
	printf("%-30s %9.2f us %8.0f MB/s", row_names[row], m / (double)w->n * 1e6,
	       (double)w->n * (double)w->len / m / 1e6);
	if (base > 0)
		printf("   %.2f", m / base);
	printf("\n");
}

static void beside(const char *what, enum fdry_object_kind kind, size_t len, size_t n)
{
	struct work w = { .kind = kind, .len = len, .n = n, .ids = calloc(n, sizeof(*w.ids)) };
	size_t capacity = ZSTD_compressBound(len);
	uint8_t *to = malloc(capacity);
	double base = 0;
	struct raw r;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		fill(kind == FDRY_OBJECT_KERNEL);
		timed(&w, SHA, round, hash_all(&w));
		if (kind == FDRY_OBJECT_KERNEL) {
			timed(&w, ZSTD, round, pack_all(&w, to, capacity));
			timed(&w, UNZSTD, round, unpack_all(&w, to, capacity));
		}
		raw_open(&r);
		timed(&w, RAW_PUT, round, raw_put(&r, len, w.ids, n));
		timed(&w, RAW_GET, round, raw_copy_out(&r, w.ids, n, to));
		raw_close(&r);
		store_round(&w, round);
	}
	printf("\n%s, %zu of them; the last column is the time over that of the parts it needs\n",
	       what, n);
	row_print(&w, ZSTD, 0);
	row_print(&w, UNZSTD, 0);
	row_print(&w, SHA, 0);
	row_print(&w, RAW_PUT, 0);
	base = median(w.t[SHA]) + median(w.t[RAW_PUT]) + median(w.t[ZSTD]);
	row_print(&w, PUT, base);
	row_print(&w, PUT_KNOWN, median(w.t[SHA]) + median(w.t[UNZSTD]));
	row_print(&w, RAW_GET, 0);
	row_print(&w, GET, median(w.t[SHA]) + median(w.t[RAW_GET]) + median(w.t[UNZSTD]));
	row_print(&w, MAP, 0);
	row_print(&w, VERIFY, median(w.t[SHA]));
	row_print(&w, SEEN, 0);
	free(to);
	free(w.ids);
}

/* --- value sizes --- */

static double file_mb(void)
{
	char file[300];
	struct stat st = { 0 };

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	need(stat(file, &st), "stat");
	return (double)st.st_size / 1e6;
}

static void random_ids(struct fdry_oid *ids, size_t n)
{
	size_t i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < FDRY_OID_SIZE; k += 8)
			fdry_set64(ids[i].b + k, rnd());
}

/* Values of @len and, one in four, of any smaller size: the ends of segments. */
static double put_sizes(struct raw *r, size_t len, const struct fdry_oid *ids, size_t n)
{
	double start = now_s();
	MDB_txn *txn = NULL;
	size_t i, batch = 0, all = 0;

	for (i = 0; i < n; i++) {
		MDB_val k = { FDRY_OID_SIZE, (void *)(uintptr_t)ids[i].b },
			v = { i & 3 ? len : 1 + rnd() % len, bytes };

		if (!txn)
			need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
		need(mdb_put(txn, r->dbi, &k, &v, 0), "put");
		batch += v.mv_size;
		all += v.mv_size;
		if (batch < BATCH && i + 1 < n)
			continue;
		need(mdb_txn_commit(txn), "commit");
		txn = NULL;
		batch = 0;
	}
	return (double)all / 1e6 / (now_s() - start);
}

/* Delete about half of the values, and move the ids of the others to the front. Returns their
 * number. */
static size_t delete_half(struct raw *r, struct fdry_oid *ids, size_t n)
{
	MDB_txn *txn = NULL;
	size_t i, kept = 0, deleted = 0;

	need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
	for (i = 0; i < n; i++) {
		MDB_val k = { FDRY_OID_SIZE, ids[i].b };

		if (rnd() >> 40 & 1) {
			ids[kept++] = ids[i];
			continue;
		}
		need(mdb_del(txn, r->dbi, &k, NULL), "delete");
		if (++deleted % 32)
			continue;
		need(mdb_txn_commit(txn), "commit");
		need(mdb_txn_begin(r->env, NULL, 0, &txn), "begin");
	}
	need(mdb_txn_commit(txn), "commit");
	return kept;
}

/* Fill, delete a random half and fill the holes, repeatedly, as collections do to a store. */
static void value_size(size_t len)
{
	size_t n = TOTAL / len, i, kept;
	struct fdry_oid *ids = calloc(n, sizeof(*ids));
	double fresh, worn[ROUNDS], filled;
	struct raw r;

	raw_open(&r);
	random_ids(ids, n);
	fresh = put_sizes(&r, len, ids, n);
	filled = file_mb();
	for (i = 0; i < ROUNDS; i++) {
		kept = delete_half(&r, ids, n);
		random_ids(ids + kept, n - kept);
		worn[i] = put_sizes(&r, len, ids + kept, n - kept);
	}
	printf("%6zu KiB %10.0f %10.0f %12.2f %16.2f %10zu\n", len >> 10, fresh, median(worn),
	       median(worn) / fresh, file_mb() / filled, ((size_t)8 << 30) / len);
	raw_close(&r);
	free(ids);
}

int main(int argc, char **argv)
{
	size_t len;

	snprintf(dir, sizeof(dir), "%s/foundry-bench-XXXXXX",
		 argc > 1 ? argv[1]
		 : getenv("TMPDIR") ? getenv("TMPDIR")
				    : "/tmp");
	bytes = malloc(TOTAL);
	if (!bytes || !mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/store", dir);
	beside("chunks of 2 MiB", FDRY_OBJECT_CHUNK, 2 << 20, TOTAL >> 21);
	beside("kernels of 20 KB", FDRY_OBJECT_KERNEL, 20000, 2000);
	printf("\nLMDB by size of value: MB/s into a new file and into one where half was deleted "
	       "at random\n"
	       "     value        new       worn   worn / new   file worn / new  per 8 GiB\n");
	fill(false);
	for (len = 256 << 10; len <= 8 << 20; len *= 2)
		value_size(len);
	rmdir(dir);
	free(bytes);
	return 0;
}
