// SPDX-License-Identifier: Apache-2.0
/*
 * push.c - sends an artifact: blobs that the registry lacks, then manifests, then the tag.
 *
 * Blobs that manifests in the repository name are there already (known.c). Each other blob goes
 * through these steps, many blobs at the same time: HEAD asks whether the repository has it; POST
 * asks the registry to mount it from another repository, or opens an upload; PUT sends the bytes
 * there. A registry that cannot mount the blob opens an upload, too: DELETE cancels it if another
 * repository is asked next. An upload that breaks off begins anew with HEAD.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "registry/client/calls.h"
#include "registry/client/document.h"
#include "registry/client/http.h"
#include "registry/client/known.h"
#include "registry/client/manifest.h"
#include "registry/client/trust.h"

#define SLOTS_MAX 256
#define UPLOADS_MAX 4 /* of one blob, if the registry loses them */

/* The blobs before the objects. */
enum { BLOB_LIST, BLOB_EMPTY, BLOB_OBJECTS };

enum step { STEP_HEAD, STEP_MOUNT, STEP_CANCEL, STEP_POST, STEP_PUT };

struct push;
struct slot {
	struct fdry_http_req req;
	struct push *p;
	enum step step;
	size_t blob, mount;
	unsigned int uploads;
	struct fdry_buf bytes;
};

struct push {
	struct fdry_http http;
	const struct fdry_registry_opts *opts;
	const struct fdry_registry_push *in;
	const struct fdry_registry_caller *caller;
	struct fdry_registry_report *report;
	struct fdry_descriptor *layers; /* the list, then the objects */
	struct fdry_descriptor empty;
	EVP_PKEY *key;                  /* NULL: nothing is signed */
	struct fdry_known known;
	bool is_new;                    /* the repository has no tag and not the list: skip HEAD */
	size_t next;                    /* blob to begin */
	struct fdry_registry_done done;
	struct slot slots[SLOTS_MAX];
};

static size_t blob_count(const struct push *p)
{
	return BLOB_OBJECTS + p->in->count;
}

static const struct fdry_descriptor *blob_at(const struct push *p, size_t i)
{
	return i == BLOB_LIST ? &p->layers[0] :
	       i == BLOB_EMPTY ? &p->empty : &p->layers[1 + i - BLOB_OBJECTS];
}

static void request(struct slot *s, enum step step, const char *method)
{
	struct fdry_http_req *r = &s->req;

	s->step = step;
	r->method = method;
	r->accept = NULL;
	r->type = step == STEP_PUT ? "application/octet-stream" : NULL;
	r->body = step == STEP_PUT ? (struct fdry_span){ s->bytes.data, s->bytes.len } :
				     (struct fdry_span){ 0 };
	r->may_refuse = step == STEP_MOUNT;
	r->may_fail = step == STEP_CANCEL;
	r->auth_tries = 0;
}

/* --- steps --- */

static int head_set(struct slot *s)
{
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_http_url(&s->p->http, &s->req, "/v2/%s/blobs/sha256:%s",
				s->p->http.name.repo,
				fdry_oid_hex(&blob_at(s->p, s->blob)->digest, hex));

	if (err)
		return err;
	s->req.again = NULL;
	request(s, STEP_HEAD, "HEAD");
	return 0;
}

static int post_begin(struct slot *s);

/* Count the blobs that the repository is known to have. */
static void known_skip(struct push *p)
{
	const struct fdry_descriptor *d;

	for (; p->next < blob_count(p); p->next++) {
		d = blob_at(p, p->next);
		if (!fdry_known_has(&p->known, &d->digest))
			return;
		p->done.bytes += p->next >= BLOB_OBJECTS ? d->size : 0;
		p->done.objects += p->next >= BLOB_OBJECTS;
	}
}

static int blob_begin(struct slot *s)
{
	int err;

	known_skip(s->p);
	if (s->p->next == blob_count(s->p))
		return 0;
	s->blob = s->p->next++;
	s->mount = s->uploads = 0;
	/* The limits of a request hold for one blob, and not for all that its slot sends. */
	s->req.tries = s->req.refusals = s->req.redirects = 0;
	s->req.again = NULL;
	if (s->p->is_new)
		return post_begin(s);
	err = head_set(s);
	if (err)
		return err;
	fdry_http_start(&s->p->http, &s->req);
	return 0;
}

static int blob_end(struct slot *s)
{
	struct push *p = s->p;

	s->bytes.len = 0;
	if (s->blob >= BLOB_OBJECTS) {
		p->done.bytes += blob_at(p, s->blob)->size;
		p->done.objects++;
		p->done.bytes_moved = p->report->bytes_moved;
	}
	return p->caller->progress(p->caller->arg, &p->done) ?: blob_begin(s);
}

/* Ask for a mount from the next repository, or for an upload. */
static int post_begin(struct slot *s)
{
	struct push *p = s->p;
	bool mount = s->mount < p->opts->count_mounts;
	char hex[FDRY_OID_HEX_SIZE];
	int err;

	if (mount)
		err = fdry_http_url(&p->http, &s->req,
				    "/v2/%s/blobs/uploads/?mount=sha256:%s&from=%s",
				    p->http.name.repo,
				    fdry_oid_hex(&blob_at(p, s->blob)->digest, hex),
				    p->opts->mounts[s->mount++]);
	else
		err = fdry_http_url(&p->http, &s->req, "/v2/%s/blobs/uploads/", p->http.name.repo);
	if (err)
		return err;
	request(s, mount ? STEP_MOUNT : STEP_POST, "POST");
	fdry_http_start(&p->http, &s->req);
	return 0;
}

/*
 * Cancel the upload that the registry has opened in place of a mount. Only the registry itself gets
 * the DELETE, and no token with more rights is requested for it: registries remove old uploads.
 */
static int cancel_begin(struct slot *s)
{
	struct fdry_http *h = &s->p->http;

	if (!s->req.location || fdry_http_follow(h, &s->req) || !fdry_http_is_own(h, s->req.url))
		return post_begin(s);
	request(s, STEP_CANCEL, "DELETE");
	fdry_http_start(h, &s->req);
	return 0;
}

static int bytes_read(struct slot *s)
{
	struct push *p = s->p;

	s->bytes.len = 0;
	if (s->blob == BLOB_LIST)
		return fdry_buf_put(&s->bytes, p->in->list.data, p->in->list.len);
	if (s->blob == BLOB_EMPTY)
		return fdry_buf_put(&s->bytes, FDRY_EMPTY_BLOB, strlen(FDRY_EMPTY_BLOB));
	return p->caller->read(p->caller->arg, s->blob - BLOB_OBJECTS, &s->bytes);
}

static int upload_again(struct fdry_http *h, struct fdry_http_req *r)
{
	(void)h;
	return head_set(r->arg);
}

/* The registry has opened an upload. */
static int put_begin(struct slot *s)
{
	char hex[FDRY_OID_HEX_SIZE], *url = NULL;
	struct fdry_http_req *r = &s->req;
	int err = fdry_http_follow(&s->p->http, r) ?: bytes_read(s);

	if (err)
		return err;
	if (asprintf(&url, "%s%cdigest=sha256:%s", r->url, strchr(r->url, '?') ? '&' : '?',
		     fdry_oid_hex(&blob_at(s->p, s->blob)->digest, hex)) < 0)
		return fdry_nomem();
	free(r->url);
	r->url = url;
	r->again = upload_again;
	request(s, STEP_PUT, "PUT");
	fdry_http_start(&s->p->http, r);
	return 0;
}

static int put_done(struct slot *s)
{
	struct push *p = s->p;
	int err;

	if (s->req.status == 201 || s->req.status == 204) {
		if (s->blob >= BLOB_OBJECTS) {
			p->report->objects_moved++;
			p->report->bytes_moved += s->bytes.len;
		}
		return blob_end(s);
	}
	/* The upload is lost: the registry was restarted, or another copy of it answered. */
	if (s->req.status != 404 || ++s->uploads == UPLOADS_MAX)
		return fdry_http_refused(&p->http, &s->req);
	err = head_set(s);
	if (err)
		return err;
	fdry_http_start(&p->http, &s->req);
	return 0;
}

static int slot_done(struct fdry_http *h, struct fdry_http_req *r)
{
	struct slot *s = r->arg;
	bool mounted = s->step == STEP_MOUNT && r->status == 201;

	if (s->step == STEP_PUT)
		return put_done(s);
	if (mounted && s->blob >= BLOB_OBJECTS)
		s->p->report->objects_mounted++;
	if (mounted || (s->step == STEP_HEAD && r->status == 200))
		return blob_end(s);
	if (s->step == STEP_POST && r->status == 202)
		return put_begin(s);
	/* In place of a mount the registry opens an upload. Use it if no repository is left. */
	if (s->step == STEP_MOUNT && r->status == 202)
		return s->mount == s->p->opts->count_mounts ? put_begin(s) : cancel_begin(s);
	if (s->step == STEP_MOUNT || s->step == STEP_CANCEL ||
	    (s->step == STEP_HEAD && r->status == 404))
		return post_begin(s);
	return fdry_http_refused(h, r);
}

/* --- all blobs --- */

/* One request first: it opens the connection and gets the token that all others need. */
static int registry_greet(struct push *p)
{
	struct fdry_http_req r = { .method = "GET", .most = 4096 };
	int err = fdry_http_url(&p->http, &r, "/v2/") ?: fdry_http_do(&p->http, &r) ?:
		  fdry_http_expect(&p->http, &r, 200, 0);

	fdry_http_req_release(&r);
	return err;
}

/* Does the repository lack the list, too? Pushes send it first, so it shows that one broke off. */
static int list_ask(struct push *p)
{
	struct slot s = { .p = p, .blob = BLOB_LIST };
	int err = head_set(&s) ?: fdry_http_do(&p->http, &s.req);

	p->is_new = !err && s.req.status == 404;
	fdry_http_req_release(&s.req);
	return err;
}

static int blobs_send(struct push *p)
{
	size_t i, n = p->http.opts.requests;
	int err = p->known.has_tags ? 0 : list_ask(p);

	p->next = p->done.bytes = p->done.objects = 0;
	for (i = 0; i < n && !err; i++) {
		fdry_http_req_release(&p->slots[i].req);
		p->slots[i].p = p;
		p->slots[i].req = (struct fdry_http_req){ .done = slot_done, .arg = &p->slots[i] };
		err = blob_begin(&p->slots[i]);
	}
	return err ?: fdry_http_run(&p->http);
}

/* --- manifests --- */

static int part_place(struct push *p, struct fdry_span bytes, struct fdry_oid *id)
{
	struct fdry_document_sent sent;
	int err;

	if (p->in->only_sign)
		return fdry_oid_of(bytes.data, bytes.len, id);
	err = fdry_document_send(&p->http, FDRY_MEDIA_MANIFEST, bytes, NULL, &sent);
	*id = sent.id;
	return err;
}

static int part_send(struct push *p, size_t from, size_t count, struct fdry_buf *parts)
{
	struct fdry_descriptor d = { .media = FDRY_MEDIA_MANIFEST };
	struct fdry_buf bytes = { 0 };
	int err = fdry_manifest_put(p->layers + from, count, &bytes);

	if (!err && bytes.len > FDRY_MANIFEST_BYTES)
		err = fdry_bug("a manifest has %zu bytes", bytes.len);
	err = err ?: part_place(p, (struct fdry_span){ bytes.data, bytes.len }, &d.digest);
	d.size = bytes.len;
	fdry_buf_release(&bytes);
	return err ?: fdry_buf_put(parts, &d, sizeof(d));
}

/* Send the parts, and append the index that names them. */
static int index_put(struct push *p, struct fdry_buf *ret)
{
	size_t at, n, layers = 1 + p->in->count;
	struct fdry_buf parts = { 0 };
	int err = 0;

	for (at = 0; at < layers && !err; at += n) {
		n = layers - at < FDRY_MANIFEST_LAYERS ? layers - at : FDRY_MANIFEST_LAYERS;
		err = part_send(p, at, n, &parts);
	}
	err = err ?: fdry_index_put((void *)parts.data,
				    parts.len / sizeof(struct fdry_descriptor), ret);
	fdry_buf_release(&parts);
	return err;
}

/* The registry must have exactly this document under the name that is signed. */
static int root_compare(struct push *p, struct fdry_span bytes, struct fdry_oid *id)
{
	const struct fdry_registry_name *n = &p->http.name;
	char ref[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_buf there = { 0 };
	struct fdry_oid other;
	int err = fdry_oid_of(bytes.data, bytes.len, id) ?:
		  fdry_document_fetch(&p->http,
				      n->by_digest ? fdry_document_ref(&n->digest, ref) : n->tag,
				      NULL, &there, &other);

	fdry_buf_release(&there);
	if (err || fdry_oid_eq(id, &other))
		return err;
	return fdry_fail(FDRY_E_CORRUPT,
			 "the registry has %s under this name, which is not the image in the "
			 "store; push the image, or name what was pushed",
			 fdry_document_ref(&other, ref));
}

static int root_place(struct push *p, const char *media, struct fdry_span bytes,
		      struct fdry_oid *id)
{
	struct fdry_document_sent sent;
	int err;

	if (p->in->only_sign)
		return root_compare(p, bytes, id);
	err = fdry_document_send(&p->http, media, bytes, p->http.name.tag, &sent);
	*id = sent.id;
	return err;
}

/* The document that the tag names: the manifest, or the index of several. */
static int root_send(struct push *p)
{
	bool is_index = 1 + p->in->count > FDRY_MANIFEST_LAYERS;
	struct fdry_descriptor d = { .media = FDRY_MEDIA_MANIFEST };
	struct fdry_buf bytes = { 0 };
	int err = is_index ? index_put(p, &bytes) :
			     fdry_manifest_put(p->layers, 1 + p->in->count, &bytes);

	if (is_index)
		memcpy(d.media, FDRY_MEDIA_INDEX, sizeof(FDRY_MEDIA_INDEX));
	d.size = bytes.len;
	err = err ?: root_place(p, d.media, (struct fdry_span){ bytes.data, bytes.len },
				&d.digest);
	fdry_buf_release(&bytes);
	if (err)
		return err;
	fdry_oid_hex(&d.digest, p->report->id);
	return p->key ? fdry_trust_sign(&p->http, p->key, &d) : 0;
}

static int all_send(struct push *p)
{
	int err;

	if (p->in->only_sign)
		return root_send(p);
	err = fdry_known_read(&p->http, blob_count(p), &p->known) ?: blobs_send(p) ?: root_send(p);
	if (err != -FDRY_E_NOENT || !p->known.ids.len)
		return err;
	/* The registry has lost a blob that a manifest names: ask for each. */
	fdry_debug("blobs are missing: %s", fdry_last_error());
	p->known.ids.len = 0;
	return blobs_send(p) ?: root_send(p);
}

/* --- the call --- */

static int layers_set(struct push *p)
{
	const struct fdry_registry_blob *b = p->in->blobs;
	size_t i;

	if (1 + p->in->count > (size_t)FDRY_MANIFEST_LAYERS * FDRY_INDEX_PARTS)
		return fdry_fail(FDRY_E_LIMIT, "an artifact holds %llu objects at most; push fewer "
				 "images at a time",
				 (unsigned long long)FDRY_MANIFEST_LAYERS * FDRY_INDEX_PARTS - 1);
	p->layers = calloc(1 + p->in->count, sizeof(*p->layers));
	if (!p->layers)
		return fdry_nomem();
	p->layers[0] = (struct fdry_descriptor){ .media = FDRY_MEDIA_LIST,
						 .digest = p->in->list_id,
						 .size = p->in->list.len };
	for (i = 0; i < p->in->count; i++) {
		fdry_media_of(b[i].kinds, p->layers[1 + i].media);
		p->layers[1 + i].digest = b[i].oid;
		p->layers[1 + i].size = b[i].size;
		p->done.bytes_total += b[i].size;
	}
	p->done.objects_total = p->in->count;
	p->empty = (struct fdry_descriptor){ .media = FDRY_MEDIA_EMPTY,
					     .size = strlen(FDRY_EMPTY_BLOB) };
	return fdry_oid_of(FDRY_EMPTY_BLOB, strlen(FDRY_EMPTY_BLOB), &p->empty.digest);
}

/* "repository:REPO:pull,push", and the right to read from each repository to mount from. */
static int scope_put(const struct fdry_registry_opts *opts, const char *repo, struct fdry_buf *ret)
{
	size_t i;
	int err = fdry_buf_printf(ret, "repository:%s:pull,push", repo);

	for (i = 0; i < opts->count_mounts && !err; i++)
		err = fdry_registry_repo_check(opts->mounts[i], strlen(opts->mounts[i])) ?:
		      fdry_buf_printf(ret, " repository:%s:pull", opts->mounts[i]);
	return err ?: fdry_buf_put(ret, "", 1);
}

static int session_open(struct push *p, const char *to)
{
	struct fdry_http_opts opts = { .plain = p->opts->flags & FDRY_REGISTRY_PLAIN_HTTP,
				       .requests = p->opts->requests };
	struct fdry_registry_name name;
	struct fdry_buf scope = { 0 };
	int err = fdry_registry_name_parse(to, &name);

	if (!err && name.by_digest && !p->in->only_sign)
		err = fdry_fail(FDRY_E_INVAL, "'%s' names a digest; push to a tag", to);
	err = err ?: scope_put(p->opts, name.repo, &scope);
	opts.scope = (const char *)scope.data;
	err = err ?: fdry_http_open(&p->http, &name, &opts);
	fdry_buf_release(&scope);
	return err;
}

/* Before anything is sent. */
static int key_open(struct push *p)
{
	if (p->opts->sign_key)
		return fdry_key_private(p->opts->sign_key, &p->key);
	return !p->in->only_sign ? 0 :
	       fdry_fail(FDRY_E_INVAL, "no key is named to sign with; give --sign-key, or set "
			 "FOUNDRY_SIGN_KEY");
}

static void push_free(struct push *p)
{
	size_t i;

	/* Requests leave libcurl's multi handle before it is closed. */
	for (i = 0; i < SLOTS_MAX; i++) {
		fdry_http_req_release(&p->slots[i].req);
		fdry_buf_release(&p->slots[i].bytes);
	}
	fdry_http_close(&p->http);
	EVP_PKEY_free(p->key);
	fdry_known_release(&p->known);
	free(p->layers);
	free(p);
}

int fdry_client_push(const char *to, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_push *in, const struct fdry_registry_caller *caller,
		     struct fdry_registry_report *report)
{
	struct push *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return fdry_nomem();
	p->opts = opts;
	p->in = in;
	p->caller = caller;
	p->report = report;
	err = key_open(p) ?: session_open(p, to) ?: layers_set(p) ?: registry_greet(p) ?:
	      all_send(p);
	report->requests = p->http.requests;
	report->retries = p->http.retries;
	push_free(p);
	return err;
}
