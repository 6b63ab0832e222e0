// SPDX-License-Identifier: Apache-2.0
/* describe.c - writes manifests as text; see fdry_image_describe(). */
#include <stdio.h>
#include <stdlib.h>

#include "image/array_pieces.h"
#include "image/describe.h"
#include "image/image_pinned.h"
#include "image/manifest.h"
#include "image/requirements.h"
#include "lib/opts.h"
#include "lib/printable.h"
#include "graph/codec.h"
#include "graph/kernel.h"
#include "mm/region.h"
#include "store/store.h"

static const char *dtype_name(uint32_t dtype)
{
	switch (dtype) {
#define X(nr, name, size) case nr: return #name;
	FDRY_DTYPES(X)
#undef X
	default:
		return "?";
	}
}

static int facts_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	uint32_t i;
	int err;

	for (i = 0; i < m->n_facts; i++) {
		err = fdry_buf_line(out, "fact %s = %s", fdry_manifest_str(m, m->facts[i].key),
				    fdry_manifest_str(m, m->facts[i].value));
		if (err)
			return err;
	}
	for (i = 0; i < m->n_limits; i++) {
		err = fdry_buf_printf(out, "limit %u >= %llu\n", m->limits[i].limit,
				      (unsigned long long)m->limits[i].value);
		if (err)
			return err;
	}
	return 0;
}

static int pinned_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	static const char *const kinds[] = { "allocated", "registered" };
	const struct fdry_mf_pinned *p = m->pinned;
	uint64_t chunks = 0;
	uint32_t i;
	int err;

	if (!m->n_pinned)
		return 0;
	for (i = 0; i < m->n_pinned; i++, p++) {
		err = fdry_buf_printf(out, "pinned %#llx %llu %s\n", (unsigned long long)p->addr,
				      (unsigned long long)p->size, kinds[p->kind]);
		if (err)
			return err;
	}
	for (i = 0; i < m->n_pinned_chunks; i++)
		chunks += m->pinned_chunks[i].size;
	return fdry_buf_printf(out, "pinned memory %llu (%llu of it in %u chunks)\n",
			       (unsigned long long)fdry_manifest_pinned_bytes(m),
			       (unsigned long long)chunks, m->n_pinned_chunks);
}

/* One line, without its end. */
static int array_text(const char *what, uint32_t i, const struct fdry_mf_array *a,
		      struct fdry_buf *out)
{
	return fdry_buf_printf(out, "%s %u width %u height %u depth %u format %u channels %u "
			       "flags %#x", what, i, a->width, a->height, a->depth, a->format,
			       a->channels, a->flags);
}

static int arrays_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_mipmap_level *l;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_arrays; i++) {
		l = fdry_manifest_level(m, i);
		err = array_text("array", i, &m->arrays[i], out);
		if (!err && l)
			err = fdry_buf_printf(out, " level %u of mipmap %u", l->level, l->mipmap);
		err = err ?: fdry_buf_printf(out, "\n");
		if (err)
			return err;
	}
	for (i = 0; i < m->n_mipmaps; i++) {
		err = array_text("mipmap", i, &m->mipmaps[i].top, out) ?:
		      fdry_buf_printf(out, " levels %u\n", m->mipmaps[i].levels);
		if (err)
			return err;
	}
	if (!m->n_arrays)
		return 0;
	return fdry_buf_printf(out, "arrays %llu bytes (%u pieces are not zero)\n",
			       (unsigned long long)fdry_manifest_arrays_bytes(m),
			       m->n_array_pieces);
}

static int memory_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	static const char *const roles[] = { "content", "scratch", "external" };
	uint64_t bytes[3] = { 0 }, chunks = 0;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_chunks; i++)
		chunks += m->chunks[i].size;
	err = fdry_buf_printf(out, "region %#llx to %#llx\n", (unsigned long long)m->header->base,
			      (unsigned long long)m->header->end);
	if (err)
		return err;
	for (i = 0; i < m->n_segments; i++) {
		const struct fdry_mf_segment *s = &m->segments[i];

		bytes[s->role] += s->size;
		err = fdry_buf_printf(out, "segment %#llx %llu %s\n", (unsigned long long)s->addr,
				      (unsigned long long)s->size, roles[s->role]);
		if (err)
			return err;
	}
	for (i = 0; i < m->n_hosts; i++) {
		err = fdry_buf_printf(out, "host segment %u %llu\n", i,
				      (unsigned long long)m->hosts[i].size);
		if (err)
			return err;
	}
	err = pinned_text(m, out) ?: arrays_text(m, out);
	if (err)
		return err;
	return fdry_buf_printf(out,
			       "memory content %llu (%llu of it in %u chunks, the rest zero), "
			       "scratch %llu, external %llu\n",
			       (unsigned long long)bytes[0], (unsigned long long)chunks,
			       m->n_chunks, (unsigned long long)bytes[1],
			       (unsigned long long)bytes[2]);
}

static int tensor_text(const struct fdry_manifest *m, const struct fdry_mf_tensor *t,
		       struct fdry_buf *out)
{
	static const char *const uses[] = { "input", "output", "state", "const" };
	uint32_t d;
	int err;

	err = fdry_buf_printf(out, "tensor ");
	if (err)
		return err;
	err = fdry_buf_printable(out, fdry_manifest_str(m, t->name));
	if (err)
		return err;
	err = fdry_buf_printf(out, " %s %s%s", dtype_name(t->dtype), uses[t->use],
			      t->flags & FDRY_TENSOR_EXTERNAL ? " external" : "");
	if (err)
		return err;
	if (t->flags & FDRY_TENSOR_HOST)
		err = fdry_buf_printf(out, " host %u+%#llx [", fdry_host_segment(t->addr),
				      (unsigned long long)fdry_host_offset(t->addr));
	else
		err = fdry_buf_printf(out, " %#llx [", (unsigned long long)t->addr);
	if (err)
		return err;
	for (d = 0; d < t->rank; d++) {
		err = fdry_buf_printf(out, "%s%lld:%lld", d ? " " : "", (long long)t->shape[d],
				      (long long)t->stride[d]);
		if (err)
			return err;
	}
	return fdry_buf_printf(out, "]\n");
}

static const char *attr_name(uint32_t id)
{
	static const char *const names[FDRY_FUNC_ATTR_COUNT] = {
#define X(nr, attr, name, fresh) [nr] = #name,
		FDRY_FUNC_ATTRS(X)
#undef X
	};

	return names[id];
}

/* @attr: the next of the further attributes, which are sorted by kernel. */
static int kernel_text(const struct fdry_manifest *m, uint32_t i, uint32_t *attr,
		       struct fdry_buf *out)
{
	const struct fdry_mf_kernel *k = &m->kernels[i];
	char hex[FDRY_OID_HEX_SIZE];
	int err;

	fdry_oid_hex(&m->objects[k->object].oid, hex);
	err = fdry_buf_printf(out, "kernel %u %.12s %u bytes of parameters, attributes %d %d %d, ",
			      i, hex, k->param_bytes, k->attrs[0], k->attrs[1], k->attrs[2]);
	if (err)
		return err;
	err = fdry_buf_printable(out, fdry_manifest_str(m, k->name));
	if (err)
		return err;
	for (; *attr < m->n_attrs && m->attrs[*attr].kernel == i; (*attr)++) {
		err = fdry_buf_printf(out, ", %s %d", attr_name(m->attrs[*attr].id),
				      m->attrs[*attr].value);
		if (err)
			return err;
	}
	if (k->whole_reason)
		return fdry_buf_line(out, " (whole: %s)", fdry_manifest_str(m, k->whole_reason));
	return fdry_buf_printf(out, "\n");
}

static int events_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_event *e = m->events;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_events; i++, e++) {
		err = fdry_buf_printf(out, "graph %llu has event %u in common, as number %u\n",
				      (unsigned long long)m->graphs[e->graph].key, e->event,
				      e->number);
		if (err)
			return err;
	}
	return 0;
}

/* A line for a pointer at @place to a variable. */
static int pointer_text(const struct fdry_manifest *m, uint32_t target, uint64_t offset,
			const char *place, struct fdry_buf *out)
{
	const struct fdry_mf_target *t = &m->targets[target];
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_buf_line(out, "pointer in %s: variable %s of object %.12s, byte %llu", place,
			     fdry_manifest_str(m, t->name),
			     fdry_oid_hex(&m->objects[t->object].oid, hex),
			     (unsigned long long)offset);
}

static int arg_pointers_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_arg_pointer *p = m->arg_pointers;
	char place[96];
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_arg_pointers && !err; i++, p++) {
		snprintf(place, sizeof(place), "graph %llu, node %u, byte %u of its arguments",
			 (unsigned long long)m->graphs[p->graph].key, p->node, p->at);
		err = pointer_text(m, p->target, p->offset, place, out);
	}
	return err;
}

static int content_pointers_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_content_pointer *p = m->content_pointers;
	char place[96];
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_content_pointers && !err; i++, p++) {
		snprintf(place, sizeof(place), "content at %#llx", (unsigned long long)p->addr);
		err = pointer_text(m, p->target, p->offset, place, out);
	}
	return err;
}

static int pointers_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_value_pointer *p = m->value_pointers;
	char place[300];
	uint32_t i;
	int err = arg_pointers_text(m, out) ?: content_pointers_text(m, out);

	for (i = 0; i < m->n_value_pointers && !err; i++, p++) {
		snprintf(place, sizeof(place), "variable %.200s, byte %llu",
			 fdry_manifest_str(m, m->variables[p->variable].name),
			 (unsigned long long)p->at);
		err = pointer_text(m, p->target, p->offset, place, out);
	}
	return err;
}

static int variables_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_variable *v = m->variables;
	char hex[FDRY_OID_HEX_SIZE];
	uint32_t i;
	int err;

	for (i = 0; i < m->n_variables; i++, v++) {
		err = fdry_buf_line(out, "variable %s of object %.12s, bytes %llu to %llu",
				    fdry_manifest_str(m, v->name),
				    fdry_oid_hex(&m->objects[v->object].oid, hex),
				    (unsigned long long)v->offset,
				    (unsigned long long)(v->offset + v->size - 1));
		if (err)
			return err;
	}
	return 0;
}

/* One line for each file. */
static int files_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_file *f = m->files;
	uint64_t size;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_files; i++) {
		size = f[i].offset + f[i].size;
		if (i + 1 < m->n_files && f[i + 1].offset)
			continue;
		err = fdry_buf_line(out, "file %llu %s%s", (unsigned long long)size,
				    fdry_manifest_str(m, f[i].name),
				    f[i].flags & FDRY_FILE_EXECUTABLE ? " (executable)" : "");
		if (err)
			return err;
	}
	return 0;
}

/* One line for each result of the self-test. */
static int selftests_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_selftest *e = m->selftests;
	char print[40];
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_selftests && !err; i++, e++) {
		snprintf(print, sizeof(print), "%016llx%016llx", (unsigned long long)e->print.a,
			 (unsigned long long)e->print.b);
		if (e->flags & FDRY_MF_SELFTEST_LEFT_OUT)
			err = fdry_buf_printf(out, "selftest of graph %llu: left out\n",
					      (unsigned long long)m->graphs[e->graph].key);
		else
			err = fdry_buf_line(
				out, "selftest of graph %llu: %s %s",
				(unsigned long long)m->graphs[e->graph].key,
				fdry_manifest_str(m, m->tensors[e->tensor].name),
				e->flags & FDRY_MF_SELFTEST_UNSTABLE ? "unstable" : print);
	}
	return err;
}

static int rng_uses_text(const struct fdry_manifest *m, struct fdry_buf *out)
{
	const struct fdry_mf_rng_use *d = m->rng_uses;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_rng_uses; i++, d++) {
		err = fdry_buf_line(
			out, "graph %llu draws %llu from '%s', seed at %#llx, offset at %#llx",
			(unsigned long long)m->graphs[d->graph].key,
			(unsigned long long)d->increment,
			fdry_manifest_str(m, m->generators[d->generator].name),
			(unsigned long long)d->seed, (unsigned long long)d->offset);
		if (err)
			return err;
	}
	return 0;
}

static int manifest_text(const struct fdry_manifest *m, struct fdry_buf *ret)
{
	struct fdry_buf out = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	uint32_t i, attr = 0;
	int err = facts_text(m, &out) ?: memory_text(m, &out) ?: fdry_describe_content(m, &out);

	if (err)
		goto out_release;
	for (i = 0; i < m->n_tensors; i++) {
		err = tensor_text(m, &m->tensors[i], &out);
		if (err)
			goto out_release;
	}
	for (i = 0; i < m->n_graphs; i++) {
		err = fdry_buf_line(&out, "graph %llu '%s' %u nodes %.12s",
				    (unsigned long long)m->graphs[i].key,
				    fdry_manifest_str(m, m->graphs[i].name), m->graphs[i].nodes,
				    fdry_oid_hex(&m->graphs[i].oid, hex));
		if (err)
			goto out_release;
	}
	err = rng_uses_text(m, &out);
	if (err)
		goto out_release;
	for (i = 0; i < m->n_kernels; i++) {
		err = kernel_text(m, i, &attr, &out);
		if (err)
			goto out_release;
	}
	err = events_text(m, &out) ?: variables_text(m, &out) ?: pointers_text(m, &out) ?:
	      selftests_text(m, &out) ?: files_text(m, &out);
	if (err)
		goto out_release;
	*ret = out;
	return 0;
out_release:
	fdry_buf_release(&out);
	return err;
}

/* The contents of one graph object, as counts. */
struct holds {
	uint32_t kinds[FDRY_NODE_KINDS]; /* nodes of each kind */
	uint32_t edges, with_data;
};

static int holds_read(struct fdry_reader *reader, const struct fdry_oid *oid, struct holds *ret)
{
	struct fdry_graph_view view;
	struct fdry_graph_edges e = { .v = &view };
	struct fdry_graph_edge edge;
	struct fdry_buf bytes = { 0 };
	uint32_t i;
	int err = fdry_reader_copy(reader, oid, &bytes);

	if (err)
		return err;
	err = fdry_graph_view_init((struct fdry_span){ bytes.data, bytes.len }, &view);
	if (err)
		goto out_release;
	for (i = 0; i < view.header.nodes; i++)
		ret->kinds[view.section[FDRY_GSEC_KIND][i]]++;
	while (fdry_graph_edge_next(&e, &edge))
		ret->with_data += edge.index != 0;
	ret->edges = fdry_graph_edge_count(&view);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

static int graph_text(const struct holds *h, uint64_t key, struct fdry_buf *out)
{
	uint32_t i;
	int err = fdry_buf_printf(out, "graph %llu holds", (unsigned long long)key);

	if (err)
		return err;
	for (i = 1; i < FDRY_NODE_KINDS; i++) {
		if (h->kinds[i])
			err = fdry_buf_printf(out, " %u %s,", h->kinds[i], fdry_node_ops(i)->name);
		if (err)
			return err;
	}
	return fdry_buf_printf(out, " %u edges, %u of them with data\n", h->edges, h->with_data);
}

static int graphs_text(struct fdry_reader *reader, const struct fdry_manifest *m,
		       struct fdry_buf *out)
{
	struct holds *h = calloc((size_t)m->n_graphs + 1, sizeof(*h));
	uint32_t i, *first = NULL;
	int err = h ? fdry_manifest_graphs_first(m, &first) : fdry_nomem();

	if (err)
		goto out_free;
	for (i = 0; i < m->n_graphs; i++) {
		if (first[i] == i)
			err = holds_read(reader, &m->graphs[i].oid, &h[i]);
		if (err)
			goto out_free;
		err = graph_text(&h[first[i]], m->graphs[i].key, out);
		if (err)
			goto out_free;
	}
out_free:
	free(first);
	free(h);
	return err;
}

static int text_make(struct fdry_store *s, struct fdry_reader *reader,
		     const struct fdry_manifest *m, struct fdry_buf *ret)
{
	const struct fdry_load_opts defaults = { .sz = sizeof(defaults) };
	struct fdry_buf out = { 0 };
	struct fdry_requirements *n;
	int err;

	err = fdry_requirements_of(s, m, &defaults, &n);
	if (err)
		return err;
	err = manifest_text(m, &out);
	if (err)
		goto out_free;
	err = graphs_text(reader, m, &out);
	if (err)
		goto out_release;
	err = fdry_requirements_text(n, &out);
	if (err)
		goto out_release;
	*ret = out;
	goto out_free;
out_release:
	fdry_buf_release(&out);
out_free:
	free(n);
	return err;
}

static int describe(struct fdry_store *s, struct fdry_reader *reader, const char *name,
		    struct fdry_buf *ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_oid id;
	int err;

	err = fdry_reader_resolve(reader, name, &id);
	if (err)
		goto out_release;
	err = fdry_reader_copy(reader, &id, &bytes);
	if (err)
		goto out_release;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (err)
		goto out_release;
	err = text_make(s, reader, &m, ret);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

int fdry_image_describe(struct fdry_store *store, const char *name, char **ret)
{
	struct fdry_reader *reader;
	struct fdry_buf text = { 0 };
	int err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_reader_begin(store, &reader);
	if (err)
		return err;
	err = describe(store, reader, name, &text);
	fdry_reader_end(reader);
	if (err)
		return err;
	*ret = (char *)text.data; /* fdry_buf_printf() ends it with a NUL */
	return 0;
}
