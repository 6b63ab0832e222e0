// SPDX-License-Identifier: Apache-2.0
/*
 * sweep_list.c - listing dead objects in the order in which a collection deletes them.
 *
 * At every moment, every link of an object in the store must lead to an object in the store: a
 * session may find the object and rely on it. So an object is deleted after all objects that link
 * to it: its level is above theirs. Within a level ids ascend, so that neighbours in LMDB's trees
 * are deleted together. Objects whose links form a circle have no order; they are deleted last.
 */
#include "store/sweep_list.h"

#include <stdlib.h>

#define STEPS 4096 /* objects in one view */

struct list_walk {
	struct fdry_txn t;
	struct fdry_sweep_list *d;
	struct fdry_mark *m;
	uint64_t walked;
	size_t ordered; /* entries with a record, in id order, at the beginning of the list */
	struct fdry_buf next; /* struct fdry_sweep_entry *: a queue of entries that have a level */
	size_t at;            /* of a step: the next entry, or byte of the queue */
	int (*tick)(void *arg);
	void *arg;
};

static struct fdry_sweep_entry *entries(struct fdry_sweep_list *d)
{
	return (void *)d->entries.data;
}

/* --- the list --- */

static int entry_put(struct list_walk *w, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct fdry_sweep_entry dead = {
		.oid = *oid,
		.kinds = rec->kinds,
		.nlinks = rec->nlinks,
		.size = rec->size,
		.stored = rec->stored,
	};

	return fdry_buf_put(&w->d->entries, &dead, sizeof(dead));
}

static int walk_object(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct list_walk *w = arg;
	struct fdry_record rec;
	struct fdry_oid oid;
	int err = fdry_record_parse_entry(key, value, &oid, &rec);

	if (err)
		return err;
	w->walked++;
	if (!fdry_idset_has(&w->m->live, &oid))
		return entry_put(w, &oid, &rec);
	w->d->live++;
	return 0;
}

/* Bytes without a record, left by damage or by a program of another version. */
static int walk_data(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct fdry_record none = { .size = value.len, .stored = value.len }, rec;
	struct list_walk *w = arg;
	struct fdry_oid oid;
	bool found = false;
	int err = fdry_oid_of_key(key, &oid);

	if (err)
		return err;
	err = fdry_record_get(&w->t, &oid, &found, &rec);
	return err || found ? err : entry_put(w, &oid, &none);
}

static int count_check(struct list_walk *w)
{
	uint64_t count = 0;
	int err = fdry_txn_count(&w->t, FDRY_TABLE_OBJECTS, &count);

	if (err || count == w->walked)
		return err;
	return fdry_fail(FDRY_E_CORRUPT,
			 "the store counts %llu objects and lists %llu, so its pages are damaged; "
			 FDRY_DAMAGE_ADVICE,
			 (unsigned long long)count, (unsigned long long)w->walked);
}

/* One view for all objects, or the counts could not be compared: about 0.3 s for a million
 * objects. */
static int walk(struct list_walk *w)
{
	struct fdry_span all = { 0 };
	int err = fdry_txn_read(w->m->env->db, &w->t);

	if (err)
		return err;
	err = fdry_txn_each(&w->t, FDRY_TABLE_OBJECTS, all, walk_object, w);
	w->ordered = w->d->entries.len / sizeof(struct fdry_sweep_entry);
	if (err)
		goto out_abort;
	err = count_check(w);
	if (err)
		goto out_abort;
	err = fdry_txn_each(&w->t, FDRY_TABLE_DATA, all, walk_data, w);
out_abort:
	fdry_txn_abort(&w->t);
	return err;
}

/* --- the order --- */

static struct fdry_sweep_entry *entry_find(struct list_walk *w, const struct fdry_oid *oid)
{
	return bsearch(oid, w->d->entries.data, w->ordered, sizeof(struct fdry_sweep_entry),
		       fdry_oid_cmp);
}

/* Call @fn for each dead object that @dead links to. */
static int children(struct list_walk *w, struct fdry_sweep_entry *dead,
		    int (*fn)(struct list_walk *w, struct fdry_sweep_entry *dead,
			      struct fdry_sweep_entry *child))
{
	struct fdry_sweep_entry *child;
	struct fdry_record rec;
	struct fdry_oid link;
	bool found = false;
	uint32_t i;
	int err = fdry_record_get(&w->t, &dead->oid, &found, &rec);

	if (err || !found)
		return err;
	for (i = 0; i < rec.nlinks; i++) {
		link = fdry_record_link(&rec, i);
		child = entry_find(w, &link);
		err = child ? fn(w, dead, child) : 0;
		if (err)
			return err;
	}
	return 0;
}

static int child_count(struct list_walk *w, struct fdry_sweep_entry *dead,
		       struct fdry_sweep_entry *child)
{
	(void)w, (void)dead;
	child->parents++;
	return 0;
}

/* Once all parents of a child have a level, the child has one. */
static int child_place(struct list_walk *w, struct fdry_sweep_entry *dead,
		       struct fdry_sweep_entry *child)
{
	if (child->level <= dead->level)
		child->level = dead->level + 1;
	if (!child->parents || --child->parents)
		return 0;
	return child->nlinks ? fdry_buf_put(&w->next, &child, sizeof(child)) : 0;
}

/* Call @step, each time in a view of its own, until it has moved @at to @end. */
static int in_views(struct list_walk *w, int (*step)(struct list_walk *w), const size_t *end)
{
	int err;

	for (w->at = 0; w->at < *end;) {
		err = fdry_txn_read(w->m->env->db, &w->t);
		if (err)
			return err;
		err = step(w);
		fdry_txn_abort(&w->t);
		if (!err && w->tick)
			err = w->tick(w->arg);
		if (err)
			return err;
	}
	return 0;
}

/* Count the parents of dead objects. The list does not move any more. */
static int count_step(struct list_walk *w)
{
	struct fdry_sweep_entry *d = entries(w->d);
	size_t end = w->at + STEPS < w->ordered ? w->at + STEPS : w->ordered;
	int err;

	for (; w->at < end; w->at++) {
		err = d[w->at].nlinks ? children(w, &d[w->at], child_count) : 0;
		if (err)
			return err;
	}
	return 0;
}

static int tops_put(struct list_walk *w)
{
	struct fdry_sweep_entry *d = entries(w->d), *top;
	size_t i;
	int err;

	for (i = 0; i < w->ordered; i++) {
		top = &d[i];
		err = !top->parents && top->nlinks ? fdry_buf_put(&w->next, &top, sizeof(top)) : 0;
		if (err)
			return err;
	}
	return 0;
}

/* Set the levels of children, beginning with objects that nothing links to. Entries stay in the
 * queue. */
static int place_step(struct list_walk *w)
{
	struct fdry_sweep_entry *dead;
	size_t end = w->at + STEPS * sizeof(dead);
	int err;

	for (; w->at < end && w->at < w->next.len; w->at += sizeof(dead)) {
		memcpy(&dead, w->next.data + w->at, sizeof(dead));
		err = children(w, dead, child_place);
		if (err)
			return err;
	}
	return 0;
}

static int entry_cmp(const void *a, const void *b)
{
	const struct fdry_sweep_entry *x = a, *y = b;

	if (!x->parents != !y->parents) /* part of a circle, or below one */
		return x->parents ? 1 : -1;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	return fdry_oid_cmp(&x->oid, &y->oid);
}

int fdry_sweep_list_fill(struct fdry_sweep_list *d, struct fdry_mark *m, int (*tick)(void *arg),
			 void *arg)
{
	struct list_walk w = { .d = d, .m = m, .tick = tick, .arg = arg };
	int err = walk(&w) ?: in_views(&w, count_step, &w.ordered) ?: tops_put(&w) ?:
		  in_views(&w, place_step, &w.next.len);

	fdry_buf_release(&w.next);
	if (err)
		return err;
	if (d->entries.len) {
		qsort(entries(d), d->entries.len / sizeof(struct fdry_sweep_entry),
		      sizeof(struct fdry_sweep_entry), entry_cmp);
	}
	return 0;
}
