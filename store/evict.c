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
#include "lib/telemetry.h"
#include "store/internal.h"

/* LMDB's pages; values that do not fit twice into one have pages of their own. */
#define PAGE 4096u
#define IN_LEAF 2000u
#define ROOTS (8 * PAGE) /* of tables, branches, and what is half full */
#define ENTRY 56u /* a key, and LMDB's head of an entry and its slot */

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

static bool kept(const struct fdry_evict_how *o, const struct fdry_ref *ref)
{
	size_t i;

	for (i = 0; i < o->nkeep; i++)
		if (fdry_oid_eq(&o->keep[i], &ref->oid))
			return true;
	return ref->pinned;
}

static int refs_rank(struct fdry_store *s, struct fdry_txn *t, const struct fdry_evict_how *o, struct fdry_buf *ret)
{
	struct fdry_buf refs = { 0 }, used = { 0 };
	const struct fdry_atime *u;
	const struct fdry_ref *ref;
	struct ranked r;
	size_t i;
	int err = fdry_ref_images(t, NULL, &refs);

	if (!err)
		err = fdry_atime_read(s->env, &used);
	ref = (const void *)refs.data;
	for (i = 0; i < refs.len / sizeof(*ref) && !err; i++) {
		u = fdry_atime_find(&used, &ref[i].oid);
		r = (struct ranked){ .ref = ref[i], .used = u ? u->order : 0, .time = u ? u->time : 0, .must_stay = kept(o, &ref[i]) };
		err = fdry_buf_put(ret, &r, sizeof(r));
	}
	fdry_buf_release(&refs);
	fdry_buf_release(&used);
	if (!err && ret->len)
		qsort(ret->data, ret->len / sizeof(r), sizeof(r), ranked_cmp);
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

/* Takes what stays out of @refs, so that those that go are left, the one that was used longest ago last. */
static int victims_find(struct fdry_txn *t, uint64_t limit, const struct fdry_idset *held, struct fdry_buf *refs,
			uint64_t *kept_bytes)
{
	struct ranked *r = (void *)refs->data;
	size_t i, n = refs->len / sizeof(*r), out = 0;
	struct plan p = { .bytes = ROOTS };
	bool stays = false;
	int err = held_keep(t, held, &p);

	for (i = 0; i < n && !err; i++) {
		err = image_plan(t, &r[i], limit, &p, &stays);
		if (!err && !stays)
			r[out++] = r[i];
	}
	refs->len = out * sizeof(*r);
	*kept_bytes = p.bytes;
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

static int victims_remove(struct fdry_store *s, struct fdry_buf *refs)
{
	struct ranked *r = (void *)refs->data;
	size_t i, n = refs->len / sizeof(*r), out = 0;
	struct fdry_txn t;
	bool gone = false;
	int err = fdry_txn_write(s->env->db, FDRY_REF_SIZE, &t);

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
	refs->len = out * sizeof(*r);
	err = fdry_txn_commit(&t);
	if (!err)
		fdry_count(FDRY_METRIC_STORE_EVICTED, out);
	return err;
}

static void victims_tell(const struct fdry_evict_how *o, const struct fdry_buf *refs)
{
	const struct ranked *r = (const void *)refs->data;
	size_t i;

	for (i = refs->len / sizeof(*r); o->evicted && i > 0; i--)
		o->evicted(o->arg, &r[i - 1].ref, r[i - 1].time);
}

/* Collecting may be impossible now; then the next one finds what has gone. */
static int room_make(struct fdry_store *s, struct fdry_evict_report *ret)
{
	int err = fdry_store_gc(s, false, &ret->gc);

	ret->collected = !err;
	if (err == -FDRY_E_LOCKED)
		err = 0;
	return err ? err : fdry_store_limit(s, NULL, &ret->after);
}

/* Where a collection refuses, refs would go and no room come of it. One that is under way has found nothing wrong so far. */
static int room_check(struct fdry_store *s)
{
	struct fdry_gc_report r;
	int err = fdry_store_gc(s, true, &r);

	return err == -FDRY_E_LOCKED ? 0 : err;
}

/* What all images and what is held take, by the estimate that plans are made with. */
static int all_cost(struct fdry_txn *t, const struct fdry_idset *held, const struct fdry_buf *refs, uint64_t *ret)
{
	const struct ranked *r = (const void *)refs->data;
	struct plan p = { .bytes = ROOTS };
	bool stays;
	size_t i;
	int err = held_keep(t, held, &p);

	for (i = 0; i < refs->len / sizeof(*r) && !err; i++)
		err = image_plan(t, &r[i], UINT64_MAX, &p, &stays);
	*ret = p.bytes;
	fdry_buf_release(&p.fresh);
	fdry_idset_release(&p.kept);
	return err;
}

/* What is to fit into what: by the caller's word, or the store's limit. */
static int limit_find(struct fdry_txn *t, const struct fdry_evict_how *o, const struct fdry_buf *refs, uint64_t *ret)
{
	uint64_t all = 0;
	int err = 0;

	*ret = o->limit;
	if (o->free) {
		err = all_cost(t, o->held, refs, &all);
		*ret = all > o->free ? all - o->free : 0;
	} else if (!o->limit) {
		err = fdry_limit_get(t, ret);
		if (!err && !*ret)
			err = fdry_fail(FDRY_E_STATE, "the store has no limit; set one, or say what to make it fit");
	}
	return err;
}

static int evict_plan(struct fdry_store *s, const struct fdry_evict_how *o, struct fdry_buf *refs, struct fdry_evict_report *ret)
{
	struct fdry_txn t;
	int err = fdry_txn_read(s->env->db, &t);

	if (err)
		return err;
	err = fdry_txn_bytes(&t, &ret->before);
	if (!err)
		err = refs_rank(s, &t, o, refs);
	if (!err)
		err = limit_find(&t, o, refs, &ret->limit);
	if (!err)
		err = victims_find(&t, ret->limit, o->held, refs, &ret->after);
	ret->enough = ret->after <= ret->limit;
	fdry_txn_abort(&t);
	return err;
}

static int evict(struct fdry_store *s, const struct fdry_evict_how *o, struct fdry_buf *refs, struct fdry_evict_report *ret)
{
	int err = room_check(s);

	if (err || o->dry_run)
		return err;
	err = victims_remove(s, refs);
	return err ? err : room_make(s, ret);
}

int fdry_evict(struct fdry_store *s, const struct fdry_evict_how *o, struct fdry_evict_report *ret)
{
	struct fdry_evict_report r = { .collected = false };
	struct fdry_buf refs = { 0 };
	int err = o->dry_run ? fdry_store_check(s) : fdry_store_check_write(s);

	if (!err)
		err = evict_plan(s, o, &refs, &r);
	if (!err && !o->free && r.before <= r.limit) {
		refs.len = 0; /* it fits as it is */
		r.after = r.before;
	} else if (!err) {
		err = refs.len ? evict(s, o, &refs, &r) : o->dry_run ? 0 : room_make(s, &r);
	}
	if (!err) {
		r.refs = refs.len / sizeof(struct ranked);
		victims_tell(o, &refs);
		*ret = r;
	}
	fdry_buf_release(&refs);
	return err;
}

void fdry_evict_after(struct fdry_store *s, const struct fdry_oid *sealed, size_t count)
{
	struct fdry_evict_how o = { .keep = sealed, .nkeep = count };
	struct fdry_evict_report r;
	uint64_t limit = 0, used = 0;
	int err = fdry_store_limit(s, &limit, &used);

	if (!err && limit && used > limit)
		err = fdry_evict(s, &o, &r);
	if (err)
		fdry_warn("store %s: it is over its limit, and nothing could be evicted: %s", s->path, fdry_last_error());
	else if (limit && used > limit)
		fdry_info("store %s: %llu refs evicted, %llu of %llu bytes in use", s->path, (unsigned long long)r.refs,
			  (unsigned long long)r.after, (unsigned long long)r.limit);
}
