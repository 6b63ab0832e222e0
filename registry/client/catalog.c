// SPDX-License-Identifier: Apache-2.0
/* catalog.c - reads the tags and documents of a repository, many at the same time; see
 * catalog.h. */
#include "registry/client/catalog.h"

#include <stdlib.h>

#include "registry/client/document.h"
#include "registry/client/json.h"
#include "registry/client/manifest.h"

#define PAGE 1000
#define PAGE_BYTES (4u << 20)
#define PAGES_MAX 1000
#define PARTS_MAX 100000u /* of one index, or layers of one manifest, of any program */

/* Manifests of other programs must be found as well, so that they are kept. */
#define ACCEPT "Accept: " FDRY_MEDIA_MANIFEST ", " FDRY_MEDIA_INDEX \
	       ", application/vnd.docker.distribution.manifest.v2+json" \
	       ", application/vnd.docker.distribution.manifest.list.v2+json"

/* --- tags --- */

static bool is_tag(const char *tag)
{
	size_t len = strlen(tag);

	return len && len <= FDRY_REGISTRY_TAG_MAX &&
	       strspn(tag, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
		       len;
}

static int bad_list(void)
{
	return fdry_fail(FDRY_E_BADIMAGE,
			 "the registry's list of tags is malformed; look into its log");
}

int fdry_catalog_tags_read(struct fdry_span text, struct fdry_buf *ret)
{
	struct fdry_catalog_tag t = { .node = FDRY_CATALOG_NONE };
	json_t *root = NULL, *list;
	const char *name;
	size_t i;
	int err = fdry_json_read(text, "the registry's list of tags", &root);

	if (err)
		return err;
	list = json_object_get(root, "tags"); /* some registries write null for none */
	if (!json_is_array(list) && !json_is_null(list))
		err = bad_list();
	for (i = 0; !err && i < json_array_size(list); i++) {
		name = json_string_value(json_array_get(list, i));
		if (!name || !is_tag(name)) {
			err = bad_list();
			break;
		}
		memset(t.name, 0, sizeof(t.name));
		memcpy(t.name, name, strlen(name));
		err = fdry_buf_put(ret, &t, sizeof(t));
	}
	json_decref(root);
	return err;
}

bool fdry_catalog_tag_subject(const char *tag, struct fdry_oid *id)
{
	char hex[FDRY_OID_HEX_SIZE];
	const char *rest = tag + strlen("sha256-");

	if (strncmp(tag, "sha256-", strlen("sha256-")) || strlen(rest) < sizeof(hex) - 1 ||
	    (rest[sizeof(hex) - 1] && rest[sizeof(hex) - 1] != '.'))
		return false;
	memcpy(hex, rest, sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	return !fdry_oid_parse(hex, id);
}

/* The address of the next page: "<URL>; rel="next"" of the header Link. *@more: whether there is
 * one. */
static int page_next(struct fdry_http *h, struct fdry_http_req *r, bool *more)
{
	char *end = r->link && r->link[0] == '<' ? strchr(r->link, '>') : NULL;
	int err;

	*more = end && strstr(end, "next");
	if (!*more)
		return 0;
	*end = '\0';
	free(r->location);
	r->location = strdup(r->link + 1);
	if (!r->location)
		return fdry_nomem();
	err = fdry_http_follow(h, r);
	if (err || fdry_http_is_own(h, r->url))
		return err;
	return fdry_fail(FDRY_E_NETWORK, "the registry %s continues its list of tags at another "
			 "host; look into its log", h->name.host);
}

static int tag_cmp(const void *a, const void *b)
{
	const struct fdry_catalog_tag *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Read a page of tags, and set the request to the next one. */
static int page_read(struct fdry_http *h, struct fdry_http_req *r, struct fdry_buf *ret, bool *more)
{
	int err = fdry_http_do(h, r) ?: fdry_http_expect(h, r, 200, 0);

	if (err)
		return err;
	return fdry_catalog_tags_read((struct fdry_span){ r->in.data, r->in.len }, ret) ?:
	       page_next(h, r, more);
}

/* All tags, by name, each once. */
static int tags_list(struct fdry_http *h, struct fdry_buf *ret)
{
	struct fdry_http_req r = { .method = "GET", .most = PAGE_BYTES };
	struct fdry_catalog_tag *t;
	size_t i, n, k = 0;
	bool more = true;
	int pages = 0, err;

	err = fdry_http_url(h, &r, "/v2/%s/tags/list?n=%d", h->name.repo, PAGE);
	while (!err && more) {
		if (pages++ == PAGES_MAX || ret->len / sizeof(*t) > FDRY_CATALOG_TAGS_MAX)
			err = fdry_fail(FDRY_E_LIMIT, "the repository %s has more than %u tags",
					h->name.repo, FDRY_CATALOG_TAGS_MAX);
		else
			err = page_read(h, &r, ret, &more);
	}
	fdry_http_req_release(&r);
	if (err)
		return err;
	t = fdry_array(*ret, struct fdry_catalog_tag);
	n = fdry_array_count(*ret, struct fdry_catalog_tag);
	if (n)
		qsort(t, n, sizeof(*t), tag_cmp);
	for (i = 0; i < n; i++)
		if (!k || strcmp(t[k - 1].name, t[i].name))
			t[k++] = t[i];
	ret->len = k * sizeof(*t);
	return 0;
}

/* --- documents --- */

static int list_check(const json_t *list)
{
	return json_array_size(list) <= PARTS_MAX ? 0 :
	       fdry_fail(FDRY_E_LIMIT, "a document of the repository lists %zu entries, and "
			 "Foundry reads %u at most", json_array_size(list), PARTS_MAX);
}

static int parts_read(struct fdry_catalog *r, json_t *list, struct fdry_catalog_node *node)
{
	struct fdry_oid id;
	size_t i;
	int err = list_check(list);

	node->part = fdry_array_count(r->parts, struct fdry_oid);
	for (i = 0; !err && i < json_array_size(list); i++) {
		if (!fdry_json_digest(json_array_get(list, i), "digest", &id)) {
			node->is_unread = true;
			continue;
		}
		node->parts++;
		err = fdry_buf_put(&r->parts, &id, sizeof(id));
	}
	return err;
}

static int layers_read(struct fdry_catalog *r, json_t *list, struct fdry_catalog_node *node)
{
	struct fdry_catalog_layer l = { .node = fdry_catalog_nodes(r) };
	json_t *layer;
	size_t i;
	int err = list_check(list);

	for (i = 0; !err && i < json_array_size(list); i++) {
		layer = json_array_get(list, i);
		if (!fdry_json_digest(layer, "digest", &l.id) ||
		    !fdry_json_count(layer, "size", &l.size))
			continue;
		if (l.size > UINT64_MAX - node->bytes)
			l.size = UINT64_MAX - node->bytes;
		node->bytes += l.size;
		if (strcmp(fdry_json_text(layer, "mediaType"), FDRY_MEDIA_LIST))
			node->objects++;
		err = fdry_buf_put(&r->layers, &l, sizeof(l));
	}
	return err;
}

/* @node is the next one of the repository. */
int fdry_catalog_node_read(struct fdry_catalog *r, struct fdry_span text,
			   struct fdry_catalog_node *node)
{
	json_t *root = NULL;
	int err = fdry_json_read(text, "a document of the repository", &root);

	if (err) {
		node->is_unread = true;
		return err == -FDRY_E_BADIMAGE ? 0 : err;
	}
	node->is_image = !strcmp(fdry_json_text(root, "artifactType"), FDRY_MEDIA_IMAGE) ||
			 !strcmp(fdry_json_text(json_array_get(json_object_get(root, "layers"), 0),
						"mediaType"), FDRY_MEDIA_LIST);
	node->has_subject = fdry_json_digest(json_object_get(root, "subject"), "digest",
					     &node->subject);
	err = parts_read(r, json_object_get(root, "manifests"), node) ?:
	      layers_read(r, json_object_get(root, "layers"), node);
	json_decref(root);
	return err;
}

/* The slot of the node with this id, or the empty slot for it. Ids are hashes, so their first bytes
 * select the slot. */
static uint32_t *slot_at(const struct fdry_catalog *r, const struct fdry_oid *id)
{
	size_t i = fdry_get32(id->b);
	uint32_t *slot = &r->slots[i & (r->nslots - 1)];

	while (*slot && !fdry_oid_eq(&fdry_catalog_node(r, *slot - 1)->id, id))
		slot = &r->slots[++i & (r->nslots - 1)];
	return slot;
}

static int slots_grow(struct fdry_catalog *r)
{
	size_t i, n = r->nslots ? 4 * r->nslots : 256;
	uint32_t *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return fdry_nomem();
	free(r->slots);
	r->slots = slots;
	r->nslots = n;
	for (i = 0; i < fdry_catalog_nodes(r); i++)
		*slot_at(r, &fdry_catalog_node(r, i)->id) = (uint32_t)i + 1;
	return 0;
}

int fdry_catalog_node_add(struct fdry_catalog *r, const struct fdry_catalog_node *node)
{
	size_t n = fdry_catalog_nodes(r) + 1;
	int err = 2 * n > r->nslots ? slots_grow(r) : 0;

	if (err)
		return err;
	err = fdry_buf_put(&r->nodes, node, sizeof(*node));
	if (err)
		return err;
	*slot_at(r, &node->id) = (uint32_t)n;
	return 0;
}

size_t fdry_catalog_find(const struct fdry_catalog *r, const struct fdry_oid *id)
{
	uint32_t slot = r->nslots ? *slot_at(r, id) : 0;

	return slot ? slot - 1 : FDRY_CATALOG_NONE;
}

/* --- fetching them --- */

struct fetch {
	struct fdry_http_req req;
	struct fdry_catalog *repo;
	size_t tag; /* FDRY_CATALOG_NONE: by digest */
	struct fdry_oid id;
	bool as_part;
};

static int fetch_done(struct fdry_http *h, struct fdry_http_req *req);

static int fetch_begin(struct fdry_catalog *r, const char *ref, const struct fetch *what)
{
	struct fetch *f;
	int err;

	if (fdry_array_count(r->requests, struct fetch *) >=
	    fdry_catalog_tags(r) + FDRY_CATALOG_DOCUMENTS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the tags of %s lead to more than %u other "
				 "documents; remove indexes from it with another program",
				 r->http->name.repo, FDRY_CATALOG_DOCUMENTS_MAX);
	f = malloc(sizeof(*f));
	if (!f)
		return fdry_nomem();
	*f = *what;
	f->repo = r;
	f->req = (struct fdry_http_req){ .method = "GET", .accept = ACCEPT, .hash = true,
					 .most = FDRY_MANIFEST_BYTES, .done = fetch_done,
					 .arg = f };
	err = fdry_buf_put(&r->requests, &f, sizeof(f));
	if (err) {
		free(f);
		return err;
	}
	err = fdry_http_url(r->http, &f->req, "/v2/%s/manifests/%s", r->http->name.repo, ref);
	if (!err)
		fdry_http_start(r->http, &f->req);
	return err;
}

/* Fetch a document that another one names, unless it is known. */
static int id_fetch(struct fdry_catalog *r, const struct fdry_oid *id, bool as_part)
{
	struct fetch f = { .tag = FDRY_CATALOG_NONE, .id = *id, .as_part = as_part };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	size_t i = fdry_catalog_find(r, id);

	if (i != FDRY_CATALOG_NONE) {
		fdry_catalog_node(r, i)->is_part |= as_part;
		return 0;
	}
	return fetch_begin(r, fdry_document_ref(id, ref), &f);
}

/* Fetch what a new node leads to. */
static int node_follow(struct fdry_catalog *r, const struct fdry_catalog_node *node)
{
	size_t i;
	struct fdry_oid id;
	int err = node->has_subject ? id_fetch(r, &node->subject, false) : 0;

	for (i = 0; i < node->parts && !err; i++) {
		id = fdry_array(r->parts, struct fdry_oid)[node->part + i];
		err = id_fetch(r, &id, true);
	}
	return err;
}

/* The node of an answer, made if it is new. */
static int node_add(struct fdry_catalog *r, const struct fetch *f, size_t *ret)
{
	struct fdry_catalog_node node = { .id = f->req.digest };
	int err = 0;

	if (f->req.status == 404) {
		node.id = f->id;
		node.is_missing = true;
	}
	*ret = fdry_catalog_find(r, &node.id);
	if (*ret != FDRY_CATALOG_NONE)
		return 0;
	if (!node.is_missing)
		err = fdry_catalog_node_read(r, (struct fdry_span){ f->req.in.data, f->req.in.len },
					  &node);
	*ret = fdry_catalog_nodes(r);
	return err ?: fdry_catalog_node_add(r, &node) ?: node_follow(r, &node);
}

static int fetch_done(struct fdry_http *h, struct fdry_http_req *req)
{
	struct fetch *f = req->arg;
	struct fdry_catalog *r = f->repo;
	struct fdry_oid subject;
	size_t node;
	int err;

	if (req->status == 404 && f->tag != FDRY_CATALOG_NONE)
		return 0; /* the tag was removed meanwhile */
	if (req->status != 200 && req->status != 206 && req->status != 404)
		return fdry_http_refused(h, req);
	if (req->status != 404 && f->tag == FDRY_CATALOG_NONE && !fdry_oid_eq(&req->digest, &f->id))
		return fdry_document_mismatch(h, &f->id);
	err = node_add(r, f, &node);
	fdry_buf_release(&req->in);
	if (err)
		return err;
	fdry_catalog_node(r, node)->is_part |= f->as_part;
	if (f->tag == FDRY_CATALOG_NONE)
		return 0;
	fdry_catalog_tag(r, f->tag)->node = node;
	fdry_catalog_node(r, node)->is_tagged = true;
	return fdry_catalog_tag_subject(fdry_catalog_tag(r, f->tag)->name, &subject) ?
		       id_fetch(r, &subject, false) : 0;
}

int fdry_catalog_read(struct fdry_http *h, struct fdry_catalog *ret)
{
	struct fetch f = { .tag = 0 };
	int err;

	ret->http = h;
	err = tags_list(h, &ret->tags);
	for (; !err && f.tag < fdry_catalog_tags(ret); f.tag++)
		err = fetch_begin(ret, fdry_catalog_tag(ret, f.tag)->name, &f);
	return err ?: fdry_http_run(h);
}

void fdry_catalog_release(struct fdry_catalog *r)
{
	struct fetch **all = fdry_array(r->requests, struct fetch *);
	size_t i;

	for (i = 0; i < fdry_array_count(r->requests, struct fetch *); i++) {
		fdry_http_req_release(&all[i]->req);
		free(all[i]);
	}
	fdry_buf_release(&r->requests);
	fdry_buf_release(&r->tags);
	fdry_buf_release(&r->nodes);
	free(r->slots);
	fdry_buf_release(&r->parts);
	fdry_buf_release(&r->layers);
}

/* --- comparing --- */

static int raced(const struct fdry_catalog *r, const char *tag)
{
	return fdry_fail(FDRY_E_RACED, "the tag %s of %s was changed meanwhile, and nothing was "
			 "removed; try again", tag, r->http->name.repo);
}

static int tag_compare(const struct fdry_catalog *r, const struct fdry_catalog_tag *t)
{
	struct fdry_http_req req = { .method = "HEAD", .accept = ACCEPT };
	char ref[FDRY_DOCUMENT_REF_SIZE];
	int err = fdry_http_url(r->http, &req, "/v2/%s/manifests/%s", r->http->name.repo,
				t->name) ?:
		  fdry_http_do(r->http, &req);

	if (err)
		goto out_release;
	if (req.status == 404)
		err = t->node == FDRY_CATALOG_NONE ? 0 : raced(r, t->name);
	else if (req.status != 200)
		err = fdry_http_refused(r->http, &req);
	else if (t->node == FDRY_CATALOG_NONE || !req.content_digest ||
		 strcmp(req.content_digest,
			fdry_document_ref(&fdry_catalog_node(r, t->node)->id, ref)))
		err = raced(r, t->name);
out_release:
	fdry_http_req_release(&req);
	return err;
}

int fdry_catalog_compare(const struct fdry_catalog *r)
{
	struct fdry_catalog now = { .http = r->http };
	size_t i;
	int err = tags_list(r->http, &now.tags);

	for (i = 0; !err && i < fdry_catalog_tags(&now); i++)
		if (i >= fdry_catalog_tags(r) ||
		    strcmp(fdry_catalog_tag(&now, i)->name, fdry_catalog_tag(r, i)->name))
			err = raced(r, fdry_catalog_tag(&now, i)->name);
	if (!err && fdry_catalog_tags(&now) < fdry_catalog_tags(r))
		err = raced(r, fdry_catalog_tag(r, fdry_catalog_tags(&now))->name);
	for (i = 0; !err && i < fdry_catalog_tags(r); i++)
		err = tag_compare(r, fdry_catalog_tag(r, i));
	fdry_catalog_release(&now);
	return err;
}
