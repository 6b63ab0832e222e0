/* SPDX-License-Identifier: Apache-2.0 */
/*
 * va_cache.h - address ranges of this process that stay reserved while nothing is mapped in them.
 *
 * A driver hands freed addresses to the next caller, even to itself, but an image that is loaded
 * again needs its old addresses. Reserved addresses cost nothing.
 *
 * Locking: its own. Each object with a copy of mm (library, interposer) has a cache of its own.
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
/* Take the reservation that begins at @base and has @size bytes or more; its size into @ret. False
 * if there is none. */
bool fdry_va_cache_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size,
			uint64_t *ret);
/* Free the reservations that overlap [@base, @base + @size). */
void fdry_va_cache_clear(CUdeviceptr base, uint64_t size);

#endif
