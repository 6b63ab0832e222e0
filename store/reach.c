// SPDX-License-Identifier: Apache-2.0
/*
 * reach.c - visiting all objects that an object leads to by its links.
 *
 * The walk keeps a stack of ids in memory instead of recursing: links of a damaged store may be
 * deep or form circles.
 */
#include "store/internal.h"

struct reach {
	struct fdry_txn *t;
	struct fdry_idset *seen;
	struct fdry_buf stack;
	fdry_record_fn visit;
	void *arg;
};

static int reach_step(struct reach *r)
{
	struct fdry_record rec;
	struct fdry_oid oid, link;
	bool found = false;
	uint32_t i;
	int err;

	r->stack.len -= sizeof(oid);
	memcpy(&oid, r->stack.data + r->stack.len, sizeof(oid));
	err = fdry_record_get(r->t, &oid, &found, &rec);
	if (!err)
		err = r->visit(r->arg, &oid, found ? &rec : NULL);
	if (err)
		return err == FDRY_EACH_STOP ? 0 : err;
	for (i = 0; found && i < rec.nlinks && !err; i++) {
		link = fdry_record_link(&rec, i);
		err = fdry_idset_push(r->seen, &link, &r->stack);
	}
	return err;
}

int fdry_reach(struct fdry_txn *t, const struct fdry_oid *root, struct fdry_idset *seen,
	       fdry_record_fn visit, void *arg)
{
	struct reach r = { .t = t, .seen = seen, .visit = visit, .arg = arg };
	int err = fdry_idset_push(seen, root, &r.stack);

	while (!err && r.stack.len)
		err = reach_step(&r);
	fdry_buf_release(&r.stack);
	return err;
}
