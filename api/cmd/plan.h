/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what storing objects and refs one by one would change in a store, found out without
 * changing it.
 *
 * What an earlier one would bring counts as there for those behind it. What only the storing can
 * meet is not foreseen: a full disk, the store's limit, other processes.
 */
#ifndef FDRY_API_CMD_PLAN_H
#define FDRY_API_CMD_PLAN_H

#include "store/store.h"

/* Zero it to start. */
struct plan {
	struct fdry_store *s; /* NULL: there is none yet */
	struct fdry_reader *reader; /* of @s; NULL with it */
	void *brought;        /* a tree of what the store has not */
};

/* What is to be stored; its bytes match the id. */
struct plan_object {
	struct fdry_oid oid;
	uint32_t kinds;
	const struct fdry_oid *links; /* @nlinks */
	size_t nlinks;
};

/* @fresh: the store has no such object, has it damaged, or with fewer kinds or links. FDRY_E_NOENT
 * where a link would lead nowhere. */
int plan_object(struct plan *p, const struct plan_object *o, bool *fresh) __must_check;
/* @had, @was: the name holds another image of that identity now. FDRY_E_NOENT and FDRY_E_INVAL
 * where the image would not be there, or is none. */
int plan_ref(struct plan *p, const struct fdry_ref *ref, bool *had,
	     struct fdry_oid *was) __must_check;
void plan_release(struct plan *p);

#endif
