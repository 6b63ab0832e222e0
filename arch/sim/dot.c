// SPDX-License-Identifier: Apache-2.0
/*
 * dot.c - a graph as text for Graphviz: nodes by kind and number, edges with their data.
 *
 * Without flags it prints what the real cuGraphDebugDotPrint prints. With the verbose flag, or the
 * flag of a kind, it also prints the parameters.
 */
#include "lib/file.h"
#include "arch/sim/graph.h"

#include <stdio.h>

struct dot {
	FILE *f;
	unsigned int flags;
	unsigned int clusters;
};

static const char *const kinds[] = {
	[CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
	[CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
	[CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
	[CU_GRAPH_NODE_TYPE_HOST] = "HOST",
	[CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
	[CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
	[CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "WAIT_EVENT",
	[CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
	[CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL] = "EXT_SEMAS_SIGNAL",
	[CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT] = "EXT_SEMAS_WAIT",
	[CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
	[CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
};

static bool wants(const struct dot *d, unsigned int flag)
{
	return d->flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
}

static void kernel_print(const struct dot *d, const struct sim_launch *l)
{
	fprintf(d->f, "\\n%s", l->func->record->name);
	if (wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
		fprintf(d->f, "\\ngrid %u,%u,%u block %u,%u,%u shared %u", l->grid[0], l->grid[1],
			l->grid[2], l->block[0], l->block[1], l->block[2], l->shared);
	if (wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES))
		for (unsigned int i = 0; i < l->nattrs; i++)
			fprintf(d->f, "\\nattribute %d", (int)l->attrs[i].id);
}

static void work_print(const struct dot *d, const struct sim_op *op)
{
	static const char *const types[] = { "?", "H", "D", "A", "U" };

	switch (op->kind) {
	case SIM_OP_KERNEL:
		kernel_print(d, &op->launch);
		break;
	case SIM_OP_MEMCPY:
		fprintf(d->f, "\\n%sto%s", types[op->copy.p.srcMemoryType % 5],
			types[op->copy.p.dstMemoryType % 5]);
		if (wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
			fprintf(d->f, "\\n%zu x %zu x %zu bytes", op->copy.p.WidthInBytes,
				op->copy.p.Height, op->copy.p.Depth);
		break;
	case SIM_OP_MEMSET:
		if (wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
			fprintf(d->f, "\\n0x%llx = 0x%x, %zu x %zu of %u bytes", op->set.dst,
				op->set.value, op->set.width, op->set.height, op->set.elementSize);
		break;
	default:
		break;
	}
}

static void graph_print(struct dot *d, const struct sim_graph *g);

static void node_print(struct dot *d, const struct sim_node *n)
{
	fprintf(d->f, "\t\"n%llx\" [label=\"%zu %s", (unsigned long long)n->obj.id, n->index,
		kinds[n->type]);
	work_print(d, &n->op);
	if (wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		fprintf(d->f, "\\n0x%llx", (unsigned long long)n->obj.id);
	fprintf(d->f, "\"];\n");
	if (!n->child)
		return;
	fprintf(d->f, "\tsubgraph cluster_%u {\n", d->clusters++);
	graph_print(d, n->child);
	fprintf(d->f, "\t}\n");
}

static void graph_print(struct dot *d, const struct sim_graph *g)
{
	for (size_t i = 0; i < g->count; i++)
		node_print(d, g->nodes[i]);
	for (size_t i = 0; i < g->count; i++)
		for (size_t k = 0; k < g->nodes[i]->out.count; k++) {
			const struct sim_edge *e = &g->nodes[i]->out.v[k];

			fprintf(d->f, "\t\"n%llx\" -> \"n%llx\"",
				(unsigned long long)g->nodes[i]->obj.id,
				(unsigned long long)e->node->obj.id);
			if (!sim_edge_plain(&e->data))
				fprintf(d->f, " [label=\"type %u port %u\"]", e->data.type,
					e->data.from_port);
			fprintf(d->f, ";\n");
		}
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	struct dot d = { .flags = flags };
	struct fdry_xfsz xfsz;
	struct sim_graph *g;
	int err;

	SIM_ENTER(cuGraphDebugDotPrint);
	SIM_TRY(sim_graph_find(graph, &g));
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	d.f = fdry_fopen_write(path);
	if (!d.f)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fdry_xfsz_hold(&xfsz);
	fprintf(d.f, "digraph graph_%llx {\n", (unsigned long long)g->obj.id);
	graph_print(&d, g);
	fprintf(d.f, "}\n");
	err = ferror(d.f);
	err |= fclose(d.f);
	fdry_xfsz_release(&xfsz);
	return err ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
