// SPDX-License-Identifier: Apache-2.0
/*
 * pull.c - fetches an artifact: manifests, the list, then the objects that the caller lacks.
 *
 * The documents are checked completely before the first object is asked for. Many objects arrive at
 * the same time, each hashed meanwhile, and are delivered in the caller's order: a ring holds those
 * that came early.
 */
#include <stdlib.h>

#include "registry/client/calls.h"
#include "registry/client/document.h"
#include "registry/client/http.h"
#include "registry/client/manifest.h"
#include "registry/client/trust.h"

#define RING 512
#define WINDOW_BYTES (64u << 20)
#define LIST_MAX (512u << 20)
#define TRIES_MAX 2 /* of a blob that came with other bytes */

struct pull;
struct slot {
	struct fdry_http_req req;
	struct pull *p;
	size_t blob;
	unsigned int tries;
	bool arrived;
};

struct pull {
	struct fdry_http http;
	const struct fdry_registry_opts *opts;
	const struct fdry_registry_caller *caller;
	struct fdry_registry_report *report;
	size_t layers; /* that were compared: the list, then the objects */
	const struct fdry_registry_blob *blobs;
	size_t count;
	const size_t *order;    /* positions of @norder blobs to fetch; @next is the next one */
	size_t norder, next;
	uint64_t window;
	struct fdry_registry_done done;
	struct slot ring[RING]; /* @first to @last, by their count */
	uint64_t first, last;
};

static int damaged(const struct pull *p, const char *what)
{
	return fdry_document_damaged(&p->http, what);
}

/* --- the list --- */

static int blob_url(struct pull *p, struct fdry_http_req *r, const struct fdry_oid *oid,
		    uint64_t size)
{
	char hex[FDRY_OID_HEX_SIZE];

	r->most = size;
	return fdry_http_url(&p->http, r, "/v2/%s/blobs/sha256:%s", p->http.name.repo,
			     fdry_oid_hex(oid, hex));
}

/* Has the whole blob come, with its bytes? */
static bool is_whole(const struct fdry_http_req *r, const struct fdry_oid *oid, uint64_t size)
{
	return r->in.len == size && fdry_oid_eq(&r->digest, oid);
}

static int list_fetch(struct pull *p, const struct fdry_descriptor *d)
{
	struct fdry_http_req r = { .method = "GET", .hash = true };
	int err;

	if (strcmp(d->media, FDRY_MEDIA_LIST))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "%s/%s is not an image of Foundry; give a name that "
				 "foundry-store push wrote",
				 p->http.name.host, p->http.name.repo);
	if (d->size > LIST_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the image's list has %llu bytes, and Foundry reads %u "
				 "at most",
				 (unsigned long long)d->size, LIST_MAX);
	err = blob_url(p, &r, &d->digest, d->size) ?: fdry_http_do(&p->http, &r);
	if (err)
		goto out_release;
	if (r.status != 200 && r.status != 206)
		err = fdry_http_refused(&p->http, &r);
	else if (!is_whole(&r, &d->digest, d->size))
		err = fdry_document_mismatch(&p->http, &d->digest);
	else
		err = p->caller->list(p->caller->arg, (struct fdry_span){ r.in.data, r.in.len },
				      &p->blobs, &p->count);
out_release:
	fdry_http_req_release(&r);
	return err;
}

/* --- documents --- */

/* The first layer is the list. The others must be exactly its objects, in its order. So nothing of
 * them is kept, and an index that names more of them is refused where it does. */
static int layer_check(struct pull *p, const struct fdry_descriptor *d)
{
	const struct fdry_registry_blob *b;
	char media[FDRY_MEDIA_MAX];

	if (!p->layers)
		return list_fetch(p, d);
	if (p->layers > p->count)
		return damaged(p, "its layers are not the objects of its list");
	b = &p->blobs[p->layers - 1];
	if (!fdry_oid_eq(&d->digest, &b->oid) || d->size != b->size ||
	    strcmp(d->media, fdry_media_of(b->kinds, media)))
		return damaged(p, "a layer is not the object of its list");
	return 0;
}

static int layers_check(struct pull *p, const struct fdry_buf *layers)
{
	const struct fdry_descriptor *d = fdry_array(*layers, const struct fdry_descriptor);
	size_t i, n = fdry_array_count(*layers, struct fdry_descriptor);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		err = layer_check(p, &d[i]);
		p->layers++;
	}
	return err;
}

static int part_fetch(struct pull *p, const struct fdry_descriptor *d)
{
	struct fdry_buf bytes = { 0 }, layers = { 0 };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	bool is_index = false;
	struct fdry_oid id;
	int err;

	if (strcmp(d->media, FDRY_MEDIA_MANIFEST))
		return damaged(p, "its index names something that is no manifest");
	err = fdry_document_fetch(&p->http, fdry_document_ref(&d->digest, ref), &d->digest, &bytes,
				  &id) ?:
	      fdry_document_read((struct fdry_span){ bytes.data, bytes.len }, &is_index, &layers);
	if (!err && (is_index || bytes.len != d->size))
		err = damaged(p, "its index names a manifest of another size or kind");
	err = err ?: layers_check(p, &layers);
	fdry_buf_release(&bytes);
	fdry_buf_release(&layers);
	return err;
}

static int parts_fetch(struct pull *p, const struct fdry_buf *parts)
{
	const struct fdry_descriptor *d = (const void *)parts->data;
	size_t i, n = parts->len / sizeof(*d);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = part_fetch(p, &d[i]);
	return err;
}

/* The list, and all layers of the artifact compared with it. */
static int list_and_layers_fetch(struct pull *p)
{
	const struct fdry_registry_name *n = &p->http.name;
	char ref[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_buf bytes = { 0 }, parts = { 0 };
	bool is_index = false;
	struct fdry_oid id;
	int err;

	err = fdry_document_fetch(&p->http,
				  n->by_digest ? fdry_document_ref(&n->digest, ref) : n->tag,
				  n->by_digest ? &n->digest : NULL, &bytes, &id) ?:
	      fdry_document_read((struct fdry_span){ bytes.data, bytes.len }, &is_index, &parts);
	err = err ?: fdry_trust_check(&p->http, p->opts->policy, &id);
	if (err)
		goto out_release;
	fdry_oid_hex(&id, p->report->id);
	err = is_index ? parts_fetch(p, &parts) : layers_check(p, &parts);
	if (!err && p->layers != 1 + p->count)
		err = damaged(p, "its layers are not the objects of its list");
out_release:
	fdry_buf_release(&bytes);
	fdry_buf_release(&parts);
	return err;
}

/* --- objects --- */

static int blob_done(struct fdry_http *h, struct fdry_http_req *r);

static int blob_begin(struct slot *s, size_t blob)
{
	int err;

	s->blob = blob;
	s->arrived = false;
	s->req.method = "GET";
	s->req.hash = true;
	s->req.done = blob_done;
	s->req.arg = s;
	err = blob_url(s->p, &s->req, &s->p->blobs[blob].oid, s->p->blobs[blob].size);
	if (err)
		return err;
	fdry_http_start(&s->p->http, &s->req);
	return 0;
}

/* Begin objects until the ring or the window is full. */
static int blobs_begin(struct pull *p)
{
	struct slot *s;
	uint64_t size;
	int err = 0;

	for (; !err && p->next < p->norder; p->next++) {
		size = p->blobs[p->order[p->next]].size;
		if (p->first < p->last &&
		    (p->last - p->first == RING || p->window + size > WINDOW_BYTES))
			break;
		s = &p->ring[p->last++ % RING];
		s->p = p;
		s->tries = 0;
		p->window += size;
		err = blob_begin(s, p->order[p->next]);
	}
	return err;
}

/* Deliver the objects whose turn it is. */
static int blobs_put(struct pull *p)
{
	struct slot *s;
	size_t size;
	int err;

	for (; p->first < p->last; p->first++) {
		s = &p->ring[p->first % RING];
		if (!s->arrived)
			return 0;
		size = s->req.in.len;
		err = p->caller->put(p->caller->arg, s->blob,
				     (struct fdry_span){ s->req.in.data, size });
		fdry_http_req_release(&s->req);
		if (err)
			return err;
		p->window -= size;
		p->done.bytes += size;
		p->done.objects++;
		p->report->objects_moved++;
		p->report->bytes_moved += size;
		p->done.bytes_moved = p->report->bytes_moved;
		err = p->caller->progress(p->caller->arg, &p->done);
		if (err)
			return err;
	}
	return 0;
}

static int blob_done(struct fdry_http *h, struct fdry_http_req *r)
{
	struct slot *s = r->arg;
	struct pull *p = s->p;

	if (r->status != 200 && r->status != 206)
		return fdry_http_refused(h, r);
	if (is_whole(r, &p->blobs[s->blob].oid, p->blobs[s->blob].size)) {
		s->arrived = true;
		return blobs_put(p) ?: blobs_begin(p);
	}
	if (++s->tries == TRIES_MAX)
		return fdry_document_mismatch(&p->http, &p->blobs[s->blob].oid);
	h->retries++;
	return blob_begin(s, s->blob);
}

/* Ask the caller which objects come next. */
static int order_ask(struct pull *p)
{
	p->next = 0;
	return p->caller->next(p->caller->arg, &p->order, &p->norder);
}

static int objects_fetch(struct pull *p)
{
	size_t i;
	int err = order_ask(p);

	if (err)
		return err;
	for (i = 0; i < p->count; i++) {
		p->done.bytes_total += p->blobs[i].size;
		p->done.bytes += p->blobs[i].has ? p->blobs[i].size : 0;
		p->done.objects += p->blobs[i].has;
	}
	p->done.objects_total = p->count;
	err = p->caller->progress(p->caller->arg, &p->done);
	while (!err && p->norder)
		err = blobs_begin(p) ?: fdry_http_run(&p->http) ?: order_ask(p);
	return err;
}

/* --- the call --- */

static int session_open(struct pull *p, const char *from)
{
	struct fdry_http_opts opts = { .plain = p->opts->flags & FDRY_REGISTRY_PLAIN_HTTP,
				       .requests = p->opts->requests };
	char scope[FDRY_REGISTRY_REPO_MAX + 32];
	struct fdry_registry_name name;
	int err = fdry_registry_name_parse(from, &name);

	if (err)
		return err;
	snprintf(scope, sizeof(scope), "repository:%s:pull", name.repo);
	opts.scope = scope;
	return fdry_http_open(&p->http, &name, &opts);
}

int fdry_client_pull(const char *from, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_caller *caller, struct fdry_registry_report *report)
{
	struct pull *p = calloc(1, sizeof(*p));
	size_t i;
	int err;

	if (!p)
		return fdry_nomem();
	p->opts = opts;
	p->caller = caller;
	p->report = report;
	err = session_open(p, from) ?: list_and_layers_fetch(p) ?: objects_fetch(p);
	report->requests = p->http.requests;
	report->retries = p->http.retries;
	for (i = 0; i < RING; i++)
		fdry_http_req_release(&p->ring[i].req);
	fdry_http_close(&p->http);
	free(p);
	return err;
}
