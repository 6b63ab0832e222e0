/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - image manifests: written once, read through a checked view.
 *
 * The view points into bytes that the caller keeps, 8-byte aligned, and owns no memory. After
 * fdry_manifest_init() every index, string and range in it is valid. The check takes time linear in
 * the bytes, times a logarithm for searches by address.
 */
#ifndef FDRY_IMAGE_MANIFEST_H
#define FDRY_IMAGE_MANIFEST_H

#include "image/manifest_format.h"
#include "lib/buf.h"

struct fdry_manifest {
	const struct fdry_mf_header *header;
#define X(id, NAME, member, type) const type *member; uint32_t n_##member;
	FDRY_MF_SECTIONS(X)
#undef X
	bool has_unknown; /* parts of a newer version: a reader ignores them, a copy lacks them */
};

/* Check @bytes from end to end. FDRY_E_BADIMAGE, FDRY_E_VERSION, FDRY_E_LIMIT, FDRY_E_NOMEM. */
int fdry_manifest_init(struct fdry_span bytes, struct fdry_manifest *ret) __must_check;

static inline const char *fdry_manifest_str(const struct fdry_manifest *m, uint32_t off)
{
	return m->n_strings ? m->strings + off : "";
}

/* Convert entry @t of @m to the struct of the API. */
void fdry_manifest_tensor_get(const struct fdry_manifest *m, const struct fdry_mf_tensor *t,
			      struct fdry_tensor *ret);

/* NULL if there is none. */
const struct fdry_mf_tensor *fdry_manifest_tensor(const struct fdry_manifest *m, const char *name);
const struct fdry_mf_graph *fdry_manifest_graph(const struct fdry_manifest *m, uint64_t key);
const char *fdry_manifest_fact(const struct fdry_manifest *m, const char *key);

/* The position of the first segment that ends above @addr; n_segments if there is none. */
uint32_t fdry_manifest_segment(const struct fdry_manifest *m, uint64_t addr);
/* The pinned allocation that holds @size bytes at @addr; NULL if there is none. */
const struct fdry_mf_pinned *fdry_manifest_pinned(const struct fdry_manifest *m, uint64_t addr,
						  uint64_t size);
/* The fixed address of a host segment that lies in a pinned allocation; 0: a load chooses one. */
uint64_t fdry_manifest_host_place(const struct fdry_manifest *m, uint32_t segment);

/* Whether a load writes variables of kernel object @object, or pointers point to them: the code is
 * loaded for the image alone. */
bool fdry_manifest_has_values(const struct fdry_manifest *m, uint32_t object);

/* Zero it, set base and end, append entries to the sections in their canonical order, then encode.
 * Always release it. */
struct fdry_manifest_writer {
	uint64_t base;
	uint64_t end;
#define X(id, NAME, member, type) struct fdry_buf member;
	FDRY_MF_SECTIONS(X)
#undef X
};

/* Add a string; equal strings share an offset. */
int fdry_manifest_add_str(struct fdry_manifest_writer *w, const char *s,
			  uint32_t *ret) __must_check;
int fdry_manifest_add_fact(struct fdry_manifest_writer *w, const char *key,
			   const char *value) __must_check;
/* Write the manifest's bytes to @ret, after the reader has checked them. */
int fdry_manifest_encode(struct fdry_manifest_writer *w, struct fdry_buf *ret) __must_check;
void fdry_manifest_writer_release(struct fdry_manifest_writer *w);

/* List every object that the manifest refers to, sorted, each once. The caller must free() *ret. */
int fdry_manifest_links(const struct fdry_manifest *m, struct fdry_oid **ret,
			size_t *count) __must_check;

/* For each graph, find the first graph with the same object; in most images that is the graph
 * itself. So each object is read once. The caller must free() *ret. */
int fdry_manifest_graphs_first(const struct fdry_manifest *m, uint32_t **ret) __must_check;


#endif
