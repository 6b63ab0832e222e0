// SPDX-License-Identifier: Apache-2.0
/* store_keep.c - what stays in a store and what goes: pins, the limit, eviction, collection; see foundry/store.h. */
#include "foundry.h"
#include "lib/opts.h"
#include "store/store.h"

_Static_assert((int)FDRY_COLLECT_MARK == (int)FDRY_GC_MARK && (int)FDRY_COLLECT_LIST == (int)FDRY_GC_LIST &&
	       (int)FDRY_COLLECT_SWEEP == (int)FDRY_GC_SWEEP, "phases have the same numbers in the store");

/* --- pins and the limit --- */

static int pin(struct fdry_store *store, const char *name, bool pinned)
{
	int err = fdry_need(store);

	if (!err)
		err = fdry_need(name);
	return err ? err : fdry_ref_pin(store, name, pinned);
}

int fdry_store_pin(struct fdry_store *store, const char *name)
{
	return pin(store, name, true);
}

int fdry_store_unpin(struct fdry_store *store, const char *name)
{
	return pin(store, name, false);
}

int fdry_store_limit_get(struct fdry_store *store, uint64_t *limit, uint64_t *used)
{
	int err = fdry_need(store);

	return err ? err : fdry_store_limit(store, limit, used);
}

int fdry_store_limit_set(struct fdry_store *store, uint64_t bytes)
{
	int err = fdry_need(store);

	return err ? err : fdry_store_set_limit(store, bytes);
}

/* --- evicting --- */

static void evicted(void *arg, const struct fdry_ref *ref, uint64_t time)
{
	const struct fdry_evict_opts *o = arg;
	char hex[FDRY_OID_HEX_SIZE];

	if (o->evicted)
		o->evicted(o->evicted_arg, ref->name, fdry_oid_hex(&ref->oid, hex), time);
}

static int evict_opts_take(const struct fdry_evict_opts *opts, struct fdry_evict_opts *ret)
{
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (!err && (ret->reserved || ret->flags & ~(uint32_t)FDRY_EVICT_DRY_RUN))
		err = fdry_fail(FDRY_E_OPTS, "unknown flags %#x for evicting, or a reserved field that is not 0", ret->flags);
	return err;
}

int fdry_store_evict(struct fdry_store *store, const struct fdry_evict_opts *opts, struct fdry_evict_info *info)
{
	struct fdry_evict_how how = { .evicted = evicted };
	struct fdry_evict_info i = { .sz = sizeof(i) };
	struct fdry_evict_report r;
	struct fdry_evict_opts o;
	int err = fdry_need(store);

	if (!err)
		err = evict_opts_take(opts, &o);
	if (!err)
		err = fdry_report_check(info);
	if (!err)
		err = fdry_store_busy(store);
	if (err)
		return err;
	how.limit = o.bytes;
	how.dry_run = o.flags & FDRY_EVICT_DRY_RUN;
	how.arg = &o;
	err = fdry_evict(store, &how, &r);
	fdry_store_idle(store);
	if (err)
		return err;
	i.limit = r.limit;
	i.before = r.before;
	i.after = r.after;
	i.images = r.refs;
	i.objects = r.gc.dead;
	i.stored = r.gc.dead_stored;
	i.collected = r.collected;
	return fdry_report_give(&i, sizeof(i), info);
}

/* --- collecting --- */

static int collecting(void *arg, enum fdry_gc_phase phase, uint64_t done, uint64_t total)
{
	const struct fdry_collect_opts *o = arg;

	return o->progress(o->progress_arg, (int)phase, done, total);
}

static int collect_opts_take(const struct fdry_collect_opts *opts, struct fdry_collect_opts *ret)
{
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (!err && (ret->reserved || ret->flags & ~(uint32_t)FDRY_COLLECT_DRY_RUN))
		err = fdry_fail(FDRY_E_OPTS, "unknown flags %#x for collecting, or a reserved field that is not 0", ret->flags);
	return err;
}

static int collect_give(const struct fdry_gc_report *r, struct fdry_collect_info *info)
{
	struct fdry_collect_info i = { .live = r->live, .dead = r->dead, .dead_bytes = r->dead_bytes,
				       .dead_stored = r->dead_stored, .spared = r->spared, .leases = r->leases,
				       .reclaimed = r->reclaimed, .stopped = r->stopped };

	return fdry_report_give(&i, sizeof(i), info);
}

int fdry_store_collect(struct fdry_store *store, const struct fdry_collect_opts *opts, struct fdry_collect_info *info)
{
	struct fdry_gc_opts how = { .dry_run = false };
	struct fdry_gc_report r;
	struct fdry_collect_opts o;
	int err = fdry_need(store);

	if (!err)
		err = collect_opts_take(opts, &o);
	if (!err)
		err = fdry_report_check(info);
	if (!err)
		err = fdry_store_busy(store);
	if (err)
		return err;
	how.dry_run = o.flags & FDRY_COLLECT_DRY_RUN;
	how.progress = o.progress ? collecting : NULL;
	how.arg = &o;
	err = fdry_gc(store, &how, &r);
	fdry_store_idle(store);
	return err ? err : collect_give(&r, info);
}
