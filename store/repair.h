/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.h - sources from which fdry_store_repair() brings objects back.
 *
 * A source is anything that has objects: another store, a pack, or a registry (registry/source.c).
 * A source is trusted only for bytes that match their id.
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
	/* Call @fn for each object of @wanted that the source has undamaged, in any order. @to: the
	 * store that is repaired, for what it has recorded about the objects. */
	int (*supply)(struct fdry_source *src, struct fdry_store *to,
		      const struct fdry_idset *wanted, fdry_supply_fn fn, void *arg);
	/* NULL, or append a sentence that says why the source did not supply the object, with a
	 * terminator; nothing if the source was not asked for it. */
	int (*why)(const struct fdry_source *src, const struct fdry_oid *oid,
		   struct fdry_buf *ret);
	void (*close)(struct fdry_source *src);
};
struct fdry_source {
	const struct fdry_source_ops *ops;
};

/* Append the ids of a set, in any order. */
int fdry_idset_list(const struct fdry_idset *set, struct fdry_buf *ret) __must_check;

/* A directory is a store, anything else a pack. That must be a file, since it is read several
 * times. */
int fdry_source_open(const char *path, struct fdry_source **ret) __must_check;
/* NULL is fine. */
void fdry_source_close(struct fdry_source *src);

/* A source of a list (repair_list.c). */
struct fdry_source_entry {
	char *path;              /* NULL: the caller has opened it, and closes it */
	struct fdry_source *src; /* NULL: it is not open */
	bool named, out;         /* by the caller; it cannot be read, and is left out */
};
/* Append the sources that the caller names, the packs in the directory "packs" of the store, by
 * name, those of FOUNDRY_REPAIR, and @last (NULL: none). Also release the list after a failure. */
int fdry_source_list_init(struct fdry_buf *list, const struct fdry_store *s,
			  const char *const *named, size_t count,
			  struct fdry_source *last) __must_check;
/* Open the source, unless it is open. A source that the caller did not name is left out if it
 * cannot be opened. */
int fdry_source_list_open(struct fdry_source_entry *e) __must_check;
/* Leave out a source that the caller did not name. */
void fdry_source_list_drop(struct fdry_source_entry *e, const char *why);
void fdry_source_list_release(struct fdry_buf *list);

int fdry_source_store_open(const char *path, struct fdry_source **ret) __must_check;

#endif
