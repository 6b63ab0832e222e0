// SPDX-License-Identifier: Apache-2.0
/*
 * evict.c - a store of limited size: which images go, and letting them go.
 *
 * Images are ranked: what is pinned or must stay, then the most recently used. From the top
 * each one that still fits is kept, counting what it shares with those above once; from the
 * first that does not fit on only those that add nothing stay. To evict is to delete the
 * refs of the others and to collect. Sizes are what LMDB's pages take, which for a single
 * object is an estimate that errs upwards.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/opts.h"
#include "lib/telemetry.h"
#include "store/internal.h"

/* LMDB's pages; values that do not fit twice into one have pages of their own. */
#define PAGE 4096u
#define IN_LEAF 2000u
#define ROOTS (8 * PAGE) /* of tables, branches, and what is half full */
#define ENTRY 56u /* a key, and LMDB's head of an entry and its slot */

/* An eviction: what it is asked for, what it keeps to, and the refs that go. */
struct evict {
	struct fdry_store *s;
	const struct fdry_evict_opts *opts;
	const struct fdry_evict_bounds *bounds;
	struct fdry_buf refs; /* struct ranked each; first all, then those that go */
	struct fdry_evict_report report;
};

static bool is_dry_run(const struct evict *e)
{
	return e->opts->flags & FDRY_EVICT_DRY_RUN;
}

/* --- ranking --- */

struct ranked {
	struct fdry_ref ref;
	uint64_t used; /* the higher, the later; 0: nobody noted it */
	uint64_t time;
	bool must_stay;
};

static int ranked_cmp(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->must_stay != y->must_stay)
		return x->must_stay ? -1 : 1;
	if (x->used != y->used)
		return x->used > y->used ? -1 : 1;
	return x->ref.change > y->ref.change ? -1 : x->ref.change < y->ref.change;
}

static bool kept(const struct fdry_evict_bounds *b, const struct fdry_ref *ref)
{
	size_t i;

	for (i = 0; i < b->nkeep; i++)
		if (fdry_oid_eq(&b->keep[i], &ref->oid))
			return true;
	return ref->pinned;
}

/* All refs, those that must stay first, then the one that was used last. */
static int refs_rank(struct evict *e, struct fdry_txn *t)
{
	struct fdry_buf refs = { 0 }, used = { 0 };
	const struct fdry_atime *u;
	const struct fdry_ref *ref;
	struct ranked r;
	size_t i;
	int err = fdry_ref_images(t, NULL, &refs);

	if (!err)
		err = fdry_atime_read(e->s->env, &used);
	ref = (const void *)refs.data;
	for (i = 0; i < refs.len / sizeof(*ref) && !err; i++) {
		u = fdry_atime_find(&used, &ref[i].oid);
		r = (struct ranked){ .ref = ref[i], .must_stay = kept(e->bounds, &ref[i]) };
		if (u) {
			r.used = u->order;
			r.time = u->time;
		}
		err = fdry_buf_put(&e->refs, &r, sizeof(r));
	}
	fdry_buf_release(&refs);
	fdry_buf_release(&used);
	if (!err && e->refs.len)
		qsort(e->refs.data, e->refs.len / sizeof(r), sizeof(r), ranked_cmp);
	return err;
}

/* --- what stays --- */

struct plan {
	struct fdry_idset kept; /* objects of images that stay */
	uint64_t bytes;         /* of these */
	bool full;
	/* of one image */
	struct fdry_buf fresh; /* ids that are not in @kept */
	uint64_t adds;
};

uint64_t fdry_record_cost(const struct fdry_record *rec)
{
	uint64_t record = FDRY_RECORD_AT_LINKS + rec->links.len, cost = 0;

	cost += record <= IN_LEAF ? (record + ENTRY) * 4 / 3 : (record + PAGE) / PAGE * PAGE + ENTRY * 2;
	cost += rec->stored <= IN_LEAF ? (rec->stored + ENTRY) * 4 / 3 : (rec->stored + PAGE) / PAGE * PAGE + ENTRY * 2;
	return cost;
}

/* What is missing keeps nothing back: the image cannot be loaded, and the collection says so. */
static int fresh_add(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct plan *p = arg;

	if (!rec || fdry_idset_has(&p->kept, oid))
		return FDRY_EACH_STOP;
	p->adds += fdry_record_cost(rec);
	return fdry_buf_put(&p->fresh, oid, sizeof(*oid));
}

static int fresh_keep(struct plan *p)
{
	const struct fdry_oid *oid = (const void *)p->fresh.data;
	size_t i, n = p->fresh.len / sizeof(*oid);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = fdry_idset_add(&p->kept, &oid[i], NULL);
	p->bytes += p->adds;
	return err;
}

/* @stays: whether the image does. */
static int image_plan(struct fdry_txn *t, const struct ranked *r, uint64_t limit, struct plan *p, bool *stays)
{
	struct fdry_idset seen = { 0 };
	int err;

	p->fresh.len = 0;
	p->adds = 0;
	err = fdry_reach(t, &r->ref.oid, &seen, fresh_add, p);
	fdry_idset_release(&seen);
	if (err)
		return fdry_fail_at(err, "ref '%s'", r->ref.name);
	*stays = r->must_stay || !p->adds || (!p->full && p->bytes + p->adds <= limit);
	p->full |= !*stays;
	return *stays ? fresh_keep(p) : 0;
}

static int held_keep(struct fdry_txn *t, const struct fdry_idset *held, struct plan *p)
{
	struct fdry_record rec;
	bool found = false;
	size_t i;
	int err = 0;

	for (i = 0; held && i < held->cap && !err; i++) {
		if (!held->used[i])
			continue;
		err = fdry_record_get(t, &held->slots[i], &found, &rec);
		if (!err && found)
			err = fdry_idset_add(&p->kept, &held->slots[i], NULL);
		if (!err && found)
			p->bytes += fdry_record_cost(&rec);
	}
	return err;
}

/* Take out of the refs those that stay; those that go are left, the one that was used longest ago
 * last. */
static int victims_find(struct evict *e, struct fdry_txn *t)
{
	struct ranked *r = (void *)e->refs.data;
	size_t i, n = e->refs.len / sizeof(*r), out = 0;
	struct plan p = { .bytes = ROOTS };
	bool stays = false;
	int err = held_keep(t, e->bounds->held, &p);

	for (i = 0; i < n && !err; i++) {
		err = image_plan(t, &r[i], e->report.limit, &p, &stays);
		if (!err && !stays)
			r[out++] = r[i];
	}
	e->refs.len = out * sizeof(*r);
	e->report.after = p.bytes;
	fdry_buf_release(&p.fresh);
	fdry_idset_release(&p.kept);
	return err;
}

/* --- letting go --- */

/* Whoever set or pinned it meanwhile has won. */
static int victim_remove(struct fdry_txn *t, struct ranked *r, bool *gone)
{
	struct fdry_ref now;
	bool found = false;
	int err = fdry_ref_find(t, r->ref.name, &r->ref.identity, &found, &now);

	*gone = !err && found && !now.pinned && now.change == r->ref.change;
	return *gone ? fdry_ref_remove(t, &r->ref) : err;
}

static int victims_remove(struct evict *e)
{
	struct ranked *r = (void *)e->refs.data;
	size_t i, n = e->refs.len / sizeof(*r), out = 0;
	struct fdry_txn t;
	bool gone = false;
	int err = fdry_txn_write(e->s->env->db, FDRY_REF_SIZE, &t);

	if (err)
		return err;
	for (i = 0; i < n && !err; i++) {
		err = victim_remove(&t, &r[i], &gone);
		if (!err && gone)
			r[out++] = r[i];
	}
	if (err) {
		fdry_txn_abort(&t);
		return err;
	}
	e->refs.len = out * sizeof(*r);
	err = fdry_txn_commit(&t);
	if (!err)
		fdry_count(FDRY_METRIC_STORE_EVICTED, out);
	return err;
}

static void victims_report(const struct evict *e)
{
	const struct ranked *r = (const void *)e->refs.data;
	char hex[FDRY_OID_HEX_SIZE];
	size_t i;

	for (i = e->refs.len / sizeof(*r); e->opts->evicted && i > 0; i--)
		e->opts->evicted(e->opts->evicted_arg, r[i - 1].ref.name,
				 fdry_oid_hex(&r[i - 1].ref.oid, hex), r[i - 1].time);
}

/* If another collection is under way now, the next one finds what has gone. */
static int space_free(struct evict *e)
{
	struct fdry_gc_report gc = { .sz = sizeof(gc) };
	int err = fdry_store_gc(e->s, NULL, &gc);

	e->report.collected = !err;
	e->report.objects = gc.dead;
	e->report.stored = gc.dead_stored;
	if (err && err != -FDRY_E_LOCKED)
		return err;
	return fdry_store_limit_get(e->s, NULL, &e->report.after);
}

/*
 * If a collection would refuse, refs would go and free no space. A collection that is under way
 * has found nothing wrong so far.
 */
static int gc_check(struct fdry_store *s)
{
	struct fdry_gc_opts dry_run = { .sz = sizeof(dry_run), .flags = FDRY_GC_DRY_RUN };
	int err = fdry_store_gc(s, &dry_run, NULL);

	return err == -FDRY_E_LOCKED ? 0 : err;
}

/* What all images and the held objects take, by the estimate that plans are made with. */
static int all_cost(const struct evict *e, struct fdry_txn *t, uint64_t *ret)
{
	const struct ranked *r = (const void *)e->refs.data;
	struct plan p = { .bytes = ROOTS };
	bool stays;
	size_t i;
	int err = held_keep(t, e->bounds->held, &p);

	for (i = 0; i < e->refs.len / sizeof(*r) && !err; i++)
		err = image_plan(t, &r[i], UINT64_MAX, &p, &stays);
	*ret = p.bytes;
	fdry_buf_release(&p.fresh);
	fdry_idset_release(&p.kept);
	return err;
}

/* The size that the caller asks for, else the store's limit. */
static int limit_find(struct evict *e, struct fdry_txn *t)
{
	uint64_t all = 0, *ret = &e->report.limit;
	int err = 0;

	*ret = e->opts->bytes;
	if (e->bounds->free) {
		err = all_cost(e, t, &all);
		*ret = all > e->bounds->free ? all - e->bounds->free : 0;
	} else if (!*ret) {
		err = fdry_limit_get(t, ret);
		if (!err && !*ret)
			err = fdry_fail(FDRY_E_STATE, "the store has no limit; set one, "
					"or say what to make it fit");
	}
	return err;
}

static int evict_plan(struct evict *e)
{
	struct fdry_txn t;
	int err = fdry_txn_read(e->s->env->db, &t);

	if (err)
		return err;
	err = fdry_txn_bytes(&t, &e->report.before);
	if (!err)
		err = refs_rank(e, &t);
	if (!err)
		err = limit_find(e, &t);
	if (!err)
		err = victims_find(e, &t);
	fdry_txn_abort(&t);
	return err;
}

static int evict_run(struct evict *e)
{
	int err = evict_plan(e);

	if (err)
		return err;
	if (!e->bounds->free && e->report.before <= e->report.limit) {
		e->refs.len = 0; /* it fits as it is */
		e->report.after = e->report.before;
		return 0;
	}
	if (e->refs.len)
		err = gc_check(e->s);
	if (err || is_dry_run(e))
		return err;
	if (e->refs.len)
		err = victims_remove(e);
	return err ? err : space_free(e);
}

int fdry_evict(struct fdry_store *s, const struct fdry_evict_opts *opts,
	       const struct fdry_evict_bounds *bounds, struct fdry_evict_report *ret)
{
	struct evict e = { .s = s, .opts = opts, .bounds = bounds };
	int err = is_dry_run(&e) ? fdry_store_check(s) : fdry_store_check_write(s);

	if (!err)
		err = evict_run(&e);
	if (!err) {
		e.report.images = e.refs.len / sizeof(struct ranked);
		victims_report(&e);
		*ret = e.report;
	}
	fdry_buf_release(&e.refs);
	return err;
}

static int opts_take(const struct fdry_evict_opts *opts, struct fdry_evict_opts *ret)
{
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (!err && (ret->reserved || ret->flags & ~(uint32_t)FDRY_EVICT_DRY_RUN))
		err = fdry_fail(FDRY_E_OPTS, "unknown flags %#x for evicting, "
				"or a reserved field that is not 0", ret->flags);
	return err;
}

int fdry_store_evict(struct fdry_store *store, const struct fdry_evict_opts *opts,
		     struct fdry_evict_report *report)
{
	struct fdry_evict_bounds none = { .nkeep = 0 };
	struct fdry_evict_report r;
	struct fdry_evict_opts o;
	int err = fdry_need(store);

	if (!err)
		err = opts_take(opts, &o);
	if (!err)
		err = fdry_report_check(report);
	if (!err)
		err = fdry_store_busy(store);
	if (err)
		return err;
	err = fdry_evict(store, &o, &none, &r);
	fdry_store_idle(store);
	return err ? err : fdry_report_give(&r, sizeof(r), report);
}

void fdry_evict_after(struct fdry_store *s, const struct fdry_oid *sealed, size_t count)
{
	struct fdry_evict_bounds bounds = { .keep = sealed, .nkeep = count };
	struct fdry_evict_opts opts = { .sz = sizeof(opts) };
	struct fdry_evict_report r;
	uint64_t limit = 0, used = 0;
	int err = fdry_store_limit_get(s, &limit, &used);

	if (!err && limit && used > limit)
		err = fdry_evict(s, &opts, &bounds, &r);
	if (err)
		fdry_warn("store %s: it is over its limit, and nothing could be evicted: %s",
			  s->path, fdry_last_error());
	else if (limit && used > limit)
		fdry_info("store %s: %llu refs evicted, %llu of %llu bytes in use", s->path,
			  (unsigned long long)r.images, (unsigned long long)r.after,
			  (unsigned long long)r.limit);
}
