// SPDX-License-Identifier: Apache-2.0
/* pack_stores.c - see pack_stores.h. */
#include "tests/lib/pack_stores.h"

struct fdry_store *from, *to;
struct fdry_pack_image images[2];

void pack_setup(void)
{
	dir_setup_in("/dev/shm");
	from = store_at("from");
	to = store_at("to");
	images[0] =
		(struct fdry_pack_image){ .oid = seal_mixed(from, 1, CHUNK, "one"), .name = "one" };
	images[1] = (struct fdry_pack_image){ .oid = seal_mixed(from, 2, CHUNK, "two/b"),
					      .name = "two/b" };
}

void pack_teardown(void)
{
	fdry_store_close(from);
	fdry_store_close(to);
	dir_teardown();
}
