// SPDX-License-Identifier: Apache-2.0
/* known.c - reads manifests of a repository for the blobs that they name; see known.h. */
#include "registry/client/known.h"

#include <stdlib.h>

#include "registry/client/document.h"
#include "registry/client/json.h"
#include "registry/client/manifest.h"

#define MANY 64 /* blobs: for fewer, asking for each takes less time */
#define TAGS_MAX 4
#define IDS_MAX 1000000u
#define TAGS_BYTES (4u << 20)

/* --- documents --- */

/* Whether a document that cannot be read is no reason to fail: it is missing, or not ours, or only
 * writing is allowed. */
static bool is_harmless(int err)
{
	return err == -FDRY_E_NOENT || err == -FDRY_E_PERM || err == -FDRY_E_BADIMAGE ||
	       err == -FDRY_E_LIMIT || err == -FDRY_E_CORRUPT;
}

static int document_read(struct fdry_http *h, const char *ref, const struct fdry_oid *want,
			 bool *is_index, struct fdry_buf *entries)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_oid id;
	int err = fdry_document_fetch(h, ref, want, &bytes, &id) ?:
		  fdry_document_read((struct fdry_span){ bytes.data, bytes.len }, is_index,
				     entries);

	fdry_buf_release(&bytes);
	return err;
}

static int ids_put(struct fdry_known *k, const struct fdry_buf *layers)
{
	const struct fdry_descriptor *d = (const void *)layers->data;
	size_t i, n = layers->len / sizeof(*d);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = fdry_buf_put(&k->ids, &d[i].digest, sizeof(d[i].digest));
	return err;
}

/* The layers of a manifest. */
static int part_read(struct fdry_http *h, const struct fdry_oid *id, struct fdry_known *k)
{
	char ref[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_buf layers = { 0 };
	bool is_index = false;
	int err = document_read(h, fdry_document_ref(id, ref), id, &is_index, &layers);

	if (!err && !is_index)
		err = ids_put(k, &layers);
	fdry_buf_release(&layers);
	return err;
}

/* The layers of a tag's manifest, or of all manifests of its index. */
static int tag_read(struct fdry_http *h, const char *tag, struct fdry_known *k)
{
	const struct fdry_descriptor *d;
	struct fdry_buf entries = { 0 };
	bool is_index = false;
	size_t i, n;
	int err = document_read(h, tag, NULL, &is_index, &entries);

	if (!err && !is_index)
		err = ids_put(k, &entries);
	d = (const void *)entries.data;
	n = is_index ? entries.len / sizeof(*d) : 0;
	for (i = 0; i < n && !err && k->ids.len < IDS_MAX * sizeof(d->digest); i++)
		err = part_read(h, &d[i].digest, k);
	fdry_buf_release(&entries);
	return is_harmless(err) ? 0 : err;
}

/* --- tags --- */

static size_t prefix_of(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

/* Tags whose names begin like the session's own probably share the most with it. */
static size_t tags_select(const json_t *tags, const char *own, const char *selected[TAGS_MAX])
{
	const char *tag, *other;
	const json_t *value;
	size_t i, j, n = 0;

	json_array_foreach(tags, i, value) {
		tag = json_string_value(value);
		if (!tag || !strcmp(tag, own) || strlen(tag) > FDRY_REGISTRY_TAG_MAX ||
		    !strncmp(tag, "sha256-", 7) || strpbrk(tag, "/?#%"))
			continue;
		for (j = 0; j < TAGS_MAX && tag; j++) {
			other = j < n ? selected[j] : NULL;
			if (other && prefix_of(other, own) >= prefix_of(tag, own))
				continue;
			selected[j] = tag;
			tag = other;
			n += !other;
		}
	}
	return n;
}

static int tags_read(struct fdry_http *h, const json_t *root, struct fdry_known *k)
{
	const json_t *tags = json_object_get(root, "tags");
	const char *selected[TAGS_MAX];
	size_t i, n = tags_select(tags, h->name.tag, selected);
	int err = 0;

	k->has_tags = json_array_size(tags);
	for (i = 0; i < n && !err; i++)
		err = tag_read(h, selected[i], k);
	return err;
}

static int tags_list(struct fdry_http *h, struct fdry_known *k)
{
	struct fdry_http_req r = { .method = "GET", .most = TAGS_BYTES };
	json_t *root;
	int err = fdry_http_url(h, &r, "/v2/%s/tags/list", h->name.repo) ?: fdry_http_do(h, &r);

	if (err)
		goto out_release;
	if (r.status == 404)
		k->has_tags = false;
	if (r.status != 200)
		goto out_release;
	err = fdry_json_read((struct fdry_span){ r.in.data, r.in.len },
			     "the registry's list of tags", &root);
	if (err)
		goto out_release;
	err = tags_read(h, root, k);
	json_decref(root);
out_release:
	fdry_http_req_release(&r);
	return is_harmless(err) ? 0 : err;
}

/* --- the call --- */

int fdry_known_read(struct fdry_http *h, size_t count, struct fdry_known *ret)
{
	struct fdry_known k = { .has_tags = true };
	int err = tag_read(h, h->name.tag, &k);

	if (!err && count > MANY)
		err = tags_list(h, &k);
	if (err) {
		fdry_known_release(&k);
		return err;
	}
	if (k.ids.len)
		qsort(k.ids.data, k.ids.len / sizeof(struct fdry_oid), sizeof(struct fdry_oid),
		      fdry_oid_cmp);
	*ret = k;
	return 0;
}

void fdry_known_release(struct fdry_known *k)
{
	fdry_buf_release(&k->ids);
}

bool fdry_known_has(const struct fdry_known *k, const struct fdry_oid *id)
{
	size_t n = k->ids.len / sizeof(*id);

	return n && bsearch(id, k->ids.data, n, sizeof(*id), fdry_oid_cmp);
}
