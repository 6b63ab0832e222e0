/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handmade.h - makes images that no seal would make, with any entries in the manifest and any bytes
 * as objects.
 *
 * Fill struct handmade's writer and put objects, then handmade_install() stores manifest and ref as
 * a seal does. The manifest is not checked.
 */
#ifndef FDRY_TESTS_LIB_HANDMADE_H
#define FDRY_TESTS_LIB_HANDMADE_H

#include "image/identity.h"
#include "image/manifest.h"
#include "tests/lib/image.h"

struct handmade {
	struct fdry_store *store;
	struct fdry_writer *writer;
	struct fdry_manifest_writer w;
};

uint32_t handmade_str(struct handmade *h, const char *s);

/* This does not use ok(), for which Check writes to a file each time, because there are many
 * entries. */
void handmade_put(struct fdry_buf *b, const void *data, size_t len);

#define handmade_add(h, section, ...) do { \
	__typeof__(*((struct fdry_manifest *)NULL)->section) entry_ = __VA_ARGS__; \
	handmade_put(&(h)->w.section, &entry_, sizeof(entry_)); \
} while (0)

/* Add the facts of the software driver's device and then fact @key, if it is not NULL. They are in
 * order if @key sorts after "fdry.". */
void handmade_begin(struct handmade *h);

/* Put a kernel object and add it to the manifest's list. */
void handmade_object(struct handmade *h, const void *data, size_t len);

/* Encode the manifest. The caller must release @ret. */
void handmade_bytes(struct handmade *h, struct fdry_buf *ret);

/* End the session, and release the writer. */
void handmade_install(struct handmade *h, const char *ref);

#endif
