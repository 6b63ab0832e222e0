/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capacity.h - external tensors with capacity: addresses of which a load backs as much as it is
 * asked to.
 *
 * A capacity is [addr, addr + max); captured bytes of it were backed when the image was sealed,
 * and are what graphs may hold pointers into.
 */
#ifndef FDRY_IMAGE_CAPACITY_H
#define FDRY_IMAGE_CAPACITY_H

#include "image/manifest.h"
#include "graph/codec.h"

struct fdry_capacity {
	uint32_t tensor; /* index in the manifest */
	uint64_t addr;
	uint64_t captured, max;
	uint64_t bytes; /* to be backed, and so the tensor's size in this process */
};

#define fdry_capacity_array(capacities) ((struct fdry_capacity *)(capacities)->data)
#define fdry_capacity_count(capacities) ((capacities)->len / sizeof(struct fdry_capacity))

/* The capacities of an image, sized as @o says; @ret is an empty buffer of struct fdry_capacity,
 * ascending by tensor. FDRY_E_NOKEY, FDRY_E_STATE (a tensor without capacity), FDRY_E_RANGE (bytes
 * that do not fit, or leave another tensor without memory), FDRY_E_OPTS. */
int fdry_capacities_make(const struct fdry_manifest *m, const struct fdry_load_opts *o,
			 struct fdry_buf *ret) __must_check;

/* The capacity of tensor @i; NULL if it has none. */
const struct fdry_capacity *fdry_capacity_of(const struct fdry_buf *capacities, uint32_t i);
/* The capacity whose tensor lies in [@addr, @addr + @size); NULL if there is none. */
const struct fdry_capacity *fdry_capacity_in(const struct fdry_buf *capacities, uint64_t addr,
					     uint64_t size);
/* @t, as the manifest has it, gets the size that its capacity says. */
void fdry_capacity_shape(const struct fdry_capacity *room, struct fdry_tensor *t);

/* FDRY_E_RANGE where the graph sets, copies or is given memory that was captured and is not backed.
 * Kernels that work their way there from a pointer to what is backed are not seen. */
int fdry_capacities_check(const struct fdry_manifest *m, const struct fdry_buf *capacities,
		     const struct fdry_graph_view *view) __must_check;

#endif
