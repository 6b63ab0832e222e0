// SPDX-License-Identifier: Apache-2.0
/*
 * verify.c - bytes per second of a verification by fingerprints, beside one by SHA-256 and beside a
 * program that reads the file as cat(1) does.
 *
 * verify [MIB [DIR [THREADS]]]: an image of MIB (1024) of content. The file is read from the disk
 * (cold) or from the page cache (warm).
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/err.h"
#include "tests/lib/content.h"
#include "tests/lib/need.h"

#define CHUNK (2u << 20)
#define ROUNDS 3

static char dir[200], path[256], file[300];
static unsigned int threads;
static uint64_t bytes = 1ull << 30;

static void make(void)
{
	const struct content_image image = { .ref = "img", .n = bytes / CHUNK, .len = CHUNK };
	struct fdry_store *s;
	struct fdry_oid id;

	need(fdry_store_open(path, FDRY_STORE_CREATE, &s), "make");
	need(content_image_seal(s, &image, NULL, &id), "seal");
	fdry_store_close(s);
}

/* Remove the file from the page cache. */
static void forget(void)
{
	int fd = open(file, O_RDONLY);

	need(fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "forget");
	close(fd);
}

static void cat(void)
{
	static char buf[128 << 10];
	int fd = open(file, O_RDONLY);
	ssize_t n;

	need(fd < 0, "open");
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		;
	need(n < 0, "read");
	close(fd);
}

static void verify(uint32_t flags)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .flags = flags, .threads = threads };
	struct fdry_verify_report r = { .sz = sizeof(r) };

	need(fdry_store_verify(path, &opts, &r), "verify");
	need(r.faults != 0, "faults");
	need(flags && r.compared_bytes != bytes, "compared");
}

static void fast(void)
{
	verify(FDRY_VERIFY_FAST);
}

static void full(void)
{
	verify(0);
}

static double best(void (*fn)(void), bool cold)
{
	double ms, least = 1e30;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (cold)
			forget();
		ms = fdry_now_ms();
		fn();
		ms = fdry_now_ms() - ms;
		least = ms < least ? ms : least;
	}
	return (double)bytes / least / 1e6;
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} rows[] = { { "cat", cat }, { "verify --fast", fast }, { "verify", full } };
	double got[2], was[2] = { 0 };
	size_t i;

	if (argc > 1)
		bytes = strtoull(argv[1], NULL, 10) << 20;
	snprintf(dir, sizeof(dir), "%s/fdry-verify-XXXXXX", argc > 2 ? argv[2] : "/var/tmp");
	if (argc > 3)
		threads = (unsigned int)strtoul(argv[3], NULL, 10);
	need(!mkdtemp(dir), "mkdtemp");
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(file, sizeof(file), "%s/data.mdb", path);
	make();
	printf("%-14s %10s %10s   beside cat\n", "", "cold GB/s", "warm GB/s");
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		got[0] = best(rows[i].fn, true);
		got[1] = best(rows[i].fn, false);
		if (!i)
			memcpy(was, got, sizeof(was));
		printf("%-14s %10.2f %10.2f   %.2f %.2f\n", rows[i].name, got[0], got[1],
		       got[0] / was[0], got[1] / was[1]);
		fflush(stdout);
	}
	nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}
