/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - what an image was made for, and whether that is what is here.
 *
 * Facts of the library's own are named fdry.*; the rest are the caller's. Compared
 * before anything is loaded.
 */
#ifndef FDRY_IMAGE_IDENTITY_H
#define FDRY_IMAGE_IDENTITY_H

#include "image/manifest.h"
#include "arch/driver.h"

/* A device's own facts, for a seal; values are written into the struct. */
#define FDRY_IDENTITY_FACTS 7
struct fdry_identity {
	struct { const char *key; char value[256]; } fact[FDRY_IDENTITY_FACTS];
};
int fdry_identity_of(const struct fdry_driver *drv, CUdevice dev,
		     struct fdry_identity *ret) __must_check;

/* The first field that differs; cut off if it is longer. */
struct fdry_mismatch {
	char field[FDRY_NAME_MAX + 1]; /* a fact's key; "": none differs */
	char wanted[256], found[256];  /* here and in the image; "" where the image does not say */
};

/* Compare an image with a device (NULL: with none) and the caller's facts; FDRY_E_IDENTITY names
 * the field and both values, and so does @ret, which may be NULL. */
int fdry_identity_compare(const struct fdry_manifest *m, const struct fdry_identity *here,
			  const struct fdry_fact *facts, size_t nfacts,
			  struct fdry_mismatch *ret) __must_check;

/* A digest of what the image is for, by which refs hold it: of all that must be equal for a load,
 * the caller's facts among it. */
int fdry_identity_digest(const struct fdry_manifest *m, struct fdry_oid *ret) __must_check;

#endif
