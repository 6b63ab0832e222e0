// SPDX-License-Identifier: Apache-2.0
/*
 * truncated.c - was a file that ends before its last page cut short, or never longer?
 *
 * LMDB does not write pages that a transaction allocated and freed again. If the last page is such
 * a page, the file ends before it. The gap is filled after each commit, but a process can die
 * before that. Nothing is missing if all pages behind the end are free. The list of free pages may
 * itself be cut off; a view does not read pages behind the end of the file.
 */
#include <stdlib.h>

#include "store/internal.h"

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

static bool missing_are_free(struct fdry_txn *t)
{
	struct missing missing = { .first = t->view.pages.count };
	uint64_t i = 0;
	int err;

	missing.count = t->view.last + 1 - missing.first;
	if (missing.count > MISSING_PAGES_MAX)
		return false;
	missing.is_free = calloc(missing.count + 1, 1);
	if (!missing.is_free)
		return false;
	err = fdry_txn_each_free(t, missing_mark, &missing);
	while (i < missing.count && missing.is_free[i])
		i++;
	free(missing.is_free);
	return !err && i == missing.count;
}

bool fdry_truncated_is_free(struct fdry_db *db)
{
	struct fdry_txn t;
	bool ret;

	if (fdry_txn_read(db, &t))
		return false;
	ret = missing_are_free(&t);
	fdry_txn_abort(&t);
	return ret;
}
