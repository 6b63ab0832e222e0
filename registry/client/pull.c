// SPDX-License-Identifier: Apache-2.0
/*
 * pull.c - fetches an artifact: manifests, the list, then the objects that the caller lacks.
 *
 * The documents are checked completely before the first object is asked for. Many objects arrive at
 * the same time, each hashed meanwhile, and are delivered in the caller's order: a ring holds those
 * that came early.
 *
 * Mirrors come first, and get only requests for digests. If a mirror does not deliver an object,
 * it is requested from the next one; a mirror whose requests fail is not used again.
 */
#include <stdlib.h>

#include "lib/clock.h"
#include "registry/client/calls.h"
#include "registry/client/document.h"
#include "registry/client/http.h"
#include "registry/client/manifest.h"
#include "registry/client/mirrors.h"
#include "registry/client/trust.h"

#define RING 512
#define WINDOW_BYTES (64u << 20)
#define LIST_MAX (512u << 20)
#define TRIES_MAX 2 /* of a blob that came with other bytes */

struct pull;
struct slot {
	struct fdry_http_req req;
	struct pull *p;
	size_t blob, source;
	unsigned int tries; /* at the registry itself */
	bool arrived, missed; /* its turn may come; nobody has it */
};

struct pull {
	struct fdry_sources from;
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
	bool failed;            /* an error that no other place can mend */
	struct slot ring[RING]; /* @first to @last, by their count */
	uint64_t first, last;
};

static struct fdry_http *origin(struct pull *p)
{
	return &p->from.http[p->from.origin];
}

static int damaged(struct pull *p, const char *what)
{
	return fdry_document_damaged(origin(p), what);
}

/* Whether to ask the place behind @i, where one request has failed. */
static bool next_may_have(struct pull *p, size_t *i, int err)
{
	if (!err || !fdry_sources_pass_over(&p->from, *i, err))
		return false;
	if (err == -FDRY_E_NETWORK || err == -FDRY_E_PERM || err == -FDRY_E_ENV)
		fdry_sources_drop(&p->from, *i);
	*i = fdry_sources_next(&p->from, *i + 1);
	return true;
}

/* --- the list --- */

static int blob_url(const struct fdry_http *h, struct fdry_http_req *r,
		    const struct fdry_oid *oid, uint64_t size)
{
	char hex[FDRY_OID_HEX_SIZE];

	r->most = size;
	return fdry_http_url(h, r, "/v2/%s/blobs/sha256:%s", h->name.repo,
			     fdry_oid_hex(oid, hex));
}

/* Has the whole blob come, with its bytes? */
static bool is_whole(const struct fdry_http_req *r, const struct fdry_oid *oid, uint64_t size)
{
	return !r->exceeds && r->in.len == size && fdry_oid_eq(&r->digest, oid);
}

/* One request for the list, at one place. */
static int list_ask(struct fdry_http *h, struct fdry_http_req *r, const struct fdry_descriptor *d)
{
	int err = blob_url(h, r, &d->digest, d->size) ?: fdry_http_do(h, r);

	if (err)
		return err;
	if (r->status != 200 && r->status != 206)
		return fdry_http_refused(h, r);
	return is_whole(r, &d->digest, d->size) ? 0 : fdry_document_mismatch(h, &d->digest);
}

static int list_fetch(struct pull *p, const struct fdry_descriptor *d)
{
	struct fdry_http_req r;
	size_t i = fdry_sources_next(&p->from, 0);
	bool again;
	int err;

	if (strcmp(d->media, FDRY_MEDIA_LIST))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "%s/%s is not an image of Foundry; give a name that "
				 "foundry-store push wrote",
				 origin(p)->name.host, origin(p)->name.repo);
	if (d->size > LIST_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the image's list has %llu bytes, and Foundry reads %u "
				 "at most",
				 (unsigned long long)d->size, LIST_MAX);
	do {
		r = (struct fdry_http_req){ .method = "GET", .hash = true };
		err = list_ask(&p->from.http[i], &r, d);
		again = next_may_have(p, &i, err);
		if (!err)
			err = p->caller->list(p->caller->arg,
					      (struct fdry_span){ r.in.data, r.in.len },
					      &p->blobs, &p->count);
		fdry_http_req_release(&r);
	} while (again);
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

/* A document by its digest. */
static int document_fetch(struct pull *p, const struct fdry_oid *id, struct fdry_buf *ret)
{
	size_t i = fdry_sources_next(&p->from, 0);
	char ref[FDRY_DOCUMENT_REF_SIZE];
	struct fdry_oid same;
	int err;

	do
		err = fdry_document_fetch(&p->from.http[i], fdry_document_ref(id, ref), id, ret,
					  &same);
	while (next_may_have(p, &i, err));
	return err;
}

static int part_fetch(struct pull *p, const struct fdry_descriptor *d)
{
	struct fdry_buf bytes = { 0 }, layers = { 0 };
	bool is_index = false;
	int err;

	if (strcmp(d->media, FDRY_MEDIA_MANIFEST))
		return damaged(p, "its index names something that is no manifest");
	err = document_fetch(p, &d->digest, &bytes) ?:
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

/* Ask the registry itself which digest the tag names. @known: whether it says so. */
static int tag_ask(struct pull *p, struct fdry_oid *id, bool *known)
{
	struct fdry_http *h = origin(p);
	struct fdry_http_req r = { .method = "HEAD", .accept = FDRY_DOCUMENT_ACCEPT };
	int err = fdry_http_url(h, &r, "/v2/%s/manifests/%s", h->name.repo, h->name.tag) ?:
		  fdry_http_do(h, &r);

	if (!err && r.status != 200)
		err = fdry_http_refused(h, &r);
	*known = !err && r.content_digest && !strncmp(r.content_digest, "sha256:", 7) &&
		 !fdry_oid_parse(r.content_digest + 7, id);
	fdry_http_req_release(&r);
	return err;
}

/* The manifest or index that the name leads to. */
static int root_fetch(struct pull *p, struct fdry_buf *ret, struct fdry_oid *id)
{
	const struct fdry_registry_name *n = &origin(p)->name;
	bool known = n->by_digest;
	int err = 0;

	*id = n->digest;
	if (!known && fdry_sources_next(&p->from, 0) != p->from.origin)
		err = tag_ask(p, id, &known);
	if (err)
		return err;
	return known ? document_fetch(p, id, ret) :
		       fdry_document_fetch(origin(p), n->tag, NULL, ret, id);
}

/* The list, and all layers of the artifact compared with it. */
static int list_and_layers_fetch(struct pull *p)
{
	struct fdry_buf bytes = { 0 }, parts = { 0 };
	bool is_index = false;
	struct fdry_oid id;
	int err;

	err = root_fetch(p, &bytes, &id) ?:
	      fdry_document_read((struct fdry_span){ bytes.data, bytes.len }, &is_index, &parts);
	err = err ?: fdry_trust_check(origin(p), p->opts->policy, &id);
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

/* Ask for the slot's object at the place @source. */
static int blob_ask(struct slot *s, size_t source)
{
	struct fdry_http *h = &s->p->from.http[source];
	const struct fdry_registry_blob *b = &s->p->blobs[s->blob];
	int err;

	s->source = source;
	s->req = (struct fdry_http_req){ .method = "GET", .hash = true, .done = blob_done,
					 .may_exceed = s->p->caller->miss, .arg = s };
	err = blob_url(h, &s->req, &b->oid, b->size);
	if (err)
		return err;
	fdry_http_start(h, &s->req);
	return 0;
}

static int blob_begin(struct slot *s, size_t blob)
{
	s->blob = blob;
	s->arrived = s->missed = false;
	s->tries = 0;
	return blob_ask(s, fdry_sources_next(&s->p->from, 0));
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
		size = p->blobs[s->blob].size;
		p->window -= size;
		if (s->missed)
			continue;
		err = p->caller->put(p->caller->arg, s->blob,
				     (struct fdry_span){ s->req.in.data, size });
		fdry_http_req_release(&s->req);
		if (err)
			return err;
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

/* Deliver what has arrived, and begin more. The caller's time does not count as the registry's. */
static int blobs_go_on(struct fdry_http *h, struct pull *p)
{
	double mark = fdry_now_ms();
	int err = blobs_put(p) ?: blobs_begin(p);

	h->heard_ms += fdry_elapsed_ms(&mark);
	p->failed |= err != 0;
	return err;
}

/* Nobody has the object: @err. That ends a pull, but not a call for blobs. */
static int blob_give_up(struct fdry_http *h, struct slot *s, int err)
{
	struct pull *p = s->p;

	if (!p->caller->miss || (err != -FDRY_E_NOENT && err != -FDRY_E_CORRUPT))
		return err;
	fdry_http_req_release(&s->req);
	s->arrived = s->missed = true;
	err = p->caller->miss(p->caller->arg, s->blob, err);
	p->failed |= err != 0;
	return err ?: blobs_go_on(h, p);
}

/* An answer that does not have the object. */
static int blob_missed(struct fdry_http *h, struct slot *s)
{
	struct pull *p = s->p;
	bool came = s->req.status == 200 || s->req.status == 206;
	int err = came ? fdry_document_mismatch(h, &p->blobs[s->blob].oid) :
			 fdry_http_refused(h, &s->req);
	size_t source = s->source;

	if (source == p->from.origin) {
		if (!came || ++s->tries == TRIES_MAX)
			return blob_give_up(h, s, err);
	} else if (fdry_sources_pass_over(&p->from, source, err)) {
		source = fdry_sources_next(&p->from, source + 1);
	}
	h->retries++;
	fdry_http_req_release(&s->req);
	return blob_ask(s, source);
}

static int blob_done(struct fdry_http *h, struct fdry_http_req *r)
{
	struct slot *s = r->arg;
	struct pull *p = s->p;

	if ((r->status != 200 && r->status != 206) ||
	    !is_whole(r, &p->blobs[s->blob].oid, p->blobs[s->blob].size))
		return blob_missed(h, s);
	s->arrived = true;
	return blobs_go_on(h, p);
}

/* A mirror has failed: ask the next place for the objects that it did not deliver. */
static int mirror_leave(struct pull *p, size_t source)
{
	struct slot *s;
	uint64_t i;
	int err = 0;

	fdry_sources_drop(&p->from, source);
	for (i = p->first; i < p->last && !err; i++) {
		s = &p->ring[i % RING];
		if (s->arrived || s->source != source)
			continue;
		fdry_http_req_release(&s->req);
		err = blob_ask(s, fdry_sources_next(&p->from, source + 1));
	}
	return err;
}

/* Run until no place has a request left. Objects that a place lacks wait until it has delivered the
 * others. */
static int sources_run(struct pull *p)
{
	struct fdry_http *h;
	size_t i = 0;
	int err = 0;

	while (!err && i <= p->from.origin) {
		h = &p->from.http[i];
		if (p->from.out[i] || (!h->waiting && !h->active)) {
			i++;
			continue;
		}
		err = fdry_http_run(h);
		if (err && err != -FDRY_E_CALLBACK && !p->failed &&
		    fdry_sources_pass_over(&p->from, i, err))
			err = mirror_leave(p, i);
		i = 0;
	}
	return err;
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
		err = blobs_begin(p) ?: sources_run(p) ?: order_ask(p);
	return err;
}

/* --- the call --- */

static int session_open(struct pull *p, const char *from)
{
	struct fdry_http_opts opts = { .plain = p->opts->flags & FDRY_REGISTRY_PLAIN_HTTP,
				       .requests = p->opts->requests,
				       .stop = p->opts->stop, .stop_arg = p->opts->stop_arg,
				       .patience_ms = p->caller->patience_ms };
	char scope[FDRY_REGISTRY_REPO_MAX + 32];
	struct fdry_registry_name name;
	int err = fdry_registry_name_parse(from, &name);

	if (err)
		return err;
	snprintf(scope, sizeof(scope), "repository:%s:pull", name.repo);
	opts.scope = scope;
	return fdry_sources_open(&p->from, &name, &opts);
}

/* @blobs: NULL: those of the list that the name leads to. */
static int fetch(const char *from, const struct fdry_registry_opts *opts,
		 const struct fdry_registry_blob *blobs, size_t count,
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
	p->blobs = blobs;
	p->count = count;
	err = session_open(p, from) ?: (blobs ? 0 : list_and_layers_fetch(p)) ?: objects_fetch(p);
	for (i = 0; i <= p->from.origin; i++) {
		report->requests += p->from.http[i].requests;
		report->retries += p->from.http[i].retries;
	}
	for (i = 0; i < RING; i++)
		fdry_http_req_release(&p->ring[i].req);
	fdry_sources_close(&p->from);
	free(p);
	return err;
}

int fdry_client_pull(const char *from, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_caller *caller, struct fdry_registry_report *report)
{
	return fetch(from, opts, NULL, 0, caller, report);
}

int fdry_client_blobs(const char *from, const struct fdry_registry_opts *opts,
		      const struct fdry_registry_blob *blobs, size_t count,
		      const struct fdry_registry_caller *caller,
		      struct fdry_registry_report *report)
{
	return fetch(from, opts, blobs, count, caller, report);
}
