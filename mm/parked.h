/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked.h - address ranges of this process that stay reserved while nothing lies in them.
 *
 * A driver gives freed addresses to whoever comes next, its own things too, and an image
 * that is loaded again needs those that it had. Addresses cost nothing.
 *
 * Locking: its own. Each object that has a copy of mm (library, stand-in) has a list of its own.
 */
#ifndef FDRY_MM_PARKED_H
#define FDRY_MM_PARKED_H

#include <stdbool.h>

#include "arch/driver.h"

/* A reservation. */
struct fdry_parked {
	const struct fdry_driver *drv;
	CUdeviceptr base;
	uint64_t size; /* bytes */
};

/* Keep @p reserved. Where many are kept already the one that was parked first is freed. */
void fdry_parked_add(const struct fdry_parked *p);
/* Take the reservation that begins at @base and has @size bytes or more: its size into @ret; false where there is none. */
bool fdry_parked_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size, uint64_t *ret);
/* Free those that have bytes of [@base, @base + @size). */
void fdry_parked_clear(CUdeviceptr base, uint64_t size);
/* How many are kept. */
unsigned int fdry_parked_count(void);

#endif
