/* SPDX-License-Identifier: Apache-2.0 */
/* requirements.h - what a load will take, of a manifest that is at hand. */
#ifndef FDRY_IMAGE_REQUIREMENTS_H
#define FDRY_IMAGE_REQUIREMENTS_H

#include "image/manifest.h"
#include "store/store.h"

/* As fdry_image_requirements(). */
int fdry_requirements_of(struct fdry_store *s, const struct fdry_manifest *m,
			 const struct fdry_load_opts *o,
			 struct fdry_requirements **ret) __must_check;
/* The same for people, appended to @out. */
int fdry_requirements_text(const struct fdry_requirements *n, struct fdry_buf *out) __must_check;

#endif
