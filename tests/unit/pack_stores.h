/* SPDX-License-Identifier: Apache-2.0 */
/* pack_stores.h - the fixture of tests of packs: a store with two images, and an empty one. */
#ifndef FDRY_TESTS_PACK_STORES_H
#define FDRY_TESTS_PACK_STORES_H

#include "tests/unit/pack_test.h"

#define CHUNK 5000

static struct fdry_store *from, *to;
static struct fdry_pack_image images[2];

static void setup(void)
{
	dir_setup_in("/dev/shm");
	from = store_at("from");
	to = store_at("to");
	images[0] = (struct fdry_pack_image){ .oid = seal_mixed(from, 1, CHUNK, "one"), .name = "one" };
	images[1] = (struct fdry_pack_image){ .oid = seal_mixed(from, 2, CHUNK, "two/b"), .name = "two/b" };
}

static void teardown(void)
{
	fdry_store_close(from);
	fdry_store_close(to);
	dir_teardown();
}

#endif
