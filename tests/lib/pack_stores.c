// SPDX-License-Identifier: Apache-2.0
/* pack_stores.c - see pack_stores.h. */
#include "tests/lib/pack_stores.h"

struct fdry_store *from, *to;
struct fdry_oid images[2];
const char *const image_names[2] = { "one", "two/b" };

void pack_setup(void)
{
	dir_setup_in("/dev/shm");
	from = store_at("from");
	to = store_at("to");
	images[0] = seal_mixed(from, 1, CHUNK, image_names[0]);
	images[1] = seal_mixed(from, 2, CHUNK, image_names[1]);
}

void pack_teardown(void)
{
	fdry_store_close(from);
	fdry_store_close(to);
	dir_teardown();
}
