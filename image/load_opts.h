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

#endif
