// SPDX-License-Identifier: Apache-2.0
/*
 * live.c - see live.h.
 *
 * Open addressing with compare-and-swap. An object lies within PROBES places of the hash of its
 * address. If none of those is free the object is not entered, and from then on no object is
 * reported as freed.
 */
#include "lib/live.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITS 14
#define PROBES 64u
#define NONE ((uintptr_t)0)
#define GONE ((uintptr_t)1) /* free again; a search continues past it */

static _Atomic uintptr_t places[1u << BITS];
static atomic_bool overflowed;

static _Atomic uintptr_t *place(const void *obj, unsigned int probe)
{
	size_t first =
		(size_t)(((uint64_t)(uintptr_t)obj >> 4) * 0x9E3779B97F4A7C15u >> (64 - BITS));

	return &places[(first + probe) & ((1u << BITS) - 1)];
}

static bool enter(_Atomic uintptr_t *p, const void *obj)
{
	uintptr_t was = atomic_load(p);

	return (was == NONE || was == GONE) &&
	       atomic_compare_exchange_strong(p, &was, (uintptr_t)obj);
}

void fdry_live_add(const void *obj)
{
	unsigned int i;

	for (i = 0; i < PROBES; i++)
		if (enter(place(obj, i), obj))
			return;
	atomic_store(&overflowed, true);
}

/* NULL if @obj is not in the table. */
static _Atomic uintptr_t *find(const void *obj)
{
	uintptr_t found;
	unsigned int i;

	for (i = 0; i < PROBES; i++) {
		found = atomic_load_explicit(place(obj, i), memory_order_acquire);
		if (found == NONE) /* before the next test, as @obj may be NULL */
			return NULL;
		if (found == (uintptr_t)obj)
			return place(obj, i);
	}
	return NULL;
}

static int stale(const char *what)
{
	if (atomic_load(&overflowed))
		return 0;
	return fdry_fail(
		FDRY_E_STALE,
		"%s was closed or freed before, or this library never made it; use what a call "
		"returned, and close it once",
		what);
}

int fdry_live_check(const void *obj, const char *what)
{
	return find(obj) ? 0 : stale(what);
}

int fdry_live_end(const void *obj, const char *what)
{
	_Atomic uintptr_t *p = find(obj);
	uintptr_t was = (uintptr_t)obj;

	return p && atomic_compare_exchange_strong(p, &was, GONE) ? 0 : stale(what);
}
