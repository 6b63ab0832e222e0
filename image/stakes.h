/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stakes.h - allocations that images made for themselves in the region of a live capture.
 *
 * Images of one workload have most of them in common, so a claim is shared by all images
 * that have it, and freed with the last of them. The list is the process' own: a region
 * can outlive its capture.
 *
 * Locking: the list locks itself.
 */
#ifndef FDRY_IMAGE_STAKES_H
#define FDRY_IMAGE_STAKES_H

#include <stdbool.h>

#include "image/capture/standin.h"

/* Claim [@addr, @addr + @size), or share the claim that there is. As fdry_region_claim(); FDRY_E_NOMEM. */
int fdry_stake_take(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size) __must_check;
/* Whether an image has exactly this allocation claimed. */
bool fdry_stake_held(CUdeviceptr addr, uint64_t size);
/* Give back what fdry_stake_take() took. */
void fdry_stake_drop(const struct fdry_hook *hook, CUdeviceptr addr);

#endif
