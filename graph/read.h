/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.h - what all kinds of nodes share while a driver graph is read. Internal to graph/.
 */
#ifndef FDRY_GRAPH_READ_H
#define FDRY_GRAPH_READ_H

#include "graph/attr.h"
#include "graph/graph.h"

/* Uses of an event within the graph. */
enum fdry_event_use {
	FDRY_EVENT_RECORDED = 1 << 0,
	FDRY_EVENT_AWAITED = 1 << 1,
};

/* A kernel, as the nodes of a graph name it. */
struct fdry_read_handle {
	CUkernel kern;
	CUfunction func;
	uint64_t shared; /* dynamic shared memory of a node, bytes */
};

/* Memory that a node copies, sets or keeps in a cache. */
struct fdry_read_range {
	uint64_t addr, bytes; /* of an array: its handle, and the graph of the node */
	uint64_t place; /* for the source or destination of a copy: the place that replaces @addr */
	uint64_t type;  /* for the source or destination of a copy: its CUmemorytype; 0: no copy */
};

/* The words, ranges and kernels that reading one graph looked up. A later read looks them up again
 * to find out whether the graph object is still valid (reread.c). */
struct fdry_read_record {
	struct fdry_buf words;      /* u64 each: see fdry_read_word_key() */
	struct fdry_intern ranges;  /* struct fdry_read_range */
	struct fdry_intern kernels; /* struct fdry_read_handle, in the order of first use */
};

/* Whether a word may be an address: all device and host addresses lie between these. */
static inline bool fdry_read_may_point(uint64_t word)
{
	return word >= 65536 && word < 1ull << 57;
}

/* An argument word that may be an address has fewer than 63 bits. So bit 63 can record whether the
 * word is a whole parameter. */
static inline uint64_t fdry_read_word_key(uint64_t word, bool whole)
{
	return word | (uint64_t)whole << 63;
}

/* A graph within the graph, whose nodes are read after those of its owner. */
struct fdry_read_subgraph {
	CUgraph graph;
	uint32_t owner;
	uint16_t in_child; /* 1: a child graph, or a graph within one */
	uint16_t in_body;  /* 1: a body of a conditional node, or a graph within one */
};

struct fdry_read {
	struct fdry_graph_reader *in;
	const struct fdry_driver *drv;
	struct fdry_read_record *record; /* NULL: nothing is recorded */
	struct fdry_buf pointers;   /* struct fdry_graph_word each */
	bool freed;                 /* a word points to freed memory and counts as a number */
	CUcontext ctx;              /* of the nodes so far; NULL: not known yet */
	struct fdry_intern events;  /* CUevent, by index */
	struct fdry_buf event_uses; /* u8 each: enum fdry_event_use */
	struct fdry_buf subgraphs;  /* struct fdry_read_subgraph each, in the order of owners */
	CUgraph graph;              /* the whole graph */
	CUgraph current;            /* the graph of the current node */
	bool in_child, in_body;     /* of the current graph, as in struct fdry_read_subgraph */
	struct fdry_buf condition_graphs; /* CUgraph each: for which the handle of a conditional
					     node was created, in the order of these nodes */
	uint64_t handles;           /* of conditions */
	uint32_t node;              /* the number of the current node */
	CUgraph rehearsal;          /* holds the fresh nodes; NULL until needed */
	struct fdry_buf key;        /* kernel and attribute set, for the memo */
	struct fdry_buf args;       /* of the current node */
	struct fdry_graph_attr attrs[FDRY_ATTR_IDS];
};

struct fdry_listing;
/* Read the listed graph; its nodes and edges are put into canonical order. */
int fdry_read_listing(struct fdry_read *rd, struct fdry_listing *l,
		      struct fdry_buf *ret) __must_check;
void fdry_read_release(struct fdry_read *rd);

/* Check that the @bytes bytes of device memory at @addr, at least 1, lie in the region. @what names
 * them in the message. FDRY_E_REFUSED. */
int fdry_read_range(struct fdry_read *rd, const char *what, CUdeviceptr addr,
		    uint64_t bytes) __must_check;
/* Check the source or destination of a copy in the same way. It may also lie in a host segment;
 * then *addr becomes the place there.
 * @type: the driver's type of the memory. */
int fdry_read_place(struct fdry_read *rd, const char *what, CUmemorytype type, uint64_t bytes,
		    uint64_t *addr) __must_check;
/* Find an array that a node of @graph copies from or to. FDRY_E_REFUSED. */
int fdry_read_array(struct fdry_read *rd, CUgraph graph, CUarray array, uint32_t *number,
		    struct fdry_cuarray *ret) __must_check;
/*
 * If @word points to memory outside the region, *@what names that memory; else *@what is NULL.
 * @whole: the word is all of a parameter. Otherwise it may lie in the padding of a structure, which
 * holds old bytes of the host's stack, including old pointers. So a pointer to freed memory counts
 * as a number there: a kernel that followed it would fault.
 * @variable: set to whether the word may point to a module variable, and the reader wants to know
 * such words; then *@what is NULL, too.
 */
int fdry_read_word(struct fdry_read *rd, uint64_t word, bool whole, const char **what,
		   bool *variable) __must_check;
/* The index of a node's kernel in the reader's set. */
int fdry_read_kernel(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *p,
		     uint32_t *ret) __must_check;
/* The index of an event. The function notes that the graph uses the event in the way @use. */
int fdry_read_event(struct fdry_read *rd, CUevent event, enum fdry_event_use use,
		    uint32_t *ret) __must_check;

/* The current node runs in @ctx, or NULL: not known. FDRY_E_REFUSED if nodes before it run in
 * another context. */
int fdry_read_context(struct fdry_read *rd, CUcontext ctx) __must_check;

/* The current node holds @graph. @child: as a child graph. */
int fdry_read_subgraph(struct fdry_read *rd, CUgraph graph, bool child) __must_check;
/* After all graphs: number the graphs for which the handles of conditions were created.
 * FDRY_E_REFUSED. */
int fdry_read_conditions(struct fdry_read *rd, struct fdry_graph_enc *enc) __must_check;

/* The number of a kernel's print in the memo. @kernel: its index in the reader's set. */
int fdry_read_print(struct fdry_graph_reader *in, uint32_t kernel, uint32_t *ret) __must_check;

/* Read the attributes in which a kernel node differs from a fresh one into rd->attrs, and try them
 * on a fresh node. */
int fdry_read_attrs(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params,
		    uint32_t kernel, uint32_t *count) __must_check;

#endif
