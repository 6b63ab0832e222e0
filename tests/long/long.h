/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long.h - tests of very many cases: a sample of them in make check, all of them by make
 * check-long.
 *
 * PROGRAM [-n CASES] [-s SEED] [-c CASE] [-d DIR]
 *
 * A case follows from the seed and its number alone, so that -s and -c repeat one. Cases run in
 * processes that a server forks, some in each. A case that crashes or hangs ends its process and is
 * reported with its seed and number. Another process continues with the next case. The environment
 * sets the same for all such tests: LONG, the percentage of all cases (default: the sample), and
 * SEED.
 */
#ifndef FDRY_TESTS_LONG_LONG_H
#define FDRY_TESTS_LONG_LONG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LONG_ENDS 12
#define LONG_KNOWN 8
#define LONG_FAULT -1 /* the case found a fault and printed it on standard error */

struct long_test {
	const char *name;
	uint64_t sample, all; /* cases */
	uint32_t together;    /* cases in one process */
	uint32_t seconds;     /* limit of a case's processor time */
	void (*prepare)(void); /* once, in a process of its own; or NULL */
	void (*begin)(void);   /* in each process, before its first case; or NULL */
	int (*run)(uint64_t nr); /* runs one case; returns the number of its outcome, or
				    LONG_FAULT */
	const char *ends[LONG_ENDS]; /* their names, which the summary counts */
	/* cases that showed a fault once: every run but that of a single case begins with them */
	struct {
		uint64_t seed, nr;
	} known[LONG_KNOWN];
};

/* A directory of the test, in memory if there is space. It is removed with the test. */
extern char long_dir[256];
/* The case is repeated alone (-c), so it may print its steps. */
extern bool long_alone;

/* The next number of the case. */
uint64_t long_random(void);
/* Below @n. */
uint64_t long_below(uint64_t n);

/*
 * End this process after @seconds of processor time (an endless loop), or ten times as many by the
 * clock (an endless wait). So no case fails because the machine is busy.
 */
void long_limit(uint32_t seconds);

/* Run @fn, which uses Check's assertions; ends the process if one fails. */
void long_checked(void (*fn)(void));

/* Files in memory. They end the process if the system fails. */
uint8_t *long_read_file(const char *path, size_t *len);
void long_write_file(const char *path, const void *data, size_t len);
/* A file, or a directory with all that is in it, if it is there. */
void long_remove(const char *path);
/* Write a store whose data file has these bytes, without the store's other files. */
void long_write_store(const char *path, const void *data, size_t len);

/* The whole program. */
int long_main(int argc, char **argv, const struct long_test *t);

#endif
