/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - facts about the device and program that an image was made for, and their comparison.
 *
 * The library's own facts are named fdry.*; all others are the caller's. A load compares them
 * before it loads anything.
 */
#ifndef FDRY_IMAGE_IDENTITY_H
#define FDRY_IMAGE_IDENTITY_H

#include "image/manifest.h"
#include "arch/driver.h"

/* The facts about a device. The struct holds their values. */
#define FDRY_IDENTITY_FACTS 7
struct fdry_identity {
	struct { const char *key; char value[256]; } fact[FDRY_IDENTITY_FACTS];
};
int fdry_identity_of(const struct fdry_driver *drv, CUdevice dev,
		     struct fdry_identity *ret) __must_check;

/* The first field that differs. Longer strings are cut off. */
struct fdry_mismatch {
	char field[FDRY_NAME_MAX + 1]; /* a fact's key; "": none differs */
	char wanted[256], found[256];  /* here and in the image; "" if the image does not state
					  it */
};

/* Compare an image with a device (NULL: with none) and the caller's facts. FDRY_E_IDENTITY names
 * the field and both values. @ret, which may be NULL, gets them too. */
int fdry_identity_compare(const struct fdry_manifest *m, const struct fdry_identity *here,
			  const struct fdry_fact *facts, size_t nfacts,
			  struct fdry_mismatch *ret) __must_check;

/* A digest of all facts that must be equal for a load, including the caller's. A ref holds one
 * image for each digest. */
int fdry_identity_digest(const struct fdry_manifest *m, struct fdry_oid *ret) __must_check;
/* Make all that a commit of an image needs: the manifest's bytes, that digest, and the objects that
 * the manifest names. The caller frees @bytes and @links. A failure makes none. */
int fdry_identity_encode(struct fdry_manifest_writer *w, struct fdry_buf *bytes,
			 struct fdry_oid *identity, struct fdry_oid **links,
			 size_t *nlinks) __must_check;
/* Add a fact to such a digest. */
int fdry_identity_hash(struct fdry_hash *h, const char *key, const char *value) __must_check;

#endif
