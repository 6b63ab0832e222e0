// SPDX-License-Identifier: Apache-2.0
/*
 * global.c - notes whose module variables the program has asked for.
 *
 * A pointer to a variable does not tell to which load of which code the variable belongs, and the
 * driver is asked for a variable by load and name. A graph may use a variable by such a pointer
 * alone, and launch no kernel of its module. So the load is noted when the program asks for the
 * address.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"

#include <stdlib.h>

struct note {
	CUdeviceptr addr;
	size_t size;
	CUcontext ctx;
	CUlibrary library; /* one of the two */
	CUmodule module;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes;
static size_t count, capacity;

static CUcontext context(void)
{
	CUcontext ctx = NULL;

	return fdry_real(cuCtxGetCurrent)(&ctx) ? NULL : ctx;
}

static bool overlaps(const struct note *a, const struct note *b)
{
	return a->ctx == b->ctx && a->addr < b->addr + b->size && b->addr < a->addr + a->size;
}

/* Older notes of these addresses are of memory that is gone. Lock held. */
static void put(const struct note *new)
{
	struct note *more;
	size_t i;

	for (i = 0; i < count;)
		if (overlaps(&notes[i], new))
			notes[i] = notes[--count];
		else
			i++;
	if (count == capacity) {
		more = reallocarray(notes, capacity + 64, sizeof(*notes));
		if (!more)
			return; /* a seal refuses the pointer */
		notes = more;
		capacity += 64;
	}
	notes[count++] = *new;
}

static void note(const struct note *new)
{
	if (!new->size)
		return;
	pthread_mutex_lock(&lock);
	put(new);
	pthread_mutex_unlock(&lock);
}

/* The handle is about to become invalid, and its variables with it. */
static void forget(CUlibrary library, CUmodule module)
{
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < count;)
		if (library ? notes[i].library == library : notes[i].module == module)
			notes[i] = notes[--count];
		else
			i++;
	pthread_mutex_unlock(&lock);
}

CUresult cuModuleGetGlobal(unsigned int *ret, unsigned int *size, CUmodule module, const char *name)
{
	return fdry_real(cuModuleGetGlobal)(ret, size, module, name);
}

/* The caller may leave out address or size, so the driver is asked again. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *ret, size_t *size, CUmodule module, const char *name)
{
	struct note new = { .module = module };
	CUresult res = fdry_real(cuModuleGetGlobal_v2)(ret, size, module, name);

	if (!res && !fdry_real(cuModuleGetGlobal_v2)(&new.addr, &new.size, module, name)) {
		new.ctx = context();
		note(&new);
	}
	return res;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *ret, size_t *size, CUlibrary library, const char *name)
{
	struct note new = { .library = library };
	CUresult res = fdry_real(cuLibraryGetGlobal)(ret, size, library, name);

	if (!res && !fdry_real(cuLibraryGetGlobal)(&new.addr, &new.size, library, name)) {
		new.ctx = context();
		note(&new);
	}
	return res;
}

CUresult cuModuleUnload(CUmodule module)
{
	forget(NULL, module);
	return fdry_real(cuModuleUnload)(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	forget(library, NULL);
	return fdry_real(cuLibraryUnload)(library);
}

bool fdry_hook_global_find(CUdeviceptr addr, CUlibrary *library, CUmodule *module)
{
	CUcontext ctx = context();
	bool found = false;
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < count && !found; i++) {
		found = notes[i].ctx == ctx && addr - notes[i].addr < notes[i].size;
		if (found) {
			*library = notes[i].library;
			*module = notes[i].module;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}
