// SPDX-License-Identifier: Apache-2.0
/*
 * attributes.c - notes two attributes of kernel nodes that drivers accept and do not report: the
 * preferred cluster size, and scheduling by NVLink's use.
 *
 * A node gets them from a launch that is captured, from a call, from another node, or from the node
 * that it is a clone of (graph.c). Few programs set them. So the nodes of a graph are listed only
 * if there are notes.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <stdlib.h>
#include <string.h>

struct note {
	CUgraphNode node;
	cuuint64_t capture; /* the launch was captured by it; 0: none */
	uint64_t ending;    /* the call that destroys the node, until it returns; 0: none */
	struct fdry_unreported_attrs a;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes; /* by address */
static size_t count;       /* also read without the lock: 0 if there are none */

bool fdry_attributes_any(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED) != 0;
}

/* The place of @id in struct fdry_unreported_attrs, or -1. */
static int place_of(CUlaunchAttributeID id)
{
	return id == (CUlaunchAttributeID)FDRY_UNREPORTED_CLUSTER  ? 0
	       : id == (CUlaunchAttributeID)FDRY_UNREPORTED_NVLINK ? 1
								   : -1;
}

/* The value that nodes have by default, so that it needs no note. */
static bool is_default(int at, const CUlaunchAttributeValue *v)
{
	static const unsigned int none[3];

	return !memcmp(v, none, at ? sizeof(none[0]) : sizeof(none));
}

/* The note of @node; with @make, a new one if there is none. NULL: none, or out of memory. A node
 * that is being destroyed has none, and a new node may have its address already. Lock held. */
static struct note *note_get(CUgraphNode node, bool make)
{
	size_t at = fdry_lower_bound(i, count, notes[i].node < node);
	struct note *more;

	if (at < count && notes[at].node == node) {
		if (notes[at].ending && make)
			notes[at] = (struct note){ .node = node };
		return notes[at].ending ? NULL : &notes[at];
	}
	more = make ? reallocarray(notes, count + 1, sizeof(*notes)) : NULL;
	if (!more)
		return NULL;
	notes = more;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	notes[at] = (struct note){ .node = node };
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	return &notes[at];
}

static void note_drop(CUgraphNode node)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_get(node, false);
	if (n) {
		memmove(n, n + 1, (size_t)(notes + count - n - 1) * sizeof(*n));
		__atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void fdry_attributes_ending(CUgraphNode node, uint64_t call)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_get(node, false);
	if (n)
		n->ending = call;
	pthread_mutex_unlock(&lock);
}

void fdry_attributes_end(uint64_t call, bool refused)
{
	size_t i, n = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		if (notes[i].ending == call && !refused)
			continue;
		notes[n] = notes[i];
		if (notes[n].ending == call)
			notes[n].ending = 0;
		n++;
	}
	__atomic_store_n(&count, n, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

void fdry_attributes_lost(cuuint64_t id)
{
	size_t i, n = 0;

	if (!id || !fdry_attributes_any())
		return;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++)
		if (notes[i].capture != id)
			notes[n++] = notes[i];
	__atomic_store_n(&count, n, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* @capture: 0 unless a launch that it captured set the attribute. */
static void note_set(CUgraphNode node, cuuint64_t capture, CUlaunchAttributeID id,
		     const CUlaunchAttributeValue *v)
{
	int at = place_of(id);
	struct note *n;

	if (at < 0)
		return;
	pthread_mutex_lock(&lock);
	n = note_get(node, !is_default(at, v));
	if (n) {
		n->capture = capture ? capture : n->capture;
		n->a.value[at] = *v;
		n->a.set[at] = !is_default(at, v);
	}
	pthread_mutex_unlock(&lock);
}

void fdry_attributes_copy(CUgraphNode to, CUgraphNode from)
{
	struct fdry_unreported_attrs a;
	struct note *n;

	fdry_hook_attributes(from, &a);
	pthread_mutex_lock(&lock);
	n = note_get(to, a.set[0] || a.set[1]);
	if (n)
		n->a = a;
	pthread_mutex_unlock(&lock);
}

void fdry_hook_attributes(CUgraphNode node, struct fdry_unreported_attrs *ret)
{
	const struct note *n;

	memset(ret, 0, sizeof(*ret));
	if (!fdry_attributes_any())
		return;
	pthread_mutex_lock(&lock);
	n = note_get(node, false);
	if (n)
		*ret = n->a;
	pthread_mutex_unlock(&lock);
}

/* --- launches that are captured, and nodes --- */

static bool sets_any(const CUlaunchConfig *c)
{
	unsigned int i;
	int at;

	for (i = 0; i < c->numAttrs; i++) {
		at = place_of(c->attrs[i].id);
		if (at >= 0 && !is_default(at, &c->attrs[i].value))
			return true;
	}
	return false;
}

/* Note the attributes of the node that a launch has added: the one on which the next will depend.
 * @zero: the stream that handle 0 is. */
static CUresult launched(CUresult res, const CUlaunchConfig *c, CUstream zero)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphEdgeData *data;
	const CUgraphNode *nodes;
	cuuint64_t id = 0;
	size_t n = 0;
	unsigned int i;

	if (res || !c || !sets_any(c) || !fdry_capture_count() || fdry_start_is_forked())
		return res;
	if (fdry_real(cuStreamGetCaptureInfo_v3)(c->hStream ? c->hStream : zero, &status, &id,
						 NULL, &nodes, &data, &n) ||
	    status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
		return res;
	note_drop(nodes[0]);
	for (i = 0; i < c->numAttrs; i++)
		note_set(nodes[0], id, c->attrs[i].id, &c->attrs[i].value);
	return res;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	return launched(fdry_real(cuLaunchKernelEx)(c, f, params, extra), c, NULL);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	return launched(fdry_real(cuLaunchKernelEx_ptsz)(c, f, params, extra), c,
			CU_STREAM_PER_THREAD);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *value)
{
	CUresult res = fdry_real(cuGraphKernelNodeSetAttribute)(node, id, value);

	if (!res && !fdry_start_is_forked())
		note_set(node, 0, id, value);
	return res;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	CUresult res = fdry_real(cuGraphKernelNodeCopyAttributes)(dst, src);

	if (!res && fdry_attributes_any())
		fdry_attributes_copy(dst, src);
	return res;
}
