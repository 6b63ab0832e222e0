/* SPDX-License-Identifier: Apache-2.0 */
/*
 * va_claims.h - allocations that images made for themselves in the region of a live capture.
 *
 * Images of one workload have most of them in common, so a claim is shared by all images
 * that have it, and freed with the last of them. The list is the process' own: a region
 * can outlive its capture.
 *
 * Locking: the list locks itself.
 */
#ifndef FDRY_IMAGE_VA_CLAIMS_H
#define FDRY_IMAGE_VA_CLAIMS_H

#include <stdbool.h>

#include "image/capture/interposer.h"

/* Claim [@addr, @addr + @size), or share the claim that there is. As fdry_region_claim();
 * FDRY_E_NOMEM. */
int fdry_va_claim_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size) __must_check;
/* Whether an image has exactly this allocation claimed. */
bool fdry_va_claim_exists(CUdeviceptr addr, uint64_t size);
/* Give back what fdry_va_claim_get() took. */
void fdry_va_claim_put(const struct fdry_hook *hook, CUdeviceptr addr);

#endif
