/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog.h - the tags of a repository, and the documents that they lead to: manifests, indexes
 * with their parts, and the subjects of signatures.
 *
 * A registry lists tags alone. So a manifest without a tag is found only if an index names it or a
 * signature has it as its subject.
 */
#ifndef FDRY_REGISTRY_CATALOG_H
#define FDRY_REGISTRY_CATALOG_H

#include "registry/client/http.h"

#define FDRY_CATALOG_TAGS_MAX 100000u
#define FDRY_CATALOG_DOCUMENTS_MAX 50000u /* that others lead to, beside those of tags */
#define FDRY_CATALOG_NONE SIZE_MAX

/* A manifest or index. */
struct fdry_catalog_node {
	struct fdry_oid id, subject; /* @subject if @has_subject */
	size_t part, parts;          /* its parts: @parts ids of catalog->parts, from @part */
	uint64_t objects, bytes;     /* of its layers, the list of an image not counted */
	bool is_image;               /* of Foundry */
	bool has_subject;
	bool is_tagged;
	bool is_part;    /* an index names it */
	bool is_missing; /* the registry does not have it */
	bool is_unread;  /* it is malformed, so it may lead to more than is known */
};

struct fdry_catalog_tag {
	char name[FDRY_REGISTRY_TAG_MAX + 1];
	size_t node; /* FDRY_CATALOG_NONE: removed meanwhile */
};

struct fdry_catalog_layer {
	struct fdry_oid id;
	uint64_t size;
	size_t node;
};

/* Zeroed at first. */
struct fdry_catalog {
	struct fdry_http *http;
	struct fdry_buf tags;   /* struct fdry_catalog_tag, by name */
	struct fdry_buf nodes;  /* struct fdry_catalog_node */
	struct fdry_buf parts;  /* struct fdry_oid */
	struct fdry_buf layers; /* struct fdry_catalog_layer */
	struct fdry_buf requests; /* struct fetch pointers, of catalog.c */
	uint32_t *slots;        /* a hash table: a node's number + 1, found by its id; 0: none */
	size_t nslots;          /* a power of two, or 0 */
};

/* Read everything. */
int fdry_catalog_read(struct fdry_http *h, struct fdry_catalog *ret) __must_check;
void fdry_catalog_release(struct fdry_catalog *r);
/* Read the tags again. FDRY_E_RACED if one was added, removed or moved since. */
int fdry_catalog_compare(const struct fdry_catalog *r) __must_check;

/* Fill @node from a document, and append its parts and layers. A text that is no document has
 * neither. FDRY_E_LIMIT, FDRY_E_NOMEM. */
int fdry_catalog_node_read(struct fdry_catalog *r, struct fdry_span text,
			struct fdry_catalog_node *node) __must_check;
/* Append the tags of one page of the registry's list; each is a tag's name. FDRY_E_BADIMAGE. */
int fdry_catalog_tags_read(struct fdry_span text, struct fdry_buf *ret) __must_check;
/* Whether this is a tag at which signatures of @id lie: "sha256-HEX", or with more behind a dot. */
bool fdry_catalog_tag_subject(const char *tag, struct fdry_oid *id);
/* Append a node, whose id must be new. FDRY_E_NOMEM. */
int fdry_catalog_node_add(struct fdry_catalog *r,
			  const struct fdry_catalog_node *node) __must_check;
/* The node of this id, or FDRY_CATALOG_NONE. */
size_t fdry_catalog_find(const struct fdry_catalog *r, const struct fdry_oid *id);

static inline struct fdry_catalog_node *fdry_catalog_node(const struct fdry_catalog *r, size_t i)
{
	return (struct fdry_catalog_node *)r->nodes.data + i;
}
static inline size_t fdry_catalog_nodes(const struct fdry_catalog *r)
{
	return r->nodes.len / sizeof(struct fdry_catalog_node);
}
static inline struct fdry_catalog_tag *fdry_catalog_tag(const struct fdry_catalog *r, size_t i)
{
	return (struct fdry_catalog_tag *)r->tags.data + i;
}
static inline size_t fdry_catalog_tags(const struct fdry_catalog *r)
{
	return r->tags.len / sizeof(struct fdry_catalog_tag);
}

#endif
