// SPDX-License-Identifier: Apache-2.0
/*
 * truncated.c - was a file that ends before its last page cut short, or never longer?
 *
 * LMDB does not write pages that a transaction allocated and freed again. If the last page is such
 * a page, the file ends before it. The gap is filled after each commit, but a process can die
 * before that. Nothing is missing if all pages behind the end are free. The list of free pages may
 * itself be cut off, and reading it would be a bus error. So a child process reads it: if the child
 * crashes, the file was cut short.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/db.h"

#define MISSING_PAGES_MAX (1u << 20)

struct missing {
	uint64_t first, count; /* pages behind the end */
	uint8_t *is_free;
};

static int missing_mark(void *arg, struct fdry_span key, struct fdry_span value)
{
	const uint8_t *p = fdry_span_at(value, 0, 8);
	uint64_t i, pgno, count = p ? fdry_get64(p) : 0;
	struct missing *missing = arg;

	(void)key;
	for (i = 1; i <= count && i <= value.len; i++) {
		p = fdry_span_at(value, i * 8, 8);
		if (!p)
			break;
		pgno = fdry_get64(p);
		if (pgno >= missing->first && pgno - missing->first < missing->count)
			missing->is_free[pgno - missing->first] = 1;
	}
	return 0;
}

static bool missing_check(struct fdry_db *db, const struct fdry_extent *x)
{
	struct missing missing = { .first = x->file_bytes / x->page_size };
	struct fdry_txn t;
	uint64_t i = 0;

	missing.count = x->used_bytes / x->page_size - missing.first;
	missing.is_free = missing.count <= MISSING_PAGES_MAX ? calloc(missing.count, 1) : NULL;
	if (!missing.is_free || fdry_txn_read(db, &t) ||
	    fdry_txn_each_free(&t, missing_mark, &missing))
		return false;
	while (i < missing.count && missing.is_free[i])
		i++;
	return i == missing.count;
}

/* The process ends here: nothing is freed or closed. */
static __attribute__((noreturn)) void child_run(struct fdry_db_opts o, bool *is_free)
{
	struct fdry_extent x;
	struct fdry_db *db;

	o.readonly = true;
	db = fdry_db_new(&o);
	if (db && !fdry_env_open(&o, db) && !fdry_db_extent(db, &x))
		*is_free = x.file_bytes >= x.used_bytes /* another process wrote meanwhile */ ||
			   missing_check(db, &x);
	_exit(0);
}

/* The child answers in shared memory: a program that reaps all its children would hide the exit
 * status. */
bool fdry_truncated_is_free(const struct fdry_db_opts *opts)
{
	bool ret, *is_free = mmap(NULL, sizeof(*is_free), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (is_free == MAP_FAILED)
		return false;
	pid = fork();
	if (!pid)
		child_run(*opts, is_free);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	ret = *is_free;
	munmap(is_free, sizeof(*is_free));
	return ret;
}
