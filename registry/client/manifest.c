// SPDX-License-Identifier: Apache-2.0
/* manifest.c - writing and reading manifests and indexes; see manifest.h. */
#include "registry/client/manifest.h"

#include "registry/client/json.h"
#include "store/store.h"

static int foreign(const char *what)
{
	return fdry_fail(FDRY_E_BADIMAGE,
			 "this is not an image of Foundry: %s; give a name that foundry-store push "
			 "wrote", what);
}

/* --- media types --- */

static const char *kind_name(uint32_t kinds)
{
	const char *name = "object";

#define X(nr, NAME, text) \
	if (kinds & 1u << nr) \
		name = text;
	FDRY_OBJECT_KINDS(X)
#undef X
	return name;
}

const char *fdry_media_of(uint32_t kinds, char ret[FDRY_MEDIA_MAX])
{
	snprintf(ret, FDRY_MEDIA_MAX, FDRY_MEDIA_OBJECT, kind_name(kinds));
	return ret;
}

/* --- writing --- */

static int descriptor_put(const struct fdry_descriptor *d, const char *artifact,
			  struct fdry_buf *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_buf_printf(
		ret, "{\"mediaType\":\"%s\",\"digest\":\"sha256:%s\",\"size\":%llu", d->media,
		fdry_oid_hex(&d->digest, hex), (unsigned long long)d->size);

	if (!err && artifact)
		err = fdry_buf_printf(ret, ",\"artifactType\":\"%s\"", artifact);
	return err ?: fdry_buf_printf(ret, "}");
}

static int descriptors_put(const struct fdry_descriptor *d, size_t count, const char *artifact,
			   struct fdry_buf *ret)
{
	size_t i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = (i ? fdry_buf_printf(ret, ",") : 0) ?: descriptor_put(&d[i], artifact, ret);
	return err ?: fdry_buf_printf(ret, "]}");
}

static int begin_put(const char *media, struct fdry_buf *ret)
{
	return fdry_buf_printf(ret, "{\"schemaVersion\":2,\"mediaType\":\"%s\","
				    "\"artifactType\":\"" FDRY_MEDIA_IMAGE "\",", media);
}

int fdry_manifest_put(const struct fdry_descriptor *layers, size_t count, struct fdry_buf *ret)
{
	struct fdry_descriptor empty = { .media = FDRY_MEDIA_EMPTY,
					 .size = strlen(FDRY_EMPTY_BLOB) };

	return fdry_oid_of(FDRY_EMPTY_BLOB, strlen(FDRY_EMPTY_BLOB), &empty.digest) ?:
	       begin_put(FDRY_MEDIA_MANIFEST, ret) ?: fdry_buf_printf(ret, "\"config\":") ?:
	       descriptor_put(&empty, NULL, ret) ?: fdry_buf_printf(ret, ",\"layers\":[") ?:
	       descriptors_put(layers, count, NULL, ret);
}

int fdry_index_put(const struct fdry_descriptor *parts, size_t count, struct fdry_buf *ret)
{
	return begin_put(FDRY_MEDIA_INDEX, ret) ?: fdry_buf_printf(ret, "\"manifests\":[") ?:
	       descriptors_put(parts, count, FDRY_MEDIA_IMAGE, ret);
}

/* --- reading --- */

static int descriptor_read(json_t *from, struct fdry_buf *ret)
{
	struct fdry_descriptor d = { 0 };
	const char *media = fdry_json_text(from, "mediaType");

	if (!fdry_json_digest(from, "digest", &d.digest) || !fdry_json_count(from, "size", &d.size))
		return foreign("a descriptor has no SHA-256 or no size");
	if (strlen(media) < sizeof(d.media))
		memcpy(d.media, media, strlen(media) + 1);
	return fdry_buf_put(ret, &d, sizeof(d));
}

static int descriptors_read(json_t *list, size_t most, struct fdry_buf *ret)
{
	size_t i, n = json_array_size(list);
	int err = 0;

	if (!json_is_array(list) || !n)
		return foreign("it lists neither layers nor manifests");
	if (n > most)
		return fdry_fail(FDRY_E_LIMIT, "the registry's document lists %zu entries, and "
				 "Foundry reads %zu at most", n, most);
	for (i = 0; i < n && !err; i++)
		err = descriptor_read(json_array_get(list, i), ret);
	return err;
}

static int root_read(json_t *root, bool *is_index, struct fdry_buf *ret)
{
	const char *media = fdry_json_text(root, "mediaType");
	json_t *layers = json_object_get(root, "layers");
	json_t *parts = json_object_get(root, "manifests");
	uint64_t version;

	if (!fdry_json_count(root, "schemaVersion", &version) || version != 2)
		return foreign("its schema version is not 2");
	if (!layers == !parts)
		return foreign("it is neither a manifest nor an index");
	if (strcmp(media, layers ? FDRY_MEDIA_MANIFEST : FDRY_MEDIA_INDEX))
		return foreign("its media type is another one");
	*is_index = parts;
	return descriptors_read(layers ? layers : parts,
				layers ? FDRY_MANIFEST_LAYERS : FDRY_INDEX_PARTS, ret);
}

int fdry_document_read(struct fdry_span text, bool *is_index, struct fdry_buf *ret)
{
	size_t before = ret->len;
	json_t *root = NULL;
	int err = fdry_json_read(text, "the registry's manifest", &root);

	if (err)
		return err;
	err = root_read(root, is_index, ret);
	if (err)
		ret->len = before;
	json_decref(root);
	return err;
}
