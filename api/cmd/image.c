// SPDX-License-Identifier: Apache-2.0
/* image.c - reads an image's manifest and graphs. */
#include "api/cmd/image.h"

#include <stdio.h>
#include <string.h>

#include "image/budget.h"
#include "lib/search.h"

int cmd_image_open(struct fdry_reader *reader, const struct fdry_oid *oid, struct cmd_image *ret)
{
	struct cmd_image im = { .oid = *oid };
	int err = fdry_reader_copy(reader, oid, &im.bytes);

	if (err)
		return err;
	err = fdry_manifest_init((struct fdry_span){ im.bytes.data, im.bytes.len }, &im.m);
	if (err) {
		fdry_buf_release(&im.bytes);
		return err;
	}
	*ret = im;
	return 0;
}

void cmd_image_close(struct cmd_image *im)
{
	fdry_buf_release(&im->bytes);
}

/* A command joins the arguments and makes text that is twice as long, or compares two graphs. */
static int arguments_check(const struct fdry_graph_view *v)
{
	struct fdry_budget b;
	int err = fdry_budget_init(&b);

	return err ? err
		   : fdry_budget_fits(&b, 4 * v->header.arg_bytes,
				      "the arguments of a graph's kernels");
}

int cmd_graph_open(struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct cmd_graph_object *ret)
{
	struct cmd_graph_object g = { .oid = *oid };
	int err = fdry_reader_copy(reader, oid, &g.bytes);

	if (err)
		return err;
	err = fdry_graph_view_init((struct fdry_span){ g.bytes.data, g.bytes.len }, &g.view)
		      ?: arguments_check(&g.view);
	if (err) {
		fdry_buf_release(&g.bytes);
		return err;
	}
	*ret = g;
	return 0;
}

void cmd_graph_close(struct cmd_graph_object *g)
{
	fdry_buf_release(&g->bytes);
}

const char *cmd_role_name(uint32_t role)
{
	static const char *const names[] = { "content", "scratch", "external" };

	return role < 3 ? names[role] : "?";
}

uint64_t cmd_image_nodes(const struct fdry_manifest *m)
{
	uint64_t nodes = 0;
	uint32_t i;

	for (i = 0; i < m->n_graphs; i++)
		nodes += m->graphs[i].nodes;
	return nodes;
}

static const struct {
	const char *name;
	uint32_t size;
} dtypes[] = {
#define X(nr, name, size) [nr] = { #name, size },
	FDRY_DTYPES(X)
#undef X
};

const char *cmd_dtype_name(uint32_t dtype)
{
	return dtype < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[dtype].name ? dtypes[dtype].name
										: "?";
}

uint64_t cmd_dtype_size(uint32_t dtype)
{
	return dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[dtype].size : 0;
}

const char *cmd_use_name(uint32_t use)
{
	static const char *const names[] = { "input", "output", "state", "const" };

	return use < 4 ? names[use] : "?";
}

uint64_t cmd_capacity_of(const struct fdry_manifest *m, uint32_t tensor)
{
	size_t at = fdry_lower_bound(i, m->n_capacities, m->capacities[i].tensor < tensor);

	return at < m->n_capacities && m->capacities[at].tensor == tensor ? m->capacities[at].max
									  : 0;
}

uint32_t cmd_attrs_of(const struct fdry_manifest *m, uint32_t kernel)
{
	return (uint32_t)fdry_lower_bound(i, m->n_attrs, m->attrs[i].kernel < kernel);
}

void cmd_tensor_text(const struct fdry_mf_tensor *t, char *ret, size_t len)
{
	size_t n;
	uint32_t i;

	if (t->flags & FDRY_TENSOR_HOST)
		snprintf(ret, len, "%s %s%s host %u+%#llx [", cmd_dtype_name(t->dtype),
			 cmd_use_name(t->use), t->flags & FDRY_TENSOR_EXTERNAL ? " external" : "",
			 fdry_host_segment(t->addr), (unsigned long long)fdry_host_offset(t->addr));
	else
		snprintf(ret, len, "%s %s%s %#llx [", cmd_dtype_name(t->dtype),
			 cmd_use_name(t->use), t->flags & FDRY_TENSOR_EXTERNAL ? " external" : "",
			 (unsigned long long)t->addr);
	for (i = 0; i < t->rank; i++) {
		n = strlen(ret);
		snprintf(ret + n, len - n, "%s%lld:%lld", i ? " " : "", (long long)t->shape[i],
			 (long long)t->stride[i]);
	}
	n = strlen(ret);
	snprintf(ret + n, len - n, "]");
}
