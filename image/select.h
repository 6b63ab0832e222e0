/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - selects one of the images under a name.
 *
 * A ref is a name in the store. It holds one image for each identity, which is what an image was
 * made for: a GPU architecture, a version of the code, and so on. Among the images that fit this
 * process, the one that was named last is selected. If none fits, the error lists them. Images that
 * cannot be read are skipped if another fits.
 */
#ifndef FDRY_IMAGE_SELECT_H
#define FDRY_IMAGE_SELECT_H

#include "image/identity.h"
#include "store/store.h"

/* The facts that an image must fit. */
struct fdry_wanted {
	const struct fdry_identity *here; /* NULL: any device */
	const struct fdry_fact *facts;
	size_t nfacts;
};

/* The images that remain, newest first. Zero it to start. */
struct fdry_candidates {
	const char *name;     /* belongs to the caller */
	struct fdry_buf list; /* of struct fdry_candidate */
	size_t found;         /* the number of images before filtering */
	struct fdry_buf why;  /* why others do not fit, as text */
	int broken;           /* the error code of the first image that could not be read */
	struct fdry_buf damaged; /* struct fdry_oid each: manifests that are damaged in the store */
};
struct fdry_candidate {
	struct fdry_oid id;
	struct fdry_buf bytes;  /* the manifest ... */
	struct fdry_manifest m; /* ... and a view of it */
};

/* Read all images that @name names. If there is only one, it must be readable. Also release them
 * after a failure: @damaged is then set, too. */
int fdry_candidates_read(struct fdry_reader *reader, const char *name,
			 struct fdry_candidates *ret) __must_check;
/* Remove the images that do not fit. If none remains, FDRY_E_IDENTITY, and @ret, which may be NULL,
 * gets the difference of the newest. */
int fdry_candidates_filter(struct fdry_candidates *p, const struct fdry_wanted *w,
			   struct fdry_mismatch *ret) __must_check;
/* The number of images that remain. */
size_t fdry_candidates_count(const struct fdry_candidates *p);
/* Take the first image out of the list; it then belongs to the caller. At least one must remain. */
struct fdry_candidate fdry_candidates_select(struct fdry_candidates *p);
void fdry_candidates_release(struct fdry_candidates *p);

/* Read, filter and select in one call, without comparing a device: the newest image whose facts
 * fit. */
int fdry_select_image(struct fdry_reader *reader, const char *name, const struct fdry_wanted *w,
		      struct fdry_candidate *ret) __must_check;

#endif
