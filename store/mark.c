// SPDX-License-Identifier: Apache-2.0
/*
 * mark.c - marking while sessions write; see mark.h and Documentation/design/collection.rst.
 *
 * Marking needs no consistent view. While a collection is announced, only that collection deletes
 * objects, and a session adds a link only after it has noted the link's target in a lease. An
 * object that is marked although it is dead costs a little space until the next collection.
 */
#include "store/mark.h"

#include <time.h>

#define VIEW_NS 50000000ull /* a view is renewed, so that pages can be used again */
#define CLOCK_STEPS 64

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct fdry_timeslice fdry_timeslice(uint64_t ns)
{
	return (struct fdry_timeslice){ .until_ns = ns ? now_ns() + ns : 0 };
}

bool fdry_timeslice_over(struct fdry_timeslice *slice)
{
	if (!slice->until_ns || ++slice->steps % CLOCK_STEPS)
		return false;
	return now_ns() >= slice->until_ns;
}

/* --- following links --- */

static int mark_push(struct fdry_mark *m, const struct fdry_oid *oid)
{
	return fdry_idset_push(&m->live, oid, &m->stack);
}

/* An object that a lease names need not exist yet. */
static int not_there(const struct fdry_mark *m, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];

	if (!*m->ref)
		return 0;
	return fdry_fail(
		FDRY_E_CORRUPT,
		"ref '%s' needs object %s, which is missing; nothing more is collected until the "
		"ref is removed or sealed anew",
		m->ref, fdry_oid_hex(oid, hex));
}

/* Follow links until none is left or the time slice is over. */
static int mark_drain(struct fdry_mark *m, struct fdry_txn *t, struct fdry_timeslice *slice)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	bool found = false;
	int err;

	while (m->stack.len && !fdry_timeslice_over(slice)) {
		m->stack.len -= sizeof(oid);
		memcpy(&oid, m->stack.data + m->stack.len, sizeof(oid));
		err = fdry_record_get(t, &oid, &found, &rec);
		if (err)
			return err;
		err = found ? fdry_links_push(&rec, &m->live, &m->stack) : not_there(m, &oid);
		if (err)
			return err;
	}
	return 0;
}

static int mark_drain_in_views(struct fdry_mark *m, int (*tick)(void *arg), void *arg)
{
	struct fdry_timeslice slice;
	struct fdry_txn t;
	int err;

	while (m->stack.len) {
		err = fdry_txn_read(m->env->db, &t);
		if (err)
			return err;
		slice = fdry_timeslice(VIEW_NS);
		err = mark_drain(m, &t, &slice);
		fdry_txn_abort(&t);
		if (err)
			return err;
		err = tick ? tick(arg) : 0;
		if (err)
			return err;
	}
	return 0;
}

/* --- refs --- */

struct root {
	struct fdry_oid oid;
	char name[FDRY_REF_NAME_MAX + 1];
};

struct roots {
	struct fdry_mark *m;
	struct fdry_buf found; /* struct root each */
};

static int root_put(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct roots *roots = arg;
	struct root r = { .name = "" };
	struct fdry_ref ref;
	int err = fdry_ref_parse(value, &ref);

	memcpy(r.name, key.data, key.len < FDRY_REF_NAME_MAX ? key.len : FDRY_REF_NAME_MAX);
	if (err)
		return fdry_fail_at(err, "ref '%s'", r.name);
	if (roots->m->seen_refs && ref.change <= roots->m->changes)
		return 0;
	r.oid = ref.oid;
	return fdry_buf_put(&roots->found, &r, sizeof(r));
}

/* Refs that were set since they were last read. */
static int refs_new(struct fdry_mark *m, struct fdry_txn *t, struct fdry_buf *ret)
{
	struct roots roots = { .m = m };
	uint64_t changes = 0;
	int err = fdry_ref_changes(t, &changes);

	if (err)
		return err;
	if (!m->seen_refs || changes != m->changes)
		err = fdry_txn_each(t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, root_put, &roots);
	if (err) {
		fdry_buf_release(&roots.found);
		return err;
	}
	m->seen_refs = true;
	m->changes = changes;
	*ret = roots.found;
	return 0;
}

static int mark_refs(struct fdry_mark *m, int (*tick)(void *arg), void *arg)
{
	struct fdry_buf found = { 0 };
	const struct root *r;
	struct fdry_txn t;
	size_t i;
	int err = fdry_txn_read_latest(m->env->db, &t);

	if (err)
		return err;
	err = refs_new(m, &t, &found);
	fdry_txn_abort(&t);
	r = (const void *)found.data;
	for (i = 0; !err && i < found.len / sizeof(*r); i++) {
		memcpy(m->ref, r[i].name, sizeof(m->ref));
		err = mark_push(m, &r[i].oid) ?: mark_drain_in_views(m, tick, arg);
	}
	*m->ref = '\0';
	fdry_buf_release(&found);
	return err;
}

/* --- both --- */

static int lease_id(void *arg, const struct fdry_oid *oid)
{
	return mark_push(arg, oid);
}

int fdry_mark_update(struct fdry_mark *m, int (*tick)(void *arg), void *arg)
{
	int err = mark_drain_in_views(m, tick, arg); /* objects that an earlier time slice left */

	if (err)
		return err;
	return mark_refs(m, tick, arg) ?: fdry_leases_scan(&m->leases, m->env, lease_id, m) ?:
	       mark_drain_in_views(m, tick, arg);
}

int fdry_mark_finish(struct fdry_mark *m, struct fdry_txn *t, struct fdry_timeslice *slice,
		     bool *done)
{
	struct fdry_buf found = { 0 };
	const struct root *r;
	size_t i;
	int err = refs_new(m, t, &found);

	r = (const void *)found.data;
	for (i = 0; !err && i < found.len / sizeof(*r); i++)
		err = mark_push(m, &r[i].oid);
	fdry_buf_release(&found);
	if (err)
		return err;
	err = fdry_leases_scan(&m->leases, m->env, lease_id, m);
	if (err)
		return err;
	err = mark_drain(m, t, slice);
	if (err)
		return err;
	*done = !m->stack.len;
	return 0;
}

void fdry_mark_release(struct fdry_mark *m)
{
	fdry_idset_release(&m->live);
	fdry_buf_release(&m->stack);
	fdry_leases_release(&m->leases);
}
