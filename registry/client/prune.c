// SPDX-License-Identifier: Apache-2.0
/*
 * prune.c - lists the tags of a repository, and removes images from it.
 *
 * A document stays if a tag that is kept names it, if an index that stays lists it, or if it refers
 * to a document that stays, as signatures do. An image that has no tag, and that only a signature
 * leads to, stays as well: programs may ask for it by digest. All else is removed by digest: first
 * images and indexes, then parts of indexes, then signatures, so that no image is ever there
 * without what belongs to it.
 */
#include <fnmatch.h>
#include <stdlib.h>

#include "registry/client/calls.h"
#include "registry/client/document.h"
#include "registry/client/catalog.h"

struct mark {
	bool kept, doomed; /* @doomed: something that is to be removed leads to it */
	size_t why;        /* the tag that keeps it, FDRY_CATALOG_NONE: none */
};

struct prune {
	struct fdry_http http;
	const struct fdry_repo_call *call;
	struct fdry_repo_report *report;
	struct fdry_catalog catalog;
	struct mark *marks;
	struct fdry_buf work; /* size_t each: nodes whose neighbours are not marked yet */
	size_t target;        /* of an unpush: the node */
};

/* Do signatures lie at this tag? Other programs name an image so by its own digest. */
static bool is_of_signature(const struct fdry_catalog *r, const struct fdry_catalog_tag *t)
{
	const struct fdry_catalog_node *node;
	struct fdry_oid subject;

	if (!fdry_catalog_tag_subject(t->name, &subject))
		return false;
	node = t->node == FDRY_CATALOG_NONE ? NULL : fdry_catalog_node(r, t->node);
	return !node || !(node->is_image || fdry_oid_eq(&node->id, &subject));
}

/* --- marking --- */

static int mark(struct prune *p, size_t i, bool kept, size_t why)
{
	struct mark *m = &p->marks[i];

	if (kept ? m->kept : m->doomed)
		return 0;
	if (kept) {
		m->kept = true;
		m->why = why;
	} else {
		m->doomed = true;
	}
	return fdry_buf_put(&p->work, &i, sizeof(i));
}

/* The parts of a node, and the documents that refer to it. */
static int neighbours_mark(struct prune *p, size_t i, bool kept)
{
	const struct fdry_catalog *r = &p->catalog;
	const struct fdry_catalog_node *node = fdry_catalog_node(r, i), *other;
	const struct fdry_oid *parts = fdry_array(r->parts, struct fdry_oid);
	size_t k, why = p->marks[i].why, n;
	struct fdry_oid subject;
	int err = 0;

	for (k = 0; k < node->parts && !err; k++) {
		n = fdry_catalog_find(r, &parts[node->part + k]);
		if (n != FDRY_CATALOG_NONE)
			err = mark(p, n, kept, why);
	}
	for (k = 0; k < fdry_catalog_nodes(r) && !err; k++) {
		other = fdry_catalog_node(r, k);
		if (other->has_subject && fdry_oid_eq(&other->subject, &node->id))
			err = mark(p, k, kept, why);
	}
	for (k = 0; k < fdry_catalog_tags(r) && !err; k++) {
		n = fdry_catalog_tag(r, k)->node;
		if (n != FDRY_CATALOG_NONE &&
		    fdry_catalog_tag_subject(fdry_catalog_tag(r, k)->name, &subject) &&
		    fdry_oid_eq(&subject, &node->id))
			err = mark(p, n, kept, why);
	}
	return err;
}

static int spread(struct prune *p, bool kept)
{
	size_t i;
	int err = 0;

	while (p->work.len && !err) {
		p->work.len -= sizeof(i);
		memcpy(&i, p->work.data + p->work.len, sizeof(i));
		err = neighbours_mark(p, i, kept);
	}
	return err;
}

/* Does the user keep this tag? Tags of signatures follow what they sign. */
static bool is_kept(const struct prune *p, const struct fdry_catalog_tag *t)
{
	const struct fdry_repo_opts *o = p->call->opts;
	size_t i;

	if (is_of_signature(&p->catalog, t))
		return false;
	if (p->call->mode == FDRY_REPO_UNPUSH)
		return p->http.name.by_digest ? t->node != p->target :
						strcmp(t->name, p->http.name.tag) != 0;
	for (i = 0; i < o->count_keep; i++)
		if (!fnmatch(o->keep[i], t->name, 0))
			return true;
	return false;
}

/* Known only as the subject of a signature. */
static bool is_untagged_image(const struct fdry_catalog_node *node)
{
	return !node->is_tagged && !node->is_part && !node->has_subject && !node->is_missing;
}

static int kept_mark(struct prune *p)
{
	size_t i;
	const struct fdry_catalog_tag *t;
	int err = 0;

	for (i = 0; i < fdry_catalog_tags(&p->catalog) && !err; i++) {
		t = fdry_catalog_tag(&p->catalog, i);
		if (t->node != FDRY_CATALOG_NONE && is_kept(p, t))
			err = mark(p, t->node, true, i) ?: spread(p, true);
	}
	for (i = 0; i < fdry_catalog_nodes(&p->catalog) && !err; i++)
		if (is_untagged_image(fdry_catalog_node(&p->catalog, i)) && i != p->target)
			err = mark(p, i, true, FDRY_CATALOG_NONE) ?: spread(p, true);
	return err;
}

/* Refuse if a document that stays cannot be read: it may need others, which are not known. */
static int kept_check(const struct prune *p)
{
	char hex[FDRY_OID_HEX_SIZE];
	size_t i;

	for (i = 0; i < fdry_catalog_nodes(&p->catalog); i++)
		if (p->marks[i].kept && fdry_catalog_node(&p->catalog, i)->is_unread)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "the document sha256:%s of %s stays and is malformed, so "
					 "what it refers to is unknown; nothing was removed; "
					 "remove it first",
					 fdry_oid_hex(&fdry_catalog_node(&p->catalog, i)->id, hex),
					 p->http.name.repo);
	return 0;
}

/* An unpush may remove the target and all that belongs to it, a prune everything. */
static int going_mark(struct prune *p)
{
	size_t i;
	int err = 0;

	if (p->call->mode == FDRY_REPO_UNPUSH)
		return mark(p, p->target, false, FDRY_CATALOG_NONE) ?: spread(p, false);
	for (i = 0; i < fdry_catalog_nodes(&p->catalog) && !err; i++)
		err = mark(p, i, false, FDRY_CATALOG_NONE);
	p->work.len = 0;
	return err;
}

/* A mistyped pattern would remove the tags that it was meant to keep. */
static int patterns_check(const struct prune *p)
{
	const struct fdry_repo_opts *o = p->call->opts;
	size_t i, k, n = fdry_catalog_tags(&p->catalog);

	if (p->call->mode != FDRY_REPO_PRUNE)
		return 0;
	for (i = 0; i < o->count_keep; i++) {
		for (k = 0; k < n && fnmatch(o->keep[i], fdry_catalog_tag(&p->catalog, k)->name, 0);
		     k++)
			;
		if (k == n)
			return fdry_fail(FDRY_E_INVAL, "no tag of %s matches '%.100s'; "
					 "foundry-store tags lists them", p->http.name.repo,
					 o->keep[i]);
	}
	return 0;
}

/* --- what an unpush removes --- */

static int target_find(struct prune *p)
{
	const struct fdry_registry_name *n = &p->http.name;
	size_t i;

	p->target = FDRY_CATALOG_NONE;
	if (p->call->mode != FDRY_REPO_UNPUSH)
		return 0;
	for (i = 0; i < fdry_catalog_tags(&p->catalog) && !n->by_digest; i++)
		if (!strcmp(fdry_catalog_tag(&p->catalog, i)->name, n->tag))
			p->target = fdry_catalog_tag(&p->catalog, i)->node;
	if (n->by_digest)
		p->target = fdry_catalog_find(&p->catalog, &n->digest);
	return p->target != FDRY_CATALOG_NONE ? 0 :
	       fdry_fail(FDRY_E_NOENT, "the repository %s/%s has no such tag or digest that its "
			 "tags lead to; foundry-store tags lists them", n->host, n->repo);
}

/* The registry removes images by digest, with all their tags. */
static int target_check(const struct prune *p)
{
	const struct mark *m = p->target == FDRY_CATALOG_NONE ? NULL : &p->marks[p->target];
	const char *tag;

	if (!m || !m->kept)
		return 0;
	tag = m->why == FDRY_CATALOG_NONE ? "of an untagged image" :
					 fdry_catalog_tag(&p->catalog, m->why)->name;
	if (p->http.name.by_digest)
		return fdry_fail(FDRY_E_STATE, "the tag %s leads to this as a part of an index or "
				 "as a signature; remove that tag in its place", tag);
	return fdry_fail(FDRY_E_STATE,
			 "the tag %s leads to the same image, and a registry removes an image with "
			 "all of its tags; to do so, name the digest", tag);
}

/* --- the plan --- */

static bool is_removed(const struct prune *p, size_t node)
{
	return p->marks[node].doomed && !p->marks[node].kept &&
	       !fdry_catalog_node(&p->catalog, node)->is_missing;
}

static void item_report(const struct prune *p, size_t node, const char *tag, int fate)
{
	const struct fdry_catalog_node *n = fdry_catalog_node(&p->catalog, node);
	size_t why = p->marks[node].why;
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_repo_item item = {
		.tag = tag,
		.id = fdry_oid_hex(&n->id, hex),
		.objects = n->objects,
		.bytes = n->bytes,
		.fate = fate,
		.is_image = n->is_image,
	};

	if (fate == FDRY_REPO_KEPT && why != FDRY_CATALOG_NONE)
		item.why = fdry_catalog_tag(&p->catalog, why)->name;
	if (p->call->opts->item)
		p->call->opts->item(p->call->opts->item_arg, &item);
}

/* --- bytes --- */

static int layer_cmp(const void *a, const void *b)
{
	return fdry_oid_cmp(a, b);
}

/* Blobs that nothing needs afterwards, each once. */
static uint64_t bytes_freed(const struct prune *p)
{
	struct fdry_catalog_layer *l = fdry_array(p->catalog.layers, struct fdry_catalog_layer);
	size_t i, k, n = fdry_array_count(p->catalog.layers, struct fdry_catalog_layer);
	uint64_t bytes = 0;
	bool needed;

	if (n)
		qsort(l, n, sizeof(*l), layer_cmp);
	for (i = 0; i < n; i = k) {
		needed = false;
		for (k = i; k < n && fdry_oid_eq(&l[k].id, &l[i].id); k++)
			needed |= !is_removed(p, l[k].node);
		bytes += needed ? 0 : l[i].size;
	}
	return bytes;
}

/* --- removing --- */

/* Images first, then parts, then signatures. */
static int rank_of(const struct fdry_catalog *r, size_t node)
{
	const struct fdry_catalog_node *n = fdry_catalog_node(r, node);
	size_t i;

	if (n->has_subject)
		return 2;
	for (i = 0; i < fdry_catalog_tags(r); i++)
		if (fdry_catalog_tag(r, i)->node == node &&
		    is_of_signature(r, fdry_catalog_tag(r, i)))
			return 2;
	return n->is_part;
}

static int node_delete(struct prune *p, const struct fdry_oid *id)
{
	struct fdry_http_req r = { .method = "DELETE" };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(&p->http, &r, "/v2/%s/manifests/%s", p->http.name.repo,
				fdry_document_ref(id, ref)) ?:
		  fdry_http_do(&p->http, &r);

	if (!err && r.status != 202 && r.status != 200 && r.status != 204 && r.status != 404)
		err = fdry_http_refused(&p->http, &r);
	fdry_http_req_release(&r);
	return err;
}

/* Remove a node, and report each of its tags. */
static int node_remove(struct prune *p, size_t node)
{
	const struct fdry_catalog *r = &p->catalog;
	bool dry_run = p->call->opts->flags & FDRY_REPO_DRY_RUN;
	size_t i;
	int err = dry_run ? 0 : node_delete(p, &fdry_catalog_node(r, node)->id);

	if (err)
		return err;
	p->report->removed++;
	for (i = 0; i < fdry_catalog_tags(r); i++)
		if (fdry_catalog_tag(r, i)->node == node)
			item_report(p, node, fdry_catalog_tag(r, i)->name, FDRY_REPO_REMOVED);
	if (!fdry_catalog_node(r, node)->is_tagged)
		item_report(p, node, NULL, FDRY_REPO_REMOVED);
	return 0;
}

static int removed_walk(struct prune *p)
{
	size_t i;
	int rank, err = 0;

	for (rank = 0; rank <= 2; rank++)
		for (i = 0; i < fdry_catalog_nodes(&p->catalog) && !err; i++)
			if (is_removed(p, i) && rank_of(&p->catalog, i) == rank)
				err = node_remove(p, i);
	return err;
}

static void kept_walk(struct prune *p)
{
	const struct fdry_catalog_tag *t;
	size_t i;

	for (i = 0; i < fdry_catalog_tags(&p->catalog); i++) {
		t = fdry_catalog_tag(&p->catalog, i);
		if (t->node == FDRY_CATALOG_NONE || is_removed(p, t->node))
			continue;
		p->report->kept++;
		item_report(p, t->node, t->name, FDRY_REPO_KEPT);
	}
}

static int plan_do(struct prune *p)
{
	bool dry_run = p->call->opts->flags & FDRY_REPO_DRY_RUN;
	int err = patterns_check(p) ?: target_find(p) ?: kept_mark(p) ?: target_check(p) ?:
		  kept_check(p) ?: going_mark(p);

	if (err)
		return err;
	if (!dry_run)
		err = fdry_catalog_compare(&p->catalog);
	if (err)
		return err;
	if (p->call->mode == FDRY_REPO_PRUNE)
		kept_walk(p);
	err = removed_walk(p);
	if (!err)
		p->report->bytes = bytes_freed(p);
	return err;
}

/* --- listing --- */

static bool is_signed(const struct fdry_catalog *r, const struct fdry_oid *id)
{
	struct fdry_oid subject;
	size_t i;

	for (i = 0; i < fdry_catalog_tags(r); i++)
		if (is_of_signature(r, fdry_catalog_tag(r, i)) &&
		    fdry_catalog_tag_subject(fdry_catalog_tag(r, i)->name, &subject) &&
		    fdry_oid_eq(&subject, id))
			return true;
	return false;
}

/* The objects and bytes of an index are those of its parts. */
static void parts_sum(const struct fdry_catalog *r, const struct fdry_catalog_node *node,
		      struct fdry_repo_item *item)
{
	const struct fdry_oid *parts = fdry_array(r->parts, struct fdry_oid);
	const struct fdry_catalog_node *part;
	size_t i, n;

	for (i = 0; i < node->parts; i++) {
		n = fdry_catalog_find(r, &parts[node->part + i]);
		if (n == FDRY_CATALOG_NONE)
			continue;
		part = fdry_catalog_node(r, n);
		item->objects += part->objects;
		item->bytes += part->bytes;
		item->is_image |= part->is_image;
	}
}

static void tags_report(struct prune *p)
{
	const struct fdry_catalog *r = &p->catalog;
	const struct fdry_catalog_node *node;
	struct fdry_repo_item item;
	char hex[FDRY_OID_HEX_SIZE];
	size_t i;

	for (i = 0; i < fdry_catalog_tags(r); i++) {
		if (fdry_catalog_tag(r, i)->node == FDRY_CATALOG_NONE)
			continue;
		node = fdry_catalog_node(r, fdry_catalog_tag(r, i)->node);
		item = (struct fdry_repo_item){ .tag = fdry_catalog_tag(r, i)->name,
						.id = fdry_oid_hex(&node->id, hex),
						.objects = node->objects, .bytes = node->bytes,
						.fate = FDRY_REPO_KEPT,
						.is_image = node->is_image };
		item.is_signed = is_signed(r, &node->id);
		item.is_signature = is_of_signature(r, fdry_catalog_tag(r, i));
		if (!item.is_signature)
			parts_sum(r, node, &item);
		p->report->kept++;
		if (p->call->opts->item)
			p->call->opts->item(p->call->opts->item_arg, &item);
	}
}

/* --- the call --- */

static int session_open(struct prune *p, const char *name)
{
	const struct fdry_repo_opts *o = p->call->opts;
	bool reads = p->call->mode == FDRY_REPO_TAGS || o->flags & FDRY_REPO_DRY_RUN;
	struct fdry_http_opts opts = { .plain = o->flags & FDRY_REPO_PLAIN_HTTP,
				       .requests = o->requests };
	char scope[FDRY_REGISTRY_REPO_MAX + 40];
	struct fdry_registry_name n;
	int err = fdry_registry_name_parse(name, &n);

	if (err)
		return err;
	snprintf(scope, sizeof(scope), "repository:%s:pull%s", n.repo, reads ? "" : ",delete");
	opts.scope = scope;
	return fdry_http_open(&p->http, &n, &opts);
}

static int run(struct prune *p)
{
	int err = fdry_catalog_read(&p->http, &p->catalog);

	if (err)
		return err;
	p->marks = calloc(fdry_catalog_nodes(&p->catalog) + 1, sizeof(*p->marks));
	if (!p->marks)
		return fdry_nomem();
	p->report->tags = fdry_catalog_tags(&p->catalog);
	if (p->call->mode != FDRY_REPO_TAGS)
		return plan_do(p);
	tags_report(p);
	return 0;
}

int fdry_client_repo(const char *name, const struct fdry_repo_call *call,
		     struct fdry_repo_report *report)
{
	struct prune p = { .call = call, .report = report };
	int err = session_open(&p, name);

	if (err)
		return err;
	err = run(&p);
	report->requests = p.http.requests;
	report->retries = p.http.retries;
	fdry_catalog_release(&p.catalog);
	fdry_buf_release(&p.work);
	fdry_http_close(&p.http);
	free(p.marks);
	return err;
}
