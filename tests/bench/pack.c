// SPDX-License-Identifier: Apache-2.0
/*
 * pack.c - the cost of exporting, importing and verifying beside the parts that they cannot avoid.
 *
 * pack [OBJECTS [BYTES [DIR]]]; without arguments chunks of 2 MiB and kernels of 4 KB. Each figure
 * is the median of ROUNDS, and the rows take turns within each round, so that ratios hold also on a
 * busy machine. Parts are done by one thread: SHA-256 of every object, zstd as the format has it,
 * the same bytes put into LMDB alone in the same transactions, the pack read in pieces of 64 KiB.
 * Objects are made from one piece of noise, so that memory does not limit their number.
 */
#include <fcntl.h>
#include <ftw.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "store/pack.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define ROUNDS 3
#define BATCH (32u << 20)
#define POOL (64u << 20)

/* In the order of the table; those that are parts first. */
#define ROWS(X) \
	X(SHA, "SHA-256") \
	X(ZSTD, "zstd") X(UNZSTD, "zstd, back") X(RAW, "LMDB put, alone") X(CAT, "pack read") \
		X(PUT, "put") X(VERIFY1, "verify, one thread") X(VERIFY, "verify") \
			X(EXPORT1, "export, one thread") X(EXPORT, "export") \
				X(PLAIN, "export, plain") X(IMPORT1, "import, one thread") \
					X(IMPORT, "import") X(KNOWN, "import of what is there")
enum row {
#define X(NAME, what) ROW_##NAME,
	ROWS(X)
#undef X
	ROW_COUNT
};
#define BIT(NAME) (1u << ROW_##NAME)
static unsigned int parts[ROW_COUNT] = {
	[ROW_VERIFY1] = BIT(SHA) | BIT(UNZSTD),
	[ROW_VERIFY] = BIT(SHA) | BIT(UNZSTD),
	[ROW_EXPORT1] = BIT(SHA) | BIT(ZSTD),
	[ROW_EXPORT] = BIT(SHA) | BIT(ZSTD),
	[ROW_PLAIN] = BIT(SHA),
	[ROW_IMPORT1] = BIT(SHA) | BIT(UNZSTD) | BIT(RAW) | BIT(CAT),
	[ROW_IMPORT] = BIT(SHA) | BIT(UNZSTD) | BIT(RAW) | BIT(CAT),
	[ROW_KNOWN] = BIT(CAT),
};

static char dir[200];
static uint8_t *pool, *object, *frame;
static size_t count, size;
static enum fdry_object_kind kind;
static double took[ROW_COUNT][ROUNDS];
static size_t packed;

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static const char *place(const char *name)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void clear(const char *name)
{
	nftw(place(name), rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Fill the pool with noise for chunks; for objects that zstd compresses, two words of three are
 * equal. */
static void pool_fill(void)
{
	uint64_t *p = (uint64_t *)pool, x = 88172645463325252u;
	size_t i;

	for (i = 0; i < POOL / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		p[i] = kind != FDRY_OBJECT_CHUNK && i % 3 ? i / 64 : x;
	}
}

static void object_make(size_t i)
{
	memcpy(object, pool + i * 4096 % (POOL - size), size);
	memcpy(object, &i, sizeof(i) < size ? sizeof(i) : size);
}

/* --- parts --- */

static void do_sha(void)
{
	struct fdry_oid oid;
	size_t i;

	for (i = 0; i < count; i++) {
		object_make(i);
		need(fdry_oid_of(object, size, &oid), "hash");
	}
}

static void do_zstd(void)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t i;

	for (i = 0; i < count; i++) {
		object_make(i);
		ZSTD_compressCCtx(c, frame, ZSTD_compressBound(size), object, size,
				  kind == FDRY_OBJECT_CHUNK ? 1 : 9);
	}
	ZSTD_freeCCtx(c);
}

static void do_unzstd(void)
{
	ZSTD_DCtx *c = ZSTD_createDCtx();
	size_t i, n;

	object_make(0);
	n = ZSTD_compress(frame, ZSTD_compressBound(size), object, size,
			  kind == FDRY_OBJECT_CHUNK ? 1 : 9);
	for (i = 0; n < size && i < count; i++)
		ZSTD_decompressDCtx(c, object, size, frame, n);
	ZSTD_freeDCtx(c);
}

/* Write the same data as the store: a record of 32 bytes and the bytes, with kernels at their
 * compressed size. */
static void raw_put_all(MDB_env *env, MDB_dbi dbis[2], size_t len)
{
	MDB_txn *txn = NULL;
	size_t i, batch = 0;
	uint64_t key[4] = { 0 };

	for (i = 0; i < count; i++) {
		MDB_val k = { sizeof(key), key }, v = { len, object }, rec = { 32, frame };

		object_make(i);
		key[0] = (i + 1) * 0x9E3779B97F4A7C15u;
		if (!txn)
			need(mdb_txn_begin(env, NULL, 0, &txn), "begin");
		need(mdb_put(txn, dbis[0], &k, &rec, 0), "put");
		need(mdb_put(txn, dbis[1], &k, &v, 0), "put");
		batch += len;
		if ((batch < BATCH && (i + 1) % 1024) && i + 1 < count)
			continue;
		need(mdb_txn_commit(txn), "commit");
		txn = NULL;
		batch = 0;
	}
}

static void do_raw(void)
{
	size_t len = size;
	MDB_dbi dbis[2];
	MDB_env *env;
	MDB_txn *txn;

	object_make(0);
	if (kind != FDRY_OBJECT_CHUNK)
		len = ZSTD_compress(frame, ZSTD_compressBound(size), object, size, 9);
	need(mkdir(place("raw"), 0700), "mkdir");
	need(mdb_env_create(&env), "create");
	need(mdb_env_set_mapsize(env, 1ul << 40), "mapsize");
	need(mdb_env_set_maxdbs(env, 2), "maxdbs");
	need(mdb_env_open(env, place("raw"), MDB_NOTLS, 0600), "open");
	need(mdb_txn_begin(env, NULL, 0, &txn), "begin");
	need(mdb_dbi_open(txn, "a", MDB_CREATE, &dbis[0]), "dbi");
	need(mdb_dbi_open(txn, "b", MDB_CREATE, &dbis[1]), "dbi");
	need(mdb_txn_commit(txn), "commit");
	raw_put_all(env, dbis, len);
	mdb_env_close(env);
	clear("raw");
}

static void do_cat(void)
{
	int fd = open(place("pack"), O_RDONLY);
	static char piece[65536];
	ssize_t n;

	packed = 0;
	while ((n = read(fd, piece, sizeof(piece))) > 0)
		packed += (size_t)n;
	close(fd);
}

/* --- the store --- */

static struct fdry_store *store_in(const char *name)
{
	struct fdry_store *s = NULL;

	need(fdry_store_open(place(name), FDRY_STORE_CREATE, &s), "store");
	return s;
}

static void do_put(void)
{
	struct fdry_oid *links = calloc(count, sizeof(*links)), oid;
	struct fdry_store *s = store_in("s");
	struct fdry_writer *p;
	size_t i;

	need(fdry_writer_begin(s, &p), "begin");
	for (i = 0; i < count; i++) {
		object_make(i);
		need(fdry_writer_add_object(p, kind, object, size, NULL, 0, &links[i]), "put");
	}
	need(fdry_writer_commit(p, "m", 1, links, count, "bench", &oid, NULL), "commit");
	fdry_store_close(s);
	free(links);
}

static void no_fault(void *arg, int what, const char *id, const char *other, const char *text)
{
	(void)arg, (void)what, (void)id, (void)other;
	need(1, text);
}

static void verify(unsigned int threads)
{
	struct fdry_verify_opts o = { .sz = sizeof(o), .threads = threads, .fault = no_fault };

	need(fdry_store_verify(place("s"), &o, NULL), "verify");
}

static void export_to(const char *file, unsigned int threads, bool plain)
{
	struct fdry_export_opts o = { .sz = sizeof(o), .threads = threads,
				      .flags = plain ? FDRY_EXPORT_PLAIN : 0 };
	struct fdry_store *s = store_in("s");
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	const char *name = "bench";

	need(fdry_store_export(s, &name, 1, fd, &o, NULL), "export");
	close(fd);
	fdry_store_close(s);
}

static void import_into(const char *name, unsigned int threads)
{
	struct fdry_import_opts o = { .sz = sizeof(o), .threads = threads };
	int fd = open(place("pack"), O_RDONLY);
	struct fdry_store *s = store_in(name);

	need(fdry_store_import(s, fd, &o, NULL), "import");
	fdry_store_close(s);
	close(fd);
}

static void do_verify1(void) { verify(1); }
static void do_verify(void) { verify(0); }
static void do_export1(void) { export_to("/dev/null", 1, false); }
static void do_export(void) { export_to("/dev/null", 0, false); }
static void do_plain(void) { export_to("/dev/null", 0, true); }
static void do_import1(void) { import_into("t", 1); }
static void do_import(void) { import_into("t", 0); }
static void do_known(void) { import_into("t", 0); }

/* --- rounds --- */

static void (*const fns[ROW_COUNT])(void) = {
	do_sha, do_zstd, do_unzstd, do_raw, do_cat, do_put, do_verify1,
	do_verify, do_export1, do_export, do_plain, do_import1, do_import, do_known,
};

static void one_round(int n)
{
	char file[300];
	double t;
	int row;

	/* The store and the pack stand before the rows that read them. */
	static const int order[ROW_COUNT] = { ROW_PUT, ROW_SHA, ROW_ZSTD, ROW_UNZSTD,
					      ROW_RAW, ROW_VERIFY1, ROW_VERIFY, ROW_EXPORT1,
					      ROW_EXPORT, ROW_PLAIN, ROW_CAT, ROW_IMPORT1,
					      ROW_IMPORT, ROW_KNOWN };
	for (row = 0; row < ROW_COUNT; row++) {
		snprintf(file, sizeof(file), "%s", place("pack"));
		if (order[row] == ROW_CAT)
			export_to(file, 0, false);
		if (order[row] == ROW_IMPORT)
			clear("t");
		t = now_s();
		fns[order[row]]();
		took[order[row]][n] = now_s() - t;
	}
	clear("s");
	clear("t");
}

static int double_cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(int row)
{
	qsort(took[row], ROUNDS, sizeof(took[row][0]), double_cmp);
	return took[row][ROUNDS / 2];
}

static void table(const char *title)
{
	static const char *const names[] = {
#define X(NAME, what) what,
		ROWS(X)
#undef X
	};
	double mib = (double)count * (double)size / 1048576, sum;
	int row, part;

	printf("\n%s: %zu objects of %zu bytes, %.0f MiB, a pack of %.0f MiB\n%-26s %10s %10s "
	       "%12s\n",
	       title, count, size, mib, (double)packed / 1048576, "", "ms", "MiB/s", "over parts");
	for (row = 0; row < ROW_COUNT; row++) {
		for (sum = 0, part = 0; part < row; part++)
			sum += parts[row] >> part & 1 ? median(part) : 0;
		printf("%-26s %10.1f %10.0f", names[row], median(row) * 1e3, mib / median(row));
		printf(sum > 0 ? " %12.2f\n" : "\n", median(row) / sum);
	}
}

static void measure(const char *title, enum fdry_object_kind k, size_t n, size_t bytes)
{
	int i;

	kind = k;
	count = n;
	size = bytes;
	object = realloc(object, size + 1);
	frame = realloc(frame, ZSTD_compressBound(size) + 64);
	pool_fill();
	parts[ROW_PUT] = BIT(SHA) | BIT(RAW) | (kind == FDRY_OBJECT_CHUNK ? 0 : BIT(ZSTD));
	for (i = 0; i < ROUNDS; i++)
		one_round(i);
	table(title);
}

int main(int argc, char **argv)
{
	size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 0,
	       bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 4000;

	snprintf(dir, sizeof(dir), "%s/foundry-bench-XXXXXX",
		 argc > 3 ? argv[3]
		 : getenv("TMPDIR") ? getenv("TMPDIR")
				    : "/tmp");
	pool = malloc(POOL);
	if (!pool || !mkdtemp(dir) || !bytes || bytes > POOL / 2)
		return 1;
	if (n)
		measure("objects", bytes < 1 << 20 ? FDRY_OBJECT_KERNEL : FDRY_OBJECT_CHUNK, n,
			bytes);
	if (!n)
		measure("chunks", FDRY_OBJECT_CHUNK, 100, 2 << 20);
	if (!n)
		measure("kernels", FDRY_OBJECT_KERNEL, 10000, 4000);
	clear("pack");
	rmdir(dir);
	free(pool);
	free(object);
	free(frame);
	return 0;
}
