/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_opts.h - checks the options of a load.
 */
#ifndef FDRY_IMAGE_LOAD_OPTS_H
#define FDRY_IMAGE_LOAD_OPTS_H

#include "foundry/image.h"
#include "lib/err.h"

/* FDRY_E_OPTS for unknown flags, and for counts without arrays; else as fdry_placement_check(). */
int fdry_load_opts_check(const struct fdry_load_opts *o) __must_check;

/* Keep the functions and semaphores that @o binds, for @img. FDRY_E_NAME, FDRY_E_INVAL,
 * FDRY_E_EXISTS. */
int fdry_load_opts_bind(const struct fdry_load_opts *o, struct fdry_image *img) __must_check;

#endif
