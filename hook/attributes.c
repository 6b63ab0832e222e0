// SPDX-License-Identifier: Apache-2.0
/*
 * attributes.c - notes two attributes of kernel nodes that drivers accept and do not report: the
 * preferred cluster size, and scheduling by NVLink's use.
 *
 * A node gets them from a launch that is captured, from a call, from another node, or from the node
 * that it is a clone of (graph.c). Few programs set them. So the nodes of a graph are listed only
 * if there are notes.
 *
 * A call that cannot be noted for lack of memory fails, before the driver is called if possible.
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
static size_t room;        /* notes that fit; at least @count and @reserved together */
static size_t reserved;    /* for calls that will need a note */

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

/* Lock held. */
static bool room_make(size_t n)
{
	struct note *more = n <= room ? notes : reallocarray(notes, n, sizeof(*notes));

	if (!more)
		return false;
	notes = more;
	room = n > room ? n : room;
	return true;
}

/* Make room for a note before the call of the driver, which is not made if this fails. After the
 * call, there is room until the thread that took back its reservation releases the lock. */
static bool note_reserve(void)
{
	bool ret;

	pthread_mutex_lock(&lock);
	ret = room_make(count + reserved + 1);
	reserved += ret;
	pthread_mutex_unlock(&lock);
	return ret;
}

/* The note of @node; with @make, a new one if there is none. NULL: none, or out of memory. A node
 * that is being destroyed has none, and a new node may have its address already. Lock held. */
static struct note *note_get(CUgraphNode node, bool make)
{
	size_t at = fdry_lower_bound(i, count, notes[i].node < node);

	if (at < count && notes[at].node == node) {
		if (notes[at].ending && make)
			notes[at] = (struct note){ .node = node };
		return notes[at].ending ? NULL : &notes[at];
	}
	if (!make || !room_make(count + reserved + 1))
		return NULL;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	notes[at] = (struct note){ .node = node };
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	return &notes[at];
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

static void attribute_set(struct fdry_unreported_attrs *a, CUlaunchAttributeID id,
			  const CUlaunchAttributeValue *v)
{
	int at = place_of(id);

	if (at < 0)
		return;
	a->value[at] = *v;
	a->set[at] = !is_default(at, v);
}

/* False: out of memory. Lock held. */
static bool note_put(CUgraphNode node, const struct fdry_unreported_attrs *a)
{
	bool make = a->set[0] || a->set[1];
	struct note *n = note_get(node, make);

	if (n)
		n->a = *a;
	return n || !make;
}

bool fdry_attributes_copy(CUgraphNode to, CUgraphNode from)
{
	struct fdry_unreported_attrs a;
	bool ret;

	fdry_hook_attributes(from, &a);
	pthread_mutex_lock(&lock);
	ret = note_put(to, &a);
	pthread_mutex_unlock(&lock);
	return ret;
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

/* Whether the launch may add a node with a note. */
static bool may_note(const CUlaunchConfig *c)
{
	return c && sets_any(c) && fdry_capture_count() && !fdry_start_is_forked();
}

/* The node that a launch has added: the one on which the next will depend. NULL: none. @id: the
 * capture. Returns whether there was memory to ask. */
static bool node_added(CUstream stream, CUgraphNode *ret, cuuint64_t *id)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphEdgeData *data;
	const CUgraphNode *nodes;
	size_t n = 0;
	CUresult res = fdry_real(cuStreamGetCaptureInfo_v3)(stream, &status, id, NULL, &nodes,
							    &data, &n);

	*ret = !res && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1 ? nodes[0] : NULL;
	return res != CUDA_ERROR_OUT_OF_MEMORY;
}

/* Note the attributes of the node that a launch has added; the launch fails if that node cannot be
 * found for lack of memory. @zero: the stream that handle 0 is. */
static CUresult launched(CUresult res, const CUlaunchConfig *c, CUstream zero)
{
	struct fdry_unreported_attrs a = { 0 };
	CUgraphNode node = NULL;
	struct note *n = NULL;
	cuuint64_t id = 0;
	unsigned int i;

	if (!res && !node_added(c->hStream ? c->hStream : zero, &node, &id))
		res = CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < c->numAttrs; i++)
		attribute_set(&a, c->attrs[i].id, &c->attrs[i].value);
	pthread_mutex_lock(&lock);
	reserved--;
	if (node)
		n = note_get(node, true);
	if (n)
		*n = (struct note){ .node = node, .capture = id, .a = a };
	pthread_mutex_unlock(&lock);
	return res;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (!may_note(c))
		return fdry_real(cuLaunchKernelEx)(c, f, params, extra);
	if (!note_reserve())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return launched(fdry_real(cuLaunchKernelEx)(c, f, params, extra), c, NULL);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (!may_note(c))
		return fdry_real(cuLaunchKernelEx_ptsz)(c, f, params, extra);
	if (!note_reserve())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return launched(fdry_real(cuLaunchKernelEx_ptsz)(c, f, params, extra), c,
			CU_STREAM_PER_THREAD);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *value)
{
	CUresult res;
	struct note *n;

	if (place_of(id) < 0 || fdry_start_is_forked())
		return fdry_real(cuGraphKernelNodeSetAttribute)(node, id, value);
	if (!note_reserve())
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = fdry_real(cuGraphKernelNodeSetAttribute)(node, id, value);
	pthread_mutex_lock(&lock);
	reserved--;
	n = res ? NULL : note_get(node, !is_default(place_of(id), value));
	if (n)
		attribute_set(&n->a, id, value);
	pthread_mutex_unlock(&lock);
	return res;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct fdry_unreported_attrs a;
	CUresult res;

	if (!fdry_attributes_any())
		return fdry_real(cuGraphKernelNodeCopyAttributes)(dst, src);
	if (!note_reserve())
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = fdry_real(cuGraphKernelNodeCopyAttributes)(dst, src);
	fdry_hook_attributes(src, &a);
	pthread_mutex_lock(&lock);
	reserved--;
	if (!res)
		(void)note_put(dst, &a);
	pthread_mutex_unlock(&lock);
	return res;
}
