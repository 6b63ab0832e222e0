// SPDX-License-Identifier: Apache-2.0
/*
 * requirements.c - computes the memory that a load will need; see fdry_image_requirements().
 *
 * The result is one block of memory: the struct, then the external tensors, then their names.
 */
#include "image/requirements.h"

#include <stdlib.h>

#include "image/array_pieces.h"
#include "image/image_host.h"
#include "image/image_pinned.h"
#include "lib/opts.h"
#include "image/select.h"
#include "image/plan.h"
#include "image/tensor.h"
#include "lib/printable.h"

/* The number of external tensors, and the bytes of their names. */
struct size {
	size_t externals, text;
};

static struct size size_of(const struct fdry_manifest *m)
{
	struct size r = { 0 };
	uint32_t i;

	for (i = 0; i < m->n_tensors; i++)
		if (m->tensors[i].flags & FDRY_TENSOR_EXTERNAL) {
			r.externals++;
			r.text += strlen(fdry_manifest_str(m, m->tensors[i].name)) + 1;
		}
	return r;
}

static int external_fill(const struct fdry_manifest *m, const struct fdry_plan *plan, uint32_t i,
			 char *name, struct fdry_requirements_external *ret)
{
	const struct fdry_capacity *capacity = fdry_capacity_of(&plan->capacities, i);
	struct fdry_tensor t;
	int err;

	fdry_manifest_tensor_get(m, &m->tensors[i], &t);
	memcpy(name, t.name, strlen(t.name) + 1);
	ret->name = name;
	ret->addr = t.flags & FDRY_TENSOR_HOST ? 0 : t.addr;
	err = fdry_tensor_extent(&t, &ret->bytes);
	if (err)
		return err;
	if (capacity)
		ret->bytes = capacity->bytes;
	ret->max_bytes = capacity ? capacity->max : ret->bytes;
	return 0;
}

static int externals_fill(const struct fdry_manifest *m, const struct fdry_plan *plan,
			  struct fdry_requirements *n)
{
	struct fdry_requirements_external *e = (struct fdry_requirements_external *)(n + 1);
	char *name = (char *)(e + n->nexternals);
	uint32_t i;
	int err;

	n->externals = e;
	for (i = 0; i < m->n_tensors; i++) {
		if (!(m->tensors[i].flags & FDRY_TENSOR_EXTERNAL))
			continue;
		err = external_fill(m, plan, i, name, e++);
		if (err)
			return err;
		name += strlen(name) + 1;
	}
	return 0;
}

static int kernels_sum(struct fdry_store *s, const struct fdry_manifest *m, uint64_t *ret)
{
	struct fdry_object_info info;
	uint64_t sum = 0;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_objects; i++) {
		err = fdry_store_info(s, &m->objects[i].oid, &info);
		if (err)
			return err;
		sum += info.size;
	}
	*ret = sum;
	return 0;
}

static void plan_fill(const struct fdry_plan *p, struct fdry_requirements *n)
{
	n->base = p->base;
	n->address_bytes = p->size;
	n->mapped_bytes = p->mapped;
	n->content_bytes = p->role[FDRY_ROLE_CONTENT];
	n->scratch_bytes = p->role[FDRY_ROLE_SCRATCH];
	n->external_bytes = p->role[FDRY_ROLE_EXTERNAL];
	n->copied_bytes = p->copied;
	n->nodes = p->nodes;
	n->exec_bytes = p->nodes * FDRY_NODE_EXEC_BYTES;
}

static void hosts_fill(const struct fdry_manifest *m, struct fdry_requirements *n)
{
	uint32_t i;

	n->host_bytes = fdry_manifest_hosts_place(m, 0, NULL) + fdry_manifest_pinned_bytes(m);
	for (i = 0; i < m->n_pinned_chunks; i++)
		n->copied_bytes += m->pinned_chunks[i].size;
	for (i = 0; i < m->n_host_chunks; i++)
		n->copied_bytes += m->host_chunks[i].size;
}

static void arrays_fill(const struct fdry_manifest *m, struct fdry_requirements *n)
{
	struct fdry_cuarray a;
	uint32_t i;

	n->array_bytes = fdry_manifest_arrays_bytes(m);
	for (i = 0; i < m->n_array_pieces; i++) {
		a = fdry_cuarray_of(&m->arrays[m->array_pieces[i].array]);
		n->copied_bytes += fdry_cuarray_piece(&a, m->array_pieces[i].piece).bytes;
	}
}

static int needs_make(struct fdry_store *s, const struct fdry_manifest *m,
		      const struct fdry_plan *plan, struct fdry_requirements **ret)
{
	struct size size = size_of(m);
	struct fdry_requirements *n;
	int err;

	n = calloc(1, sizeof(*n) + size.externals * sizeof(struct fdry_requirements_external) +
			      size.text);
	if (!n)
		return fdry_nomem();
	n->nexternals = size.externals;
	n->graphs = m->n_graphs;
	n->kernels = m->n_kernels;
	plan_fill(plan, n);
	hosts_fill(m, n);
	arrays_fill(m, n);
	err = externals_fill(m, plan, n);
	if (err)
		goto out_free;
	err = kernels_sum(s, m, &n->kernel_bytes);
	if (err)
		goto out_free;
	*ret = n;
	return 0;
out_free:
	free(n);
	return err;
}

int fdry_requirements_of(struct fdry_store *s, const struct fdry_manifest *m,
			 const struct fdry_load_opts *o, struct fdry_requirements **ret)
{
	struct fdry_plan plan;
	int err = fdry_plan_make(m, o, &plan);

	if (err)
		return err;
	err = needs_make(s, m, &plan, ret);
	fdry_plan_release(&plan);
	return err;
}

static int external_text(const struct fdry_requirements_external *e, struct fdry_buf *out)
{
	int err = fdry_buf_printf(out, "needs ");

	if (err)
		return err;
	err = fdry_buf_printable(out, e->name);
	if (err)
		return err;
	err = fdry_buf_printf(out, " filled, %llu bytes", (unsigned long long)e->bytes);
	if (err)
		return err;
	if (e->max_bytes > e->bytes)
		err = fdry_buf_printf(out, ", capacity %llu",
				      (unsigned long long)e->max_bytes);
	if (err)
		return err;
	return fdry_buf_printf(out, "\n");
}

int fdry_requirements_text(const struct fdry_requirements *n, struct fdry_buf *out)
{
	size_t i;
	int err;

	err = fdry_buf_printf(out,
			      "needs %llu bytes of device memory at %#llx, %llu of them copied; "
			      "about %llu more for %llu graphs "
			      "with %llu nodes, %llu for %llu kernels\n",
			      (unsigned long long)n->mapped_bytes, n->base,
			      (unsigned long long)n->copied_bytes,
			      (unsigned long long)n->exec_bytes, (unsigned long long)n->graphs,
			      (unsigned long long)n->nodes, (unsigned long long)n->kernel_bytes,
			      (unsigned long long)n->kernels);
	if (err)
		return err;
	if (n->host_bytes)
		err = fdry_buf_printf(out, "needs %llu bytes of pinned host memory\n",
				      (unsigned long long)n->host_bytes);
	if (err)
		return err;
	if (n->array_bytes)
		err = fdry_buf_printf(out, "needs %llu bytes of device memory for CUDA arrays\n",
				      (unsigned long long)n->array_bytes);
	if (err)
		return err;
	for (i = 0; i < n->nexternals; i++) {
		err = external_text(&n->externals[i], out);
		if (err)
			return err;
	}
	return 0;
}

/* The arguments of a query: the image, and how it will be loaded. */
struct question {
	const char *name;
	struct fdry_load_opts opts;
};

static int needs(struct fdry_store *s, struct fdry_reader *reader, const struct question *q,
		 struct fdry_requirements **ret)
{
	const struct fdry_wanted w = { .facts = q->opts.facts, .nfacts = q->opts.nfacts };
	struct fdry_candidate selected = { .bytes = { 0 } };
	int err;

	err = fdry_select_image(reader, q->name, &w, &selected);
	if (err)
		goto out_release;
	err = fdry_requirements_of(s, &selected.m, &q->opts, ret);
out_release:
	fdry_buf_release(&selected.bytes);
	return err ? fdry_fail_at(err, "image '%.100s'", q->name) : 0;
}

int fdry_image_requirements(struct fdry_store *store, const char *name,
			    const struct fdry_load_opts *opts, struct fdry_requirements **ret)
{
	struct question q = { .name = name };
	struct fdry_reader *reader;
	int err;

	err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(ret);
	if (err)
		return err;
	err = fdry_opts_take(opts, &q.opts, sizeof(q.opts));
	if (err)
		return err;
	err = fdry_reader_begin(store, &reader);
	if (err)
		return err;
	err = needs(store, reader, &q, ret);
	fdry_reader_end(reader);
	return err;
}

/* --- facts --- */

static int facts_call(struct fdry_reader *reader, const char *name, fdry_fact_fn fn, void *arg)
{
	static const struct fdry_wanted any;
	struct fdry_candidate selected = { .bytes = { 0 } };
	const struct fdry_manifest *m = &selected.m;
	struct fdry_fact fact;
	uint32_t i;
	int err = fdry_select_image(reader, name, &any, &selected);

	if (err)
		goto out_release;
	for (i = 0; i < m->n_facts; i++) {
		fact.key = fdry_manifest_str(m, m->facts[i].key);
		fact.value = fdry_manifest_str(m, m->facts[i].value);
		fn(arg, &fact);
	}
out_release:
	fdry_buf_release(&selected.bytes);
	return err ? fdry_fail_at(err, "image '%.100s'", name) : 0;
}

int fdry_image_facts(struct fdry_store *store, const char *name, fdry_fact_fn fn, void *arg)
{
	struct fdry_reader *reader;
	int err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(fn);

	if (err)
		return err;
	err = fdry_reader_begin(store, &reader);
	if (err)
		return err;
	err = facts_call(reader, name, fn, arg);
	fdry_reader_end(reader);
	return err;
}
