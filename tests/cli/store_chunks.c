// SPDX-License-Identifier: Apache-2.0
/*
 * store_chunks STORE REF COUNT BYTES [SEED] - seal an image of COUNT chunks of BYTES each, and
 * print its id. All content is noise that is computed from SEED, 1 by default.
 *
 * For tests and benchmarks of registries: images of a size and a number of objects that they need.
 */
#include <stdio.h>
#include <stdlib.h>

#include "image/manifest.h"
#include "mm/region.h"
#include "store/store.h"

#define BASE 0x500000000000ull
#define GRANULE 0x200000ull
#define BYTES_MAX (1ull << 30)

static void need(int err)
{
	if (!err)
		return;
	fprintf(stderr, "store_chunks: %s\n", fdry_last_error());
	exit(1);
}

static void noise_make(uint64_t *to, size_t words, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u | 1;
	size_t i;

	for (i = 0; i < words; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		to[i] = x;
	}
}

/* All chunks lie in one segment, one behind the other. The noise of chunk @i begins with @i. */
static void chunks_add(struct fdry_manifest_writer *w, struct fdry_writer *writer, uint64_t count,
		       uint64_t bytes, uint64_t seed)
{
	uint64_t i, *noise = malloc(bytes);
	struct fdry_mf_chunk chunk = { .size = bytes };

	need(noise ? 0 : fdry_nomem());
	for (i = 0; i < count; i++) {
		if (!i || bytes > 65536)
			noise_make(noise, bytes / 8, seed + i);
		noise[0] = i;
		chunk.addr = BASE + i * bytes;
		need(fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK, noise, bytes, NULL, 0,
					    &chunk.oid));
		need(fdry_buf_put(&w->chunks, &chunk, sizeof(chunk)));
	}
	free(noise);
}

static void seal(struct fdry_store *s, const char *ref, struct fdry_manifest_writer *w,
		 struct fdry_writer *writer)
{
	struct fdry_buf bytes = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid id, *links;
	struct fdry_manifest m;
	size_t n;

	need(fdry_manifest_encode(w, &bytes));
	need(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	need(fdry_manifest_links(&m, &links, &n));
	need(fdry_writer_commit(writer, bytes.data, bytes.len, links, n, ref, &id, NULL));
	free(links);
	fdry_buf_release(&bytes);
	fdry_store_close(s);
	puts(fdry_oid_hex(&id, hex));
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	uint64_t bytes = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
	uint64_t len = (count * bytes + GRANULE - 1) / GRANULE * GRANULE;
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE + len };
	struct fdry_mf_segment segment = { BASE, len, FDRY_ROLE_CONTENT, 0 };
	struct fdry_writer *writer;
	struct fdry_store *s;

	if (argc < 5 || !count || !bytes || bytes % 8 || bytes > BYTES_MAX)
		return 2;
	need(fdry_store_open(argv[1], FDRY_STORE_CREATE, &s));
	need(fdry_writer_begin(s, &writer));
	need(fdry_buf_put(&w.segments, &segment, sizeof(segment)));
	chunks_add(&w, writer, count, bytes, argc > 5 ? strtoull(argv[5], NULL, 10) : 1);
	seal(s, argv[2], &w, writer);
	fdry_manifest_writer_release(&w);
	return 0;
}
