/* SPDX-License-Identifier: Apache-2.0 */
/*
 * va_cache.h - address ranges of this process that stay reserved while nothing is mapped in them.
 *
 * A driver may return freed addresses to any caller, or use them itself, but an image that is
 * loaded again needs its old addresses. Reserved addresses cost nothing.
 *
 * Locking: the cache locks itself. The library and the interposer each have a copy of mm, and so a
 * cache of their own.
 */
#ifndef FDRY_MM_VA_CACHE_H
#define FDRY_MM_VA_CACHE_H

#include <stdbool.h>

#include "arch/driver.h"

/* A reservation. */
struct fdry_va_cached {
	const struct fdry_driver *drv;
	CUdeviceptr base;
	uint64_t size; /* bytes */
};

/* Keep @p reserved. If the cache is full, its oldest reservation is freed. */
void fdry_va_cache_add(const struct fdry_va_cached *p);
/* Remove the reservation that begins at @base and has @size bytes or more, and return its size in
 * @ret. The caller then owns it. False if there is none. */
bool fdry_va_cache_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size,
			uint64_t *ret);
/* Free the reservations that overlap [@base, @base + @size). */
void fdry_va_cache_clear(CUdeviceptr base, uint64_t size);

#endif
