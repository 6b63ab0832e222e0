/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.h - sources from which fdry_store_repair() brings objects back.
 *
 * A source is anything that has objects: another store, or a pack. Another sort of source needs an
 * ops table and a line in fdry_source_open(). A source is trusted only for bytes that match their
 * id.
 */
#ifndef FDRY_STORE_REPAIR_H
#define FDRY_STORE_REPAIR_H

#include "store/store.h"

/* An object of a source. The bytes belong to the source, and are valid until the call returns. */
struct fdry_supply {
	struct fdry_oid oid;
	uint32_t kinds;
	struct fdry_span data;
	const struct fdry_oid *links;
	size_t nlinks;
};
/* 0: continue; an error ends the call of supply(), which returns it. */
typedef int (*fdry_supply_fn)(void *arg, const struct fdry_supply *supply);

struct fdry_idset;
struct fdry_source;
struct fdry_source_ops {
	/* Call @fn for each object of @wanted that the source has undamaged, in any order. */
	int (*supply)(struct fdry_source *src, const struct fdry_idset *wanted, fdry_supply_fn fn,
		      void *arg);
	void (*close)(struct fdry_source *src);
};
struct fdry_source {
	const struct fdry_source_ops *ops;
};

/* A directory is a store, anything else a pack. That must be a file, since it is read several
 * times. */
int fdry_source_open(const char *path, struct fdry_source **ret) __must_check;
/* NULL is fine. */
void fdry_source_close(struct fdry_source *src);

int fdry_source_store_open(const char *path, struct fdry_source **ret) __must_check;

#endif
