// SPDX-License-Identifier: Apache-2.0
/*
 * reach.c - visiting all objects that an object leads to by its links.
 *
 * The walk keeps a stack of ids in memory instead of recursing: links of a damaged store may be
 * deep or form circles.
 */
#include "store/internal.h"

int fdry_links_push(const struct fdry_record *rec, struct fdry_idset *seen, struct fdry_buf *stack)
{
	struct fdry_oid link;
	uint32_t i;
	int err;

	for (i = 0; i < rec->nlinks; i++) {
		link = fdry_record_link(rec, i);
		err = fdry_idset_push(seen, &link, stack);
		if (err)
			return err;
	}
	return 0;
}

int fdry_reach(struct fdry_txn *t, const struct fdry_oid *root, struct fdry_idset *seen,
	       fdry_record_fn visit, void *arg)
{
	struct fdry_buf stack = { 0 };
	struct fdry_record rec;
	struct fdry_oid oid;
	bool found = false;
	int err = fdry_idset_push(seen, root, &stack);

	while (!err && stack.len) {
		stack.len -= sizeof(oid);
		memcpy(&oid, stack.data + stack.len, sizeof(oid));
		err = fdry_record_get(t, &oid, &found, &rec);
		if (err)
			break;
		err = visit(arg, &oid, found ? &rec : NULL);
		if (err == FDRY_EACH_STOP)
			err = 0;
		else if (!err && found)
			err = fdry_links_push(&rec, seen, &stack);
	}
	fdry_buf_release(&stack);
	return err;
}
