// SPDX-License-Identifier: Apache-2.0
/*
 * gc.c - removing what neither a ref nor a lease reaches, beside sessions that write and read.
 *
 * A collection announces itself in the store, marks, lists what was not marked, and
 * deletes it in short transactions. Inside each, with the writers' lock, it first marks
 * what was noted or named since: whatever anybody may rely on then is passed over. The
 * protocol and why it is right stand in Documentation/design/collection.rst.
 *
 * The store's lock is held exclusively: by one collection at a time, and not beside
 * sessions that could not make a lease.
 */
#include <stdlib.h>
#include <time.h>

#include "lib/log.h"
#include "lib/telemetry.h"
#include "store/sweep_list.h"

#define SWEEP_NS 10000000ull      /* of a transaction, before it commits */
#define SWEEP_FINISH_NS 5000000ull /* of these, for marking at most */
#define SWEEP_BYTES (64u << 20)
#define SWEEP_TRIES 16            /* then marking may take as long as it needs */
#define NAP_NS 1000000            /* so that writers who wait get their turn */

struct gc {
	struct fdry_store *s;
	const struct fdry_gc_opts *opts;
	struct fdry_mark mark;
	struct fdry_sweep_list list;
	size_t at;              /* in the list of the dead */
	enum fdry_gc_phase phase;
	uint64_t total;
	struct fdry_gc_report report;
};

unsigned int fdry_sweep_objects_max;

/* What ends a collection without being an error. */
#define STOPPED 1

/* --- the announcement --- */

/*
 * Set it or take it back. What a transaction frees, LMDB uses again from the second one
 * after it: taking it back is that one, so that the next seal finds the space even where
 * the disk is full.
 */
static int announce(struct fdry_env *env, bool on)
{
	static const uint8_t one = 1;
	struct fdry_txn t;
	int err = fdry_txn_write(env->db, 0, &t);

	if (err)
		return err;
	err = on ? fdry_meta_put(&t, FDRY_META_COLLECTING, &one, 1) : fdry_meta_delete(&t, FDRY_META_COLLECTING);
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
}

void fdry_gc_recover(struct fdry_env *env)
{
	int fd = env->readonly ? -1 : fdry_env_try(env);

	if (fd < 0)
		return; /* it is alive */
	if (announce(env, false))
		fdry_debug("a collection that died is still announced: %s", fdry_last_error());
	fdry_env_unexclude(fd);
}

/* --- progress --- */

static int gc_tell(struct gc *gc, uint64_t done)
{
	if (!gc->opts->progress)
		return 0;
	return gc->opts->progress(gc->opts->arg, gc->phase, done, gc->total) ? STOPPED : 0;
}

/* While marking and listing. */
static int gc_tick(void *arg)
{
	struct gc *gc = arg;

	return gc_tell(gc, gc->mark.live.count);
}

static int gc_phase(struct gc *gc, enum fdry_gc_phase phase, uint64_t total)
{
	gc->phase = phase;
	gc->total = total;
	return gc_tell(gc, 0);
}

/* --- sweeping --- */

static void report_dead(struct fdry_gc_report *r, const struct fdry_sweep_entry *d)
{
	unsigned int kind = d->kinds ? 31 - (unsigned int)__builtin_clz(d->kinds) : 0;

	r->dead++;
	r->dead_bytes += d->size;
	r->dead_stored += d->stored;
	if (kind > FDRY_OBJECT_MANIFEST)
		kind = 0;
	r->kinds[kind].dead++;
	r->kinds[kind].stored += d->stored;
}

static int dead_delete(struct fdry_txn *t, const struct fdry_sweep_entry *d)
{
	int err = fdry_txn_delete(t, FDRY_TABLE_OBJECTS, fdry_oid_span(&d->oid));

	return err ? err : fdry_txn_delete(t, FDRY_TABLE_DATA, fdry_oid_span(&d->oid));
}

/* Deletes until the turn is over; @r and @at are what they will be if this is committed. */
static int sweep_in(struct gc *gc, struct fdry_txn *t, struct fdry_timeslice *turn, struct fdry_gc_report *r, size_t *at)
{
	const struct fdry_sweep_entry *d = (const void *)gc->list.entries.data;
	size_t count = gc->list.entries.len / sizeof(*d);
	size_t end = fdry_sweep_objects_max ? *at + fdry_sweep_objects_max : count;
	uint64_t bytes = 0;
	int err = 0;

	for (; *at < count && *at < end && bytes < SWEEP_BYTES && !err && !fdry_timeslice_over(turn); ++*at) {
		if (fdry_idset_has(&gc->mark.live, &d[*at].oid)) {
			r->spared++;
			continue;
		}
		err = dead_delete(t, &d[*at]);
		bytes += d[*at].stored;
		report_dead(r, &d[*at]);
	}
	return err;
}

static int sweep_commit(struct gc *gc, struct fdry_txn *t, struct fdry_timeslice *turn)
{
	struct fdry_gc_report report = gc->report;
	size_t at = gc->at;
	int err = sweep_in(gc, t, turn, &report, &at);

	if (err) {
		fdry_txn_abort(t);
		return err;
	}
	err = fdry_txn_commit(t);
	if (err)
		return err;
	gc->report = report;
	gc->at = at;
	return 0;
}

/* One transaction. @try: how often marking has been too long for one. */
static int sweep_once(struct gc *gc, unsigned int try, bool *done)
{
	struct fdry_timeslice turn, finish;
	struct fdry_txn t;
	int err = fdry_txn_write(gc->s->env->db, 0, &t);

	if (err)
		return err;
	turn = fdry_timeslice(SWEEP_NS);
	finish = fdry_timeslice(try < SWEEP_TRIES ? SWEEP_FINISH_NS : 0);
	err = fdry_mark_finish(&gc->mark, &t, &finish, done);
	if (!err && *done)
		return sweep_commit(gc, &t, &turn);
	fdry_txn_abort(&t);
	return err;
}

static void nap(void)
{
	struct timespec ts = { 0, NAP_NS };

	nanosleep(&ts, NULL);
}

static int sweep(struct gc *gc)
{
	size_t count = gc->list.entries.len / sizeof(struct fdry_sweep_entry);
	unsigned int try = 0;
	bool done = false;
	int err = gc_phase(gc, FDRY_GC_SWEEP, count);

	if (!err && count)
		fdry_verified_forget(&gc->s->env->dir);
	while (!err && gc->at < count) {
		err = fdry_mark_update(&gc->mark, NULL, NULL);
		if (!err)
			err = sweep_once(gc, try, &done);
		try = done ? 0 : try + 1;
		if (!err)
			err = gc_tell(gc, gc->at);
		if (!err && gc->at < count && !fdry_sweep_objects_max)
			nap();
	}
	return err;
}

/* --- collecting --- */

static void report_all(struct gc *gc)
{
	const struct fdry_sweep_entry *d = (const void *)gc->list.entries.data;
	size_t i;

	for (i = 0; i < gc->list.entries.len / sizeof(*d); i++)
		report_dead(&gc->report, &d[i]);
}

static int find(struct gc *gc)
{
	int err = gc_phase(gc, FDRY_GC_MARK, 0);

	if (!err)
		err = fdry_mark_update(&gc->mark, gc_tick, gc);
	if (!err)
		err = gc_phase(gc, FDRY_GC_LIST, gc->mark.live.count);
	if (!err)
		err = fdry_sweep_list_fill(&gc->list, &gc->mark, gc_tick, gc);
	gc->report.live = gc->list.live;
	gc->report.leases = gc->mark.leases.held;
	return err;
}

static int collect_announced(struct gc *gc)
{
	int err = fdry_leases_reclaim(gc->s->env, &gc->report.reclaimed);

	if (!err)
		err = find(gc);
	if (!err)
		err = sweep(gc);
	gc->report.live += gc->report.spared;
	return err;
}

/* An error of the collection outlives what ending it may bring. */
static int collect(struct gc *gc)
{
	uint64_t ended = 0;
	int err;

	fdry_db_clear_readers(gc->s->env->db); /* or what is freed here would stay unused until somebody opens the store */
	err = announce(gc->s->env, true);
	if (err)
		return err;
	err = collect_announced(gc);
	if (announce(gc->s->env, false))
		fdry_debug("the collected space is not ready yet: %s", fdry_last_error());
	if (fdry_leases_reclaim(gc->s->env, &ended))
		fdry_debug("ended leases are left: %s", fdry_last_error());
	return err;
}

static int look(struct gc *gc)
{
	int err = find(gc);

	gc->report.reclaimed = gc->mark.leases.unheld;
	if (!err)
		report_all(gc);
	return err;
}

static int gc_run(struct gc *gc)
{
	struct fdry_env *env = gc->s->env;
	int fd = -1, err = gc->opts->dry_run ? fdry_env_look(env, &fd) : fdry_env_exclude(env, &fd);

	if (err)
		return err;
	err = gc->opts->dry_run ? look(gc) : collect(gc);
	if (!err && !gc->opts->dry_run)
		err = fdry_dir_sweep(&env->dir);
	fdry_env_unexclude(fd);
	return err;
}

int fdry_gc(struct fdry_store *s, const struct fdry_gc_opts *opts, struct fdry_gc_report *ret)
{
	struct gc gc = { .s = s, .opts = opts, .mark.leases.plan = opts->dry_run };
	int err = opts->dry_run ? fdry_store_check(s) : fdry_store_check_write(s);

	if (err)
		return err;
	gc.mark.env = s->env;
	err = gc_run(&gc);
	gc.report.stopped = err == STOPPED;
	if (err == STOPPED)
		err = 0;
	if (!err && !opts->dry_run) {
		fdry_count(FDRY_METRIC_STORE_GCS, !gc.report.stopped);
		fdry_count(FDRY_METRIC_STORE_COLLECTED, gc.report.dead);
		fdry_count(FDRY_METRIC_STORE_COLLECTED_BYTES, gc.report.dead_stored);
	}
	if (!err)
		*ret = gc.report;
	fdry_buf_release(&gc.list.entries);
	fdry_mark_release(&gc.mark);
	return err;
}

int fdry_store_gc(struct fdry_store *s, bool dry_run, struct fdry_gc_report *ret)
{
	struct fdry_gc_opts opts = { .dry_run = dry_run };

	return fdry_gc(s, &opts, ret);
}
