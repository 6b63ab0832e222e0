/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - computes the device memory that an image needs, from its manifest alone.
 *
 * fdry_image_requirements() and loads both use this plan, so that they agree.
 */
#ifndef FDRY_IMAGE_PLAN_H
#define FDRY_IMAGE_PLAN_H

#include "image/capacity.h"
#include "mm/region.h"

/* Device memory for each kernel node of a built graph, measured on driver 580. */
#define FDRY_NODE_EXEC_BYTES 3072u

/* A range to map: both multiples of FDRY_ALLOC_BLOCK. */
struct fdry_plan_range {
	uint64_t addr;
	uint64_t size;
};

struct fdry_plan {
	uint64_t base, size; /* addresses to reserve: multiples of FDRY_ALLOC_BLOCK; size 0: none */
	struct fdry_buf capacities;  /* of struct fdry_capacity */
	struct fdry_buf ranges; /* of struct fdry_plan_range, ascending, apart */
	uint64_t mapped;        /* bytes in them */
	uint64_t role[FDRY_ROLE_EXTERNAL + 1]; /* bytes of segments, by role */
	uint64_t copied;        /* bytes of content that are not zero */
	uint64_t nodes;
};

#define fdry_plan_count(plan) ((plan)->ranges.len / sizeof(struct fdry_plan_range))
#define fdry_plan_range(plan, i) (&((const struct fdry_plan_range *)(plan)->ranges.data)[i])

/* Compute the plan, with the sizes of external tensors that @o asks for. Release it unless this
 * fails. Errors are those of fdry_capacities_make(). */
int fdry_plan_make(const struct fdry_manifest *m, const struct fdry_load_opts *o,
		   struct fdry_plan *ret) __must_check;
void fdry_plan_release(struct fdry_plan *p);

/* Bytes of segment @s that have memory: its size, or less if a capacity ends it. */
uint64_t fdry_plan_segment(const struct fdry_plan *p, const struct fdry_mf_segment *s);

/* FDRY_E_NODEVMEM, with both numbers, if the current context's device has less memory free than @p
 * maps. */
int fdry_plan_check(const struct fdry_plan *p, const struct fdry_driver *drv) __must_check;

#endif
