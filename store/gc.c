// SPDX-License-Identifier: Apache-2.0
/*
 * gc.c - deleting objects that neither a ref nor a lease reaches, while sessions write and read.
 *
 * A collection announces itself in the store, marks live objects, lists the others, and deletes
 * them in short transactions. Each transaction holds the writers' lock. It first marks the objects
 * that sessions noted or named since, and then deletes only what is still not marked.
 * Documentation/design/collection.rst describes the protocol and why it is correct.
 *
 * A collection holds the store's lock exclusively, so only one runs at a time, and none runs while
 * a session that could not create a lease shares the lock.
 */
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "lib/telemetry.h"
#include "store/step.h"
#include "store/sweep_list.h"

#define SWEEP_NS 10000000ull       /* time of a transaction before it commits */
#define SWEEP_FINISH_NS 5000000ull /* part of it that marking may take */
#define SWEEP_BYTES (64u << 20)    /* that a transaction deletes */
#define SWEEP_TRIES 16 /* transactions that end while marking; the next marks to the end */
#define NAP_MS 1       /* between transactions, so that waiting writers get the lock */

struct gc {
	struct fdry_store *s;
	struct fdry_gc_opts opts;
	struct fdry_mark mark;
	struct fdry_sweep_list list;
	size_t at;              /* the next entry of @list to delete */
	enum fdry_gc_phase phase;
	uint64_t total;
	struct fdry_gc_report report;
};

/* Returned inside this file if the caller stops the collection. */
#define STOPPED 1

/* --- the announcement --- */

/*
 * Set or withdraw the announcement. LMDB reuses the pages that a transaction frees from the second
 * transaction after it on. Withdrawing is the first one, so the next seal can use the pages that
 * the last deletion freed, even if the disk is full.
 */
static int announce(struct fdry_env *env, bool on)
{
	static const uint8_t one = 1;
	struct fdry_txn t;
	int err = fdry_txn_write(env->db, 0, &t);

	if (err)
		return err;
	err = on ? fdry_meta_put(&t, FDRY_META_COLLECTING, &one, 1)
		 : fdry_meta_delete(&t, FDRY_META_COLLECTING);
	return fdry_txn_end(&t, err);
}

void fdry_gc_recover(struct fdry_env *env)
{
	int fd = env->readonly ? -1 : fdry_env_try(env);

	if (fd < 0)
		return; /* the collection is alive */
	if (announce(env, false))
		fdry_debug("cannot withdraw the announcement of a dead collection: %s",
			   fdry_last_error());
	fdry_env_unexclude(fd);
}

/* --- progress --- */

static int gc_progress(struct gc *gc, uint64_t done)
{
	const struct fdry_gc_opts *o = &gc->opts;

	if (!o->progress)
		return 0;
	return o->progress(o->progress_arg, (int)gc->phase, done, gc->total) ? STOPPED : 0;
}

/* During marking and listing. */
static int gc_tick(void *arg)
{
	struct gc *gc = arg;

	return gc_progress(gc, gc->mark.live.count);
}

static int gc_phase(struct gc *gc, enum fdry_gc_phase phase, uint64_t total)
{
	gc->phase = phase;
	gc->total = total;
	return gc_progress(gc, 0);
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
	r->by_kind[kind].dead++;
	r->by_kind[kind].stored += d->stored;
}

static int entry_delete(struct fdry_txn *t, const struct fdry_oid *oid)
{
	int err = fdry_txn_delete(t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid));

	return err ? err : fdry_txn_delete(t, FDRY_TABLE_DATA, fdry_oid_span(oid));
}

/* Delete from entry *@at of the list on, until the time slice is over. */
static int delete_listed(struct gc *gc, struct fdry_txn *t, struct fdry_timeslice *slice,
			 struct fdry_gc_report *r, size_t *at)
{
	const struct fdry_sweep_entry *d = (const void *)gc->list.entries.data;
	size_t count = gc->list.entries.len / sizeof(*d);
	size_t end = fdry_stepping() ? *at + 1 : count;
	uint64_t bytes = 0;
	int err;

	for (; *at < count && *at < end && bytes < SWEEP_BYTES && !fdry_timeslice_over(slice);
	     ++*at) {
		if (fdry_idset_has(&gc->mark.live, &d[*at].oid)) {
			r->spared++;
			continue;
		}
		err = entry_delete(t, &d[*at].oid);
		if (err)
			return err;
		bytes += d[*at].stored;
		report_dead(r, &d[*at]);
	}
	return 0;
}

/* One transaction. @try: the number of transactions before it that ended during marking. */
static int sweep_once(struct gc *gc, unsigned int try, bool *done)
{
	struct fdry_gc_report report = gc->report;
	struct fdry_timeslice slice, marking;
	size_t at = gc->at;
	struct fdry_txn t;
	int err = fdry_txn_write(gc->s->env->db, 0, &t);

	if (err)
		return err;
	slice = fdry_timeslice(SWEEP_NS);
	marking = fdry_timeslice(try < SWEEP_TRIES ? SWEEP_FINISH_NS : 0);
	err = fdry_mark_finish(&gc->mark, &t, &marking, done);
	if (err || !*done)
		goto out_abort;
	err = delete_listed(gc, &t, &slice, &report, &at);
	if (err)
		goto out_abort;
	err = fdry_txn_commit(&t);
	if (err)
		return err;
	gc->report = report;
	gc->at = at;
	return 0;
out_abort:
	fdry_txn_abort(&t);
	return err;
}

static int sweep(struct gc *gc)
{
	size_t count = gc->list.entries.len / sizeof(struct fdry_sweep_entry);
	unsigned int try = 0;
	bool done = false;
	int err = gc_phase(gc, FDRY_GC_SWEEP, count);

	if (err)
		return err;
	if (count)
		fdry_verified_forget(&gc->s->env->dir);
	while (gc->at < count) {
		err = fdry_mark_update(&gc->mark, NULL, NULL);
		if (err)
			return err;
		err = sweep_once(gc, try, &done);
		if (err)
			return err;
		try = done ? 0 : try + 1;
		err = gc_progress(gc, gc->at);
		if (err)
			return err;
		if (gc->at < count && !fdry_stepping())
			fdry_sleep_ms(NAP_MS);
	}
	return 0;
}

/* --- collecting --- */

/* Mark the live objects and list the others. */
static int find(struct gc *gc)
{
	int err = gc_phase(gc, FDRY_GC_MARK, 0);

	if (err)
		return err;
	err = fdry_mark_update(&gc->mark, gc_tick, gc);
	gc->report.leases = gc->mark.leases.held;
	if (err)
		return err;
	err = gc_phase(gc, FDRY_GC_LIST, gc->mark.live.count);
	if (err)
		return err;
	err = fdry_sweep_list_fill(&gc->list, &gc->mark, gc_tick, gc);
	gc->report.live = gc->list.live;
	return err;
}

/* Returns the first error; errors while the collection ends are only logged. */
static int collect(struct gc *gc)
{
	struct fdry_env *env = gc->s->env;
	uint64_t ended = 0;
	int err;

	/* Pages that dead readers see could not be reused until a process opens the store. */
	fdry_db_clear_readers(env->db);
	err = announce(env, true);
	if (err)
		return err;
	err = fdry_leases_reclaim(env, &gc->report.reclaimed);
	if (err)
		goto out_withdraw;
	err = find(gc);
	if (err)
		goto out_withdraw;
	err = sweep(gc);
out_withdraw:
	gc->report.live += gc->report.spared;
	if (announce(env, false))
		fdry_debug("cannot withdraw the announcement: %s", fdry_last_error());
	if (fdry_leases_reclaim(env, &ended))
		fdry_debug("cannot remove ended leases: %s", fdry_last_error());
	return err ? err : fdry_dir_sweep(&env->dir);
}

/* Report what a collection would remove. */
static int collect_dry(struct gc *gc)
{
	const struct fdry_sweep_entry *d;
	size_t i;
	int err = find(gc);

	gc->report.reclaimed = gc->mark.leases.unheld;
	if (err)
		return err;
	d = (const void *)gc->list.entries.data;
	for (i = 0; i < gc->list.entries.len / sizeof(*d); i++)
		report_dead(&gc->report, &d[i]);
	return 0;
}

static void metrics_count(const struct fdry_gc_report *r)
{
	fdry_count(FDRY_METRIC_STORE_GCS, !r->stopped);
	fdry_count(FDRY_METRIC_STORE_COLLECTED, r->dead);
	fdry_count(FDRY_METRIC_STORE_COLLECTED_BYTES, r->dead_stored);
}

int fdry_store_gc(struct fdry_store *store, const struct fdry_gc_opts *opts,
		  struct fdry_gc_report *report)
{
	struct gc gc = { .s = store };
	bool dry_run;
	int fd = -1, err = fdry_need(store) ?:
		  fdry_store_opts_take(opts, &gc.opts, sizeof(gc.opts), FDRY_GC_DRY_RUN) ?:
		  fdry_report_check(report) ?: fdry_store_busy(store);

	if (err)
		return err;
	dry_run = gc.opts.flags & FDRY_GC_DRY_RUN;
	gc.mark.env = store->env;
	gc.mark.leases.plan = dry_run;
	err = dry_run ? 0 : fdry_store_check_write(store);
	if (err)
		goto out_idle;
	err = dry_run ? fdry_env_look(store->env, &fd) : fdry_env_exclude(store->env, &fd);
	if (err)
		goto out_idle;
	err = dry_run ? collect_dry(&gc) : collect(&gc);
	fdry_env_unexclude(fd);
	gc.report.stopped = err == STOPPED;
	if (err == STOPPED)
		err = 0;
	if (!err && !dry_run)
		metrics_count(&gc.report);
	fdry_buf_release(&gc.list.entries);
	fdry_mark_release(&gc.mark);
out_idle:
	fdry_store_idle(store);
	return fdry_report_give(&gc.report, sizeof(gc.report), report) ?: err;
}
