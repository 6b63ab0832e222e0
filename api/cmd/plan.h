/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - computes, for a dry run, what storing objects and refs one by one would change.
 *
 * Each object counts as stored for the objects and refs that follow it. Errors that only writing
 * can cause are not foreseen: a full disk, the store's limit, other processes.
 */
#ifndef FDRY_API_CMD_PLAN_H
#define FDRY_API_CMD_PLAN_H

#include "store/store.h"

/* Zeroed at first. */
struct plan {
	struct fdry_store *s; /* NULL: there is no store yet */
	struct fdry_reader *reader; /* of @s; NULL if @s is */
	void *brought;        /* a tree of the objects that the store lacks */
};

/* An object to store; its bytes match its id. */
struct plan_object {
	struct fdry_oid oid;
	uint32_t kinds;
	const struct fdry_oid *links; /* @nlinks */
	size_t nlinks;
};

/* @fresh: the object is missing or damaged in the store, or has fewer kinds or links there.
 * FDRY_E_NOENT: a link would lead to no object. */
int plan_object(struct plan *p, const struct plan_object *o, bool *fresh) __must_check;
/* @had, @was: whether the name now holds another image of this identity, and its id. FDRY_E_NOENT:
 * the image would be missing; FDRY_E_INVAL: the object is no image. */
int plan_ref(struct plan *p, const struct fdry_ref *ref, bool *had,
	     struct fdry_oid *was) __must_check;
void plan_release(struct plan *p);

#endif
