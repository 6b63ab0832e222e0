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

/* Without ok(), which Check writes to a file each time: entries are many. */
void handmade_put(struct fdry_buf *b, const void *data, size_t len);

#define handmade_add(h, section, ...) do { \
	__typeof__(*((struct fdry_manifest *)NULL)->section) entry_ = __VA_ARGS__; \
	handmade_put(&(h)->w.section, &entry_, sizeof(entry_)); \
} while (0)

/* The facts of the software driver's device, and whatever @key (may be NULL) says; in order if @key
 * sorts behind "fdry.". */
void handmade_begin(struct handmade *h);

/* A kernel object, the next in the manifest's list. */
void handmade_object(struct handmade *h, const void *data, size_t len);

/* The manifest's bytes; release @ret. */
void handmade_bytes(struct handmade *h, struct fdry_buf *ret);

/* Ends the session; the writer is released. */
void handmade_install(struct handmade *h, const char *ref);

#endif
