/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compiled.h - compiled code in a store, for every process of the host.
 *
 * Compiled code is an image like any other, with one kernel object and without memory and graphs.
 * Its ref is kernels/CONTENT and its identity is the key (Documentation/design/kernels.rst). So
 * refs keep it, and collections, limits, packs and checks treat it like other images. The store
 * alone writes to disk, and its readers verify all bytes, because an id is a hash of them.
 */
#ifndef FDRY_IMAGE_COMPILED_H
#define FDRY_IMAGE_COMPILED_H

#include "foundry/image.h"
#include "arch/driver.h"
#include "store/store.h"

/* The ref of compiled code is this prefix and the SHA-256 of the compiled content. */
#define FDRY_COMPILED_REF "kernels/"

struct fdry_compiled {
	char content[FDRY_OID_HEX_SIZE]; /* SHA-256 of the source or PTX */
	const struct fdry_fact *facts;   /* everything that determines the code, ascending by key */
	size_t nfacts;
	struct fdry_oid key; /* fdry_compiled_key() of the facts */
};

/* The facts that determine compiled code, as strings. */
struct fdry_compiled_source {
	const char *arch; /* of the device, "sm_90" */
	bool software;    /* whether the driver is the software driver */
	const char *compiler;
	const char *content; /* SHA-256 of the source or PTX */
	const char *form;    /* "source", "ptx" or "cubin" */
	const char *options, *target, *version;
};

#define FDRY_COMPILED_FACTS 8
/* List them as the facts of a key, ascending. The facts point to the strings. */
void fdry_compiled_facts(const struct fdry_compiled_source *src,
			 struct fdry_fact ret[FDRY_COMPILED_FACTS]);
/* Write the name of a driver's compiler as keys have it: CUDA version and release. */
void fdry_compiled_compiler(const struct fdry_driver *drv, char ret[128]);
int fdry_compiled_key(const struct fdry_fact *facts, size_t n, struct fdry_oid *ret) __must_check;

/* Append the verified code to @ret and set *@found, if the store has the code. Returns
 * FDRY_E_CORRUPT, FDRY_E_BADIMAGE, FDRY_E_NOENT or FDRY_E_VERSION if the code is unusable; other
 * errors are the store's. */
int fdry_compiled_get(struct fdry_store *s, const struct fdry_compiled *c, struct fdry_buf *ret,
		      bool *found) __must_check;
/* Store code, in place of earlier code of the same key. FDRY_E_RACED: another process was faster.
 */
int fdry_compiled_put(struct fdry_store *s, const struct fdry_compiled *c,
		      struct fdry_span cubin) __must_check;

#endif
