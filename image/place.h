/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - an image placed among the allocations of a live capture (fdry_load_opts.into).
 *
 * Allocations are compared by address. Each one that the process made itself is also one of the
 * image's, at the same address and of the same size, or touches no memory of the image. The image's
 * other allocations are claimed for it. What the process keeps is never written: every write of
 * content goes through fdry_placement_pieces().
 */
#ifndef FDRY_IMAGE_PLACE_H
#define FDRY_IMAGE_PLACE_H

#include "image/image.h"

/* The options are of use together and for this capture; before anything is done. Waits for the
 * current context, if that is none of ours. FDRY_E_OPTS, FDRY_E_FORKED. */
int fdry_placement_check(const struct fdry_load_opts *o) __must_check;

/* Compare allocations and claim what is missing. FDRY_E_LAYOUT names the first one in the way;
 * FDRY_E_STATE while a stream captures; FDRY_E_TAKEN, FDRY_E_NODEVMEM. Waits for the device. */
int fdry_placement_make(struct fdry_image *img, const struct fdry_load_opts *o) __must_check;
/* Free what was claimed, and forget the rest. */
void fdry_placement_release(struct fdry_image *img);

/* Call @fn for each piece of [@addr, @addr + @size) that the process does not keep, ascending. */
typedef int (*fdry_placement_fn)(void *arg, uint64_t addr, uint64_t size);
int fdry_placement_pieces(const struct fdry_image *img, uint64_t addr, uint64_t size,
			  fdry_placement_fn fn, void *arg) __must_check;

#endif
