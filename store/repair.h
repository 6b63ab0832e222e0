/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.h - bringing damaged and missing objects back from where else they are.
 *
 * A source is whatever has objects: another store, a pack; further ones need an ops table
 * of their own and a line in fdry_source_open(). Nothing of a source is believed but bytes
 * that match their id.
 */
#ifndef FDRY_STORE_REPAIR_H
#define FDRY_STORE_REPAIR_H

#include "store/store.h"

/* --- sources --- */

/* An object as a source has it; the bytes are the source's until the call returns. */
struct fdry_supply {
	struct fdry_oid oid;
	uint32_t kinds;
	struct fdry_span data;
	const struct fdry_oid *links;
	size_t nlinks;
};
/* 0: go on; an error ends it and is handed up. */
typedef int (*fdry_supply_fn)(void *arg, const struct fdry_supply *supply);

struct fdry_idset;
struct fdry_source;
struct fdry_source_ops {
	/* Give those of @wanted that the source has to @fn, in any order. What it has damaged it has not. */
	int (*supply)(struct fdry_source *src, const struct fdry_idset *wanted, fdry_supply_fn fn, void *arg);
	void (*close)(struct fdry_source *src);
};
struct fdry_source {
	const struct fdry_source_ops *ops;
};

/* A directory is a store, anything else a pack, which must be a file: it is read several times. */
int fdry_source_open(const char *path, struct fdry_source **ret) __must_check;
/* NULL is fine. */
void fdry_source_close(struct fdry_source *src);

int fdry_source_store_open(const char *path, struct fdry_source **ret) __must_check;
int fdry_source_pack_open(const char *path, struct fdry_source **ret) __must_check;

/* --- repairing --- */

/* FDRY_REPAIR(NAME, what is said of the object) */
#define FDRY_REPAIR_EVENTS(X) \
	X(BACK, "brought back") \
	X(QUARANTINED, "damaged and nowhere to be had: put into quarantine") \
	X(LOST, "missing and nowhere to be had") \
	X(REF, "cannot be loaded")
enum fdry_repair_event {
#define X(NAME, text) FDRY_REPAIR_##NAME,
	FDRY_REPAIR_EVENTS(X)
#undef X
};

struct fdry_repair_how {
	const char *const *sources; /* @nsources paths, asked in this order */
	size_t nsources;
	bool dry_run;               /* ask the sources, write nothing */
	unsigned int threads;       /* for verifying; 0: as many as the process may run at the same time */
	/* @ref is the name with FDRY_REPAIR_REF, else NULL. @text: see FDRY_REPAIR_EVENTS. May be NULL. */
	void (*told)(void *arg, enum fdry_repair_event event, const struct fdry_oid *oid, const char *ref, const char *text);
	void (*progress)(void *arg, uint64_t done, uint64_t total); /* of verifying, in bytes; may be NULL */
	void *arg; /* of both */
};

struct fdry_repair_report {
	struct fdry_verify_report found; /* before anything was done */
	uint64_t back;        /* objects that were damaged, in quarantine or missing, and are there */
	uint64_t quarantined; /* that are in quarantine now, earlier ones among them */
	uint64_t lost;        /* that are not there */
	uint64_t refs_broken; /* that cannot be loaded */
};

/**
 * fdry_repair() - Verify a store; bring back what is damaged or missing.
 * @path: as for fdry_store_open()
 *
 * What no source has, and is damaged, goes into quarantine: its record stays, its bytes are
 * removed, and whoever needs it gets FDRY_E_CORRUPT. Putting the object again, by a seal, an import or
 * another repair, ends that. Objects that are brought back bring what they link to.
 *
 * Runs beside sessions and collections. Errors: FDRY_E_CORRUPT (the store's own pages are
 * damaged: a new store is needed), those of opening a source (FDRY_E_BADIMAGE for a pack), FDRY_E_FULL,
 * FDRY_E_PERM. What was brought back until then stays.
 */
int fdry_repair(const char *path, const struct fdry_repair_how *opts, struct fdry_repair_report *ret) __must_check;

#endif
