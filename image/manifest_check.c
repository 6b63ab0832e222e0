// SPDX-License-Identifier: Apache-2.0
/*
 * manifest_check.c - checks the entries of a manifest's sections.
 *
 * Strings are terminated, and indices are in range. Ranges of memory are in order, and inside the
 * region, segment or tensor that they belong to. Reserved fields are zero.
 */
#include "image/manifest_check.h"

#include <stdlib.h>
#include <string.h>

#include "image/selftest.h"
#include "image/tensor.h"
#include "graph/format.h"
#include "graph/kernel.h"
#include "mm/region.h"

#define bad fdry_manifest_bad
#define str_ok fdry_manifest_str_ok

static int strings_check(const struct fdry_manifest *m)
{
	if (m->n_strings && (m->strings[0] || m->strings[m->n_strings - 1]))
		return bad("the strings are not terminated");
	return 0;
}

/* Subtract the string at @off from the text that entries may still use. Returns the rest; 0 if it
 * does not fit.
 */
static uint64_t text_take(const struct fdry_manifest *m, uint32_t off, uint64_t left)
{
	uint64_t n = m->n_strings ? strnlen(m->strings + off,
					    left < m->n_strings - off ? left : m->n_strings - off) +
					    1
				  : 1;

	return n < left ? left - n : 0;
}

/* Many entries may share one string, so a dump has more text than the manifest stores. Check that
 * it has at most a fixed multiple. */
static int text_check(const struct fdry_manifest *m)
{
	uint64_t left = FDRY_MF_TEXT_TIMES * m->header->size + FDRY_MF_TEXT_FREE;
	uint32_t i;

	for (i = 0; i < m->n_facts && left; i++)
		left = text_take(m, m->facts[i].value, text_take(m, m->facts[i].key, left));
	for (i = 0; i < m->n_tensors && left; i++)
		left = text_take(m, m->tensors[i].name, left);
	for (i = 0; i < m->n_graphs && left; i++)
		left = text_take(m, m->graphs[i].name, left);
	for (i = 0; i < m->n_kernels && left; i++)
		left = text_take(m, m->kernels[i].whole_reason,
				 text_take(m, m->kernels[i].name, left));
	for (i = 0; i < m->n_variables && left; i++)
		left = text_take(m, m->variables[i].name, left);
	for (i = 0; i < m->n_files && left; i++)
		left = text_take(m, m->files[i].name, left);
	for (i = 0; i < m->n_arg_pointers && left; i++)
		left = text_take(m, m->targets[m->arg_pointers[i].target].name, left);
	for (i = 0; i < m->n_content_pointers && left; i++)
		left = text_take(m, m->targets[m->content_pointers[i].target].name, left);
	for (i = 0; i < m->n_value_pointers && left; i++)
		left = text_take(m, m->targets[m->value_pointers[i].target].name, left);
	for (i = 0; i < m->n_selftests && left; i++)
		if (m->selftests[i].tensor != UINT32_MAX)
			left = text_take(m, m->tensors[m->selftests[i].tensor].name, left);
	for (i = 0; i < m->n_rng_uses && left; i++)
		left = text_take(m, m->generators[m->rng_uses[i].generator].name, left);
	if (left)
		return 0;
	return fdry_fail(FDRY_E_LIMIT,
			 "the text of the manifest's entries is more than %u times the size of the "
			 "manifest; seal the image with shorter facts and names",
			 FDRY_MF_TEXT_TIMES);
}

static int facts_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_fact *f = m->facts;
	uint32_t i;

	for (i = 0; i < m->n_facts; i++, f++) {
		if (!str_ok(m, f->key) || !str_ok(m, f->value))
			return bad("fact %u has no key or value", i);
		if (i && strcmp(fdry_manifest_str(m, f[-1].key), fdry_manifest_str(m, f->key)) >= 0)
			return bad("fact %u is out of order", i);
	}
	return 0;
}

/* Ids must ascend, so each occurs at most once. */
static int limits_check(const struct fdry_manifest *m)
{
	uint32_t i;

	for (i = 0; i < m->n_limits; i++) {
		if (m->limits[i].reserved || (i && m->limits[i - 1].limit >= m->limits[i].limit))
			return bad("limit %u is out of order", i);
		if (m->limits[i].limit >= FDRY_MF_LIMITS)
			return fdry_fail(
				FDRY_E_VERSION,
				"the image relies on a limit %u of the context that this library "
				"does not know; use a newer library",
				m->limits[i].limit);
	}
	return 0;
}

static int segments_check(const struct fdry_manifest *m)
{
	uint64_t at = m->header->base;
	uint32_t i;

	for (i = 0; i < m->n_segments; i++) {
		const struct fdry_mf_segment *s = &m->segments[i];

		if (s->addr < at || !s->size || s->size > m->header->end ||
		    s->addr > m->header->end - s->size)
			return bad("segment %u overlaps or leaves the region", i);
		if (s->role > FDRY_ROLE_EXTERNAL || s->reserved)
			return bad("segment %u has an unknown role", i);
		at = s->addr + s->size;
	}
	return 0;
}

static int chunks_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_segment *s = m->segments;
	const struct fdry_mf_chunk *c = m->chunks;
	uint64_t at = 0;
	uint32_t i, k = 0;

	for (i = 0; i < m->n_chunks; i++, c++) {
		if (c->addr < at || !c->size || c->size > FDRY_MF_CHUNK_MAX ||
		    c->addr + c->size < c->addr)
			return bad("chunk %u is out of order or of a bad size", i);
		while (k < m->n_segments && s[k].addr + s[k].size <= c->addr)
			k++;
		if (k == m->n_segments || s[k].role != FDRY_ROLE_CONTENT || c->addr < s[k].addr ||
		    c->addr + c->size > s[k].addr + s[k].size)
			return bad("chunk %u does not lie in content", i);
		at = c->addr + c->size;
	}
	return 0;
}

static int hosts_check(const struct fdry_manifest *m)
{
	uint32_t i;

	if (m->n_hosts > FDRY_HOST_SEGMENTS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the image has %u host segments, and %u are allowed",
				 m->n_hosts, FDRY_HOST_SEGMENTS_MAX);
	for (i = 0; i < m->n_hosts; i++) {
		const struct fdry_mf_host *h = &m->hosts[i];

		if (!h->size || h->size > FDRY_HOST_SIZE_MAX || h->reserved)
			return bad("host segment %u has a bad size", i);
		if (!h->align || h->align > FDRY_MF_HOST_ALIGN_MAX || h->align & (h->align - 1))
			return bad("host segment %u has an alignment of %u", i, h->align);
	}
	return 0;
}

static bool host_holds(const struct fdry_manifest *m, uint64_t place, uint64_t bytes)
{
	uint64_t segment = fdry_host_segment(place), offset = fdry_host_offset(place);

	return segment < m->n_hosts && offset < m->hosts[segment].size &&
	       bytes <= m->hosts[segment].size - offset;
}

static int host_chunks_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_host_chunk *c = m->host_chunks;
	uint32_t i;

	for (i = 0; i < m->n_host_chunks; i++, c++) {
		if (!c->size || c->size > FDRY_MF_CHUNK_MAX || c->reserved ||
		    c->offset >= FDRY_HOST_SIZE_MAX || c->segment >= m->n_hosts ||
		    !host_holds(m, fdry_host_place(c->segment, c->offset), c->size))
			return bad("host chunk %u does not lie in a host segment", i);
		if (i && (c[-1].segment > c->segment ||
			  (c[-1].segment == c->segment && c[-1].offset + c[-1].size > c->offset)))
			return bad("host chunk %u is out of order", i);
	}
	return 0;
}

static int graphs_check(const struct fdry_manifest *m)
{
	uint32_t i;

	if (m->n_graphs > FDRY_MF_GRAPHS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the image has %u graphs, and %u are allowed",
				 m->n_graphs, FDRY_MF_GRAPHS_MAX);
	for (i = 0; i < m->n_graphs; i++)
		if (!str_ok(m, m->graphs[i].name) ||
		    (i && m->graphs[i - 1].key >= m->graphs[i].key))
			return bad("graph %u is out of order or has a bad name", i);
	return 0;
}

static int kernels_check(const struct fdry_manifest *m)
{
	uint64_t params = 0;
	uint32_t i;

	for (i = 0; i < m->n_kernels; i++) {
		const struct fdry_mf_kernel *k = &m->kernels[i];

		if (!str_ok(m, k->name) || !str_ok(m, k->whole_reason) ||
		    k->object >= m->n_objects || k->attrs[3])
			return bad("kernel %u names a missing object or string, or sets a reserved "
				   "field",
				   i);
		if (k->param_first > m->n_params || k->param_count > m->n_params - k->param_first ||
		    k->param_count > FDRY_KERNEL_PARAMS_MAX ||
		    k->param_bytes > FDRY_KERNEL_PARAM_BYTES_MAX)
			return bad("kernel %u names missing parameters", i);
		params += k->param_count;
		if (params > m->n_params)
			return bad("kernel %u shares its parameters with another", i);
	}
	return 0;
}

static bool variables_ordered(const struct fdry_manifest *m, const struct fdry_mf_variable *a,
			      const struct fdry_mf_variable *b)
{
	int order = strcmp(fdry_manifest_str(m, a->name), fdry_manifest_str(m, b->name));

	if (a->object != b->object)
		return a->object < b->object;
	return order ? order < 0 : a->offset + a->size <= b->offset;
}

static int variables_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_variable *v = m->variables;
	uint32_t i;

	for (i = 0; i < m->n_variables; i++, v++) {
		if (v->object >= m->n_objects || !str_ok(m, v->name) ||
		    !*fdry_manifest_str(m, v->name))
			return bad("variable %u has no object or no name", i);
		if (!v->size || v->size > FDRY_MF_CHUNK_MAX || v->offset > UINT32_MAX)
			return bad("variable %u has a bad size", i);
		if (i && !variables_ordered(m, v - 1, v))
			return bad("variable %u is out of order", i);
	}
	return 0;
}

static int events_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_event *e = m->events;
	uint32_t i, numbers = 0;

	for (i = 0; i < m->n_events; i++, e++) {
		if (e->graph >= m->n_graphs || e->event >= FDRY_GRAPH_EVENTS_MAX || e->reserved)
			return bad("shared event %u belongs to no graph or is none", i);
		if (i && (e[-1].graph > e->graph ||
			  (e[-1].graph == e->graph && e[-1].event >= e->event)))
			return bad("shared event %u is out of order", i);
		if (e->number > numbers)
			return bad("shared event %u has the number %u, and at most %u can be there",
				   i, e->number, numbers);
		numbers += e->number == numbers;
	}
	return 0;
}

static int attrs_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_attr *a = m->attrs;
	uint32_t i;

	for (i = 0; i < m->n_attrs; i++, a++) {
		if (i &&
		    (a[-1].kernel > a->kernel || (a[-1].kernel == a->kernel && a[-1].id >= a->id)))
			return bad("function attribute %u is out of order", i);
		if (a->kernel >= m->n_kernels || a->id < FDRY_MF_KERNEL_ATTRS || !a->value ||
		    a->reserved)
			return bad("function attribute %u belongs to no kernel, or has a bad id or "
				   "value",
				   i);
		if (a->id >= FDRY_FUNC_ATTR_COUNT)
			return fdry_fail(
				FDRY_E_VERSION,
				"the image relies on a function attribute %u that this library "
				"does not know; use a newer library",
				a->id);
	}
	return 0;
}

/* The end of the memory that follows a segment without a gap: of any memory, and of external memory
 * (0 if the segment is not external). */
struct extent {
	uint64_t any, external;
};

static int extents_make(const struct fdry_manifest *m, struct extent **ret)
{
	struct extent *e = calloc((size_t)m->n_segments + 1, sizeof(*e));
	const struct fdry_mf_segment *s;
	bool joined;
	uint32_t i;

	if (!e)
		return fdry_nomem();
	for (i = m->n_segments; i--; ) {
		s = &m->segments[i];
		joined = i + 1 < m->n_segments && s[1].addr == s->addr + s->size;
		e[i].any = joined ? e[i + 1].any : s->addr + s->size;
		if (s->role == FDRY_ROLE_EXTERNAL)
			e[i].external =
				joined && e[i + 1].external ? e[i + 1].external : s->addr + s->size;
	}
	*ret = e;
	return 0;
}

/* Whether all bytes of a tensor lie in memory; for an external tensor, in external memory. */
static bool tensor_backed(const struct fdry_manifest *m, const struct extent *e,
			  const struct fdry_mf_tensor *t, uint64_t bytes)
{
	uint32_t k = fdry_manifest_segment(m, t->addr);

	if (!bytes)
		return true;
	return k < m->n_segments && m->segments[k].addr <= t->addr &&
	       (t->flags & FDRY_TENSOR_EXTERNAL ? e[k].external : e[k].any) >= t->addr + bytes;
}

static int host_tensor_check(const struct fdry_manifest *m, uint32_t i, uint64_t bytes)
{
	const struct fdry_mf_tensor *t = &m->tensors[i];

	if (!fdry_host_is(t->addr) || !host_holds(m, t->addr, bytes))
		return bad("tensor %u does not lie in a host segment", i);
	if (t->use == FDRY_USE_INPUT && !(t->flags & FDRY_TENSOR_EXTERNAL))
		return bad("tensor %u is an input in host memory and not external", i);
	return 0;
}

static int tensor_check(const struct fdry_manifest *m, const struct extent *e, uint32_t i)
{
	const struct fdry_mf_tensor *t = &m->tensors[i];
	struct fdry_tensor desc;
	uint64_t bytes;
	uint32_t d;

	if (!str_ok(m, t->name) || !*fdry_manifest_str(m, t->name) || t->reserved ||
	    (i && strcmp(fdry_manifest_str(m, t[-1].name), fdry_manifest_str(m, t->name)) >= 0))
		return bad("tensor %u is out of order or has no name", i);
	fdry_manifest_tensor_get(m, t, &desc);
	if (fdry_tensor_extent(&desc, &bytes))
		return bad("tensor %u: %s", i, fdry_last_error());
	for (d = t->rank; d < FDRY_RANK_MAX; d++)
		if (t->shape[d] || t->stride[d])
			return bad("tensor %u has dimensions beyond its rank", i);
	if (t->flags & FDRY_TENSOR_HOST)
		return host_tensor_check(m, i, bytes);
	if (t->addr < m->header->base || t->addr > m->header->end ||
	    bytes > m->header->end - t->addr)
		return bad("tensor %u leaves the region", i);
	if (!tensor_backed(m, e, t, bytes))
		return bad("tensor %u does not lie in memory of its kind", i);
	return 0;
}

static int tensors_check(const struct fdry_manifest *m)
{
	struct extent *e = NULL;
	uint32_t i;
	int err;

	if (!m->n_tensors)
		return 0;
	err = extents_make(m, &e);
	if (err)
		return err;
	for (i = 0; i < m->n_tensors; i++) {
		err = tensor_check(m, e, i);
		if (err)
			goto out_free;
	}
out_free:
	free(e);
	return err;
}

/* Nothing else may lie in a capacity. So the tensor must fill whole blocks at the end of a segment,
 * and the next segment must begin after the capacity. */
static bool capacity_ok(const struct fdry_manifest *m, const struct fdry_mf_capacity *r)
{
	const struct fdry_mf_tensor *t = &m->tensors[r->tensor];
	struct fdry_tensor desc;
	uint64_t bytes, end;
	uint32_t k;

	fdry_manifest_tensor_get(m, t, &desc);
	if (fdry_tensor_extent(&desc, &bytes) || !fdry_tensor_extendable(&desc) ||
	    !(t->flags & FDRY_TENSOR_EXTERNAL) || t->flags & FDRY_TENSOR_HOST)
		return false;
	if (t->addr % FDRY_ALLOC_BLOCK || bytes % FDRY_ALLOC_BLOCK || r->max % FDRY_ALLOC_BLOCK ||
	    r->max <= bytes || r->max > m->header->end - t->addr)
		return false;
	end = t->addr + bytes;
	k = fdry_manifest_segment(m, end - 1);
	return m->segments[k].addr + m->segments[k].size == end &&
	       (k + 1 == m->n_segments || m->segments[k + 1].addr >= t->addr + r->max);
}

static int capacities_check(const struct fdry_manifest *m)
{
	uint32_t i;

	if (m->n_capacities > FDRY_MF_CAPACITIES_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the image has %u tensors with capacities, and %u are allowed",
				 m->n_capacities, FDRY_MF_CAPACITIES_MAX);
	for (i = 0; i < m->n_capacities; i++)
		if (m->capacities[i].tensor >= m->n_tensors ||
		    (i && m->capacities[i - 1].tensor >= m->capacities[i].tensor) ||
		    m->capacities[i].reserved || !capacity_ok(m, &m->capacities[i]))
			return bad("capacity %u belongs to no tensor, or contains other memory", i);
	return 0;
}

/* Allocations may come in any order. The process that makes them detects overlaps. */
static int allocs_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_alloc *a = m->allocs;
	uint32_t i;

	for (i = 0; i < m->n_allocs; i++)
		if (!a[i].size || a[i].addr < m->header->base || a[i].addr > m->header->end ||
		    a[i].size > m->header->end - a[i].addr)
			return bad("allocation %u leaves the region", i);
	return 0;
}

static int generators_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_generator *g = m->generators;
	uint32_t i;

	if (m->n_generators > FDRY_MF_GENERATORS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the image has %u generators, and %u are allowed",
				 m->n_generators, FDRY_MF_GENERATORS_MAX);
	for (i = 0; i < m->n_generators; i++, g++) {
		if (g->kind != FDRY_MF_GENERATOR_COUNTER)
			return fdry_fail(FDRY_E_VERSION,
					 "the image has random numbers of kind %u, which this "
					 "library does not know; use a newer library",
					 g->kind);
		if (!str_ok(m, g->name) || !*fdry_manifest_str(m, g->name) ||
		    (i &&
		     strcmp(fdry_manifest_str(m, g[-1].name), fdry_manifest_str(m, g->name)) >= 0))
			return bad("generator %u is out of order or has no name", i);
	}
	return 0;
}

/* Whether the slot's 8 bytes always have memory, also if a tensor is loaded with fewer bytes. */
static bool slot_ok(const struct fdry_manifest *m, uint64_t addr)
{
	uint32_t k = fdry_manifest_segment(m, addr);
	const struct fdry_mf_segment *s = &m->segments[k];

	return addr % 8 == 0 && k < m->n_segments && addr >= s->addr && s->size >= 8 &&
	       addr - s->addr <= s->size - 8 && s->role != FDRY_ROLE_EXTERNAL;
}

/* Whether the slots of @d differ from those of the graph's entries before it, which were
 * checked. */
static bool slots_apart(const struct fdry_manifest *m, const struct fdry_mf_rng_use *d)
{
	const struct fdry_mf_rng_use *o;

	if (d->seed == d->offset)
		return false;
	for (o = d; o > m->rng_uses && o[-1].graph == d->graph; o--)
		if (o[-1].seed == d->seed || o[-1].seed == d->offset || o[-1].offset == d->seed ||
		    o[-1].offset == d->offset)
			return false;
	return true;
}

static int rng_uses_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_rng_use *d = m->rng_uses;
	uint32_t i;

	for (i = 0; i < m->n_rng_uses; i++, d++) {
		if (d->graph >= m->n_graphs || d->generator >= m->n_generators)
			return bad("rng use %u names a missing graph or generator", i);
		if (i && (d[-1].graph > d->graph ||
			  (d[-1].graph == d->graph && d[-1].generator >= d->generator)))
			return bad("rng use %u is out of order", i);
		if (!slot_ok(m, d->seed) || !slot_ok(m, d->offset) || !slots_apart(m, d))
			return bad(
				"rng use %u has a slot outside of the image's memory, or a slot of "
				"another use",
				i);
	}
	return 0;
}

/* Images of version 0.1 have no fingerprints. */
static int fingerprints_check(const struct fdry_manifest *m)
{
	if (m->n_fingerprints && m->n_fingerprints != m->n_chunks)
		return bad("it has %u fingerprints for %u chunks", m->n_fingerprints, m->n_chunks);
	if (m->n_host_fingerprints && m->n_host_fingerprints != m->n_host_chunks)
		return bad("it has %u fingerprints for %u host chunks", m->n_host_fingerprints,
			   m->n_host_chunks);
	return 0;
}

static bool external_print_ok(const struct fdry_manifest *m, const struct fdry_mf_external_print *p)
{
	struct fdry_tensor t;
	uint64_t bytes;

	if (p->tensor >= m->n_tensors || p->reserved ||
	    !(m->tensors[p->tensor].flags & FDRY_TENSOR_EXTERNAL))
		return false;
	fdry_manifest_tensor_get(m, &m->tensors[p->tensor], &t);
	return !fdry_tensor_extent(&t, &bytes) && bytes;
}

static int external_prints_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_external_print *p = m->external_prints;
	uint32_t i;

	for (i = 0; i < m->n_external_prints; i++, p++)
		if ((i && p[-1].tensor >= p->tensor) || !external_print_ok(m, p))
			return bad("fingerprint %u is not that of an external tensor", i);
	return 0;
}

/* Is the entry the result of a tensor that self-tests compare, or of a graph that was left out? */
static bool selftest_ok(const struct fdry_manifest *m, const struct fdry_mf_selftest *e)
{
	const struct fdry_fingerprint none = { 0, 0 };
	struct fdry_tensor t;

	if (e->graph >= m->n_graphs || e->flags > FDRY_MF_SELFTEST_LEFT_OUT || e->reserved ||
	    !e->seed || e->seed != m->selftests[0].seed)
		return false;
	if (e->flags && !fdry_fingerprint_eq(e->print, none))
		return false;
	if (e->flags & FDRY_MF_SELFTEST_LEFT_OUT)
		return e->tensor == UINT32_MAX;
	if (e->tensor >= m->n_tensors)
		return false;
	fdry_manifest_tensor_get(m, &m->tensors[e->tensor], &t);
	return fdry_selftest_compares(&t);
}

static int selftests_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_selftest *e = m->selftests;
	uint32_t i;

	for (i = 0; i < m->n_selftests; i++, e++)
		if (!selftest_ok(m, e) ||
		    (i && (e[-1].graph > e->graph ||
			   (e[-1].graph == e->graph && e[-1].tensor >= e->tensor))))
			return bad("result %u of the self-test has no graph or tensor, or is out "
				   "of order",
				   i);
	return 0;
}

/* A relative path without "." and "..", so that a program can place the file inside a folder. */
static bool file_name_ok(const char *name)
{
	size_t i, part = 0, len = strnlen(name, FDRY_MF_FILE_NAME_MAX + 1);

	if (!len || len > FDRY_MF_FILE_NAME_MAX)
		return false;
	for (i = 0; i <= len; i++) {
		if (name[i] && name[i] != '/') {
			if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
				return false;
			continue;
		}
		if (i == part || (i - part <= 2 && !strncmp(name + part, "..", i - part)))
			return false;
		part = i + 1;
	}
	return true;
}

/* Whether piece @f follows piece @before (NULL: it is the first), of the same file or another. */
static bool file_ordered(const struct fdry_manifest *m, const struct fdry_mf_file *before,
			 const struct fdry_mf_file *f)
{
	int order = before ? strcmp(fdry_manifest_str(m, before->name),
				    fdry_manifest_str(m, f->name))
			   : -1;

	if (order)
		return order < 0 && !f->offset;
	return before->size == FDRY_MF_CHUNK_MAX && f->size && f->flags == before->flags &&
	       f->offset == before->offset + before->size;
}

static int files_check(const struct fdry_manifest *m)
{
	static const struct fdry_oid none;
	const struct fdry_mf_file *f = m->files;
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < m->n_files; i++, f++) {
		if (!str_ok(m, f->name) || !file_name_ok(fdry_manifest_str(m, f->name)))
			return bad("file piece %u has a bad name", i);
		if (f->size > FDRY_MF_CHUNK_MAX || f->flags & ~(uint32_t)FDRY_FILE_EXECUTABLE)
			return bad("file piece %u has a bad size or an unknown flag", i);
		if (!f->size && !fdry_oid_eq(&f->oid, &none))
			return bad("file piece %u is empty and has an object", i);
		if (!file_ordered(m, i ? f - 1 : NULL, f))
			return bad("file piece %u is out of order", i);
		bytes += f->size;
		if (bytes > FDRY_MF_FILES_MAX)
			return fdry_fail(FDRY_E_LIMIT, "the image's files have more than 1 GiB");
	}
	return 0;
}

int fdry_manifest_check(const struct fdry_manifest *m)
{
	static int (*const checks[])(const struct fdry_manifest *) = {
		strings_check, facts_check,	 limits_check,	    segments_check,
		chunks_check,  hosts_check,	 host_chunks_check, graphs_check,
		kernels_check, attrs_check,	 variables_check,   tensors_check,
		capacities_check,
		allocs_check,  generators_check, rng_uses_check,    files_check,
		fdry_manifest_check_pointers, selftests_check, fdry_manifest_check_audit,
		text_check, /* after all checks of strings and of the indices that lead to them */
		fingerprints_check, external_prints_check, events_check,
		fdry_manifest_check_pinned, fdry_manifest_check_arrays,
	};
	size_t i;
	int err;

	for (i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		err = checks[i](m);
		if (err)
			return err;
	}
	return 0;
}
