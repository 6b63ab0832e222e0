// SPDX-License-Identifier: Apache-2.0
/*
 * array.c - notes CUDA arrays: how each was made, when, and whether it still exists.
 *
 * A node that copies from or to an array has only its handle. The driver may give a handle again
 * when its array is destroyed. So a note stays when its array is destroyed, and an array with a
 * handle that was used before is refused unless its graph began after the array was made
 * (graph_age.c).
 *
 * A level of a mipmapped array is an array that the program did not make. It is noted when the
 * program asks for its handle, and ends with the mipmapped array.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"

#include <stdlib.h>
#include <string.h>

#include "arch/array_desc.h"
#include "lib/search.h"

/* Of an array, or of a mipmapped array. */
struct note {
	void *handle;
	struct fdry_hook_array a;
	uint64_t region;         /* the number of the region in which it was made; 0: none */
	bool level;              /* an array: a level of a mipmapped array, */
	CUmipmappedArray mipmap; /* which has this handle */
	bool destroyed;
	bool again;              /* an array: one before it may have had this handle */
};

struct table {
	struct note *notes; /* by handle */
	size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table arrays, mipmaps;
static uint64_t last_serial;
static uint64_t last_again; /* the serial of the last array whose handle was used before; 0: none;
			       also read without the lock */
static bool lost; /* memory was short, and an array has no note */

uint64_t fdry_array_age(void)
{
	return __atomic_load_n(&last_again, __ATOMIC_ACQUIRE);
}

/* The index of the note of @handle, or, if there is none, the index at which to insert it. Lock
 * held. */
static size_t note_at(const struct table *t, const void *handle)
{
	return fdry_lower_bound(i, t->count, (uintptr_t)t->notes[i].handle < (uintptr_t)handle);
}

/* NULL: there is none. Lock held. */
static struct note *note_find(const struct table *t, const void *handle)
{
	size_t at = note_at(t, handle);

	return at < t->count && t->notes[at].handle == handle ? &t->notes[at] : NULL;
}

/* Room for a note of a new handle. NULL: out of memory. Lock held. */
static struct note *note_insert(struct table *t, const void *handle)
{
	size_t at = note_at(t, handle);
	struct note *more = reallocarray(t->notes, t->count + 1, sizeof(*more));

	if (!more)
		return NULL;
	t->notes = more;
	memmove(&more[at + 1], &more[at], (t->count - at) * sizeof(*more));
	t->count++;
	return &more[at];
}

/* Whether it is destroyed; a level ends with its mipmapped array. Lock held. */
static bool is_gone(const struct note *n)
{
	const struct note *m = n->a.mipmap ? note_find(&mipmaps, n->mipmap) : NULL;

	return n->destroyed || (n->a.mipmap && (!m || m->destroyed || m->a.serial != n->a.mipmap));
}

/* Note @new, with the next serial. Lock held. */
static void note_put(struct table *t, const struct note *new)
{
	struct note *n = note_find(t, new->handle);
	bool again = n || lost; /* an array without a note may have had the handle */

	/* The levels of a mipmapped array may be asked for often. */
	if (n && n->level && new->level && n->a.mipmap == new->a.mipmap && !is_gone(n))
		return;
	n = n ? n : note_insert(t, new->handle);
	if (!n) {
		lost = true;
		return;
	}
	*n = *new;
	n->again = again;
	n->a.serial = ++last_serial;
	if (again && t == &arrays)
		__atomic_store_n(&last_again, last_serial, __ATOMIC_RELEASE);
}

/* Note an array or a mipmapped array that the driver has made. */
static void note_new(struct table *t, void *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
		     unsigned int levels)
{
	struct note new = { .handle = handle, .a = { .desc = *desc, .levels = levels } };
	struct fdry_dispatch_at at;

	if (!fdry_dispatch_at(false, &at))
		new.region = at.number;
	if (fdry_real(cuCtxGetCurrent)(&new.a.ctx))
		new.a.ctx = NULL;
	pthread_mutex_lock(&lock);
	note_put(t, &new);
	pthread_mutex_unlock(&lock);
}

/* The driver has made an array, unless @res is an error. */
static CUresult made(CUresult res, const CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	if (!res && !fdry_start_is_forked())
		note_new(&arrays, *ret, desc, 0);
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

CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d,
				unsigned int levels)
{
	CUresult res = fdry_real(cuMipmappedArrayCreate)(ret, d, levels);

	/* The driver makes at least one level. */
	if (!res && !fdry_start_is_forked())
		note_new(&mipmaps, *ret, d ? d : &none, levels ? levels : 1);
	return res;
}

/* Lock held. */
static void level_note(CUarray array, CUmipmappedArray mipmap, unsigned int level)
{
	struct note new = { .handle = array, .level = true, .mipmap = mipmap };
	const struct note *m = note_find(&mipmaps, mipmap);

	if (m && !m->destroyed) {
		new.region = m->region;
		new.a = m->a;
		new.a.mipmap = m->a.serial;
		new.a.level = level;
	}
	note_put(&arrays, &new);
}

CUresult cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray mipmap, unsigned int level)
{
	CUresult res = fdry_real(cuMipmappedArrayGetLevel)(ret, mipmap, level);

	if (res || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	level_note(*ret, mipmap, level);
	pthread_mutex_unlock(&lock);
	return res;
}

/* Mark a note as destroyed; 0 if there is none. */
static uint64_t destroying(const struct table *t, const void *handle)
{
	struct note *n;
	uint64_t serial = 0;

	if (fdry_start_is_forked())
		return 0;
	pthread_mutex_lock(&lock);
	n = note_find(t, handle);
	if (n && !n->destroyed) {
		n->destroyed = true;
		serial = n->a.serial;
	}
	pthread_mutex_unlock(&lock);
	return serial;
}

/* The call has returned. If it failed, the note that it marked is unmarked. */
static CUresult destroyed(CUresult res, const struct table *t, const void *handle, uint64_t serial)
{
	struct note *n;

	if (!res || !serial)
		return res;
	pthread_mutex_lock(&lock);
	n = note_find(t, handle);
	if (n && n->a.serial == serial)
		n->destroyed = false;
	pthread_mutex_unlock(&lock);
	return res;
}

/* The note changes before the call: during it, another thread's array may get the handle. */
CUresult cuArrayDestroy(CUarray array)
{
	uint64_t serial = destroying(&arrays, array);

	return destroyed(fdry_real(cuArrayDestroy)(array), &arrays, array, serial);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
	uint64_t serial = destroying(&mipmaps, mipmap);

	return destroyed(fdry_real(cuMipmappedArrayDestroy)(mipmap), &mipmaps, mipmap, serial);
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
	if (is_gone(n))
		return "was destroyed; keep it until the seal";
	if (n->level && !n->a.mipmap)
		return "is a level of a mipmapped array that was not made by "
		       "cuMipmappedArrayCreate() since the interposer was loaded; copy from and to "
		       "an array that the program creates";
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
	n = note_find(&arrays, array);
	why = reason(n, age);
	if (!why)
		*ret = n->a;
	pthread_mutex_unlock(&lock);
	return why ? fdry_fail(FDRY_E_REFUSED, "CUDA array %p %s", (void *)array, why) : 0;
}
