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
	fdry_visit_fn visit;
	void *arg;
};

static int reach_push(struct reach *r, const struct fdry_oid *oid)
{
	bool is_new = false;
	int err = fdry_idset_add(r->seen, oid, &is_new);

	return err || !is_new ? err : fdry_buf_put(&r->stack, oid, sizeof(*oid));
}

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
		err = reach_push(r, &link);
	}
	return err;
}

int fdry_reach(struct fdry_txn *t, const struct fdry_oid *root, struct fdry_idset *seen,
	       fdry_visit_fn visit, void *arg)
{
	struct reach r = { .t = t, .seen = seen, .visit = visit, .arg = arg };
	int err = reach_push(&r, root);

	while (!err && r.stack.len)
		err = reach_step(&r);
	fdry_buf_release(&r.stack);
	return err;
}

static int info_put(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct fdry_object_info info = { 0 };
	char hex[FDRY_OID_HEX_SIZE];

	if (!rec)
		return fdry_fail(FDRY_E_NOENT,
				 "object %s is not in the store; see foundry-store verify",
				 fdry_oid_hex(oid, hex));
	fdry_record_info(oid, rec, &info);
	return fdry_buf_put(arg, &info, sizeof(info));
}

int fdry_store_reach(struct fdry_store *s, const struct fdry_oid *oid, fdry_object_fn fn, void *arg)
{
	const struct fdry_object_info *info;
	struct fdry_idset seen = { 0 };
	struct fdry_buf all = { 0 };
	struct fdry_txn t;
	size_t i;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_reach(&t, oid, &seen, info_put, &all);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	info = (const void *)all.data;
	for (i = 0; i < all.len / sizeof(*info) && !err; i++)
		err = fn(arg, &info[i]);
	fdry_buf_release(&all);
	return err;
}
