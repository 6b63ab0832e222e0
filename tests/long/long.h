/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long.h - tests of very many cases: a sample of them in make check, all of them by make
 * check-long.
 *
 * PROGRAM [-n CASES] [-s SEED] [-c CASE] [-d DIR]
 *
 * A case follows from the seed and its number alone, so that -s and -c repeat one. Cases run in
 * processes that a server forks, some in each: a case that crashes or hangs ends its process, is
 * reported with its seed and number, and another process continues with the next case. The
 * environment sets the same for all such tests: LONG, the percentage of all cases (default: the
 * sample), and SEED.
 */
#ifndef FDRY_TESTS_LONG_LONG_H
#define FDRY_TESTS_LONG_LONG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LONG_ENDS 12
#define LONG_KNOWN 8
#define LONG_FAULT -1 /* a case that showed one, which it has told on standard error */

struct long_test {
	const char *name;
	uint64_t sample, all; /* cases */
	uint32_t together;    /* cases in one process */
	uint32_t seconds;     /* of processor time that a case may take */
	void (*prepare)(void); /* once, in a process of its own; or NULL */
	void (*begin)(void);   /* in each process, before its first case; or NULL */
	int (*run)(uint64_t nr); /* one case; gives the number of its end, or LONG_FAULT */
	const char *ends[LONG_ENDS]; /* their names, which the summary counts */
	/* cases that showed a fault once: every run but that of a single case begins with them */
	struct {
		uint64_t seed, nr;
	} known[LONG_KNOWN];
};

/* A directory of the test's own, in memory if there is room; it goes with the test. */
extern char long_dir[256];
/* The case is to be repeated alone (-c): it may say what it does. */
extern bool long_alone;

/* The next number of the case. */
uint64_t long_random(void);
/* Below @n. */
uint64_t long_below(uint64_t n);

/*
 * End this process if it takes @seconds of processor time, or ten times as long by the clock: a
 * loop without end, or a wait without end. A busy machine makes no case fail.
 */
void long_limit(uint32_t seconds);

/* Run @fn, which uses Check's assertions; ends the process if one fails. */
void long_checked(void (*fn)(void));

/* Files in memory. They end the process if the system fails. */
uint8_t *long_read_file(const char *path, size_t *len);
void long_write_file(const char *path, const void *data, size_t len);
/* A file, or a directory with all that is in it, if it is there. */
void long_remove(const char *path);
/* A store whose data file has these bytes, and nothing else that it had. */
void long_write_store(const char *path, const void *data, size_t len);

/* The whole program. */
int long_main(int argc, char **argv, const struct long_test *t);

#endif
