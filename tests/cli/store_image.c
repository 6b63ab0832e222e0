// SPDX-License-Identifier: Apache-2.0
/*
 * store_image STORE REF FILE... - seal an image whose content is the files, and print its id. The
 * fact in the variable STORE_IMAGE_FACT (KEY=VALUE), if it is set, becomes a fact of the image.
 *
 * For tests of foundry-store: an image with chunks and a real manifest, without a GPU. REF "-"
 * gives the image no ref.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/identity.h"
#include "mm/region.h"
#include "store/store.h"
#include "tests/lib/need.h"

#define BASE 0x500000000000ull
#define ROOM 0x100000ull

static size_t read_file(const char *name, void *to, size_t len)
{
	FILE *f = fopen(name, "rb");
	size_t n = f ? fread(to, 1, len, f) : 0;

	if (!f) {
		perror(name);
		exit(1);
	}
	fclose(f);
	return n;
}

static void add_content(struct fdry_manifest_writer *w, struct fdry_writer *writer, int i,
			const char *file)
{
	static uint8_t bytes[ROOM];
	size_t n = read_file(file, bytes, sizeof(bytes));
	struct fdry_mf_segment segment = { BASE + (uint64_t)i * ROOM, ROOM, FDRY_ROLE_CONTENT, 0 };
	struct fdry_mf_chunk chunk = { BASE + (uint64_t)i * ROOM, n, { { 0 } } };

	must(fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK, bytes, n, NULL, 0, &chunk.oid));
	must(fdry_buf_put(&w->segments, &segment, sizeof(segment)));
	must(fdry_buf_put(&w->chunks, &chunk, sizeof(chunk)));
}

/* Adds the fact "KEY=VALUE", or none if text is NULL. */
static void add_fact(struct fdry_manifest_writer *w, const char *text)
{
	char key[64];
	const char *value = text ? strchr(text, '=') : NULL;
	struct fdry_mf_fact fact;

	if (!value)
		return;
	snprintf(key, sizeof(key), "%.*s", (int)(value - text), text);
	must(fdry_manifest_add_str(w, key, &fact.key));
	must(fdry_manifest_add_str(w, value + 1, &fact.value));
	must(fdry_buf_put(&w->facts, &fact, sizeof(fact)));
}

int main(int argc, char **argv)
{
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE + 64 * ROOM };
	struct fdry_buf bytes = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_manifest m;
	struct fdry_store *s;
	struct fdry_oid id, identity, *links;
	struct fdry_writer *writer;
	size_t n;
	int i;

	if (argc < 3 || argc > 64)
		return 2;
	must(fdry_store_open(argv[1], FDRY_STORE_CREATE, &s));
	must(fdry_writer_begin(s, &writer));
	for (i = 3; i < argc; i++)
		add_content(&w, writer, i - 3, argv[i]);
	add_fact(&w, getenv("STORE_IMAGE_FACT"));
	must(fdry_manifest_encode(&w, &bytes));
	must(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	must(fdry_identity_digest(&m, &identity));
	fdry_writer_set_identity(writer, &identity);
	must(fdry_manifest_links(&m, &links, &n));
	must(fdry_writer_commit(writer, bytes.data, bytes.len, links, n,
				argv[2][0] == '-' ? NULL : argv[2], &id, NULL));
	printf("%s\n", fdry_oid_hex(&id, hex));
	free(links);
	fdry_buf_release(&bytes);
	fdry_manifest_writer_release(&w);
	fdry_store_close(s);
	return 0;
}
