// SPDX-License-Identifier: Apache-2.0
/*
 * manifest_read.c - read a manifest: open a view of its bytes, and look things up in it.
 *
 * The directory is checked first: every section lies inside the bytes, in order and apart, with
 * zeros between sections. manifest_check.c then checks the entries.
 */
#include <stdlib.h>
#include <string.h>

#include "image/manifest.h"
#include "mm/region.h"
#include "image/manifest_check.h"

static int header_check(struct fdry_span bytes, const struct fdry_mf_header *h)
{
	if (memcmp(h->magic, FDRY_MF_MAGIC, sizeof(h->magic)))
		return fdry_fail(FDRY_E_BADIMAGE, "not an image manifest; give the name of an image");
	if (h->version != FDRY_MF_VERSION || h->incompat & ~FDRY_MF_INCOMPAT_KNOWN)
		return fdry_fail(FDRY_E_VERSION, "the manifest has format version %u and features %#x, this library knows version %u; "
				 "use a newer library", h->version, h->incompat, FDRY_MF_VERSION);
	if (h->size != bytes.len || h->size & 7)
		return fdry_manifest_bad("it says %llu bytes and has %zu", (unsigned long long)h->size, bytes.len);
	if (!fdry_all_zero(h->reserved, sizeof(h->reserved)))
		return fdry_manifest_bad("a reserved field is set");
	if (h->sections > FDRY_MF_SECTIONS_MAX)
		return fdry_manifest_bad("%u sections", h->sections);
	if (h->base > h->end)
		return fdry_manifest_bad("its region ends before it begins");
	if (h->end > FDRY_HOST_PLACE) /* no device address has its highest bit, and sums of two do not overflow */
		return fdry_manifest_bad("its region ends beyond the address space");
	if (h->base % FDRY_ALLOC_BLOCK)
		return fdry_manifest_bad("its region does not begin at a multiple of %u", FDRY_ALLOC_BLOCK);
	return 0;
}

static int section_take(struct fdry_manifest *m, uint32_t id, struct fdry_span data)
{
	switch (id) {
#define X(nr, NAME, member, type) \
	case nr: \
		if (data.len % sizeof(type)) \
			return fdry_manifest_bad("section " #member " has a partial entry"); \
		m->member = (const void *)data.data; \
		m->n_##member = (uint32_t)(data.len / sizeof(type)); \
		return 0;
	FDRY_MF_SECTIONS(X)
#undef X
	default:
		if (id & FDRY_SECTION_OPTIONAL)
			return 0;
		return fdry_fail(FDRY_E_VERSION, "the manifest has a section %u that this library does not know; "
				 "use a newer library", id);
	}
}

static int directory_check(struct fdry_span bytes, struct fdry_manifest *m)
{
	struct fdry_sections s;
	struct fdry_span data;
	uint32_t id = 1;
	int err = fdry_sections_begin(bytes, sizeof(*m->header), m->header->sections, &s);

	while (!err && id) {
		err = fdry_sections_next(&s, &id, &data);
		if (err)
			err = fdry_fail_at(err, "damaged manifest");
		else if (id)
			err = section_take(m, id, data);
	}
	return err;
}

int fdry_manifest_init(struct fdry_span bytes, struct fdry_manifest *ret)
{
	struct fdry_manifest m = { 0 };
	int err;

	if ((uintptr_t)bytes.data & 7)
		return fdry_bug("a manifest's bytes are not aligned");
	if (bytes.len > FDRY_MF_SIZE_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a manifest of %zu bytes is too large", bytes.len);
	m.header = fdry_span_at(bytes, 0, sizeof(*m.header));
	if (!m.header)
		return fdry_manifest_bad("%zu bytes are too few", bytes.len);
	err = header_check(bytes, m.header);
	if (!err)
		err = directory_check(bytes, &m);
	if (!err)
		err = fdry_manifest_check(&m);
	if (!err)
		*ret = m;
	return err;
}

/* --- look-ups --- */

void fdry_manifest_tensor_get(const struct fdry_manifest *m, const struct fdry_mf_tensor *t, struct fdry_tensor *ret)
{
	*ret = (struct fdry_tensor){
		.name = fdry_manifest_str(m, t->name), .addr = t->addr, .dtype = t->dtype,
		.use = t->use, .flags = t->flags, .rank = t->rank,
	};
	memcpy(ret->shape, t->shape, sizeof(ret->shape));
	memcpy(ret->stride, t->stride, sizeof(ret->stride));
}

struct key {
	const struct fdry_manifest *m;
	const char *name;
};

static int tensor_cmp(const void *key, const void *entry)
{
	const struct key *k = key;

	return strcmp(k->name, fdry_manifest_str(k->m, ((const struct fdry_mf_tensor *)entry)->name));
}

static int fact_cmp(const void *key, const void *entry)
{
	const struct key *k = key;

	return strcmp(k->name, fdry_manifest_str(k->m, ((const struct fdry_mf_fact *)entry)->key));
}

static int graph_cmp(const void *key, const void *entry)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct fdry_mf_graph *)entry)->key;

	return (a > b) - (a < b);
}

const struct fdry_mf_tensor *fdry_manifest_tensor(const struct fdry_manifest *m, const char *name)
{
	struct key k = { m, name };

	return m->n_tensors ? bsearch(&k, m->tensors, m->n_tensors, sizeof(*m->tensors), tensor_cmp) : NULL;
}

const struct fdry_mf_graph *fdry_manifest_graph(const struct fdry_manifest *m, uint64_t key)
{
	return m->n_graphs ? bsearch(&key, m->graphs, m->n_graphs, sizeof(*m->graphs), graph_cmp) : NULL;
}

const char *fdry_manifest_fact(const struct fdry_manifest *m, const char *key)
{
	struct key k = { m, key };
	const struct fdry_mf_fact *f;

	f = m->n_facts ? bsearch(&k, m->facts, m->n_facts, sizeof(*f), fact_cmp) : NULL;
	return f ? fdry_manifest_str(m, f->value) : NULL;
}

/* --- lists --- */

static int oid_cmp(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct fdry_oid));
}

int fdry_manifest_links(const struct fdry_manifest *m, struct fdry_oid **ret, size_t *count)
{
	size_t n = (size_t)m->n_objects + m->n_graphs + m->n_chunks + m->n_host_chunks, i, k = 0, u = 0;
	struct fdry_oid *oids = calloc(n ? n : 1, sizeof(*oids));

	if (!oids)
		return fdry_nomem();
	for (i = 0; i < m->n_objects; i++)
		oids[k++] = m->objects[i].oid;
	for (i = 0; i < m->n_graphs; i++)
		oids[k++] = m->graphs[i].oid;
	for (i = 0; i < m->n_chunks; i++)
		oids[k++] = m->chunks[i].oid;
	for (i = 0; i < m->n_host_chunks; i++)
		oids[k++] = m->host_chunks[i].oid;
	qsort(oids, n, sizeof(*oids), oid_cmp);
	for (i = 0; i < n; i++)
		if (!u || !fdry_oid_eq(&oids[i], &oids[u - 1]))
			oids[u++] = oids[i];
	*ret = oids;
	*count = u;
	return 0;
}

static int by_graph_object(const void *a, const void *b, void *m)
{
	const struct fdry_mf_graph *graphs = ((const struct fdry_manifest *)m)->graphs;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = memcmp(&graphs[x].oid, &graphs[y].oid, sizeof(graphs[x].oid));

	return order ? order : (x > y) - (x < y);
}

int fdry_manifest_graphs_first(const struct fdry_manifest *m, uint32_t **ret)
{
	uint32_t *first = calloc((size_t)m->n_graphs + 1, sizeof(*first)), *order = calloc((size_t)m->n_graphs + 1, sizeof(*order)), i;

	if (!first || !order) {
		free(first);
		free(order);
		return fdry_nomem();
	}
	for (i = 0; i < m->n_graphs; i++)
		order[i] = i;
	qsort_r(order, m->n_graphs, sizeof(*order), by_graph_object, (void *)m);
	for (i = 0; i < m->n_graphs; i++)
		first[order[i]] = i && fdry_oid_eq(&m->graphs[order[i]].oid, &m->graphs[order[i - 1]].oid) ? first[order[i - 1]] : order[i];
	free(order);
	*ret = first;
	return 0;
}
