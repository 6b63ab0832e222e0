// SPDX-License-Identifier: Apache-2.0
/* signature.c - writes and reads payloads, signature manifests and indexes of referrers; see
 * signature.h. */
#include "registry/client/signature.h"

#include <openssl/evp.h>

#include "registry/client/json.h"

#define TYPE "cosign container image signature"
#define ANNOTATION "dev.cosignproject.cosign/signature"
#define ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
/* Base64 of the longest signature, with a terminator. */
#define TEXT_SIZE ((FDRY_SIGNATURE_MAX + 2) / 3 * 4 + 1)

static int bad(const char *what)
{
	return fdry_fail(FDRY_E_BADIMAGE,
			 "the registry's signature is malformed: %s; sign the image again", what);
}

/* Append a JSON document, and release it. @json NULL: there was no memory for it. */
static int json_put(json_t *json, struct fdry_buf *ret)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	int err = text ? fdry_buf_put(ret, text, strlen(text)) : fdry_nomem();

	free(text);
	json_decref(json);
	return err;
}

/* --- payloads --- */

int fdry_payload_put(const struct fdry_payload *p, struct fdry_buf *ret)
{
	char hex[FDRY_OID_HEX_SIZE];

	/* References consist of signs that JSON has as they are. */
	return fdry_buf_printf(ret,
			       "{\"critical\":{\"identity\":{\"docker-reference\":\"%s\"},"
			       "\"image\":{\"docker-manifest-digest\":\"sha256:%s\"},"
			       "\"type\":\"" TYPE "\"},\"optional\":{}}",
			       p->reference, fdry_oid_hex(&p->id, hex));
}

static int critical_read(const json_t *critical, struct fdry_payload *ret)
{
	const json_t *identity = json_object_get(critical, "identity");
	const json_t *image = json_object_get(critical, "image");
	const char *reference = fdry_json_text(identity, "docker-reference");
	struct fdry_payload p = { 0 };

	if (json_object_size(critical) != 3 || json_object_size(identity) != 1 ||
	    json_object_size(image) != 1)
		return bad("its critical part has other members than identity, image and type");
	if (strcmp(fdry_json_text(critical, "type"), TYPE))
		return bad("its type is not '" TYPE "'");
	if (!fdry_json_digest(image, "docker-manifest-digest", &p.id))
		return bad("it names no SHA-256");
	if (!*reference || strlen(reference) >= sizeof(p.reference))
		return bad("it names no image");
	memcpy(p.reference, reference, strlen(reference));
	*ret = p;
	return 0;
}

int fdry_payload_read(struct fdry_span text, struct fdry_payload *ret)
{
	json_t *root = NULL;
	int err = fdry_json_read(text, "the payload of the registry's signature", &root);

	if (err)
		return err;
	err = critical_read(json_object_get(root, "critical"), ret);
	json_decref(root);
	return err;
}

/* --- signature manifests --- */

/* False unless @text is base64 of a signature that is not too long. */
static bool base64_read(const char *text, struct fdry_signature *s)
{
	uint8_t bytes[TEXT_SIZE];
	size_t len = strlen(text), pad;
	int n;

	if (!len || len % 4 || len >= TEXT_SIZE)
		return false;
	pad = (size_t)(text[len - 1] == '=') + (text[len - 2] == '=');
	if (strspn(text, ALPHABET) + pad != len) /* OpenSSL allows more */
		return false;
	n = EVP_DecodeBlock(bytes, (const uint8_t *)text, (int)len);
	if (n < (int)pad || (size_t)n - pad > sizeof(s->bytes))
		return false;
	s->len = (size_t)n - pad;
	memcpy(s->bytes, bytes, s->len);
	return s->len;
}

static int layer_read(const json_t *layer, struct fdry_buf *ret)
{
	const json_t *notes = json_object_get(layer, "annotations");
	struct fdry_signature s = { .len = 0 };

	if (strcmp(fdry_json_text(layer, "mediaType"), FDRY_MEDIA_PAYLOAD) ||
	    !fdry_json_digest(layer, "digest", &s.payload) ||
	    !fdry_json_count(layer, "size", &s.size) || s.size > FDRY_PAYLOAD_MAX ||
	    !base64_read(fdry_json_text(notes, ANNOTATION), &s))
		return 0;
	return fdry_buf_put(ret, &s, sizeof(s));
}

static int count_check(const json_t *list, size_t most)
{
	if (!json_is_array(list))
		return bad("a list is missing");
	if (json_array_size(list) > most)
		return fdry_fail(FDRY_E_LIMIT,
				 "the registry's document of signatures lists %zu entries, and "
				 "Foundry reads %zu at most",
				 json_array_size(list), most);
	return 0;
}

int fdry_signatures_read(struct fdry_span text, struct fdry_buf *ret)
{
	json_t *root = NULL, *layers;
	size_t i, before = ret->len;
	int err = fdry_json_read(text, "the registry's signature manifest", &root);

	if (err)
		return err;
	layers = json_object_get(root, "layers");
	err = count_check(layers, FDRY_SIGNATURES_MAX);
	for (i = 0; !err && i < json_array_size(layers); i++)
		err = layer_read(json_array_get(layers, i), ret);
	if (err)
		ret->len = before;
	json_decref(root);
	return err;
}

static json_t *descriptor_new(const struct fdry_descriptor *d)
{
	char hex[FDRY_OID_HEX_SIZE], digest[sizeof("sha256:") + FDRY_OID_HEX_SIZE];

	snprintf(digest, sizeof(digest), "sha256:%s", fdry_oid_hex(&d->digest, hex));
	return json_pack("{s:s, s:s, s:I}", "mediaType", d->media, "digest", digest, "size",
			 (json_int_t)d->size);
}

static json_t *layer_new(const struct fdry_signature *s)
{
	struct fdry_descriptor d = { .media = FDRY_MEDIA_PAYLOAD, .digest = s->payload,
				     .size = s->size };
	char text[TEXT_SIZE];
	json_t *layer = descriptor_new(&d);

	EVP_EncodeBlock((uint8_t *)text, s->bytes, (int)s->len);
	if (json_object_set_new(layer, "annotations", json_pack("{s:s}", ANNOTATION, text))) {
		json_decref(layer);
		return NULL;
	}
	return layer;
}

static json_t *manifest_new(void)
{
	struct fdry_descriptor empty = { .media = FDRY_MEDIA_EMPTY,
					 .size = strlen(FDRY_EMPTY_BLOB) };

	if (fdry_oid_of(FDRY_EMPTY_BLOB, strlen(FDRY_EMPTY_BLOB), &empty.digest))
		return NULL;
	return json_pack("{s:i, s:s, s:s, s:o, s:[]}", "schemaVersion", 2, "mediaType",
			 FDRY_MEDIA_MANIFEST, "artifactType", FDRY_MEDIA_SIGNATURE, "config",
			 descriptor_new(&empty), "layers");
}

/* Read @old; if it is empty, the document is what @make returns. */
static int old_read(struct fdry_span old, const char *what, json_t *(*make)(void), json_t **ret)
{
	if (old.len)
		return fdry_json_read(old, what, ret);
	*ret = make();
	return *ret ? 0 : fdry_nomem();
}

int fdry_signatures_put(struct fdry_span old, const struct fdry_descriptor *subject,
			const struct fdry_signature *added, struct fdry_buf *ret)
{
	json_t *root = NULL, *layers;
	int err = old_read(old, "the registry's signature manifest", manifest_new, &root);

	if (err)
		return err;
	layers = json_object_get(root, "layers");
	err = count_check(layers, FDRY_SIGNATURES_MAX - 1);
	if (!err && (json_array_append_new(layers, layer_new(added)) ||
		     json_object_set_new(root, "subject", descriptor_new(subject)) ||
		     json_object_set_new(root, "artifactType", json_string(FDRY_MEDIA_SIGNATURE))))
		err = fdry_nomem();
	if (err) {
		json_decref(root);
		return err;
	}
	return json_put(root, ret);
}

/* --- referrers --- */

int fdry_referrers_read(struct fdry_span text, struct fdry_buf *ret)
{
	struct fdry_descriptor d = { .media = FDRY_MEDIA_MANIFEST };
	json_t *root = NULL, *list, *one;
	size_t i;
	int err = fdry_json_read(text, "the registry's index of referrers", &root);

	if (err)
		return err;
	list = json_object_get(root, "manifests");
	err = count_check(list, FDRY_MANIFEST_LAYERS);
	for (i = 0; !err && i < json_array_size(list); i++) {
		one = json_array_get(list, i);
		if (!strcmp(fdry_json_text(one, "artifactType"), FDRY_MEDIA_SIGNATURE) &&
		    fdry_json_digest(one, "digest", &d.digest) &&
		    fdry_json_count(one, "size", &d.size))
			err = fdry_buf_put(ret, &d, sizeof(d));
	}
	json_decref(root);
	return err;
}

static json_t *index_new(void)
{
	return json_pack("{s:i, s:s, s:[]}", "schemaVersion", 2, "mediaType", FDRY_MEDIA_INDEX,
			 "manifests");
}

/* Remove the entries with this digest. */
static void entries_drop(json_t *list, const struct fdry_oid *id)
{
	struct fdry_oid other;
	size_t i;

	for (i = json_array_size(list); i--;)
		if (fdry_json_digest(json_array_get(list, i), "digest", &other) &&
		    fdry_oid_eq(&other, id))
			json_array_remove(list, i);
}

int fdry_referrers_put(struct fdry_span old, const struct fdry_descriptor *added,
		       const struct fdry_oid *replaced, struct fdry_buf *ret)
{
	json_t *root = NULL, *list, *one;
	int err = old_read(old, "the registry's index of referrers", index_new, &root);

	if (err)
		return err;
	list = json_object_get(root, "manifests");
	err = count_check(list, FDRY_MANIFEST_LAYERS - 1);
	if (!err) {
		if (replaced)
			entries_drop(list, replaced);
		entries_drop(list, &added->digest);
		one = descriptor_new(added);
		if (json_object_set_new(one, "artifactType", json_string(FDRY_MEDIA_SIGNATURE)) ||
		    json_array_append(list, one))
			err = fdry_nomem();
		json_decref(one);
	}
	if (err) {
		json_decref(root);
		return err;
	}
	return json_put(root, ret);
}
