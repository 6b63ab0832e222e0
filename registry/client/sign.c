// SPDX-License-Identifier: Apache-2.0
/*
 * sign.c - signs what lies in a registry; see trust.h.
 *
 * The signature manifest has the signed document as its subject, and cosign's tag. Registries that
 * list referrers do the rest. For the others an index at a tag of its own lists it. Two programs
 * that sign one image at the same time can overwrite each other's manifest or index, as a registry
 * has no locks; so both are read again, and written again if the signature is not in them.
 */
#include "lib/log.h"
#include "registry/client/document.h"
#include "registry/client/signature.h"
#include "registry/client/trust.h"

#define TRIES_MAX 5

struct signing {
	struct fdry_http *http;
	EVP_PKEY *key;
	const struct fdry_descriptor *subject;
	struct fdry_buf payload;
	struct fdry_signature own;
	char cosign[FDRY_TRUST_TAG_SIZE], referrers[FDRY_TRUST_TAG_SIZE];
};

/* --- blobs --- */

/* @url: where the registry expects the bytes of blob @ref. */
static int upload_begin(struct fdry_http *h, const char *ref, char **url)
{
	struct fdry_http_req r = { .method = "POST" };
	char *to;
	int err = fdry_http_url(h, &r, "/v2/%s/blobs/uploads/", h->name.repo) ?:
		  fdry_http_do(h, &r) ?: fdry_http_expect(h, &r, 202, 0) ?:
		  fdry_http_follow(h, &r);

	if (err)
		goto out_release;
	if (asprintf(&to, "%s%cdigest=%s", r.url, strchr(r.url, '?') ? '&' : '?', ref) < 0) {
		err = fdry_nomem();
		goto out_release;
	}
	*url = to;
out_release:
	fdry_http_req_release(&r);
	return err;
}

/* There are two small blobs, so send one after the other. */
static int blob_upload(struct fdry_http *h, struct fdry_span bytes, const char *ref)
{
	struct fdry_http_req r = { .method = "PUT", .type = "application/octet-stream",
				   .body = bytes };
	int err = upload_begin(h, ref, &r.url) ?: fdry_http_do(h, &r) ?:
		  fdry_http_expect(h, &r, 201, 204);

	fdry_http_req_release(&r);
	return err;
}

static int blob_send(struct fdry_http *h, struct fdry_span bytes, const struct fdry_oid *id)
{
	struct fdry_http_req r = { .method = "HEAD" };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(h, &r, "/v2/%s/blobs/%s", h->name.repo,
				fdry_document_ref(id, ref)) ?:
		  fdry_http_do(h, &r);
	bool there = !err && r.status == 200;

	if (!err && !there && r.status != 404)
		err = fdry_http_refused(h, &r);
	fdry_http_req_release(&r);
	return err || there ? err : blob_upload(h, bytes, ref);
}

static int blobs_send(const struct signing *s)
{
	const struct fdry_span empty = { (const uint8_t *)FDRY_EMPTY_BLOB,
					 strlen(FDRY_EMPTY_BLOB) };
	struct fdry_oid id;

	return fdry_oid_of(empty.data, empty.len, &id) ?: blob_send(s->http, empty, &id) ?:
	       blob_send(s->http, (struct fdry_span){ s->payload.data, s->payload.len },
			 &s->own.payload);
}

/* --- the signature --- */

static int payload_sign(struct signing *s)
{
	const struct fdry_registry_name *n = &s->http->name;
	struct fdry_payload p = { .id = s->subject->digest };
	struct fdry_buf sig = { 0 };
	int err;

	snprintf(p.reference, sizeof(p.reference), "%s/%s%s%s", n->host, n->repo,
		 n->tag[0] ? ":" : "", n->tag);
	err = fdry_payload_put(&p, &s->payload) ?:
	      fdry_key_sign(s->key, (struct fdry_span){ s->payload.data, s->payload.len }, &sig) ?:
	      fdry_oid_of(s->payload.data, s->payload.len, &s->own.payload);
	if (err)
		goto out_release;
	if (sig.len > sizeof(s->own.bytes)) {
		err = fdry_bug("a signature has %zu bytes", sig.len);
		goto out_release;
	}
	memcpy(s->own.bytes, sig.data, sig.len);
	s->own.len = sig.len;
	s->own.size = s->payload.len;
out_release:
	fdry_buf_release(&sig);
	return err;
}

/* Whether a manifest has a signature of the same payload by the same key. ECDSA makes another one
 * each time, so bytes are not compared. */
static int is_signed(const struct signing *s, struct fdry_span manifest, bool *ret)
{
	const struct fdry_span payload = { s->payload.data, s->payload.len };
	const struct fdry_signature *sig;
	struct fdry_buf list = { 0 };
	size_t i;
	int err = fdry_signatures_read(manifest, &list);

	sig = fdry_array(list, struct fdry_signature);
	*ret = false;
	for (i = 0; !err && i < fdry_array_count(list, struct fdry_signature); i++)
		if (fdry_oid_eq(&sig[i].payload, &s->own.payload) &&
		    fdry_key_verifies(s->key, payload,
				      (struct fdry_span){ sig[i].bytes, sig[i].len }))
			*ret = true;
	fdry_buf_release(&list);
	return err;
}

/* --- documents --- */

/* The document at a tag; @ret stays empty if there is none. */
static int tag_read(struct fdry_http *h, const char *tag, struct fdry_buf *ret, struct fdry_oid *id)
{
	int err;

	ret->len = 0;
	err = fdry_document_fetch(h, tag, NULL, ret, id);
	return err == -FDRY_E_NOENT ? 0 : err;
}

/* The document at cosign's tag. */
struct manifest {
	struct fdry_descriptor self;
	struct fdry_oid replaced;
	bool replaces, is_listed; /* @is_listed: the registry lists it for its subject */
};

static int manifest_send(struct signing *s, struct fdry_span bytes, struct manifest *ret)
{
	struct fdry_document_sent sent;
	int err = fdry_document_send(s->http, FDRY_MEDIA_MANIFEST, bytes, s->cosign, &sent);

	if (err)
		return err;
	ret->self = (struct fdry_descriptor){ .media = FDRY_MEDIA_MANIFEST, .digest = sent.id,
					      .size = bytes.len };
	ret->is_listed = sent.has_subject;
	return 0;
}

static int manifest_write(struct signing *s, struct fdry_buf *old, struct manifest *ret)
{
	struct fdry_buf bytes = { 0 };
	int err = fdry_signatures_put((struct fdry_span){ old->data, old->len }, s->subject,
				      &s->own, &bytes);

	ret->replaces = old->len;
	ret->replaced = ret->self.digest;
	err = err ?: manifest_send(s, (struct fdry_span){ bytes.data, bytes.len }, ret);
	fdry_buf_release(&bytes);
	return err;
}

/* @is_there: the manifest had the signature. The last try only looks. */
static int manifest_try(struct signing *s, int try, struct manifest *ret, bool *is_there)
{
	struct fdry_buf old = { 0 };
	int err = tag_read(s->http, s->cosign, &old, &ret->self.digest);

	if (err)
		goto out_release;
	ret->self.size = old.len;
	if (old.len)
		err = is_signed(s, (struct fdry_span){ old.data, old.len }, is_there);
	if (err)
		goto out_release;
	if (!*is_there && try < TRIES_MAX)
		err = manifest_write(s, &old, ret);
	else if (!try) /* it was there: its answer says whether it is listed */
		err = manifest_send(s, (struct fdry_span){ old.data, old.len }, ret);
out_release:
	fdry_buf_release(&old);
	return err;
}

/* Write the manifest until it has the signature. */
static int manifest_sign(struct signing *s, struct manifest *ret)
{
	bool is_there = false;
	int i, err = 0;

	for (i = 0; i <= TRIES_MAX && !err && !is_there; i++)
		err = manifest_try(s, i, ret, &is_there);
	if (err || is_there)
		return err;
	return fdry_fail(FDRY_E_NETWORK, "the registry %s does not keep the signature; perhaps "
			 "others sign the same image now; try again", s->http->name.host);
}

/* Whether the index lists the manifest. */
static int is_listed(struct fdry_span index, const struct fdry_oid *id, bool *ret)
{
	const struct fdry_descriptor *d;
	struct fdry_buf list = { 0 };
	size_t i;
	int err = fdry_referrers_read(index, &list);

	d = fdry_array(list, struct fdry_descriptor);
	*ret = false;
	for (i = 0; !err && i < fdry_array_count(list, struct fdry_descriptor); i++)
		*ret |= fdry_oid_eq(&d[i].digest, id);
	fdry_buf_release(&list);
	return err;
}

static int index_write(struct signing *s, const struct manifest *m, struct fdry_buf *old)
{
	struct fdry_document_sent sent;
	struct fdry_buf bytes = { 0 };
	int err = fdry_referrers_put((struct fdry_span){ old->data, old->len }, &m->self,
				     m->replaces ? &m->replaced : NULL, &bytes) ?:
		  fdry_document_send(s->http, FDRY_MEDIA_INDEX,
				     (struct fdry_span){ bytes.data, bytes.len }, s->referrers,
				     &sent);

	fdry_buf_release(&bytes);
	return err;
}

/* @is_there: the index listed the manifest. The last try only looks. */
static int index_try(struct signing *s, int try, const struct manifest *m, bool *is_there)
{
	struct fdry_buf old = { 0 };
	struct fdry_oid id;
	int err = tag_read(s->http, s->referrers, &old, &id);

	if (err)
		goto out_release;
	if (old.len)
		err = is_listed((struct fdry_span){ old.data, old.len }, &m->self.digest, is_there);
	if (err || *is_there || try == TRIES_MAX)
		goto out_release;
	err = index_write(s, m, &old);
out_release:
	fdry_buf_release(&old);
	return err;
}

/* Write the index of referrers until it lists the manifest. */
static int index_sign(struct signing *s, const struct manifest *m)
{
	bool is_there = false;
	int i, err = 0;

	for (i = 0; i <= TRIES_MAX && !err && !is_there; i++)
		err = index_try(s, i, m, &is_there);
	if (err || is_there)
		return err;
	return fdry_fail(FDRY_E_NETWORK, "the registry %s does not keep the list of signatures; "
			 "perhaps others sign the same image now; try again", s->http->name.host);
}

int fdry_trust_sign(struct fdry_http *h, EVP_PKEY *key, const struct fdry_descriptor *subject)
{
	struct signing s = { .http = h, .key = key, .subject = subject };
	struct manifest m = { .is_listed = false };
	int err = payload_sign(&s);

	fdry_trust_tags(&subject->digest, s.cosign, s.referrers);
	err = err ?: blobs_send(&s) ?: manifest_sign(&s, &m);
	if (!err && !m.is_listed)
		err = index_sign(&s, &m);
	fdry_buf_release(&s.payload);
	return err;
}
