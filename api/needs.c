// SPDX-License-Identifier: Apache-2.0
/*
 * needs.c - what a load will take, asked of a store; see fdry_image_needs().
 *
 * The answer is one block of memory: the struct, the externals, their names.
 */
#include "api/needs.h"

#include <stdlib.h>

#include "api/image_host.h"
#include "api/opts.h"
#include "api/plan.h"
#include "api/tensor.h"

/* Externals are few: names are copied behind them. */
struct room {
	size_t externals, text;
};

static struct room room_of(const struct fdry_manifest *m)
{
	struct room r = { 0 };
	uint32_t i;

	for (i = 0; i < m->n_tensors; i++)
		if (m->tensors[i].flags & FDRY_TENSOR_EXTERNAL) {
			r.externals++;
			r.text += strlen(fdry_manifest_str(m, m->tensors[i].name)) + 1;
		}
	return r;
}

static int external_fill(const struct fdry_manifest *m, const struct fdry_mf_tensor *mf, char *name,
			 struct fdry_needs_external *ret)
{
	struct fdry_tensor t;

	fdry_manifest_tensor_get(m, mf, &t);
	memcpy(name, t.name, strlen(t.name) + 1);
	ret->name = name;
	ret->addr = t.flags & FDRY_TENSOR_HOST ? 0 : t.addr;
	return fdry_tensor_extent(&t, &ret->bytes);
}

static int externals_fill(const struct fdry_manifest *m, struct fdry_needs *n, struct fdry_needs_external *e)
{
	char *name = (char *)(e + n->nexternals);
	uint32_t i;
	int err = 0;

	n->externals = e;
	for (i = 0; i < m->n_tensors && !err; i++) {
		if (!(m->tensors[i].flags & FDRY_TENSOR_EXTERNAL))
			continue;
		err = external_fill(m, &m->tensors[i], name, e++);
		name += strlen(name) + 1;
	}
	return err;
}

static int kernels_sum(struct fdry_store *s, const struct fdry_manifest *m, uint64_t *ret)
{
	struct fdry_object_info info;
	uint64_t sum = 0;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_objects && !err; i++) {
		err = fdry_store_info(s, &m->objects[i].oid, &info);
		sum += err ? 0 : info.size;
	}
	if (!err)
		*ret = sum;
	return err;
}

static void plan_fill(const struct fdry_plan *p, struct fdry_needs *n)
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

static void hosts_fill(const struct fdry_manifest *m, struct fdry_needs *n)
{
	uint32_t i;

	n->host_bytes = fdry_manifest_hosts_place(m, 0, NULL);
	for (i = 0; i < m->n_host_chunks; i++)
		n->copied_bytes += m->host_chunks[i].size;
}

int fdry_needs_of(struct fdry_store *s, const struct fdry_manifest *m, struct fdry_needs **ret)
{
	struct room room = room_of(m);
	struct fdry_plan plan;
	struct fdry_needs *n;
	int err;

	n = calloc(1, sizeof(*n) + room.externals * sizeof(struct fdry_needs_external) + room.text);
	if (!n)
		return fdry_nomem();
	n->nexternals = room.externals;
	n->graphs = m->n_graphs;
	n->kernels = m->n_kernels;
	err = externals_fill(m, n, (struct fdry_needs_external *)(n + 1));
	if (!err)
		err = kernels_sum(s, m, &n->kernel_bytes);
	if (!err)
		err = fdry_plan_make(m, &plan);
	if (err) {
		free(n);
		return err;
	}
	plan_fill(&plan, n);
	hosts_fill(m, n);
	fdry_plan_release(&plan);
	*ret = n;
	return 0;
}

int fdry_needs_text(const struct fdry_needs *n, struct fdry_buf *out)
{
	size_t i;
	int err;

	err = fdry_buf_printf(out, "needs %llu bytes of device memory at %#llx, %llu of them copied; about %llu more for %llu graphs "
			      "with %llu nodes, %llu for %llu kernels\n", (unsigned long long)n->mapped_bytes, n->base,
			      (unsigned long long)n->copied_bytes, (unsigned long long)n->exec_bytes,
			      (unsigned long long)n->graphs, (unsigned long long)n->nodes,
			      (unsigned long long)n->kernel_bytes, (unsigned long long)n->kernels);
	if (!err && n->host_bytes)
		err = fdry_buf_printf(out, "needs %llu bytes of pinned host memory\n", (unsigned long long)n->host_bytes);
	for (i = 0; i < n->nexternals && !err; i++)
		err = fdry_buf_printf(out, "needs %s filled, %llu bytes\n", n->externals[i].name,
				      (unsigned long long)n->externals[i].bytes);
	return err;
}

static int needs(struct fdry_store *s, struct fdry_get *get, const char *name, struct fdry_needs **ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_oid id;
	int err;

	err = fdry_get_resolve(get, name, &id);
	if (!err)
		err = fdry_get_object(get, &id, &bytes);
	if (!err)
		err = fdry_manifest_open((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (!err)
		err = fdry_needs_of(s, &m, ret);
	if (err)
		fdry_fail_at(err, "image '%.100s'", name);
	fdry_buf_release(&bytes);
	return err;
}

int fdry_image_needs(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts, struct fdry_needs **ret)
{
	struct fdry_load_opts o;
	struct fdry_get *get;
	int err;

	err = fdry_need(store);
	if (!err)
		err = fdry_need(name);
	if (!err)
		err = fdry_need(ret);
	if (!err)
		err = fdry_opts_take(opts, &o, sizeof(o));
	if (!err)
		err = fdry_get_begin(store, &get);
	if (err)
		return err;
	err = needs(store, get, name, ret);
	fdry_get_end(get);
	return err;
}
