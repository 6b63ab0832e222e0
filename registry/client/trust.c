// SPDX-License-Identifier: Apache-2.0
/*
 * trust.c - looks for a signature that a policy asks for; see trust.h.
 *
 * The signature manifest at cosign's tag has, as a rule, all signatures, so it is asked for first;
 * then the referrers. A document that is malformed or too large is not the end of the search: a
 * good signature elsewhere counts. The number of documents and their sizes are bounded.
 */
#include "registry/client/trust.h"

#include "lib/log.h"
#include "registry/client/document.h"
#include "registry/client/policy.h"

#define MANIFEST_MAX (256u << 10) /* bytes of a signature manifest among the referrers */
#define JUDGED_MAX 256             /* signatures of one image that are looked at */

struct search {
	struct fdry_http *http;
	const struct fdry_policy *policy;
	const struct fdry_oid *id;
	struct fdry_buf seen; /* struct fdry_oid each: signature manifests that were read */
	unsigned int manifests, signatures; /* that were asked for */
	char other[FDRY_SIGNATURE_REFERENCE_MAX]; /* what a good key has signed instead */
	bool found;
};

void fdry_trust_tags(const struct fdry_oid *id, char cosign[FDRY_TRUST_TAG_SIZE],
		     char referrers[FDRY_TRUST_TAG_SIZE])
{
	char hex[FDRY_OID_HEX_SIZE];

	fdry_oid_hex(id, hex);
	snprintf(cosign, FDRY_TRUST_TAG_SIZE, "sha256-%s.sig", hex);
	snprintf(referrers, FDRY_TRUST_TAG_SIZE, "sha256-%s", hex);
}

static int payload_fetch(struct fdry_http *h, const struct fdry_oid *id, uint64_t size,
			 struct fdry_buf *ret)
{
	struct fdry_http_req r = { .method = "GET", .hash = true, .most = size };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(h, &r, "/v2/%s/blobs/%s", h->name.repo,
				fdry_document_ref(id, ref)) ?:
		  fdry_http_do(h, &r) ?: fdry_http_expect(h, &r, 200, 206);

	if (err)
		goto out_release;
	if (!fdry_oid_eq(&r.digest, id) || r.in.len != size) {
		err = fdry_document_mismatch(h, id);
		goto out_release;
	}
	err = fdry_buf_put(ret, r.in.data, r.in.len);
out_release:
	fdry_http_req_release(&r);
	return err;
}

/* Errors of one document that leave the others to be read. */
static int pass_over(int err)
{
	if (err != -FDRY_E_NOENT && err != -FDRY_E_BADIMAGE && err != -FDRY_E_CORRUPT &&
	    err != -FDRY_E_LIMIT)
		return err;
	fdry_debug("a signature does not count: %s", fdry_last_error());
	return 0;
}

/* --- one signature --- */

static bool key_verifies(const struct search *s, struct fdry_span payload,
			 const struct fdry_signature *sig)
{
	size_t i;

	for (i = 0; i < s->policy->count; i++)
		if (fdry_key_verifies(s->policy->pkeys[i], payload,
				      (struct fdry_span){ sig->bytes, sig->len }))
			return true;
	return false;
}

/* A key of the policy has signed this payload: is it for this image and name? */
static int payload_judge(struct search *s, struct fdry_span text)
{
	struct fdry_payload p;
	int err = fdry_payload_read(text, &p);

	if (err)
		return err;
	if (fdry_oid_eq(&p.id, s->id) && fdry_policy_fits(s->policy, p.reference))
		s->found = true;
	else
		memcpy(s->other, fdry_oid_eq(&p.id, s->id) ? p.reference : "another image",
		       fdry_oid_eq(&p.id, s->id) ? sizeof(s->other) : sizeof("another image"));
	return 0;
}

static int signature_judge(struct search *s, const struct fdry_signature *sig)
{
	struct fdry_buf payload = { 0 };
	struct fdry_span text;
	int err = payload_fetch(s->http, &sig->payload, sig->size, &payload);

	s->signatures++;
	text = (struct fdry_span){ payload.data, payload.len };
	if (!err && key_verifies(s, text, sig))
		err = payload_judge(s, text);
	fdry_buf_release(&payload);
	return pass_over(err);
}

/* --- signature manifests --- */

static bool was_seen(const struct search *s, const struct fdry_oid *id)
{
	const struct fdry_oid *seen = fdry_array(s->seen, struct fdry_oid);
	size_t i;

	for (i = 0; i < fdry_array_count(s->seen, struct fdry_oid); i++)
		if (fdry_oid_eq(&seen[i], id))
			return true;
	return false;
}

static int signatures_judge(struct search *s, struct fdry_span manifest)
{
	const struct fdry_signature *sig;
	struct fdry_buf list = { 0 };
	size_t i;
	int err = fdry_signatures_read(manifest, &list);

	sig = fdry_array(list, struct fdry_signature);
	for (i = 0; !err && !s->found && s->signatures < JUDGED_MAX &&
		    i < fdry_array_count(list, struct fdry_signature); i++)
		err = signature_judge(s, &sig[i]);
	fdry_buf_release(&list);
	return pass_over(err);
}

/* @id: its digest, NULL if it is not known. */
static int manifest_judge(struct search *s, const char *ref, const struct fdry_oid *id)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_oid got;
	int err = fdry_document_fetch(s->http, ref, id, &bytes, &got);

	s->manifests++;
	if (!err && !was_seen(s, &got))
		err = fdry_buf_put(&s->seen, &got, sizeof(got)) ?:
		      signatures_judge(s, (struct fdry_span){ bytes.data, bytes.len });
	fdry_buf_release(&bytes);
	return pass_over(err);
}

/* --- referrers --- */

static int referrers_judge(struct search *s, struct fdry_span index)
{
	const struct fdry_descriptor *d;
	char ref[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_buf list = { 0 };
	size_t i;
	int err = fdry_referrers_read(index, &list);

	d = fdry_array(list, struct fdry_descriptor);
	for (i = 0; !err && !s->found && i < fdry_array_count(list, struct fdry_descriptor) &&
		    s->manifests < FDRY_SIGNATURES_MAX; i++)
		if (d[i].size <= MANIFEST_MAX && !was_seen(s, &d[i].digest))
			err = manifest_judge(s, fdry_document_ref(&d[i].digest, ref),
					     &d[i].digest);
	fdry_buf_release(&list);
	return pass_over(err);
}

/* The list that newer registries make. @there: whether this one does. */
static int referrers_ask(struct search *s, bool *there)
{
	struct fdry_http_req r = { .method = "GET", .most = FDRY_MANIFEST_BYTES,
				   .accept = "Accept: " FDRY_MEDIA_INDEX };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(s->http, &r, "/v2/%s/referrers/%s", s->http->name.repo,
				fdry_document_ref(s->id, ref)) ?:
		  fdry_http_do(s->http, &r);

	*there = !err && r.status == 200;
	if (*there)
		err = referrers_judge(s, (struct fdry_span){ r.in.data, r.in.len });
	fdry_http_req_release(&r);
	return pass_over(err);
}

static int everywhere(struct search *s)
{
	char cosign[FDRY_TRUST_TAG_SIZE], referrers[FDRY_TRUST_TAG_SIZE];
	struct fdry_buf index = { 0 };
	struct fdry_oid id;
	bool there = false;
	int err;

	fdry_trust_tags(s->id, cosign, referrers);
	err = manifest_judge(s, cosign, NULL);
	if (err || s->found)
		return err;
	err = referrers_ask(s, &there);
	if (err || s->found || there)
		return err;
	err = fdry_document_fetch(s->http, referrers, NULL, &index, &id) ?:
	      referrers_judge(s, (struct fdry_span){ index.data, index.len });
	fdry_buf_release(&index);
	return pass_over(err);
}

/* --- the call --- */

static int refuse(const struct search *s, const char *keys)
{
	const struct fdry_policy *p = s->policy;
	char why[FDRY_SIGNATURE_REFERENCE_MAX + 64];

	if (!s->signatures)
		snprintf(why, sizeof(why), "the registry has no signature of it");
	else if (!s->other[0])
		snprintf(why, sizeof(why), "none of its %u signatures is by such a key",
			 s->signatures);
	else
		snprintf(why, sizeof(why), "it has one for %s alone", s->other);
	return fdry_fail(FDRY_E_UNSIGNED,
			 "the policy %s asks for a signature of %s%s%s by %s, and %s; sign it with "
			 "foundry-store sign, or pull an image that is signed",
			 p->path, p->repo, *p->tag ? ":" : "", p->tag, keys, why);
}

static int signature_find(struct fdry_http *h, const struct fdry_policy *p,
			  const struct fdry_oid *id)
{
	struct search s = { .http = h, .policy = p, .id = id };
	struct fdry_buf keys = { 0 };
	int err = everywhere(&s);

	if (!err && !s.found)
		err = fdry_policy_keys_put(p, &keys) ?: refuse(&s, (const char *)keys.data);
	fdry_buf_release(&keys);
	fdry_buf_release(&s.seen);
	return err;
}

int fdry_trust_check(struct fdry_http *h, const char *policy, const struct fdry_oid *id)
{
	struct fdry_policy p;
	int err = policy ? fdry_policy_init(policy, &h->name, &p) : 0;

	if (!policy || err)
		return err;
	if (p.rule == FDRY_POLICY_REJECT)
		err = fdry_fail(FDRY_E_UNSIGNED,
				"the policy %s rejects every image of %s; name it there with the "
				"keys that may sign it",
				policy, p.repo);
	else if (p.rule == FDRY_POLICY_SIGNED)
		err = signature_find(h, &p, id);
	fdry_policy_release(&p);
	return err;
}
