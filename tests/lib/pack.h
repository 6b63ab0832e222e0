/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - packs in memory, and stores to export from and import into. */
#ifndef FDRY_TESTS_LIB_PACK_H
#define FDRY_TESTS_LIB_PACK_H

#include "store/pack.h"
#include "tests/lib/store.h"

/* Bytes that were written, or are read; what fails, and where. */
struct mem {
	struct fdry_buf b;
	size_t at;    /* read up to here */
	size_t step;  /* bytes a read gives; 0: what is asked for */
	size_t stop;  /* with @fail: fail at this byte */
	bool fail;
	void (*hook)(struct mem *m); /* before each read */
};

int mem_write(void *arg, const void *data, size_t len);
int mem_read(void *arg, void *data, size_t len, size_t *got);
struct fdry_store *store_at(const char *name);

struct mem export_to_mem(struct fdry_store *s, const struct fdry_pack_image *images, size_t n,
			 const struct fdry_pack_opts *o, struct fdry_pack_report *ret);
int import_mem(struct fdry_store *s, struct mem *m, const struct fdry_pack_opts *o,
	       struct fdry_pack_report *ret);

/* A text that compresses, another for each seed. */
size_t prose(unsigned int seed, char *to, size_t len);

/* An image as they are: chunks, kernels, graphs that link to kernels. */
struct fdry_oid seal_mixed(struct fdry_store *s, unsigned int seed, size_t chunk, const char *ref);

struct see {
	struct fdry_store *s;
	struct fdry_hash h;
};

struct fdry_oid see(struct fdry_store *s);

/* Every object, too. */
struct fdry_oid see_all(struct fdry_store *s);

#endif
