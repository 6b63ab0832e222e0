/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - helpers for tests of packs: packs in memory, and stores to export from and import
 * into. */
#ifndef FDRY_TESTS_LIB_PACK_H
#define FDRY_TESTS_LIB_PACK_H

#include "store/pack.h"
#include "tests/lib/store.h"

/* A pack. */
struct mem {
	struct fdry_buf b;
	size_t at; /* an import read up to here */
};

/* The descriptor of the pack during export_mem() and import_mem(), otherwise -1. */
extern int pack_fd;

struct fdry_store *store_at(const char *name);

/* Export the images @names and append the written bytes to the pack, also after a failure. @ret may
 * be NULL. */
int export_mem(struct fdry_store *s, const char *const *names, size_t n,
	       const struct fdry_export_opts *o, struct mem *m, struct fdry_pack_report *ret);
/* The same for an export that must succeed. */
struct mem export_to_mem(struct fdry_store *s, const char *const *names, size_t n,
			 const struct fdry_export_opts *o, struct fdry_pack_report *ret);
int import_mem(struct fdry_store *s, struct mem *m, const struct fdry_import_opts *o,
	       struct fdry_pack_report *ret);

/* Make a text that compresses, a different one for each seed. */
size_t prose(unsigned int seed, char *to, size_t len);

/* Seal a typical image: chunks, kernels, graphs that link to kernels. */
struct fdry_oid seal_mixed(struct fdry_store *s, unsigned int seed, size_t chunk, const char *ref);

struct see {
	struct fdry_store *s;
	struct fdry_hash h;
};

struct fdry_oid see(struct fdry_store *s);

/* Every object, too. */
struct fdry_oid see_all(struct fdry_store *s);

#endif
