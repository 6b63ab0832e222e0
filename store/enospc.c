// SPDX-License-Identifier: Apache-2.0
/*
 * enospc.c - what a session does where the disk, or the map, is full.
 *
 * A transaction that did not fit has changed nothing but the file's length, which is given
 * back. More is done where there is a limit, since that says that the store is a cache: what no ref
 * reaches is collected, and where that is too little what was used longest ago is evicted. LMDB
 * uses again what is free in its file, so that this helps although the file stays as long as it is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/log.h"
#include "store/lease.h"
#include "store/step.h"

#define WAIT_MS 2000 /* for somebody else's collection, which makes room too */
#define NAP_MS 20

static void nap(void)
{
	struct timespec ts = { 0, NAP_MS * 1000000 };

	if (fdry_step_hook)
		fdry_step(FDRY_STEP_WAIT);
	else
		nanosleep(&ts, NULL);
}

/* Others who met the full disk at the same time are collecting as well. */
static int collect(struct fdry_store *s)
{
	struct fdry_gc_report r;
	unsigned int ms = 0;
	int err = fdry_store_gc(s, false, &r);

	for (; err == -FDRY_E_LOCKED && ms < WAIT_MS; ms += NAP_MS) {
		nap();
		err = fdry_store_gc(s, false, &r);
	}
	return err;
}

/* With room to spare, since large values need pages one behind the other; or, where there is no more, with what is needed. */
static int plan(struct fdry_store *s, uint64_t need, struct fdry_evict_how *how)
{
	struct fdry_evict_report r = { .enough = false };
	int err;

	how->dry_run = true;
	how->free = need + need / 4;
	err = fdry_evict(s, how, &r);
	if (!err && !r.enough) {
		how->free = need;
		err = fdry_evict(s, how, &r);
	}
	how->dry_run = false;
	return err ? err : r.enough ? 0 : -FDRY_E_FULL;
}

static int evict(struct fdry_store *s, uint64_t need, const struct fdry_lease *own)
{
	struct fdry_evict_how how = { .held = fdry_lease_noted(own) };
	struct fdry_evict_report r;
	int err = plan(s, need, &how);

	if (!err)
		err = fdry_evict(s, &how, &r);
	if (!err)
		fdry_info("store %s: no room for %llu bytes: %llu refs evicted", s->path, (unsigned long long)need,
			  (unsigned long long)r.refs);
	return err ? err : r.collected ? 0 : -FDRY_E_LOCKED;
}

static int relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *own)
{
	uint64_t before = 0, after = 0, limit = 0;
	int err = fdry_store_limit(s, &limit, &before);

	if (!err && !limit)
		err = -FDRY_E_FULL;
	if (!err)
		err = collect(s);
	if (!err)
		err = fdry_store_limit(s, NULL, &after);
	if (err || (before > after && before - after >= need))
		return err;
	return evict(s, need, own);
}

bool fdry_enospc_relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *own)
{
	char why[FDRY_SENTENCE_MAX];
	int err;

	snprintf(why, sizeof(why), "%s", fdry_last_error());
	fdry_db_trim(s->env->db);
	err = fdry_lease_noted(own) ? relieve(s, need, own) : -FDRY_E_LOCKED;
	if (err) {
		fdry_debug("store %s: it is full, and no room can be made: %s", s->path, fdry_error_meaning(err));
		(void)fdry_fail(FDRY_E_FULL, "%s", why);
	}
	return !err;
}
