// SPDX-License-Identifier: Apache-2.0
/* content.c - see content.h. */
#include "tests/lib/content.h"

#include <stdlib.h>

#include "image/manifest.h"
#include "mm/region.h"

#define BASE 0x500000000000ull
#define STEP (2ull << 20)

void content_noise(uint64_t seed, void *to, size_t len)
{
	uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull;
	uint8_t *p = to;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < sizeof(x) ? len - i : sizeof(x);
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(p + i, &x, n);
	}
}

static int chunk_add(struct fdry_writer *writer, const struct content_image *c, size_t i,
		     uint8_t *bytes, struct fdry_manifest_writer *w)
{
	struct fdry_mf_chunk chunk = { .addr = BASE + i * STEP, .size = c->len };
	struct fdry_fingerprint print;
	int err;

	content_noise(c->seed + i, bytes, c->len);
	print = fdry_fingerprint_of(bytes, c->len);
	print.b ^= i < c->wrong ? 1ull << (i % 64) : 0;
	err = fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK, bytes, c->len, NULL, 0, &chunk.oid);
	if (err)
		return err;
	err = fdry_buf_put(&w->chunks, &chunk, sizeof(chunk));
	if (err || c->plain)
		return err;
	return fdry_buf_put(&w->fingerprints, &print, sizeof(print));
}

static int manifest_make(struct fdry_writer *writer, const struct content_image *c,
			 struct fdry_buf *ret)
{
	const struct fdry_mf_segment segment = { BASE, c->n * STEP, FDRY_ROLE_CONTENT, 0 };
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE + c->n * STEP };
	uint8_t *bytes = malloc(c->len);
	size_t i;
	int err = bytes ? fdry_buf_put(&w.segments, &segment, sizeof(segment)) : fdry_nomem();

	for (i = 0; i < c->n && !err; i++)
		err = chunk_add(writer, c, i, bytes, &w);
	err = err ?: fdry_manifest_encode(&w, ret);
	free(bytes);
	fdry_manifest_writer_release(&w);
	return err;
}

int content_image_seal(struct fdry_store *s, const struct content_image *c, struct fdry_oid *oids,
		       struct fdry_oid *id)
{
	struct fdry_writer *writer;
	struct fdry_buf bytes = { 0 };
	struct fdry_oid *links = NULL;
	struct fdry_manifest m;
	size_t i, n = 0;
	int err = fdry_writer_begin(s, &writer);

	if (err)
		return err;
	err = manifest_make(writer, c, &bytes);
	if (err)
		goto out_abort;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (err)
		goto out_abort;
	err = fdry_manifest_links(&m, &links, &n);
	if (err)
		goto out_abort;
	for (i = 0; i < c->n && oids; i++)
		oids[i] = m.chunks[i].oid;
	err = fdry_writer_commit(writer, bytes.data, bytes.len, links, n, c->ref, id, NULL);
	goto out_free;
out_abort:
	fdry_writer_abort(writer);
out_free:
	free(links);
	fdry_buf_release(&bytes);
	return err;
}
