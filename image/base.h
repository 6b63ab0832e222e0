/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - where regions lie in a process, and who has which addresses.
 *
 * Images keep the addresses that they were captured at, so images that one process loads
 * must have been captured apart: fdry_base_for_name() spreads them.
 */
#ifndef FDRY_IMAGE_BASE_H
#define FDRY_IMAGE_BASE_H

#include <stdint.h>

#include "foundry.h"
#include "lib/err.h"

/* Without a size a capture takes the largest of these that is free, in powers of two. */
#define FDRY_REGION_SIZE_MAX (1ull << 40)
#define FDRY_REGION_SIZE_MIN (1ull << 36)

/* Addresses that an image or capture of this process has: part of it, in a list while it has them.
 */
struct fdry_placed {
	struct fdry_placed *next;
	uint64_t base, size;
	char what[96]; /* "image 0123456789ab", for messages */
};

void fdry_placed_add(struct fdry_placed *p);
/* Does nothing if it was not added. */
void fdry_placed_remove(struct fdry_placed *p);

/* @err, which reserving gave; where it is FDRY_E_TAKEN and one of the list is there, the sentence
 * says which. */
int fdry_placed_fail(int err, uint64_t base, uint64_t size) __must_check;

#endif
