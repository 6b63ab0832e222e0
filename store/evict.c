// SPDX-License-Identifier: Apache-2.0
/*
 * evict.c - a store of limited size: selecting the images to evict, and deleting them.
 *
 * Images are ranked: first those that are pinned or must stay, then the most recently used. The
 * plan keeps images in this order as long as they fit. An object that several images share counts
 * once. After the first image that does not fit, the plan keeps only images that add no object.
 * Evicting deletes the refs of all other images and runs a collection. Sizes are bytes of LMDB's
 * pages; for a single object they are estimates, rather too high than too low.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/opts.h"
#include "lib/telemetry.h"
#include "lib/threads.h"
#include "store/internal.h"

/* LMDB's pages. A value of which two do not fit into a page has pages of its own. */
#define PAGE 4096u
#define IN_LEAF 2000u
#define ROOTS (8 * PAGE) /* roots of the tables, branches, and pages that are half full */
#define ENTRY 56u /* a key, and LMDB's head of an entry and its slot */

/* An eviction: its options, its bounds, and the refs that it deletes. */
struct evict {
	struct fdry_store *s;
	const struct fdry_evict_opts *opts;
	const struct fdry_evict_bounds *bounds;
	struct fdry_buf refs; /* struct ranked each; first all refs, then those to delete */
	struct fdry_evict_report report;
};

static bool is_dry_run(const struct evict *e)
{
	return e->opts->flags & FDRY_EVICT_DRY_RUN;
}

/* --- ranking --- */

struct ranked {
	struct fdry_ref ref;
	uint64_t used; /* the higher, the later; 0: no use was noted */
	uint64_t time; /* of the last use */
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

static bool must_stay(const struct fdry_evict_bounds *b, const struct fdry_ref *ref)
{
	size_t i;

	for (i = 0; i < b->nkeep; i++)
		if (fdry_oid_eq(&b->keep[i], &ref->oid))
			return true;
	return ref->pinned;
}

static int ranked_put(struct fdry_buf *ranked, const struct fdry_evict_bounds *bounds,
		      const struct fdry_ref *ref, const struct fdry_atime *used)
{
	struct ranked r = { .ref = *ref, .must_stay = must_stay(bounds, ref) };

	if (used) {
		r.used = used->order;
		r.time = used->time;
	}
	return fdry_buf_put(ranked, &r, sizeof(r));
}

/* All refs: first those that must stay, then the most recently used. */
static int refs_rank(struct evict *e, struct fdry_txn *t)
{
	struct fdry_buf refs = { 0 }, used = { 0 };
	const struct fdry_ref *ref;
	size_t i;
	int err = fdry_ref_images(t, NULL, &refs);

	if (err)
		goto out_release;
	err = fdry_atime_read(e->s->env, &used);
	ref = (const void *)refs.data;
	for (i = 0; i < refs.len / sizeof(*ref) && !err; i++)
		err = ranked_put(&e->refs, e->bounds, &ref[i], fdry_atime_find(&used, &ref[i].oid));
	if (!err && e->refs.len)
		qsort(e->refs.data, e->refs.len / sizeof(struct ranked), sizeof(struct ranked),
		      ranked_cmp);
out_release:
	fdry_buf_release(&refs);
	fdry_buf_release(&used);
	return err;
}

/* --- the plan --- */

struct plan {
	struct fdry_idset kept; /* objects of images that stay */
	uint64_t bytes;         /* their cost */
	bool full;              /* an image did not fit */
	/* for one image: */
	struct fdry_buf fresh; /* ids that are not in @kept */
	uint64_t adds;         /* their cost */
};

/* Bytes of pages that a value takes. */
static uint64_t value_cost(uint64_t len)
{
	return len <= IN_LEAF ? (len + ENTRY) * 4 / 3 : (len + PAGE) / PAGE * PAGE + ENTRY * 2;
}

uint64_t fdry_record_cost(const struct fdry_record *rec)
{
	return value_cost(FDRY_RECORD_AT_LINKS + rec->links.len) + value_cost(rec->stored);
}

/* A missing object is no error here: the image cannot be loaded, and the collection reports it. */
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
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_idset_add(&p->kept, &oid[i], NULL);
		if (err)
			return err;
	}
	p->bytes += p->adds;
	return 0;
}

/* @stays: whether the image stays. */
static int image_plan(struct fdry_txn *t, const struct ranked *r, uint64_t limit, struct plan *p,
		      bool *stays)
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
	int err;

	for (i = 0; held && i < held->cap; i++) {
		if (!held->used[i])
			continue;
		err = fdry_record_get(t, &held->slots[i], &found, &rec);
		if (err)
			return err;
		if (!found)
			continue;
		err = fdry_idset_add(&p->kept, &held->slots[i], NULL);
		if (err)
			return err;
		p->bytes += fdry_record_cost(&rec);
	}
	return 0;
}

static void plan_release(struct plan *p)
{
	fdry_buf_release(&p->fresh);
	fdry_idset_release(&p->kept);
}

/* Remove the refs that stay from the list. The ref that was used longest ago is the last one. */
static int victims_find(struct evict *e, struct fdry_txn *t)
{
	struct ranked *r = (void *)e->refs.data;
	size_t i, n = e->refs.len / sizeof(*r), out = 0;
	struct plan p = { .bytes = ROOTS };
	bool stays = false;
	int err = held_keep(t, e->bounds->held, &p);

	for (i = 0; i < n && !err; i++) {
		err = image_plan(t, &r[i], e->report.limit, &p, &stays);
		if (!stays)
			r[out++] = r[i];
	}
	e->refs.len = out * sizeof(*r);
	e->report.after = p.bytes;
	plan_release(&p);
	return err;
}

/* --- evicting --- */

/* A ref that was set or pinned meanwhile stays. */
static int victim_remove(struct fdry_txn *t, struct ranked *r, bool *removed)
{
	struct fdry_ref now;
	bool found = false;
	int err = fdry_ref_find(t, r->ref.name, &r->ref.identity, &found, &now);

	*removed = !err && found && !now.pinned && now.change == r->ref.change;
	return *removed ? fdry_ref_remove(t, &r->ref) : err;
}

static int victims_remove(struct evict *e)
{
	struct ranked *r = (void *)e->refs.data;
	size_t i, n = e->refs.len / sizeof(*r), out = 0;
	struct fdry_txn t;
	bool removed = false;
	int err = fdry_txn_write(e->s->env->db, FDRY_REF_SIZE, &t);

	if (err)
		return err;
	for (i = 0; i < n && !err; i++) {
		err = victim_remove(&t, &r[i], &removed);
		if (removed)
			r[out++] = r[i];
	}
	err = fdry_txn_end(&t, err);
	if (err)
		return err;
	e->refs.len = out * sizeof(*r);
	e->report.images = out;
	fdry_count(FDRY_METRIC_STORE_EVICTED, out);
	return 0;
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

/* If another collection is under way now, the next one deletes the objects. */
static int space_free(struct evict *e)
{
	struct fdry_gc_report gc = { .sz = sizeof(gc) };
	int err = fdry_store_gc(e->s, NULL, &gc);

	e->report.collected = !err;
	e->report.objects = gc.dead;
	e->report.stored = gc.dead_stored;
	if (err && err != -FDRY_E_LOCKED)
		return err;
	return fdry_store_limit(e->s, NULL, &e->report.after);
}

/* The images are evicted nevertheless. */
static int space_failed(struct evict *e, int err)
{
	struct fdry_saved_err saved;
	size_t n = e->report.images;

	if (!n)
		return err;
	err = fdry_fail_at(err, "the next collection frees the space of %zu evicted image%s", n,
			   n == 1 ? "" : "s");
	fdry_saved_err_set(&saved, err);
	e->report.collected = false;
	if (fdry_store_limit(e->s, NULL, &e->report.after))
		e->report.after = e->report.before;
	victims_report(e);
	return fdry_saved_err_restore(&saved);
}

/* Remove the refs of the plan, and free their space. */
static int victims_evict(struct evict *e)
{
	int err = e->refs.len ? victims_remove(e) : 0;

	if (err)
		return err;
	err = space_free(e);
	return err ? space_failed(e, err) : 0;
}

/* The cost of all images and the held objects, by the estimate that plans use. */
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
	plan_release(&p);
	return err;
}

/* The size that the store must not exceed: by the bounds or the options, else the store's limit. */
static int limit_find(struct evict *e, struct fdry_txn *t)
{
	uint64_t all = 0, *ret = &e->report.limit;
	int err;

	if (e->bounds->free) {
		err = all_cost(e, t, &all);
		*ret = all > e->bounds->free ? all - e->bounds->free : 0;
		return err;
	}
	*ret = e->opts->bytes;
	if (*ret)
		return 0;
	err = fdry_limit_read(t, ret);
	if (err)
		return err;
	return *ret ? 0 : fdry_fail(FDRY_E_STATE, "the store has no limit; set one, or request a "
						  "size");
}

/*
 * If a collection would fail, deleting refs would free no space: a dry run finds that out. A
 * collection that is running now has found nothing wrong so far.
 */
static int gc_check(struct fdry_store *s)
{
	struct fdry_gc_opts dry_run = { .sz = sizeof(dry_run), .flags = FDRY_GC_DRY_RUN };
	int err = fdry_store_gc(s, &dry_run, NULL);

	return err == -FDRY_E_LOCKED ? 0 : err;
}

int fdry_evict(struct fdry_store *s, const struct fdry_evict_opts *opts,
	       const struct fdry_evict_bounds *bounds, struct fdry_evict_report *ret)
{
	struct evict e = { .s = s, .opts = opts, .bounds = bounds, .report.limit = opts->bytes };
	struct fdry_txn t;
	int err = (is_dry_run(&e) ? 0 : fdry_store_check_write(s)) ?: fdry_store_read(s, &t);

	*ret = e.report;
	if (err)
		return err;
	err = fdry_txn_bytes(&t, &e.report.before) ?: refs_rank(&e, &t) ?: limit_find(&e, &t) ?:
	      victims_find(&e, &t);
	fdry_txn_abort(&t);
	if (err)
		goto out_release;
	if (!bounds->free && e.report.before <= e.report.limit) { /* nothing has to go */
		e.refs.len = 0;
		e.report.after = e.report.before;
		goto out_report;
	}
	err = e.refs.len ? gc_check(s) : 0;
	if (!err && !is_dry_run(&e))
		err = victims_evict(&e);
	if (err)
		goto out_release;
out_report:
	e.report.images = e.refs.len / sizeof(struct ranked);
	victims_report(&e);
out_release:
	if (err && !e.report.images)
		e.report.after = e.report.before;
	*ret = e.report;
	fdry_buf_release(&e.refs);
	return err;
}

int fdry_store_evict(struct fdry_store *store, const struct fdry_evict_opts *opts,
		     struct fdry_evict_report *report)
{
	struct fdry_evict_bounds none = { .nkeep = 0 };
	struct fdry_evict_report r;
	struct fdry_evict_opts o;
	int err = fdry_need(store) ?:
		  fdry_store_opts_take(opts, &o, sizeof(o), FDRY_EVICT_DRY_RUN) ?:
		  fdry_report_check(report) ?: fdry_store_busy(store);

	if (err)
		return err;
	err = fdry_evict(store, &o, &none, &r);
	fdry_store_idle(store);
	return fdry_report_give(&r, sizeof(r), report) ?: err;
}

void fdry_evict_after(struct fdry_store *s, const struct fdry_oid *sealed, size_t count)
{
	struct fdry_evict_bounds bounds = { .keep = sealed, .nkeep = count };
	struct fdry_evict_opts opts = { .sz = sizeof(opts) };
	struct fdry_evict_report r;
	uint64_t limit = 0, used = 0;
	int err = fdry_store_limit(s, &limit, &used);

	if (err)
		goto out_warn;
	if (!limit || used <= limit)
		return;
	err = fdry_evict(s, &opts, &bounds, &r);
	if (err)
		goto out_warn;
	fdry_info("store %s: %llu refs evicted, %llu of %llu bytes in use", s->path,
		  (unsigned long long)r.images, (unsigned long long)r.after,
		  (unsigned long long)r.limit);
	return;
out_warn:
	fdry_warn("store %s: it is over its limit, and evicting failed: %s", s->path,
		  fdry_last_error());
}
