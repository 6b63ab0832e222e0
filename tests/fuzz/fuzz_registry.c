// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_registry.c - answers of registries and their servers of tokens: manifests and indexes,
 * challenges, errors, and lists; and names that users type. The first byte of the input selects the
 * reader.
 */
#include <stdlib.h>

#include "registry/client/auth.h"
#include "registry/client/json.h"
#include "registry/client/manifest.h"
#include "registry/name.h"
#include "store/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(int ok)
{
	if (!ok)
		abort();
}

/* A document that can be read can be written, and reading that gives the same document. */
static void try_document(struct fdry_span s)
{
	struct fdry_buf read = { 0 }, text = { 0 }, again = { 0 };
	bool is_index = false, is_index2 = false;
	size_t n;

	if (fdry_document_read(s, &is_index, &read)) {
		must(!read.len);
		return;
	}
	n = read.len / sizeof(struct fdry_descriptor);
	must(n > 0 && n <= (is_index ? FDRY_INDEX_PARTS : FDRY_MANIFEST_LAYERS));
	if (!memchr(s.data, '\\', s.len)) { /* media types are written as they are */
		must(!(is_index ? fdry_index_put : fdry_manifest_put)((void *)read.data, n, &text));
		if (!fdry_document_read((struct fdry_span){ text.data, text.len }, &is_index2,
					&again))
			must(is_index == is_index2 && again.len == read.len &&
			     !memcmp(again.data, read.data, read.len));
	}
	fdry_buf_release(&read);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}

static char *text_of(struct fdry_span s)
{
	char *text = malloc(s.len + 1);

	must(text != NULL);
	memcpy(text, s.data, s.len);
	text[s.len] = 0;
	return text;
}

static void try_challenge(struct fdry_span s)
{
	struct fdry_challenge c;
	char *text = text_of(s);

	if (!fdry_challenge_parse(text, &c))
		must(c.bearer != c.basic && (c.basic || c.realm[0]));
	free(text);
}

static void try_name(struct fdry_span s)
{
	struct fdry_registry_name n;
	char *text = text_of(s);

	if (!fdry_registry_name_parse(text, &n))
		must(n.host[0] && n.repo[0] && (n.tag[0] || n.by_digest));
	free(text);
}

static void try_error(struct fdry_span s)
{
	char text[64];

	fdry_json_error(s, text, sizeof(text));
	must(strlen(text) < sizeof(text));
}

static void try_list(struct fdry_span s)
{
	const struct fdry_fetch_object *o;
	struct fdry_fetch *f;
	size_t i, n;

	if (fdry_fetch_new(s, &f))
		return;
	n = fdry_fetch_objects(f, &o);
	for (i = 0; i < n; i++)
		must(o[i].kinds && o[i].size <= FDRY_OBJECT_SIZE_MAX && !o[i].has);
	fdry_fetch_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const ways[])(struct fdry_span) = { try_document, try_challenge, try_name,
							  try_error, try_list };

	if (len)
		ways[data[0] % 5]((struct fdry_span){ data + 1, len - 1 });
	return 0;
}
