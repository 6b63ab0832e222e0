/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - which of the images under one name is meant.
 *
 * A ref holds images by identity. Among those that fit, the one that was named last is selected.
 * If none fits, the error says what there is. Images that cannot be read are passed over
 * as long as another fits.
 */
#ifndef FDRY_IMAGE_SELECT_H
#define FDRY_IMAGE_SELECT_H

#include "image/identity.h"
#include "store/store.h"

/* What an image must fit. */
struct fdry_wanted {
	const struct fdry_identity *here; /* NULL: any device */
	const struct fdry_fact *facts;
	size_t nfacts;
};

/* The images that are left, newest first. Zero it to start. */
struct fdry_candidates {
	const char *name;     /* the caller's */
	struct fdry_buf list; /* of struct fdry_candidate */
	size_t found;         /* how many there were */
	struct fdry_buf why;  /* why others do not fit, as text */
	int broken;           /* the first that could not be read: its code */
};
struct fdry_candidate {
	struct fdry_oid id;
	struct fdry_buf bytes;  /* the manifest ... */
	struct fdry_manifest m; /* ... and a view of it */
};

/* Read all that @name may mean. A single image must be readable. */
int fdry_candidates_read(struct fdry_reader *reader, const char *name,
			 struct fdry_candidates *ret) __must_check;
/* Leave out what does not fit. FDRY_E_IDENTITY if nothing is left, with the newest one's
 * difference in @ret (may be NULL). */
int fdry_candidates_filter(struct fdry_candidates *p, const struct fdry_wanted *w,
			   struct fdry_mismatch *ret) __must_check;
/* How many are left. */
size_t fdry_candidates_count(const struct fdry_candidates *p);
/* The first, which is the caller's now; only if one is left. */
struct fdry_candidate fdry_candidates_select(struct fdry_candidates *p);
void fdry_candidates_release(struct fdry_candidates *p);

/* All of it without a device to compare with: the newest image whose facts fit. */
int fdry_select_image(struct fdry_reader *reader, const char *name, const struct fdry_wanted *w,
		      struct fdry_candidate *ret) __must_check;

#endif
