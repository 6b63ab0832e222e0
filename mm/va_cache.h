/* SPDX-License-Identifier: Apache-2.0 */
/*
 * va_cache.h - address ranges of this process that stay reserved while nothing lies in them.
 *
 * A driver gives freed addresses to whoever comes next, its own things too, and an image
 * that is loaded again needs those that it had. Addresses cost nothing.
 *
 * Locking: its own. Each object that has a copy of mm (library, stand-in) has a list of its own.
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

/* Keep @p reserved. Where many are kept already the one that was parked first is freed. */
void fdry_va_cache_add(const struct fdry_va_cached *p);
/* Take the reservation that begins at @base and has @size bytes or more: its size into @ret; false where there is none. */
bool fdry_va_cache_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size, uint64_t *ret);
/* Free those that have bytes of [@base, @base + @size). */
void fdry_va_cache_clear(CUdeviceptr base, uint64_t size);
/* How many are kept. */
unsigned int fdry_va_cache_count(void);

#endif
