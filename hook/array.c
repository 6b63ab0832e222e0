// SPDX-License-Identifier: Apache-2.0
/*
 * array.c - notes CUDA arrays: how each was made, when, and whether it still exists.
 *
 * A node that copies from or to an array has only its handle. The driver may give a handle again
 * when its array is destroyed. So a note stays when its array is destroyed, and an array with a
 * handle that was used before is refused unless its graph began after the array was made
 * (graph_age.c).
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"

#include <stdlib.h>
#include <string.h>

#include "arch/array_desc.h"
#include "lib/search.h"

struct note {
	CUarray array;
	struct fdry_hook_array a;
	uint64_t region;  /* the number of the region in which it was made; 0: none */
	bool level;       /* it belongs to a mipmapped array */
	bool destroyed;
	bool again;       /* an array before it had this handle */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes; /* by handle */
static size_t count;
static uint64_t last_serial;
static uint64_t last_again; /* the serial of the last array whose handle was used before; 0: none;
			       also read without the lock */
static bool lost; /* memory was short, and an array has no note */

uint64_t fdry_array_age(void)
{
	return __atomic_load_n(&last_again, __ATOMIC_ACQUIRE);
}

/* NULL: there is none. Lock held. */
static struct note *note_find(CUarray array)
{
	size_t at = fdry_lower_bound(i, count, notes[i].array < array);

	return at < count && notes[at].array == array ? &notes[at] : NULL;
}

/* Room for a note of a new handle. NULL: out of memory. Lock held. */
static struct note *note_insert(CUarray array)
{
	size_t at = fdry_lower_bound(i, count, notes[i].array < array);
	struct note *more = reallocarray(notes, count + 1, sizeof(*notes));

	if (!more)
		return NULL;
	notes = more;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	count++;
	return &notes[at];
}

static void note_put(const struct note *new)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_find(new->array);
	/* The levels of a mipmapped array may be asked for often. */
	if (n && n->level && new->level && !n->destroyed)
		goto out_unlock;
	if (n) {
		*n = *new;
		n->again = true;
	} else {
		n = note_insert(new->array);
		if (n)
			*n = *new;
		else
			lost = true;
	}
	if (n)
		n->a.serial = ++last_serial;
	if (n && n->again)
		__atomic_store_n(&last_again, last_serial, __ATOMIC_RELEASE);
out_unlock:
	pthread_mutex_unlock(&lock);
}

/* The driver has made an array, unless @res is an error. */
static CUresult made(CUresult res, const CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct note new = { .a.desc = *desc };
	struct fdry_dispatch_at at;

	if (res || fdry_start_is_forked())
		return res;
	new.array = *ret;
	if (!fdry_dispatch_at(false, &at))
		new.region = at.number;
	if (fdry_real(cuCtxGetCurrent)(&new.a.ctx))
		new.a.ctx = NULL;
	note_put(&new);
	return res;
}

/* Without a descriptor the driver returns the error. */
static const CUDA_ARRAY3D_DESCRIPTOR none;

CUresult cuArrayCreate(CUarray *ret, const struct CUDA_ARRAY_DESCRIPTOR_v1_st *d)
{
	CUresult res = fdry_real(cuArrayCreate)(ret, d);

	return made(res, ret, d ? &FDRY_ARRAY_DESC_FLAT(d) : &none);
}

CUresult cuArrayCreate_v2(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUresult res = fdry_real(cuArrayCreate_v2)(ret, d);

	return made(res, ret, d ? &FDRY_ARRAY_DESC_FLAT(d) : &none);
}

CUresult cuArray3DCreate(CUarray *ret, const struct CUDA_ARRAY3D_DESCRIPTOR_v1_st *d)
{
	CUresult res = fdry_real(cuArray3DCreate)(ret, d);
	CUDA_ARRAY3D_DESCRIPTOR desc = d ? FDRY_ARRAY_DESC_FLAT(d) : none;

	if (d) {
		desc.Depth = d->Depth;
		desc.Flags = d->Flags;
	}
	return made(res, ret, &desc);
}

CUresult cuArray3DCreate_v2(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return made(fdry_real(cuArray3DCreate_v2)(ret, d), ret, d ? d : &none);
}

CUresult cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray mipmap, unsigned int level)
{
	CUresult res = fdry_real(cuMipmappedArrayGetLevel)(ret, mipmap, level);

	if (!res && !fdry_start_is_forked())
		note_put(&(struct note){ .array = *ret, .level = true });
	return res;
}

/* Mark a note as destroyed; 0 if there is none. */
static uint64_t destroying(CUarray array)
{
	struct note *n;
	uint64_t serial = 0;

	pthread_mutex_lock(&lock);
	n = note_find(array);
	if (n && !n->destroyed) {
		n->destroyed = true;
		serial = n->a.serial;
	}
	pthread_mutex_unlock(&lock);
	return serial;
}

static void destroying_undo(CUarray array, uint64_t serial)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_find(array);
	if (n && n->a.serial == serial)
		n->destroyed = false;
	pthread_mutex_unlock(&lock);
}

/* The note changes before the call: during it, another thread's array may get the handle. */
CUresult cuArrayDestroy(CUarray array)
{
	uint64_t serial = fdry_start_is_forked() ? 0 : destroying(array);
	CUresult res = fdry_real(cuArrayDestroy)(array);

	if (res && serial)
		destroying_undo(array, serial);
	return res;
}

/* Why no image can hold the array; NULL: one can. @n: its note, or NULL. @age: of the graph that
 * names it. Lock held. */
static const char *reason(const struct note *n, uint64_t age)
{
	if (!n && !lost)
		return "was not made by cuArrayCreate() or cuArray3DCreate() since the interposer "
		       "was loaded; copy from and to an array that the program creates";
	if (!n)
		return "may have been made when memory was short, so nothing is known of it; "
		       "begin anew with more memory";
	if (n->destroyed)
		return "was destroyed; keep it until the seal";
	if (n->level)
		return "is a level of a mipmapped array; use an array of its own";
	if (!n->region || n->region != fdry_dispatch_number())
		return "was made before the capture began, while it was paused, or on another "
		       "device; create it during the capture";
	if (n->again && age < n->a.serial)
		return "has the handle of an array that was destroyed, and the graph may have "
		       "begun before it was made, so it may mean either; begin the graph after "
		       "its arrays are made, or keep all arrays until the seal";
	return NULL;
}

int fdry_hook_array(CUgraph graph, CUarray array, struct fdry_hook_array *ret)
{
	uint64_t age = graph ? fdry_graph_age(graph) : UINT64_MAX;
	const struct note *n;
	const char *why;

	pthread_mutex_lock(&lock);
	n = note_find(array);
	why = reason(n, age);
	if (!why)
		*ret = n->a;
	pthread_mutex_unlock(&lock);
	return why ? fdry_fail(FDRY_E_REFUSED, "CUDA array %p %s", (void *)array, why) : 0;
}
