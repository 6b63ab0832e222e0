/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capacity.h - external tensors with capacity: each load chooses how much memory they get.
 *
 * A capacity is the range [addr, addr + max). Its first bytes, @captured, had memory when the image
 * was sealed, so graphs may hold pointers into them. A load backs the first @bytes with memory.
 */
#ifndef FDRY_IMAGE_CAPACITY_H
#define FDRY_IMAGE_CAPACITY_H

#include "image/manifest.h"
#include "graph/codec.h"

struct fdry_capacity {
	uint32_t tensor; /* index in the manifest */
	uint64_t addr;
	uint64_t captured, max;
	uint64_t bytes; /* to back with memory: the tensor's size in this process */
};

#define fdry_capacity_array(capacities) ((struct fdry_capacity *)(capacities)->data)
#define fdry_capacity_count(capacities) ((capacities)->len / sizeof(struct fdry_capacity))

/* List the capacities of an image, with the sizes that @o asks for. @ret: an empty buffer; gets
 * struct fdry_capacity, ascending by tensor. FDRY_E_NOKEY, FDRY_E_STATE (a tensor without
 * capacity), FDRY_E_RANGE (a size that does not fit, or leaves another tensor without memory),
 * FDRY_E_OPTS. */
int fdry_capacities_make(const struct fdry_manifest *m, const struct fdry_load_opts *o,
			 struct fdry_buf *ret) __must_check;

/* The capacity of tensor @i; NULL if it has none. */
const struct fdry_capacity *fdry_capacity_of(const struct fdry_buf *capacities, uint32_t i);
/* The capacity whose tensor lies in [@addr, @addr + @size); NULL if there is none. */
const struct fdry_capacity *fdry_capacity_in(const struct fdry_buf *capacities, uint64_t addr,
					     uint64_t size);
/* Change the shape of @t, which comes from the manifest, to the size of its capacity. */
void fdry_capacity_shape(const struct fdry_capacity *capacity, struct fdry_tensor *t);

/* FDRY_E_RANGE if the graph sets or copies memory that was captured and is not backed, or has a
 * pointer to it as an argument. A kernel that computes such an address from another pointer is not
 * found. */
int fdry_capacities_check(const struct fdry_manifest *m, const struct fdry_buf *capacities,
		     const struct fdry_graph_view *view) __must_check;

#endif
