// SPDX-License-Identifier: Apache-2.0
/*
 * enospc.c - making space for a seal if the disk or the map is full.
 *
 * A transaction that did not fit has changed only the file's length, so the file is cut to its old
 * length. If the store has a limit, it is a cache, and more is done: objects that no ref reaches
 * are collected; if that is not enough, the images that were used longest ago are evicted. LMDB
 * reuses free pages of its file, so this helps although the file does not become shorter.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/log.h"
#include "store/lease.h"
#include "store/step.h"

#define WAIT_MS 2000 /* for another process's collection, which frees space, too */
#define NAP_MS 20

/* Other writers that met the full disk at the same time may be collecting now. */
static int collect(struct fdry_store *s)
{
	unsigned int ms = 0;
	int err = fdry_store_gc(s, NULL, NULL);

	for (; err == -FDRY_E_LOCKED && ms < WAIT_MS; ms += NAP_MS) {
		fdry_step_wait(NAP_MS);
		err = fdry_store_gc(s, NULL, NULL);
	}
	return err;
}

/* Whether an eviction within @bounds would free what they ask for, by estimate. */
static int plan(struct fdry_store *s, const struct fdry_evict_bounds *bounds, bool *ret)
{
	struct fdry_evict_opts dry_run = { .sz = sizeof(dry_run), .flags = FDRY_EVICT_DRY_RUN };
	struct fdry_evict_report r;
	int err = fdry_evict(s, &dry_run, bounds, &r);

	*ret = !err && r.after <= r.limit;
	return err;
}

static int evict(struct fdry_store *s, uint64_t need, const struct fdry_lease *lease)
{
	struct fdry_evict_bounds bounds = { .held = fdry_lease_noted(lease) };
	struct fdry_evict_opts opts = { .sz = sizeof(opts) };
	struct fdry_evict_report r;
	bool enough = false;
	int err;

	bounds.free = need + need / 4; /* a large value needs adjacent pages */
	err = plan(s, &bounds, &enough);
	if (err)
		return err;
	if (!enough) {
		bounds.free = need;
		err = plan(s, &bounds, &enough);
		if (err)
			return err;
	}
	if (!enough)
		return -FDRY_E_FULL;
	err = fdry_evict(s, &opts, &bounds, &r);
	if (err)
		return err;
	fdry_info("store %s: no space for %llu bytes: %llu refs evicted", s->path,
		  (unsigned long long)need, (unsigned long long)r.images);
	return r.collected ? 0 : -FDRY_E_LOCKED;
}

static int relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *lease)
{
	uint64_t before = 0, after = 0, limit = 0;
	int err = fdry_store_limit(s, &limit, &before);

	if (err)
		return err;
	if (!limit)
		return -FDRY_E_FULL;
	err = collect(s);
	if (err)
		return err;
	err = fdry_store_limit(s, NULL, &after);
	if (err || (before > after && before - after >= need))
		return err;
	return evict(s, need, lease);
}

bool fdry_enospc_relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *lease)
{
	char why[FDRY_SENTENCE_MAX];
	int err;

	snprintf(why, sizeof(why), "%s", fdry_last_error());
	fdry_db_trim(s->env->db);
	err = fdry_lease_noted(lease) ? relieve(s, need, lease) : -FDRY_E_LOCKED;
	if (!err)
		return true;
	fdry_debug("store %s: it is full, and no space can be freed: %s", s->path,
		   fdry_error_meaning(err));
	(void)fdry_fail(FDRY_E_FULL, "%s", why);
	return false;
}
