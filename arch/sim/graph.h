/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graphs of the software driver: what their files share.
 *
 * graph.c holds graphs, nodes and edges; node.c and attr.c what a node does; exec.c and
 * update.c graphs that can be launched; capture.c streams that turn into graphs.
 * A node keeps its work as a struct sim_op that passed all checks; an executable graph
 * keeps copies of these, so that later changes of the graph do not reach it.
 *
 * Locking: the driver's lock is held everywhere but in exec_run() of exec.c.
 */
#ifndef FDRY_ARCH_SIM_GRAPH_H
#define FDRY_ARCH_SIM_GRAPH_H

#include "arch/sim/sim.h"

struct sim_node;
struct sim_graph;
struct sim_gmem;

/* One end of an edge; also one dependency that a capture will turn into an edge. */
struct sim_edge {
	struct sim_node *node;
	CUgraphEdgeData data;
};

struct sim_edges {
	struct sim_edge *v;
	size_t count, cap;
};

struct sim_node {
	struct sim_obj obj;
	struct sim_graph *graph;
	size_t index;           /* in graph->nodes */
	uint64_t origin;        /* handle of the node that this is a clone of, 0: of none */
	CUgraphNodeType type;
	struct sim_edges in, out;
	struct sim_op op;       /* kernel, memcpy, memset, host and event nodes */
	struct sim_graph *child; /* child graph nodes: their graph, owned */
	struct sim_gmem *mem;   /* allocation and free nodes, held */
	void **params;          /* kernel nodes: what GetParams shows, made when first asked for */
	size_t extra_size;
};

struct sim_graph {
	struct sim_obj obj;
	struct sim_node **nodes; /* in order of creation */
	size_t count, cap;
	struct sim_node *parent; /* the child graph node that owns this graph */
	struct sim_capture *capture; /* set while streams capture into it */
	size_t nmem;             /* allocation and free nodes */
	size_t nexecs;           /* executable graphs that may have no other beside them */
	struct sim_user_ref *users;
};

/* edge.c */

extern const CUgraphEdgeData sim_edge_none;

bool sim_edge_plain(const CUgraphEdgeData *data); /* all zero */
/* May an edge with @data join these nodes? INVALID_VALUE where it may not. */
CUresult sim_edge_check(const struct sim_node *from, const struct sim_node *to, const CUgraphEdgeData *data);
/* Add an edge; INVALID_VALUE where it is not allowed or is there. */
CUresult sim_edge_add(struct sim_node *from, struct sim_node *to, const CUgraphEdgeData *data);
/* Take all edges of @node away. */
void sim_edges_cut(struct sim_node *node);
/* Add to a list; a node that is there already keeps one entry, the stricter of the two. */
CUresult sim_edges_put(struct sim_edges *e, struct sim_node *node, const CUgraphEdgeData *data);
CUresult sim_edges_merge(struct sim_edges *to, const struct sim_edges *from);
CUresult sim_edges_copy(const struct sim_edges *e, struct sim_edges *ret);
void sim_edges_release(struct sim_edges *e);

/* graph.c */

CUresult sim_graph_new(struct sim_graph **ret);
CUresult sim_graph_clone(const struct sim_graph *g, struct sim_graph **ret);
void sim_graph_free(struct sim_graph *g);
/* INVALID_VALUE where the handle is not that of a graph or a node. */
CUresult sim_graph_find(CUgraph handle, struct sim_graph **ret);
CUresult sim_node_find(CUgraphNode handle, struct sim_node **ret);
/* A node of @type without work or edges, at the end of @g. */
CUresult sim_node_new(struct sim_graph *g, CUgraphNodeType type, struct sim_node **ret);
/* Take @node and its edges out of its graph and free it. */
void sim_node_free(struct sim_node *node);

/* Where a new node goes. */
struct sim_place {
	CUgraph graph;
	const CUgraphNode *deps;
	const CUgraphEdgeData *data; /* NULL: plain */
	size_t ndeps;
};
/* A new node of @type with its edges; undone where one is refused. */
CUresult sim_node_place(const struct sim_place *at, CUgraphNodeType type, struct sim_node **ret);

/* work.c */

/* Make kernel parameters into work in the context that they name. @attrs: of the node that they are for, or NULL. */
CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *p, const struct sim_launch *attrs, struct sim_op *ret);
/* The same launch once more, checked as it is now: attributes of node and function may have changed. */
CUresult sim_kernel_check(const struct sim_launch *l, struct sim_op *ret);
CUresult sim_memcpy_make(const CUDA_MEMCPY3D *p, CUcontext ctx, struct sim_op *ret);
CUresult sim_memset_make(const CUDA_MEMSET_NODE_PARAMS *p, struct sim_op *ret);
CUresult sim_host_make(const CUDA_HOST_NODE_PARAMS *p, struct sim_op *ret);
CUresult sim_event_make(CUevent event, enum sim_op_kind kind, struct sim_op *ret);
/* The work that generic parameters describe; kinds that are no operation are NOT_SUPPORTED. */
CUresult sim_params_make(const CUgraphNodeParams *p, const struct sim_launch *attrs, struct sim_op *ret);
bool sim_params_clean(const CUgraphNodeParams *p); /* there, and reserved bytes are zero */

/* node.c */

/* Add a node that does @op, which is consumed also on failure. */
CUresult sim_node_add(const struct sim_place *at, CUgraphNodeType type, struct sim_op *op, CUgraphNode *ret);
/* Copy what @from does into @to, a fresh node of the same type. */
CUresult sim_node_copy_work(const struct sim_node *from, struct sim_node *to);
/* Give back what @n does and shows. */
void sim_node_clear(struct sim_node *n);

/* memnode.c */

/* Add a node that allocates (@params->dptr gets the address), or one that frees. */
CUresult sim_gmem_alloc_add(const struct sim_place *at, CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraphNode *ret);
CUresult sim_gmem_free_add(const struct sim_place *at, CUdeviceptr addr, CUgraphNode *ret);
/* New memory for an allocation node; the memory at @addr for a free node. Both hold a reference. */
CUresult sim_gmem_new(const CUDA_MEM_ALLOC_NODE_PARAMS *p, struct sim_gmem **ret);
CUresult sim_gmem_find(CUdeviceptr addr, struct sim_gmem **ret);
CUdeviceptr sim_gmem_addr(const struct sim_gmem *m);
/* Make @m, whose reference is consumed, that of @n. */
void sim_gmem_attach(struct sim_node *n, struct sim_gmem *m);
struct sim_gmem *sim_gmem_get(struct sim_gmem *m); /* NULL is fine */
void sim_gmem_put(struct sim_gmem *m);             /* and here */
/* Take @n's memory away from it. */
void sim_gmem_node_clear(struct sim_node *n);
/* A launch of @p: INVALID_VALUE where what it allocates was not freed since the last one and @auto_free is not set. */
struct sim_plan;
CUresult sim_gmem_launch(const struct sim_plan *p, bool auto_free);

/* attr.c */

/* An attribute that kernel nodes have, from the launch or as a fresh node has it. */
void sim_attr_get(const struct sim_launch *l, CUlaunchAttributeID id, CUlaunchAttributeValue *ret);
/* Of a captured launch's attributes keep those that nodes have; without one of its own it gets @priority. */
CUresult sim_attrs_settle(struct sim_launch *l, int priority);

/* plan.c */

struct sim_step_dep {
	size_t from; /* index of a step */
	CUgraphEdgeData data;
};

/* One node of an executable graph. */
struct sim_step {
	uint64_t node; /* handle of the node that it was made of */
	CUgraphNodeType type;
	struct sim_op op;
	struct sim_plan *child; /* child graph nodes */
	struct sim_gmem *mem;   /* allocation and free nodes, held */
	struct sim_step_dep *deps;
	size_t ndeps;
	bool disabled;
};

/* An executable graph's own copy of all work. Shared with launches under way: it is
 * changed only by who holds the only reference (sim_plan_own()). */
struct sim_plan {
	int refs;
	size_t count;
	struct sim_step *steps; /* in the order of the graph's nodes */
	size_t *order;          /* in which they run */
};

/* INVALID_VALUE and @bad (may be NULL) where the graph has a cycle. */
CUresult sim_plan_make(const struct sim_graph *g, struct sim_plan **ret, uint64_t *bad);
CUresult sim_plan_copy(const struct sim_plan *p, struct sim_plan **ret);
/* Make *@p a plan of one's own, that may be changed. */
CUresult sim_plan_own(struct sim_plan **p);
void sim_plan_put(struct sim_plan *p);
struct sim_step *sim_plan_find(struct sim_plan *p, uint64_t node);

/* exec.c */

struct sim_exec {
	struct sim_obj obj;
	cuuint64_t flags;
	struct sim_plan *plan;
	struct sim_fence *tail; /* of the newest launch, held; NULL: none */
	struct sim_graph *only; /* the graph that may have no other one beside it, held, or NULL */
};

CUresult sim_exec_find(CUgraphExec handle, struct sim_exec **ret);

/* record.c; what the rest of the driver calls is in sim.h */

/* Allocate or free @m, whose reference is consumed, in a stream that captures. */
CUresult sim_capture_memory(struct sim_stream *s, CUgraphNodeType type, struct sim_gmem *m);

/* user.c */

void sim_users_drop(struct sim_graph *g);
CUresult sim_users_copy(const struct sim_graph *from, struct sim_graph *to);

#endif
