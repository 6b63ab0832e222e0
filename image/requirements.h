/* SPDX-License-Identifier: Apache-2.0 */
/* requirements.h - computes the memory that a load will need from a manifest. */
#ifndef FDRY_IMAGE_REQUIREMENTS_H
#define FDRY_IMAGE_REQUIREMENTS_H

#include "image/manifest.h"
#include "store/store.h"

/* Do what fdry_image_requirements() does, for a manifest that was read. */
int fdry_requirements_of(struct fdry_store *s, const struct fdry_manifest *m,
			 const struct fdry_load_opts *o,
			 struct fdry_requirements **ret) __must_check;
/* Append the requirements to @out as text. */
int fdry_requirements_text(const struct fdry_requirements *n, struct fdry_buf *out) __must_check;

#endif
