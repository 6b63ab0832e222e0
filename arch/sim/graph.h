/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graphs of the software driver, shared by their files.
 *
 * graph.c holds graphs, nodes and edges; node.c and attr.c the work of nodes; exec.c and
 * update.c executable graphs; capture.c captures of streams. A node holds its work as a
 * struct sim_op that passed all checks. An executable graph holds copies of these, so later
 * changes of the graph do not affect it.
 *
 * Locking: the driver's lock is held everywhere but in exec_run() of exec.c.
 */
#ifndef FDRY_ARCH_SIM_GRAPH_H
#define FDRY_ARCH_SIM_GRAPH_H

#include "arch/sim/sim.h"

struct sim_node;
struct sim_graph;
struct sim_gmem;

/* A handle of a condition; its number is its index and 1. */
struct sim_handle {
	unsigned int value; /* at the beginning of a launch */
	bool used;          /* a conditional node has it */
};

/* What a conditional node holds. */
struct sim_bodies {
	CUgraphConditionalHandle handle;
	CUgraphConditionalNodeType type;
	unsigned int size;
	struct sim_graph **graphs;
	CUgraph *handles; /* of these graphs, for the program */
};

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
	struct sim_bodies *bodies; /* conditional nodes, owned */
	struct sim_gmem *mem;   /* allocation and free nodes, held */
	void **params;          /* kernel nodes: the result of GetParams, made by the first call */
	size_t extra_size;
};

struct sim_graph {
	struct sim_obj obj;
	struct sim_node **nodes; /* in order of creation */
	size_t count, cap;
	struct sim_node *parent; /* the child graph or conditional node that owns this graph */
	struct sim_capture *capture; /* set while streams capture into it */
	size_t nmem;             /* allocation and free nodes */
	size_t nexecs;           /* executable graphs that exclude others of this graph */
	struct sim_user_ref *users;
	struct sim_handle *handles; /* of conditions, also for the graphs within it */
	size_t nhandles;
};

/* edge.c */

extern const CUgraphEdgeData sim_edge_none;

bool sim_edge_plain(const CUgraphEdgeData *data); /* all zero */
/* Check that an edge with @data may join these nodes. INVALID_VALUE. */
CUresult sim_edge_check(const struct sim_node *from, const struct sim_node *to,
			const CUgraphEdgeData *data);
/* Add an edge; INVALID_VALUE if it is not allowed or exists. */
CUresult sim_edge_add(struct sim_node *from, struct sim_node *to, const CUgraphEdgeData *data);
/* Remove all edges of @node. */
void sim_edges_cut(struct sim_node *node);
/* Add an edge to a list, which has one entry for each node. The stricter of two edges stays. */
CUresult sim_edges_put(struct sim_edges *e, struct sim_node *node, const CUgraphEdgeData *data);
CUresult sim_edges_merge(struct sim_edges *to, const struct sim_edges *from);
CUresult sim_edges_copy(const struct sim_edges *e, struct sim_edges *ret);
void sim_edges_release(struct sim_edges *e);

/* graph.c */

CUresult sim_graph_new(struct sim_graph **ret);
CUresult sim_graph_clone(const struct sim_graph *g, struct sim_graph **ret);
void sim_graph_free(struct sim_graph *g);
/* INVALID_VALUE if the handle is not that of a graph or a node. */
CUresult sim_graph_find(CUgraph handle, struct sim_graph **ret);
CUresult sim_node_find(CUgraphNode handle, struct sim_node **ret);
/* A node of @type without work or edges, at the end of @g. */
CUresult sim_node_new(struct sim_graph *g, CUgraphNodeType type, struct sim_node **ret);
/* Remove @node and its edges from its graph, and free it. */
void sim_node_free(struct sim_node *node);

/* The graph and dependencies of a new node. */
struct sim_place {
	CUgraph graph;
	const CUgraphNode *deps;
	const CUgraphEdgeData *data; /* NULL: plain */
	size_t ndeps;
};
/* Make a node of @type with its edges. If an edge is refused, no node is made. */
CUresult sim_node_place(const struct sim_place *at, CUgraphNodeType type, struct sim_node **ret);

/* work.c */

/* Make an operation of kernel parameters, in the context that they name. @attrs: the node's
 * attributes, or NULL. */
CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *p, const struct sim_launch *attrs,
			 struct sim_op *ret);
/* Check a launch again: attributes of node and function may have changed. */
CUresult sim_kernel_check(const struct sim_launch *l, struct sim_op *ret);
CUresult sim_memcpy_make(const CUDA_MEMCPY3D *p, CUcontext ctx, struct sim_op *ret);
CUresult sim_memset_make(const CUDA_MEMSET_NODE_PARAMS *p, struct sim_op *ret);
CUresult sim_host_make(const CUDA_HOST_NODE_PARAMS *p, struct sim_op *ret);
CUresult sim_memops_make(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct sim_op *ret); /* memop.c */
CUresult sim_event_make(CUevent event, enum sim_op_kind kind, struct sim_op *ret);
/* Make the operation that generic parameters describe; NOT_SUPPORTED for kinds of nodes without an
 * operation. */
CUresult sim_params_make(const CUgraphNodeParams *p, const struct sim_launch *attrs,
			 struct sim_op *ret);
bool sim_params_clean(const CUgraphNodeParams *p); /* not NULL, and reserved bytes are zero */

/* node.c */

/* Copy the work of @from into @to, a fresh node of the same type. */
CUresult sim_node_copy_work(const struct sim_node *from, struct sim_node *to);
/* Free the work of @n, and the results of GetParams. */
void sim_node_clear(struct sim_node *n);

/* memnode.c */

/* Add a node that allocates (@params->dptr gets the address), or one that frees. */
CUresult sim_gmem_alloc_add(const struct sim_place *at, CUDA_MEM_ALLOC_NODE_PARAMS *params,
			    CUgraphNode *ret);
CUresult sim_gmem_free_add(const struct sim_place *at, CUdeviceptr addr, CUgraphNode *ret);
/* New memory for an allocation node; the memory at @addr for a free node. Both hold a reference. */
CUresult sim_gmem_new(const CUDA_MEM_ALLOC_NODE_PARAMS *p, struct sim_gmem **ret);
CUresult sim_gmem_find(CUdeviceptr addr, struct sim_gmem **ret);
CUdeviceptr sim_gmem_addr(const struct sim_gmem *m);
/* Attach @m, whose reference is consumed, to @n. */
void sim_gmem_attach(struct sim_node *n, struct sim_gmem *m);
struct sim_gmem *sim_gmem_get(struct sim_gmem *m); /* NULL is fine */
void sim_gmem_put(struct sim_gmem *m);             /* and here */
/* Detach the memory of @n. */
void sim_gmem_node_clear(struct sim_node *n);
/* Begin a launch of @p: INVALID_VALUE if memory of its last launch was not freed and @auto_free is
 * not set. */
struct sim_plan;
CUresult sim_gmem_launch(const struct sim_plan *p, bool auto_free);

/* cond.c */

/* Add a conditional node; @params->phGraph_out gets its bodies. */
CUresult sim_bodies_add(const struct sim_place *at, CUDA_CONDITIONAL_NODE_PARAMS *params,
			CUgraphNode *ret);
void sim_bodies_free(struct sim_bodies *b); /* NULL is fine */
/* Whether the graph, or a child graph in it, has conditional nodes. */
bool sim_bodies_any(const struct sim_graph *g);
/* INVALID_VALUE if a handle has no node. */
CUresult sim_handles_check(const struct sim_graph *g);
/* The plans of the bodies, for a step; INVALID_VALUE and @bad as in sim_plan_make(), or if a body
 * has nodes of a kind that bodies cannot have. */
struct sim_step;
CUresult sim_bodies_plan(const struct sim_bodies *b, struct sim_step *s, uint64_t *bad);

/* attr.c */

/* An attribute of a kernel node: of its launch, or the default of a fresh node. */
void sim_attr_get(const struct sim_launch *l, CUlaunchAttributeID id, CUlaunchAttributeValue *ret);
/* Keep only those attributes of a captured launch that nodes have; a launch without priority gets
 * @priority. */
CUresult sim_attrs_settle(struct sim_launch *l, int priority);

/* plan.c */

struct sim_step_dep {
	size_t from; /* index of a step */
	CUgraphEdgeData data;
};

/* One node of an executable graph. */
struct sim_step {
	uint64_t node; /* handle of its node */
	CUgraphNodeType type;
	struct sim_op op;
	struct sim_plan *child; /* child graph nodes */
	struct sim_plan **bodies; /* conditional nodes */
	unsigned int nbodies;
	CUgraphConditionalHandle cond;
	CUgraphConditionalNodeType cond_type;
	struct sim_gmem *mem;   /* allocation and free nodes, held */
	struct sim_step_dep *deps;
	size_t ndeps;
	bool disabled;
};

/* An executable graph's own copy of all work. It is shared with running launches, so only the
 * owner of the only reference may change it (sim_plan_own()). */
struct sim_plan {
	int refs;
	size_t count;
	struct sim_step *steps; /* in the order of the graph's nodes */
	size_t *order;          /* the order of running */
	unsigned int *values;   /* of the conditions at the beginning of a launch */
	size_t nvalues;
};

/* INVALID_VALUE and @bad (may be NULL) if the graph has a cycle. */
CUresult sim_plan_make(const struct sim_graph *g, struct sim_plan **ret, uint64_t *bad);
/* Make *@p an unshared plan, which may be changed. */
CUresult sim_plan_own(struct sim_plan **p);
void sim_plan_put(struct sim_plan *p);
struct sim_step *sim_plan_find(struct sim_plan *p, uint64_t node);

/* exec.c */

struct sim_exec {
	struct sim_obj obj;
	cuuint64_t flags;
	struct sim_plan *plan;
	struct sim_fence *tail; /* of the newest launch, held; NULL: none */
	struct sim_graph
		*only; /* its graph, held, if it excludes other executable graphs of it; or NULL */
};

CUresult sim_exec_find(CUgraphExec handle, struct sim_exec **ret);

/* record.c; sim.h has the functions that the rest of the driver calls */

/* Allocate or free @m, whose reference is consumed, in a stream that captures. */
CUresult sim_capture_memory(struct sim_stream *s, CUgraphNodeType type, struct sim_gmem *m);

/* user.c */

void sim_users_drop(struct sim_graph *g);
CUresult sim_users_copy(const struct sim_graph *from, struct sim_graph *to);

#endif
