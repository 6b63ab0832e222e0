// SPDX-License-Identifier: Apache-2.0
/*
 * floor.c - the fastest possible load: prepared driver calls without other work between them.
 */
#include "tests/bench/gpu/floor.h"

#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"

#define COPY_BYTES (256ull << 20)

struct node {
	enum fdry_node_kind kind;
	uint32_t kernel;
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_MEMCPY3D copy;
	uint8_t *args;
	struct fdry_graph_attr *attrs;
	uint32_t nattrs;
};

/* Edges with equal data, in the form of one call. */
struct edges {
	uint32_t *from, *to, n;
	CUgraphEdgeData data;
};

struct graph {
	struct node *nodes;
	uint32_t nnodes;
	struct edges *edges;
	uint32_t nedges;
	CUgraphNode *handles, *from, *to;
	CUgraphEdgeData *data;
};

struct object {
	struct fdry_oid oid;
	struct fdry_buf bytes;
	CUmodule module;
	const char **names; /* of its kernels */
	uint32_t nnames;
};

struct floor {
	struct graph *graphs;
	uint32_t ngraphs;
	struct object *objects;
	uint32_t nobjects;
};

static void *zeroed(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		abort();
	return p;
}

static void *copy_of(const void *p, size_t len)
{
	return memcpy(zeroed(len, 1), p, len);
}

/* --- laying out --- */

static void kernel_lay(struct node *n, const struct fdry_node_kernel *in,
		       const struct fdry_kernel *k)
{
	uint32_t i;

	n->kernel = in->kernel;
	n->args = memcpy(zeroed(k->param_bytes, 1), in->args.data, in->args.len);
	n->k = (CUDA_KERNEL_NODE_PARAMS){
		.gridDimX = in->launch.grid[0], .gridDimY = in->launch.grid[1],
		.gridDimZ = in->launch.grid[2], .blockDimX = in->launch.block[0],
		.blockDimY = in->launch.block[1], .blockDimZ = in->launch.block[2],
		.sharedMemBytes = in->launch.shared,
		.kernelParams = zeroed(k->nparams, sizeof(void *)),
	};
	for (i = 0; i < k->nparams; i++)
		n->k.kernelParams[i] = n->args + k->params[i].offset;
	n->attrs = copy_of(in->attrs.data, in->attrs.len);
	n->nattrs = (uint32_t)(in->attrs.len / sizeof(*n->attrs));
}

static int node_lay(struct node *n, const struct fdry_node *in, const struct fdry_image *img)
{
	const struct fdry_graph_memset *m = &in->memset;
	const struct fdry_graph_memcpy *c = &in->memcpy;

	n->kind = in->kind;
	switch ((int)in->kind) {
	case FDRY_NODE_KERNEL:
		kernel_lay(n, &in->kernel, &img->kernels[in->kernel.kernel]);
		return 0;
	case FDRY_NODE_MEMSET:
		n->set = (CUDA_MEMSET_NODE_PARAMS){ .dst = m->dst, .width = m->width,
						    .height = m->height, .value = m->value,
						    .elementSize = m->element_size,
						    .pitch = m->width * m->element_size };
		return 0;
	case FDRY_NODE_MEMCPY:
		n->copy = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					   .srcDevice = c->src, .srcPitch = c->src_pitch,
					   .srcHeight = c->src_height,
					   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					   .dstDevice = c->dst, .dstPitch = c->dst_pitch,
					   .dstHeight = c->dst_height, .WidthInBytes = c->width,
					   .Height = c->height, .Depth = c->depth };
		return 0;
	case FDRY_NODE_EMPTY:
		return 0;
	}
	return fdry_fail(FDRY_E_INVAL, "the bench knows kernel, memset, memcpy and empty nodes; "
				       "the image has a node of another kind");
}

static void edges_lay(struct graph *g, const struct fdry_graph_view *v, uint32_t index)
{
	struct edges *e = &g->edges[g->nedges];
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge x;

	e->from = zeroed(fdry_graph_edge_count(v), sizeof(*e->from));
	e->to = zeroed(fdry_graph_edge_count(v), sizeof(*e->to));
	e->data = fdry_graph_edge_data_at(v, index);
	while (fdry_graph_edge_next(&edges, &x)) {
		if (x.index != index)
			continue;
		e->from[e->n] = x.from;
		e->to[e->n++] = x.to;
	}
	g->nedges++;
}

static int graph_lay(struct graph *g, const struct fdry_graph_view *v, const struct fdry_image *img)
{
	uint32_t i, nedges = fdry_graph_edge_count(v);
	struct fdry_graph_cursor c;
	struct fdry_node node;
	int err = fdry_graph_cursor_init(v, &c);

	if (err)
		return err;
	g->nodes = zeroed(v->header.nodes, sizeof(*g->nodes));
	g->handles = zeroed(v->header.nodes, sizeof(*g->handles));
	g->from = zeroed(nedges, sizeof(*g->from));
	g->to = zeroed(nedges, sizeof(*g->to));
	g->data = zeroed(nedges, sizeof(*g->data));
	g->edges = zeroed(v->header.edge_data + 1, sizeof(*g->edges));
	while (!err && fdry_graph_next(&c, &node))
		err = node_lay(&g->nodes[g->nnodes++], &node, img);
	fdry_graph_cursor_release(&c);
	for (i = 0; i <= v->header.edge_data; i++)
		edges_lay(g, v, i);
	return err;
}

static struct object *object_at(struct floor *f, const struct fdry_oid *oid)
{
	uint32_t i;

	for (i = 0; i < f->nobjects && !fdry_oid_eq(&f->objects[i].oid, oid); i++)
		;
	f->nobjects += i == f->nobjects;
	f->objects[i].oid = *oid;
	return &f->objects[i];
}

static int objects_lay(struct floor *f, const struct fdry_image *img)
{
	struct fdry_reader *reader;
	struct object *o;
	uint32_t i;
	int err = fdry_reader_begin(img->store, &reader);

	if (err)
		return err;
	f->objects = zeroed(img->m.n_kernels, sizeof(*f->objects));
	for (i = 0; i < img->m.n_kernels && !err; i++) {
		o = object_at(f, &img->kernels[i].object);
		if (!o->names) {
			o->names = zeroed(img->m.n_kernels, sizeof(*o->names));
			err = fdry_reader_copy(reader, &o->oid, &o->bytes);
		}
		o->names[o->nnames++] = strdup(img->kernels[i].name);
	}
	fdry_reader_end(reader);
	return err;
}

int floor_new(struct fdry_image *img, struct floor **ret)
{
	struct floor *f = zeroed(1, sizeof(*f));
	int err = objects_lay(f, img);

	f->graphs = zeroed(img->m.n_graphs, sizeof(*f->graphs));
	for (; f->ngraphs < img->m.n_graphs && !err; f->ngraphs++)
		err = graph_lay(&f->graphs[f->ngraphs], &img->execs[f->ngraphs].view, img);
	*ret = f;
	return err;
}

void floor_functions(struct floor *f, const struct fdry_image *img)
{
	struct node *n;
	uint32_t g, i;

	for (g = 0; g < f->ngraphs; g++)
		for (i = 0; i < f->graphs[g].nnodes; i++) {
			n = &f->graphs[g].nodes[i];
			if (n->kind == FDRY_NODE_KERNEL)
				n->k.func = fdry_kernel_bank_get(img->bank, n->kernel);
		}
}

/* --- the calls --- */

static int node_add(const struct fdry_image *img, CUgraph graph, const struct node *n,
		    CUgraphNode *ret)
{
	uint32_t i;
	int err;

	if (n->kind == FDRY_NODE_MEMSET)
		return fdry_call(img->drv, cuGraphAddMemsetNode, ret, graph, NULL, 0, &n->set,
				 img->ctx);
	if (n->kind == FDRY_NODE_MEMCPY)
		return fdry_call(img->drv, cuGraphAddMemcpyNode, ret, graph, NULL, 0, &n->copy,
				 img->ctx);
	if (n->kind == FDRY_NODE_EMPTY)
		return fdry_call(img->drv, cuGraphAddEmptyNode, ret, graph, NULL, 0);
	err = fdry_call(img->drv, cuGraphAddKernelNode_v2, ret, graph, NULL, 0, &n->k);
	for (i = 0; i < n->nattrs && !err; i++)
		err = fdry_call(img->drv, cuGraphKernelNodeSetAttribute, *ret,
				(CUkernelNodeAttrID)n->attrs[i].id,
				(const CUkernelNodeAttrValue *)n->attrs[i].value);
	return err;
}

static int edges_add(const struct fdry_image *img, CUgraph graph, struct graph *g,
		     const struct edges *e)
{
	uint32_t i;

	for (i = 0; i < e->n; i++) {
		g->from[i] = g->handles[e->from[i]];
		g->to[i] = g->handles[e->to[i]];
		g->data[i] = e->data;
	}
	return e->n ? fdry_call(img->drv, cuGraphAddDependencies_v2, graph, g->from, g->to, g->data,
				e->n)
		    : 0;
}

static int graph_make(struct graph *g, const struct fdry_image *img, CUgraph graph,
		      CUgraphExec *exec)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < g->nnodes && !err; i++)
		err = node_add(img, graph, &g->nodes[i], &g->handles[i]);
	for (i = 0; i < g->nedges && !err; i++)
		err = edges_add(img, graph, g, &g->edges[i]);
	return err ?: fdry_call(img->drv, cuGraphInstantiateWithFlags, exec, graph, 0);
}

int floor_graph(struct floor *f, const struct fdry_image *img, uint32_t i, double *ret)
{
	double mark = fdry_now_ms();
	CUgraphExec exec = NULL;
	CUgraph graph;
	int err = fdry_call(img->drv, cuGraphCreate, &graph, 0);

	if (err)
		return err;
	err = graph_make(&f->graphs[i], img, graph, &exec);
	(void)fdry_call_raw(img->drv, cuGraphDestroy, graph);
	*ret = fdry_elapsed_ms(&mark);
	if (exec)
		(void)fdry_call_raw(img->drv, cuGraphExecDestroy, exec);
	return err;
}

int floor_graphs(struct floor *f, const struct fdry_image *img, double *ret, double *launches)
{
	CUgraphExec *execs = zeroed(f->ngraphs, sizeof(*execs));
	double mark = fdry_now_ms();
	CUgraph graph;
	uint32_t i;
	int err = 0;

	for (i = 0; i < f->ngraphs && !err; i++) {
		err = fdry_call(img->drv, cuGraphCreate, &graph, 0);
		if (err)
			break;
		err = graph_make(&f->graphs[i], img, graph, &execs[i]);
		(void)fdry_call_raw(img->drv, cuGraphDestroy, graph);
	}
	*ret = fdry_elapsed_ms(&mark);
	for (i = 0; i < f->ngraphs && !err; i++)
		err = fdry_call(img->drv, cuGraphLaunch, execs[i], NULL);
	*launches = fdry_elapsed_ms(&mark);
	err = err ?: fdry_call(img->drv, cuStreamSynchronize, NULL);
	for (i = 0; i < f->ngraphs; i++)
		if (execs[i])
			(void)fdry_call_raw(img->drv, cuGraphExecDestroy, execs[i]);
	free(execs);
	return err;
}

static int object_load(struct object *o, const struct fdry_image *img)
{
	CUfunction func;
	uint32_t i;
	int err = fdry_call(img->drv, cuModuleLoadDataEx, &o->module, o->bytes.data, 0, NULL, NULL);

	for (i = 0; i < o->nnames && !err; i++)
		err = fdry_call(img->drv, cuModuleGetFunction, &func, o->module, o->names[i]);
	return err;
}

int floor_kernels(struct floor *f, const struct fdry_image *img, double *ret)
{
	double mark = fdry_now_ms();
	uint32_t i;
	int err = 0;

	for (i = 0; i < f->nobjects && !err; i++)
		err = object_load(&f->objects[i], img);
	*ret = fdry_elapsed_ms(&mark);
	for (i = 0; i < f->nobjects; i++) {
		if (f->objects[i].module)
			(void)fdry_call_raw(img->drv, cuModuleUnload, f->objects[i].module);
		f->objects[i].module = NULL;
	}
	return err;
}

int floor_copy(const struct fdry_image *img, size_t bytes, double *ret)
{
	size_t at, len, piece = bytes < COPY_BYTES ? bytes : COPY_BYTES;
	CUdeviceptr to = 0;
	void *from = NULL;
	double mark;
	int err;

	*ret = 0;
	if (!bytes)
		return 0;
	err = fdry_call(img->drv, cuMemAllocHost_v2, &from, piece) ?:
	      fdry_call(img->drv, cuMemAlloc_v2, &to, bytes);
	if (!err)
		memset(from, 1, piece);
	mark = fdry_now_ms();
	for (at = 0; at < bytes && !err; at += len) {
		len = bytes - at < piece ? bytes - at : piece;
		err = fdry_call(img->drv, cuMemcpyHtoDAsync_v2, to + at, from, len, NULL);
	}
	err = err ?: fdry_call(img->drv, cuStreamSynchronize, NULL);
	*ret = fdry_elapsed_ms(&mark);
	if (to)
		(void)fdry_call_raw(img->drv, cuMemFree_v2, to);
	if (from)
		(void)fdry_call_raw(img->drv, cuMemFreeHost, from);
	return err;
}

/* --- the end --- */

static void graph_free(struct graph *g)
{
	uint32_t i;

	for (i = 0; i < g->nnodes; i++) {
		free(g->nodes[i].k.kernelParams);
		free(g->nodes[i].args);
		free(g->nodes[i].attrs);
	}
	for (i = 0; i < g->nedges; i++) {
		free(g->edges[i].from);
		free(g->edges[i].to);
	}
	free(g->nodes);
	free(g->edges);
	free(g->handles);
	free(g->from);
	free(g->to);
	free(g->data);
}

void floor_free(struct floor *f)
{
	uint32_t i, j;

	if (!f)
		return;
	for (i = 0; i < f->ngraphs; i++)
		graph_free(&f->graphs[i]);
	for (i = 0; i < f->nobjects; i++) {
		for (j = 0; j < f->objects[i].nnames; j++)
			free((void *)f->objects[i].names[j]);
		free(f->objects[i].names);
		fdry_buf_release(&f->objects[i].bytes);
	}
	free(f->objects);
	free(f->graphs);
	free(f);
}
