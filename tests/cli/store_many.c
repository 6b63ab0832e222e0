// SPDX-License-Identifier: Apache-2.0
/*
 * store_many STORE N - seal N small images, many/0, many/1 and so on, which share one chunk and
 * have one chunk of their own each. Tests of foundry-store use it for larger stores: ids with equal
 * beginnings, sums, listings.
 */
#include <stdio.h>
#include <stdlib.h>

#include "image/manifest.h"
#include "mm/region.h"
#include "store/store.h"
#include "tests/lib/need.h"

#define BASE 0x500000000000ull
#define ROOM 0x100000ull
#define BYTES 1000

static void add_chunk(struct fdry_manifest_writer *w, struct fdry_writer *writer, uint64_t at,
		      unsigned int seed)
{
	struct fdry_mf_chunk chunk = { at, BYTES, { { 0 } } };
	uint8_t bytes[BYTES] = { 1 };

	fdry_set32(bytes + 4, seed);
	must(fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK, bytes, sizeof(bytes), NULL, 0,
				    &chunk.oid));
	must(fdry_buf_put(&w->chunks, &chunk, sizeof(chunk)));
}

static void seal(struct fdry_store *s, unsigned int i)
{
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE + ROOM };
	struct fdry_mf_segment segment = { BASE, ROOM, FDRY_ROLE_CONTENT, 0 };
	struct fdry_buf bytes = { 0 };
	struct fdry_oid id, *links;
	struct fdry_manifest m;
	struct fdry_writer *writer;
	char name[32];
	size_t n;

	snprintf(name, sizeof(name), "many/%u", i);
	must(fdry_writer_begin(s, &writer));
	must(fdry_buf_put(&w.segments, &segment, sizeof(segment)));
	add_chunk(&w, writer, BASE, 0);
	add_chunk(&w, writer, BASE + ROOM / 2, i + 1);
	must(fdry_manifest_encode(&w, &bytes));
	must(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	must(fdry_manifest_links(&m, &links, &n));
	must(fdry_writer_commit(writer, bytes.data, bytes.len, links, n, name, &id, NULL));
	free(links);
	fdry_buf_release(&bytes);
	fdry_manifest_writer_release(&w);
}

int main(int argc, char **argv)
{
	struct fdry_store *s;
	unsigned int i;

	if (argc != 3)
		return 2;
	must(fdry_store_open(argv[1], FDRY_STORE_CREATE, &s));
	for (i = 0; i < (unsigned int)atoi(argv[2]); i++)
		seal(s, i);
	fdry_store_close(s);
	return 0;
}
