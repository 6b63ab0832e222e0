/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - loads an image into the region of a live capture, among its allocations
 * (fdry_load_opts.into), or at addresses that it reserves.
 *
 * Allocations are compared by address. Each allocation that the process made itself must also be
 * one of the image's, at the same address and of the same size, or touch no memory of the image.
 * The image's other allocations are claimed: the region allocates exactly these addresses for the
 * image. Memory that the process keeps is never written: every write of content goes through
 * fdry_placement_pieces().
 */
#ifndef FDRY_IMAGE_PLACE_H
#define FDRY_IMAGE_PLACE_H

#include "image/image.h"
#include "image/plan.h"

/* Check that the options fit together and fit the capture. This comes before any other step. Waits
 * for the current context, unless it is the primary one. FDRY_E_OPTS, FDRY_E_FORKED. */
int fdry_placement_check(const struct fdry_load_opts *o) __must_check;

/* Compare allocations and claim the missing ones. FDRY_E_LAYOUT names the first allocation in the
 * way; FDRY_E_STATE while a stream captures; FDRY_E_TAKEN, FDRY_E_NODEVMEM. Waits for the
 * device. */
int fdry_placement_make(struct fdry_image *img, const struct fdry_load_opts *o) __must_check;
/* Free the claimed allocations and the list of kept memory. */
void fdry_placement_release(struct fdry_image *img);

/* Call @fn for each piece of [@addr, @addr + @size) that the process does not keep, ascending. */
typedef int (*fdry_placement_fn)(void *arg, uint64_t addr, uint64_t size);
int fdry_placement_pieces(const struct fdry_image *img, uint64_t addr, uint64_t size,
			  fdry_placement_fn fn, void *arg) __must_check;

/* Reserve the addresses of a plan for an image that lies in no region of the process, and check
 * that the device has the memory. FDRY_E_TAKEN, FDRY_E_NODEVMEM. */
int fdry_placement_reserve(struct fdry_image *img, const struct fdry_plan *plan) __must_check;

#endif
