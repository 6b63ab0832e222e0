// SPDX-License-Identifier: Apache-2.0
/*
 * user.c - user objects: reference counts with a callback, which graphs may hold.
 *
 * A graph's clones get its references, too. An executable graph holds none of its own: launches of
 * this driver copy their operands, and the caller keeps the rest.
 */
#include "arch/sim/graph.h"

#include <limits.h>
#include <stdlib.h>

struct sim_user {
	struct sim_obj obj;
	CUhostFn destroy;
	void *data;
	unsigned long refs; /* of callers and graphs */
};

/* The references of one graph to one object. */
struct sim_user_ref {
	struct sim_user_ref *next;
	struct sim_user *user;
	unsigned long count;
};

static CUresult user_find(CUuserObject handle, unsigned int count, struct sim_user **ret)
{
	struct sim_user *u = sim_find(handle, SIM_USEROBJ);

	if (!u || !count || count > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = u;
	return CUDA_SUCCESS;
}

/* The callback may not call the driver, so it is called with the lock. */
static void user_drop(struct sim_user *u, unsigned long count)
{
	u->refs -= count;
	if (u->refs)
		return;
	u->destroy(u->data);
	sim_obj_close(&u->obj);
}

static struct sim_user_ref **ref_find(struct sim_graph *g, const struct sim_user *u)
{
	struct sim_user_ref **r = &g->users;

	while (*r && (*r)->user != u)
		r = &(*r)->next;
	return r;
}

static CUresult ref_add(struct sim_graph *g, struct sim_user *u, unsigned long count)
{
	struct sim_user_ref **r = ref_find(g, u);

	if (!*r) {
		*r = calloc(1, sizeof(**r));
		if (!*r)
			return CUDA_ERROR_OUT_OF_MEMORY;
		(*r)->user = u;
	}
	(*r)->count += count;
	return CUDA_SUCCESS;
}

void sim_users_drop(struct sim_graph *g)
{
	struct sim_user_ref *r;

	while ((r = g->users) != NULL) {
		g->users = r->next;
		user_drop(r->user, r->count);
		free(r);
	}
}

CUresult sim_users_copy(const struct sim_graph *from, struct sim_graph *to)
{
	for (const struct sim_user_ref *r = from->users; r; r = r->next) {
		SIM_TRY(ref_add(to, r->user, r->count));
		r->user->refs += r->count;
	}
	return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *ret, void *ptr, CUhostFn destroy, unsigned int refs,
			    unsigned int flags)
{
	struct sim_user *u;
	CUresult res;

	SIM_ENTER(cuUserObjectCreate);
	if (!ret || !destroy || !refs || refs > INT_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	u = calloc(1, sizeof(*u));
	if (!u)
		return CUDA_ERROR_OUT_OF_MEMORY;
	u->destroy = destroy;
	u->data = ptr;
	u->refs = refs;
	res = sim_obj_open(&u->obj, SIM_USEROBJ, NULL);
	if (res) {
		free(u);
		return res;
	}
	*ret = SIM_HANDLE(CUuserObject, u);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	struct sim_user *u;

	SIM_ENTER(cuUserObjectRetain);
	SIM_TRY(user_find(object, count, &u));
	u->refs += count;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	struct sim_user *u;

	SIM_ENTER(cuUserObjectRelease);
	SIM_TRY(user_find(object, count, &u));
	if (count > u->refs)
		return CUDA_ERROR_INVALID_VALUE;
	user_drop(u, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
				 unsigned int flags)
{
	struct sim_graph *g;
	struct sim_user *u;

	SIM_ENTER(cuGraphRetainUserObject);
	SIM_TRY(sim_graph_find(graph, &g));
	SIM_TRY(user_find(object, count, &u));
	if (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(ref_add(g, u, count));
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		u->refs += count;
	return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	struct sim_user_ref **r, *gone;
	struct sim_graph *g;
	struct sim_user *u;

	SIM_ENTER(cuGraphReleaseUserObject);
	SIM_TRY(sim_graph_find(graph, &g));
	SIM_TRY(user_find(object, count, &u));
	r = ref_find(g, u);
	if (!*r || (*r)->count < count)
		return CUDA_ERROR_INVALID_VALUE;
	(*r)->count -= count;
	if (!(*r)->count) {
		gone = *r;
		*r = gone->next;
		free(gone);
	}
	user_drop(u, count);
	return CUDA_SUCCESS;
}
