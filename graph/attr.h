/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attr.h - attributes of kernel nodes, as one table over CUlaunchAttributeID.
 *
 * A graph object holds only the attributes that differ from a fresh node of the same kernel.
 * In canonical encoding, a value is the bytes of its fields as in CUlaunchAttributeValue, then
 * zeros. Ids are the driver's and part of the format; they are written as numbers because older
 * cuda.h files lack the newer names.
 */
#ifndef FDRY_GRAPH_ATTR_H
#define FDRY_GRAPH_ATTR_H

#include "lib/buf.h"
#include "arch/driver.h"
#include "graph/format.h"

/*
 * X(id, name, fields, why refused). Each letter of the fields is one field. u is unsigned and i
 * signed, both of 32 bits. x is a float, 32 bits, printed in hex. b has 8 bits and q 64 bits. p is
 * an address, 64 bits, printed in hex. If an attribute has a reason, it cannot be restored, and
 * nodes with it are refused.
 */
#define FDRY_ATTRS(X) \
	X(1, access_policy_window, "pqxuu", NULL) \
	X(2, cooperative, "u", NULL) \
	X(3, synchronization_policy, "u", NULL) \
	X(4, cluster_dimension, "uuu", NULL) \
	X(5, cluster_scheduling_policy, "u", NULL) \
	X(6, programmatic_stream_serialization, "u", NULL) \
	X(7, programmatic_event, "puu", "its event belongs to the application") \
	X(8, priority, "i", NULL) \
	X(9, mem_sync_domain_map, "bb", NULL) \
	X(10, mem_sync_domain, "u", NULL) \
	X(11, preferred_cluster_dimension, "uuu", NULL) \
	X(12, launch_completion_event, "pu", "its event belongs to the application") \
	X(13, device_updatable, "u", "kernels of the capturing process hold a handle of the node") \
	X(14, preferred_shared_memory_carveout, "u", NULL) \
	X(16, nvlink_util_centric_scheduling, "u", NULL)

#define FDRY_ATTR_ACCESS_POLICY_WINDOW 1u

/* All ids from 1 to below this are queried, also those that no cuda.h names yet. */
#define FDRY_ATTR_IDS 32u
#define FDRY_ATTRS_ALL (~1u)

/* The attributes of one node, in canonical encoding. */
struct fdry_attr_values {
	uint32_t readable; /* bit i: attribute i can be read */
	uint8_t value[FDRY_ATTR_IDS][FDRY_GRAPH_ATTR_VALUE];
};

/* Read the attributes of a node that @ids selects: bit i for attribute i. All others count as zero.
 * So does an attribute that the driver refuses (INVALID_VALUE, NOT_SUPPORTED). */
int fdry_attrs_read(const struct fdry_driver *drv, CUgraphNode node, uint32_t ids,
		    struct fdry_attr_values *ret) __must_check;

/* Set attribute @id, as if it had been read. */
void fdry_attr_value_put(uint32_t id, const CUlaunchAttributeValue *v,
			 struct fdry_attr_values *ret);

/**
 * fdry_attrs_diff() - List the attributes of a node that differ from a fresh node's.
 * @fresh: read from a node of the same kernel that was just added
 * @ret: memory for FDRY_ATTR_IDS attributes
 * @count: how many of them are filled
 *
 * FDRY_E_REFUSED: an attribute that cannot be restored, or that this version does not know.
 */
int fdry_attrs_diff(const struct fdry_attr_values *fresh, const struct fdry_attr_values *now,
		    struct fdry_graph_attr *ret, uint32_t *count) __must_check;

/* Set attributes on a fresh node. @attrs is checked and may be unaligned. FDRY_E_REFUSED if the
 * driver does not accept an attribute (INVALID_VALUE, NOT_SUPPORTED). */
int fdry_attrs_set(const struct fdry_driver *drv, CUgraphNode node,
		   struct fdry_span attrs) __must_check;

/*
 * Check an attribute set: known ids, ascending, canonical values. FDRY_E_BADIMAGE, FDRY_E_VERSION.
 */
int fdry_attrs_check(struct fdry_span attrs) __must_check;

struct fdry_words;
/* Convert a set to text, " attr name value..." for each attribute, and back. The parser stops at
 * the first word that does not begin an attribute. */
int fdry_attrs_to_text(struct fdry_span attrs, struct fdry_buf *ret) __must_check;
int fdry_attrs_from_text(struct fdry_words *w, struct fdry_graph_attr *ret,
			 uint32_t *count) __must_check;

#endif
