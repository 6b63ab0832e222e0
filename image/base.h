/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - the addresses of regions, and the list of those in use in this process.
 *
 * An image is loaded at the addresses that it was captured at. So images that one process loads
 * must be captured at different addresses, and fdry_base_for_name() spreads them.
 */
#ifndef FDRY_IMAGE_BASE_H
#define FDRY_IMAGE_BASE_H

#include <stdint.h>

#include "foundry.h"
#include "lib/err.h"

/* If a capture names no size, it reserves the largest free range between these sizes, in powers of
 * two. */
#define FDRY_REGION_SIZE_MAX (1ull << 40)
#define FDRY_REGION_SIZE_MIN (1ull << 36)

/* The addresses of an image or capture of this process. The struct is part of it, and on a list
 * while it has them.
 */
struct fdry_placed {
	struct fdry_placed *next;
	uint64_t base, size;
	char what[96]; /* "image 0123456789ab", for messages */
};

void fdry_placed_add(struct fdry_placed *p);
/* Do nothing if @p was not added. */
void fdry_placed_remove(struct fdry_placed *p);

/* Return @err, the result of reserving addresses. If it is FDRY_E_TAKEN and an entry of the list
 * overlaps them, the message names that entry. */
int fdry_placed_fail(int err, uint64_t base, uint64_t size) __must_check;

#endif
