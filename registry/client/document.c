// SPDX-License-Identifier: Apache-2.0
/* document.c - fetches and sends manifests and indexes; see document.h. */
#include "registry/client/document.h"

#include "registry/client/json.h"
#include "registry/client/manifest.h"

int fdry_document_damaged(const struct fdry_http *h, const char *what)
{
	return fdry_fail(FDRY_E_BADIMAGE,
			 "the image in the registry %s is damaged: %s; push it again",
			 h->name.host, what);
}

int fdry_document_mismatch(const struct fdry_http *h, const struct fdry_oid *id)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_CORRUPT,
			 "the registry %s sent other bytes than sha256:%s; delete them "
			 "there and push again",
			 h->name.host, fdry_oid_hex(id, hex));
}

char *fdry_document_ref(const struct fdry_oid *id, char ret[FDRY_DOCUMENT_REF_SIZE])
{
	char hex[FDRY_OID_HEX_SIZE];

	snprintf(ret, FDRY_DOCUMENT_REF_SIZE, "sha256:%s", fdry_oid_hex(id, hex));
	return ret;
}

int fdry_document_fetch(struct fdry_http *h, const char *ref, const struct fdry_oid *want,
			struct fdry_buf *ret, struct fdry_oid *id)
{
	struct fdry_http_req r = { .method = "GET", .accept = FDRY_DOCUMENT_ACCEPT, .hash = true,
				   .most = FDRY_MANIFEST_BYTES };
	char own[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(h, &r, "/v2/%s/manifests/%s", h->name.repo, ref) ?:
		  fdry_http_do(h, &r);

	if (err)
		goto out_release;
	if (r.status != 200 && r.status != 206) {
		err = fdry_http_refused(h, &r);
		goto out_release;
	}
	if (want && !fdry_oid_eq(want, &r.digest)) {
		err = fdry_document_mismatch(h, want);
		goto out_release;
	}
	if (r.content_digest && !strncmp(r.content_digest, "sha256:", 7) &&
	    strcmp(r.content_digest, fdry_document_ref(&r.digest, own))) {
		err = fdry_document_damaged(
			h, "its manifest does not match the digest that the registry states");
		goto out_release;
	}
	*id = r.digest;
	err = fdry_buf_put(ret, r.in.data, r.in.len);
out_release:
	fdry_http_req_release(&r);
	return err;
}

/* MANIFEST_BLOB_UNKNOWN or BLOB_UNKNOWN */
static bool lacks_blob(const struct fdry_http_req *r)
{
	char text[200];

	fdry_json_error((struct fdry_span){ r->text.data, r->text.len }, text, sizeof(text));
	return strstr(text, "BLOB_UNKNOWN");
}

int fdry_document_send(struct fdry_http *h, const char *media, struct fdry_span bytes,
		       const char *ref, struct fdry_document_sent *ret)
{
	struct fdry_http_req r = { .method = "PUT", .type = media, .body = bytes };
	char own[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_oid id;
	int err = fdry_oid_of(bytes.data, bytes.len, &id);

	if (err)
		return err;
	fdry_document_ref(&id, own);
	err = fdry_http_url(h, &r, "/v2/%s/manifests/%s", h->name.repo, ref ? ref : own) ?:
	      fdry_http_do(h, &r);
	if (err)
		goto out_release;
	if (r.status == 400 && lacks_blob(&r))
		err = fdry_fail(FDRY_E_NOENT, "the registry %s lacks a blob of the image; push it "
				"again", h->name.host);
	else if (r.status < 200 || r.status > 299)
		err = fdry_http_refused(h, &r);
	else if (r.content_digest && strcmp(r.content_digest, own))
		err = fdry_fail(FDRY_E_CORRUPT, "the registry %s has stored another manifest than "
				"was sent; push again", h->name.host);
	else
		*ret = (struct fdry_document_sent){ id, r.subject };
out_release:
	fdry_http_req_release(&r);
	return err;
}
