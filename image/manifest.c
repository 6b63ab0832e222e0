// SPDX-License-Identifier: Apache-2.0
/* manifest.c - looks up entries of a checked manifest. */
#include "image/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "lib/search.h"

/* --- look-ups --- */

void fdry_manifest_tensor_get(const struct fdry_manifest *m, const struct fdry_mf_tensor *t,
			      struct fdry_tensor *ret)
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

	return strcmp(k->name,
		      fdry_manifest_str(k->m, ((const struct fdry_mf_tensor *)entry)->name));
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

	return m->n_tensors ? bsearch(&k, m->tensors, m->n_tensors, sizeof(*m->tensors), tensor_cmp)
			    : NULL;
}

const struct fdry_mf_graph *fdry_manifest_graph(const struct fdry_manifest *m, uint64_t key)
{
	return m->n_graphs ? bsearch(&key, m->graphs, m->n_graphs, sizeof(*m->graphs), graph_cmp)
			   : NULL;
}

const char *fdry_manifest_fact(const struct fdry_manifest *m, const char *key)
{
	struct key k = { m, key };
	const struct fdry_mf_fact *f;

	f = m->n_facts ? bsearch(&k, m->facts, m->n_facts, sizeof(*f), fact_cmp) : NULL;
	return f ? fdry_manifest_str(m, f->value) : NULL;
}

bool fdry_manifest_has_values(const struct fdry_manifest *m, uint32_t object)
{
	size_t v = fdry_lower_bound(i, m->n_variables, m->variables[i].object < object),
	       t = fdry_lower_bound(i, m->n_targets, m->targets[i].object < object);

	return (v < m->n_variables && m->variables[v].object == object) ||
	       (t < m->n_targets && m->targets[t].object == object);
}

uint32_t fdry_manifest_segment(const struct fdry_manifest *m, uint64_t addr)
{
	const struct fdry_mf_segment *s = m->segments;

	return (uint32_t)fdry_lower_bound(i, m->n_segments, s[i].addr + s[i].size <= addr);
}

const struct fdry_mf_pinned *fdry_manifest_pinned(const struct fdry_manifest *m, uint64_t addr,
						  uint64_t size)
{
	const struct fdry_mf_pinned *p = m->pinned;
	size_t low = fdry_lower_bound(i, m->n_pinned, p[i].addr + p[i].size <= addr);

	return low < m->n_pinned && p[low].addr <= addr &&
			       size <= p[low].size - (addr - p[low].addr)
		       ? &p[low]
		       : NULL;
}

uint64_t fdry_manifest_host_place(const struct fdry_manifest *m, uint32_t segment)
{
	size_t low = fdry_lower_bound(i, m->n_host_places, m->host_places[i].segment < segment);

	return low < m->n_host_places && m->host_places[low].segment == segment
		       ? m->host_places[low].addr
		       : 0;
}

/* --- lists --- */

int fdry_manifest_links(const struct fdry_manifest *m, struct fdry_oid **ret, size_t *count)
{
	size_t n = (size_t)m->n_objects + m->n_graphs + m->n_chunks + m->n_host_chunks +
		   m->n_variables + m->n_files + m->n_pinned_chunks + m->n_array_pieces,
	       i, k = 0, u = 0;
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
	for (i = 0; i < m->n_variables; i++)
		oids[k++] = m->variables[i].oid;
	for (i = 0; i < m->n_pinned_chunks; i++)
		oids[k++] = m->pinned_chunks[i].oid;
	for (i = 0; i < m->n_array_pieces; i++)
		oids[k++] = m->array_pieces[i].oid;
	for (i = 0; i < m->n_files; i++)
		if (m->files[i].size)
			oids[k++] = m->files[i].oid;
	n = k;
	qsort(oids, n, sizeof(*oids), fdry_oid_cmp);
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
	uint32_t *first = calloc((size_t)m->n_graphs + 1, sizeof(*first)),
		 *order = calloc((size_t)m->n_graphs + 1, sizeof(*order)), i;

	if (!first || !order) {
		free(first);
		free(order);
		return fdry_nomem();
	}
	for (i = 0; i < m->n_graphs; i++)
		order[i] = i;
	qsort_r(order, m->n_graphs, sizeof(*order), by_graph_object, (void *)m);
	for (i = 0; i < m->n_graphs; i++)
		first[order[i]] =
			i && fdry_oid_eq(&m->graphs[order[i]].oid, &m->graphs[order[i - 1]].oid)
				? first[order[i - 1]]
				: order[i];
	free(order);
	*ret = first;
	return 0;
}
