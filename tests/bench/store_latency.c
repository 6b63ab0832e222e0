// SPDX-License-Identifier: Apache-2.0
/*
 * store_latency.c - the time in which a load reads the store, and the time of a small write: alone,
 * while another process seals, while one collects, and while both do.
 *
 * store_latency [DIR [GIB]]; GIB (default 1) is what each seal writes. A load resolves a name, and
 * copies out and verifies a manifest and 64 kernels. A write sets a ref. Each runs in a process of
 * its own, and so do the seal and the collection. The conditions take turns, so that their rows can
 * be compared.
 */
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/err.h"
#include "store/store.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define ROUNDS 3
#define KERNELS 64
#define KERNEL_BYTES 20000
#define CHUNK (2u << 20)
#define GARBAGE 60000 /* small objects for a collection, beside a seal's worth of chunks */
#define SAMPLES_MAX (1u << 20)
#define IDLE_SECONDS 4

enum company { IDLE, SEAL, COLLECT, BOTH, COMPANIES };

struct samples {
	uint32_t count;
	float us[SAMPLES_MAX];
};

/* Between the processes. */
struct shared {
	_Atomic int company;  /* of enum company; -1: no measurement; -2: the end */
	_Atomic int busy;     /* bit 0: a seal is running; bit 1: a collection is running */
	_Atomic int wanted;   /* the same bits: to begin */
	_Atomic uint64_t collected, sealed_bytes;
	struct samples loads[COMPANIES], writes[COMPANIES];
};

static struct shared *sh;
static char path[300];
static size_t seal_chunks = 512;

static void nap_us(long us)
{
	struct timespec ts = { 0, us * 1000 };

	nanosleep(&ts, NULL);
}

/* Noise, and every third byte alike, as code is: zstd gains something. */
static void fill(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		p[i] = i % 3 ? (uint8_t)(x >> 32) : 0x40;
	}
}

static struct fdry_store *open_store(void)
{
	struct fdry_store *s = NULL;

	need(fdry_store_open(path, FDRY_STORE_CREATE, &s), "open");
	return s;
}

static void sample(struct samples *s, double us)
{
	if (s->count < SAMPLES_MAX)
		s->us[s->count++] = (float)us;
}

/* --- measured processes --- */

/* Seal the image that all loads read. */
static void seal_image(struct fdry_store *s, struct fdry_oid *ids)
{
	static uint8_t kernel[KERNEL_BYTES];
	struct fdry_oid image;
	struct fdry_writer *p;
	int i;

	need(fdry_writer_begin(s, &p), "begin");
	for (i = 0; i < KERNELS; i++) {
		fill(kernel, sizeof(kernel), (uint64_t)i + 1);
		need(fdry_writer_add_object(p, FDRY_OBJECT_KERNEL, kernel, sizeof(kernel), NULL, 0,
					    &ids[i]),
		     "put");
	}
	need(fdry_writer_commit(p, ids, KERNELS * sizeof(*ids), ids, KERNELS, "image", &image,
				NULL),
	     "commit");
}

static void load(struct fdry_store *s, const struct fdry_oid *ids, struct fdry_buf *b)
{
	struct fdry_oid image;
	struct fdry_reader *g;
	int i;

	b->len = 0;
	need(fdry_reader_begin(s, &g), "begin");
	need(fdry_reader_resolve(g, "image", &image), "resolve");
	need(fdry_reader_copy(g, &image, b), "get");
	for (i = 0; i < KERNELS; i++)
		need(fdry_reader_copy(g, &ids[i], b), "get");
	fdry_reader_end(g);
}

static void reader(const struct fdry_oid *ids)
{
	struct fdry_store *s = open_store();
	struct fdry_buf b = { 0 };
	double begin;
	int company;

	while ((company = sh->company) != -2) {
		begin = now_us();
		load(s, ids, &b);
		if (company >= 0 && sh->company == company)
			sample(&sh->loads[company], now_us() - begin);
		nap_us(500);
	}
	fdry_buf_release(&b);
	fdry_store_close(s);
}

static void writer(const struct fdry_oid *ids)
{
	struct fdry_store *s = open_store();
	struct fdry_oid image;
	double begin;
	int company;

	(void)ids;
	need(fdry_ref_get(s, "image", &image), "get");
	while ((company = sh->company) != -2) {
		begin = now_us();
		need(fdry_ref_set(s, "written", &image, NULL), "set");
		if (company >= 0 && sh->company == company)
			sample(&sh->writes[company], now_us() - begin);
		nap_us(5000);
	}
	fdry_store_close(s);
}

/* --- the company --- */

static void seal_chunks_of(struct fdry_store *s, uint64_t seed, const char *ref, size_t small)
{
	struct fdry_oid *ids = calloc(seal_chunks + small, sizeof(*ids)), image;
	uint8_t *chunk = malloc(CHUNK);
	struct fdry_writer *p;
	size_t i;

	need(fdry_writer_begin(s, &p), "begin");
	fill(chunk, CHUNK, seed);
	for (i = 0; i < seal_chunks + small; i++) {
		memcpy(chunk, &seed, sizeof(seed));
		memcpy(chunk + 8, &i, sizeof(i));
		need(fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, chunk,
					    i < seal_chunks ? CHUNK : 200, NULL, 0, &ids[i]),
		     "put");
	}
	need(fdry_writer_commit(p, ids, (seal_chunks + small) * sizeof(*ids), ids,
				seal_chunks + small, ref, &image, NULL),
	     "commit");
	free(ids);
	free(chunk);
}

static void sealer(const struct fdry_oid *ids)
{
	struct fdry_store *s = open_store();
	uint64_t seed = 1;

	(void)ids;
	while (sh->company != -2) {
		if (!(sh->wanted & 1)) {
			nap_us(1000);
			continue;
		}
		seal_chunks_of(s, seed++, "sealed", 0);
		sh->sealed_bytes += seal_chunks * CHUNK;
		sh->wanted &= ~1;
		sh->busy &= ~1;
	}
	fdry_store_close(s);
}

static void collector(const struct fdry_oid *ids)
{
	struct fdry_store *s = open_store();
	struct fdry_gc_report r = { .sz = sizeof(r) };
	uint64_t seed = 1ull << 32;

	(void)ids;
	while (sh->company != -2) {
		if (!(sh->wanted & 2)) {
			nap_us(1000);
			continue;
		}
		if (sh->company == -1) { /* first write the garbage, without measuring */
			seal_chunks_of(s, seed++, NULL, GARBAGE);
		} else {
			need(fdry_store_gc(s, NULL, &r), "collect");
			sh->collected += r.dead;
		}
		sh->wanted &= ~2;
		sh->busy &= ~2;
	}
	fdry_store_close(s);
}

static void wait_until_done(void)
{
	while (sh->busy) {
		nap_us(1000);
		if (waitpid(-1, NULL, WNOHANG)) /* a child has failed and printed the reason */
			exit(1);
	}
}

static void ask(int bits)
{
	sh->busy = bits;
	sh->wanted = bits;
}

static void measure(enum company company)
{
	int bits = company == SEAL ? 1 : company == COLLECT ? 2 : company == BOTH ? 3 : 0;

	if (bits & 2) {
		ask(2);
		wait_until_done();
	}
	sh->company = (int)company;
	ask(bits);
	if (!bits)
		sleep(IDLE_SECONDS);
	wait_until_done();
	sh->company = -1;
}

/* --- the table --- */

static int float_cmp(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static double quantile(const struct samples *s, double q)
{
	return s->count ? (double)s->us[(uint32_t)((double)(s->count - 1) * q)] : 0;
}

static void table(const char *what, struct samples all[COMPANIES])
{
	static const char *const names[] = { "alone", "beside a seal", "beside a collection",
					     "beside both" };
	double idle50, idle999;
	int i;

	for (i = 0; i < COMPANIES; i++)
		qsort(all[i].us, all[i].count, sizeof(float), float_cmp);
	idle50 = quantile(&all[IDLE], 0.5);
	idle999 = quantile(&all[IDLE], 0.999);
	printf("%-22s %8s %10s %10s %10s %10s %8s %8s\n", what, "number", "p50 us", "p99 us",
	       "p99.9 us", "most us", "p50", "p99.9");
	for (i = 0; i < COMPANIES; i++)
		printf("%-22s %8u %10.0f %10.0f %10.0f %10.0f %7.2fx %7.2fx\n", names[i],
		       all[i].count, quantile(&all[i], 0.5), quantile(&all[i], 0.99),
		       quantile(&all[i], 0.999), quantile(&all[i], 1),
		       quantile(&all[i], 0.5) / idle50, quantile(&all[i], 0.999) / idle999);
	printf("\n");
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static pid_t start(void (*fn)(const struct fdry_oid *ids), const struct fdry_oid *ids)
{
	pid_t pid = fork();

	if (!pid) {
		fn(ids);
		_exit(0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	static void (*const roles[])(const struct fdry_oid *) = { reader, writer, sealer,
								  collector };
	const char *base = argc > 1 ? argv[1] : getenv("TMPDIR");
	static struct fdry_oid ids[KERNELS];
	struct fdry_store *s;
	int i, status, bad = 0;
	pid_t pids[4];
	char dir[250];

	if (argc > 2)
		seal_chunks = (size_t)(atof(argv[2]) * 512);
	snprintf(dir, sizeof(dir), "%s/foundry-bench-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(dir) || !seal_chunks)
		return 1;
	snprintf(path, sizeof(path), "%s/store", dir);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 1;
	sh->company = -1;
	s = open_store();
	seal_image(s, ids);
	fdry_store_close(s);
	for (i = 0; i < 4; i++)
		pids[i] = start(roles[i], ids);
	for (i = 0; i < ROUNDS * COMPANIES; i++)
		measure((enum company)(i % COMPANIES));
	sh->company = -2;
	for (i = 0; i < 4; i++)
		bad |= waitpid(pids[i], &status, 0) != pids[i] || status;
	printf("reading and writing a store beside others; %.1f GB sealed, %llu objects "
	       "collected\n\n",
	       (double)sh->sealed_bytes * 1e-9, (unsigned long long)sh->collected);
	table("a load, 64 kernels", sh->loads);
	table("setting a ref", sh->writes);
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	return bad;
}
