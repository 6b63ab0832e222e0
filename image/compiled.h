/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compiled.h - compiled code in a store, for every process of the host.
 *
 * Compiled code is an image like any other, with one kernel object and without memory and graphs.
 * Its ref is kernels/CONTENT and its identity is the key (Documentation/design/kernels.rst). So
 * refs keep it; collections, limits, packs and checks treat it like other images; and nothing here
 * writes to disk by itself. The store's readers verify all bytes: an id is a hash.
 */
#ifndef FDRY_IMAGE_COMPILED_H
#define FDRY_IMAGE_COMPILED_H

#include "foundry/image.h"
#include "arch/driver.h"
#include "store/store.h"

/* The name of compiled code in a store is this and the SHA-256 of the content. */
#define FDRY_COMPILED_REF "kernels/"

struct fdry_compiled {
	char content[FDRY_OID_HEX_SIZE]; /* SHA-256 of what was compiled */
	const struct fdry_fact *facts;   /* everything that determines the code, ascending by key */
	size_t nfacts;
	struct fdry_oid key; /* fdry_compiled_key() of the facts */
};

/* The compiler of a driver, as keys have it: CUDA version and release. */
void fdry_compiled_compiler(const struct fdry_driver *drv, char ret[128]);
int fdry_compiled_key(const struct fdry_fact *facts, size_t n, struct fdry_oid *ret) __must_check;

/* Append the code, verified, unless the store has none: *@found. FDRY_E_CORRUPT, FDRY_E_BADIMAGE,
 * FDRY_E_NOENT, FDRY_E_VERSION if it is of no use; other errors are the store's. */
int fdry_compiled_get(struct fdry_store *s, const struct fdry_compiled *c, struct fdry_buf *ret,
		      bool *found) __must_check;
/* Store code, in place of earlier code of the same key. FDRY_E_RACED: another process was faster.
 */
int fdry_compiled_put(struct fdry_store *s, const struct fdry_compiled *c,
		      struct fdry_span cubin) __must_check;

#endif
