/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - the order in which a pull asks for objects.
 *
 * The manifests of images come first. They say in which order a load needs the other objects. A
 * store may get an object only after those that it links to, so manifests are stored last.
 */
#ifndef FDRY_REGISTRY_ORDER_H
#define FDRY_REGISTRY_ORDER_H

#include "store/pack.h"

struct fdry_order {
	const struct fdry_fetch *f;
	const struct fdry_fetch_object *objects;
	size_t count;
	struct fdry_order_entry *ids; /* of the objects, sorted */
	bool *early;       /* by position in the list: it is one of the manifests */
};

/* Also release it after a failure. */
int fdry_order_init(struct fdry_order *o, const struct fdry_fetch *f) __must_check;
void fdry_order_release(struct fdry_order *o);
/* The position of an object in the list; the number of objects if there is none. */
size_t fdry_order_find(const struct fdry_order *o, const struct fdry_oid *oid);

/* Append the positions (size_t each) of the images' manifests. Append none if all of them together
 * are too large for memory. */
int fdry_order_early(struct fdry_order *o, struct fdry_buf *ret) __must_check;
/* Append the positions of all other objects that the store lacks: first those of @wanted, each
 * behind the objects that it links to. */
int fdry_order_rest(const struct fdry_order *o, const struct fdry_oid *wanted, size_t count,
		    struct fdry_buf *ret) __must_check;

#endif
