// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - the speed at which content reaches the GPU, beside copies from pinned memory and
 * reads of the disk.
 *
 *   content [-s STORE] [-r REF] [-n ROUNDS] [-p PAIRS] [-w]
 *
 * Prints lines "name value value ...", GB/s, one value a round: a copy out of pinned memory, in
 * pieces of 1 GiB and of 2 MiB; a load whose content was verified before; a load that verifies; a
 * restore of the content, without loading kernels; a load whose store is not in the page cache; a
 * read of the same file by one thread for each processor; and `cat` of it, with and without the
 * page cache. Every load opens the store anew, so that its map has not been touched. GB/s are
 * computed from content_ms, which begins when memory is mapped and kernels are loaded. Names with
 * "_checked" add check_ms. Then the steps of the first two loads follow in milliseconds: memory
 * beside kernels, content, the rest of the check of its fingerprints (with the GB/s of its bytes);
 * the whole; for the first also the whole of another load in the same round, which leaves the check
 * to the first launch (FDRY_LOAD_CHECK_AT_LAUNCH); unload and close.
 *
 * Then loads follow in PAIRS, without a pause: one that compares content, and one that leaves that
 * to the first launch; each of them comes first in turn. The lines "pairs" have medians with their
 * quartiles: the milliseconds of both, then the ratio of the times of a pair. The last part is a
 * table of GB/s, also relative to pinned memory, each as a median with its spread.
 *
 * A line "facts" (facts.h) follows each load outside of pairs, so that a load that is slower than
 * others can be explained.
 *
 * -w adds tables of other ways to copy the store's file to the device (ways.h).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "foundry.h"
#include "arch/driver.h"
#include "tests/bench/gpu/facts.h"
#include "tests/bench/gpu/ways.h"
#include "tests/lib/need.h"

#define PINNED (1ull << 30)
#define SMALL (2u << 20) /* as content is copied */
#define PIECE (8u << 20)
#define THREADS_MAX 64
#define ROUNDS_MAX 16
#define PAIRS_MAX 256

static double copies(const struct fdry_driver *drv, CUdeviceptr dev, const char *host, size_t piece)
{
	double mark = fdry_now_ms();
	uint64_t at;

	for (at = 0; at < 4 * PINNED; at += piece)
		must(fdry_call(drv, cuMemcpyHtoDAsync_v2, dev + at % PINNED, host + at % PINNED,
			       piece, NULL));
	must(fdry_call(drv, cuStreamSynchronize, NULL));
	return 4.0 * PINNED / fdry_elapsed_ms(&mark) / 1e6;
}

static void pinned(const struct fdry_driver *drv, double *whole, double *pieces)
{
	CUdeviceptr dev = 0;
	void *host = NULL;

	must(fdry_call(drv, cuMemAllocHost_v2, &host, PINNED));
	memset(host, 1, PINNED);
	must(fdry_call(drv, cuMemAlloc_v2, &dev, PINNED));
	(void)copies(drv, dev, host, PINNED);
	*whole = copies(drv, dev, host, PINNED);
	*pieces = copies(drv, dev, host, SMALL);
	must(fdry_call(drv, cuMemFree_v2, dev));
	must(fdry_call(drv, cuMemFreeHost, host));
}

/* One load, in milliseconds, with GB/s of its content first. */
enum part {
	SPEED,
	CHECKED,
	MEMORY,
	CONTENT,
	CHECK,
	CHECK_SPEED,
	KERNELS,
	WHOLE,
	UNCHECKED,
	CLOSE,
	PARTS
};

static void image_load(struct fdry_store *store, const char *ref, uint32_t flags,
		       double parts[PARTS], double *restored)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_load_report rep = { .sz = sizeof(rep) };
	struct fdry_image *img;
	double mark;

	must(fdry_image_load(store, ref, &opts, &img));
	must(fdry_image_report(img, &rep));
	parts[SPEED] = (double)rep.content_bytes / rep.content_ms / 1e6;
	parts[CHECKED] = (double)rep.content_bytes / (rep.content_ms + rep.check_ms) / 1e6;
	parts[MEMORY] = rep.memory_ms;
	parts[CONTENT] = rep.content_ms;
	parts[CHECK] = rep.check_ms;
	parts[CHECK_SPEED] = rep.check_ms ? (double)rep.checked_bytes / rep.check_ms / 1e6 : 0;
	parts[KERNELS] = rep.kernels_ms;
	parts[WHOLE] = rep.total_ms;
	parts[UNCHECKED] = 0;
	mark = fdry_now_ms();
	if (restored) {
		must(fdry_image_restore(img, NULL));
		*restored = (double)rep.content_bytes / fdry_elapsed_ms(&mark) / 1e6;
	}
	fdry_image_unload(img);
	fdry_store_close(store);
	parts[CLOSE] = fdry_elapsed_ms(&mark);
}

static void load(const char *dir, const char *ref, uint32_t flags, double parts[PARTS],
		 double *restored)
{
	struct fdry_store *store;
	struct facts facts;
	char file[4096];

	must(fdry_store_open(dir, 0, &store));
	facts_begin(&facts);
	image_load(store, ref, flags, parts, restored);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	printf("facts %s: content %.1f ms; ",
	       restored                          ? "with a restore" :
	       flags & FDRY_LOAD_VERIFY          ? "verified" :
	       flags & FDRY_LOAD_CHECK_AT_LAUNCH ? "unchecked" :
						   "load",
	       parts[CONTENT]);
	facts_print(&facts, file);
}

static struct {
	int fd;
	uint64_t size;
	_Atomic uint64_t next;
} readers;

static void *reader(void *arg)
{
	char *buf = malloc(PIECE);
	uint64_t at;

	while (buf && (at = atomic_fetch_add(&readers.next, PIECE)) < readers.size)
		if (pread(readers.fd, buf, PIECE, (off_t)at) < 0)
			break;
	free(buf);
	return arg;
}

static double disk(const char *file)
{
	long i, n = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS_MAX];
	double mark = fdry_now_ms();
	struct stat st;

	readers.fd = open(file, O_RDONLY);
	if (readers.fd < 0 || fstat(readers.fd, &st))
		return 0;
	readers.size = (uint64_t)st.st_size;
	readers.next = 0;
	n = n > THREADS_MAX ? THREADS_MAX : n;
	for (i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, reader, NULL))
			exit(1);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	close(readers.fd);
	return (double)st.st_blocks * 512 / fdry_elapsed_ms(&mark) / 1e6;
}

static double cat(const char *file)
{
	double ms = ways_cat(file);
	struct stat st;

	return stat(file, &st) ? 0 : (double)st.st_blocks * 512 / ms / 1e6;
}

enum value {
	PINNED_WHOLE, PINNED_PIECES, WARM, WARM_CHECKED, VERIFIED, VERIFIED_CHECKED, RESTORED,
	CAT, COLD, COLD_CHECKED, DISK, CAT_COLD, VALUES
};

static const char *const names[VALUES] = {
	"pinned", "pinned_2m", "warm", "warm_checked", "warm_verified", "warm_verified_checked",
	"restored", "cat", "cold", "cold_checked", "disk", "cat_cold"
};
static const char *const part_names[PARTS] = {
	"", "", "memory_ms", "content_ms", "check_ms", "check_gb_s", "kernels_ms", "load_ms",
	"load_unchecked_ms", "close_ms"
};

struct run {
	const struct fdry_driver *drv;
	const char *dir, *ref;
	char file[4096];
	int rounds, pairs;
	bool ways;
	double values[VALUES][ROUNDS_MAX];
	double warm[ROUNDS_MAX][PARTS], verified[ROUNDS_MAX][PARTS];
};

static void round_run(struct run *r, int i)
{
	double parts[PARTS];

	pinned(r->drv, &r->values[PINNED_WHOLE][i], &r->values[PINNED_PIECES][i]);
	if (i % 2)
		load(r->dir, r->ref, FDRY_LOAD_CHECK_AT_LAUNCH, parts, NULL);
	load(r->dir, r->ref, 0, r->warm[i], NULL);
	if (i % 2 == 0)
		load(r->dir, r->ref, FDRY_LOAD_CHECK_AT_LAUNCH, parts, NULL);
	r->warm[i][UNCHECKED] = parts[WHOLE];
	r->values[WARM][i] = r->warm[i][SPEED];
	r->values[WARM_CHECKED][i] = r->warm[i][CHECKED];
	load(r->dir, r->ref, FDRY_LOAD_VERIFY, r->verified[i], NULL);
	r->values[VERIFIED][i] = r->verified[i][SPEED];
	r->values[VERIFIED_CHECKED][i] = r->verified[i][CHECKED];
	load(r->dir, r->ref, 0, parts, &r->values[RESTORED][i]);
	r->values[CAT][i] = cat(r->file);
	ways_forget(r->file);
	load(r->dir, r->ref, 0, parts, NULL);
	r->values[COLD][i] = parts[SPEED];
	r->values[COLD_CHECKED][i] = parts[CHECKED];
	ways_forget(r->file);
	r->values[DISK][i] = disk(r->file);
	ways_forget(r->file);
	r->values[CAT_COLD][i] = cat(r->file);
}

static void parts_print(const struct run *r, const char *prefix, const double (*parts)[PARTS])
{
	int p, i;

	for (p = MEMORY; p < PARTS; p++) {
		if (p == UNCHECKED && parts != r->warm)
			continue;
		printf("%s_%s", prefix, part_names[p]);
		for (i = 0; i < r->rounds; i++)
			printf(" %.2f", parts[i][p]);
		printf("\n");
	}
}

static void values_print(const struct run *r)
{
	int v, i;

	for (v = 0; v < VALUES; v++) {
		printf("%s", names[v]);
		for (i = 0; i < r->rounds; i++)
			printf(" %.2f", r->values[v][i]);
		printf("\n");
	}
	parts_print(r, "warm", r->warm);
	parts_print(r, "warm_verified", r->verified);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median, the least and the greatest of one line, or of its ratios to pinned memory. */
static void spread_print(const struct run *r, enum value v, bool ratio)
{
	double x[ROUNDS_MAX];
	int i;

	for (i = 0; i < r->rounds; i++)
		x[i] = r->values[v][i] / (ratio ? r->values[PINNED_WHOLE][i] : 1);
	qsort(x, (size_t)r->rounds, sizeof(*x), by_value);
	printf("  %6.2f (%.2f to %.2f)", x[r->rounds / 2], x[0], x[r->rounds - 1]);
}

static void table_print(const struct run *r)
{
	int v;

	printf("GB/s, and of pinned: median (least to most)\n");
	for (v = 0; v < VALUES; v++) {
		printf("  %-24s", names[v]);
		spread_print(r, v, false);
		spread_print(r, v, true);
		printf("\n");
	}
}

static double load_whole(const struct run *r, uint32_t flags)
{
	struct fdry_store *store;
	double parts[PARTS];

	must(fdry_store_open(r->dir, 0, &store));
	image_load(store, r->ref, flags, parts, NULL);
	return parts[WHOLE];
}

static void quartiles_print(const char *name, double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	printf("%s %.3f %.3f %.3f\n", name, x[n / 2], x[n / 4], x[n * 3 / 4]);
}

static void pairs_run(const struct run *r)
{
	static const uint32_t flags[2] = { 0, FDRY_LOAD_CHECK_AT_LAUNCH };
	double ms[2][PAIRS_MAX], ratio[PAIRS_MAX];
	int i, k;

	if (!r->pairs)
		return;
	for (i = 0; i < r->pairs; i++) {
		for (k = 0; k < 2; k++)
			ms[(i + k) % 2][i] = load_whole(r, flags[(i + k) % 2]);
		ratio[i] = ms[0][i] / ms[1][i];
	}
	quartiles_print("pairs_load_ms", ms[0], r->pairs);
	quartiles_print("pairs_load_unchecked_ms", ms[1], r->pairs);
	quartiles_print("pairs_load", ratio, r->pairs);
}

static void options_take(struct run *r, int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "s:r:n:p:w")) != -1) {
		switch (opt) {
		case 's': r->dir = optarg; break;
		case 'r': r->ref = optarg; break;
		case 'n': r->rounds = atoi(optarg); break;
		case 'p': r->pairs = atoi(optarg); break;
		case 'w': r->ways = true; break;
		default: exit(2);
		}
	}
	if (!r->dir || r->rounds < 1 || r->rounds > ROUNDS_MAX || r->pairs < 0 ||
	    r->pairs > PAIRS_MAX)
		exit(2);
	snprintf(r->file, sizeof(r->file), "%s/data.mdb", r->dir);
}

int main(int argc, char **argv)
{
	static struct run r = { .ref = "bench", .rounds = 3 };
	double parts[PARTS];
	CUcontext ctx;
	int i;

	r.dir = getenv("FOUNDRY_STORE");
	options_take(&r, argc, argv);
	must(fdry_driver_open(NULL, &r.drv));
	must(fdry_call(r.drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	must(fdry_call(r.drv, cuCtxSetCurrent, ctx));
	load(r.dir, r.ref, FDRY_LOAD_VERIFY, parts, NULL);
	if (r.ways)
		ways_warm(r.drv, r.file, "in the page cache as the seal left it", r.rounds);
	for (i = 0; i < r.rounds; i++)
		round_run(&r, i);
	values_print(&r);
	pairs_run(&r);
	table_print(&r);
	if (r.ways) {
		ways_warm(r.drv, r.file, "in the page cache as cat left it", 3);
		ways_cold(r.drv, r.file, 2);
	}
	return 0;
}
