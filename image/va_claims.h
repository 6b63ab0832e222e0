/* SPDX-License-Identifier: Apache-2.0 */
/*
 * va_claims.h - claims: allocations for an image at given addresses of a live capture's region.
 *
 * Images of one workload have most claims in common. So a claim is shared by all images that have
 * it, and freed with the last of them. The list belongs to the process, not to the capture, because
 * a region can outlive its capture.
 *
 * Locking: the list locks itself.
 */
#ifndef FDRY_IMAGE_VA_CLAIMS_H
#define FDRY_IMAGE_VA_CLAIMS_H

#include <stdbool.h>

#include "image/capture/interposer.h"

/* Claim [@addr, @addr + @size), with padding up to @end, or share the existing claim. Errors are
 * those of fdry_region_claim(), and FDRY_E_NOMEM. */
int fdry_va_claim_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size,
		      CUdeviceptr end) __must_check;
/* The same for pinned memory, in the region's host areas. Errors are those of
 * fdry_host_area_claim(). */
int fdry_va_claim_pinned_get(const struct fdry_hook *hook, CUdeviceptr addr,
			     uint64_t size) __must_check;
/* Whether an image has claimed exactly this allocation. */
bool fdry_va_claim_exists(CUdeviceptr addr, uint64_t size);
/* Return a claim; the last return frees the allocation. */
void fdry_va_claim_put(const struct fdry_hook *hook, CUdeviceptr addr);

#endif
