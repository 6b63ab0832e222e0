/* SPDX-License-Identifier: Apache-2.0 */
/* pack_stores.h - the fixture of tests of packs: a store with two images, and an empty one. */
#ifndef FDRY_TESTS_LIB_PACK_STORES_H
#define FDRY_TESTS_LIB_PACK_STORES_H

#include "tests/lib/pack.h"

#define CHUNK 5000

extern struct fdry_store *from, *to;
extern struct fdry_oid images[2];
extern const char *const image_names[2];
void pack_setup(void);
void pack_teardown(void);

#endif
