/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - graph objects on disk; frozen. Documentation/format/graph-object.rst says
 * what each byte means.
 *
 * An object is a header, a directory of sections, and the sections. Everything is little endian.
 * The sections come in the order of ids, each at the next multiple of 8. A section without entries
 * is left out. Padding and reserved bytes are zero. New data needs a new section or a new incompat
 * bit: no field ever changes its meaning, no number is used twice.
 */
#ifndef FDRY_GRAPH_FORMAT_H
#define FDRY_GRAPH_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/sections.h"

#define FDRY_GRAPH_MAGIC "FDRYGRF\x1a"
#define FDRY_GRAPH_VERSION 2u
#define FDRY_GRAPH_TEXT_VERSION 1u /* of the text form */
#define FDRY_GRAPH_INCOMPAT_HOST \
	(1u << 0) /* some memcpy node has a place in host memory (host.h) for an address */
#define FDRY_GRAPH_INCOMPAT_SHORT \
	(1u << 1) /* some kernel has FDRY_GRAPH_KERNEL_SHORT */
#define FDRY_GRAPH_INCOMPAT_SUBGRAPHS \
	(1u << 2) /* it has child graph nodes */
#define FDRY_GRAPH_INCOMPAT_FUNCTIONS \
	(1u << 3) /* it has host nodes */
#define FDRY_GRAPH_INCOMPAT_MEMOPS \
	(1u << 4) /* it has memory operations */
#define FDRY_GRAPH_INCOMPAT_CONDITIONALS \
	(1u << 5) /* it has conditional nodes */
#define FDRY_GRAPH_INCOMPAT_SEMAPHORES \
	(1u << 6) /* it has nodes of semaphores */
#define FDRY_GRAPH_INCOMPAT_ARRAYS \
	(1u << 7) /* some memcpy node has a place in an array (cuarray.h) for an address */
/* Bits that this reader understands. */
#define FDRY_GRAPH_INCOMPAT_KNOWN \
	(FDRY_GRAPH_INCOMPAT_HOST | FDRY_GRAPH_INCOMPAT_SHORT | FDRY_GRAPH_INCOMPAT_SUBGRAPHS | \
	 FDRY_GRAPH_INCOMPAT_FUNCTIONS | FDRY_GRAPH_INCOMPAT_MEMOPS | \
	 FDRY_GRAPH_INCOMPAT_CONDITIONALS | FDRY_GRAPH_INCOMPAT_SEMAPHORES | \
	 FDRY_GRAPH_INCOMPAT_ARRAYS)

/* Limits: a count beyond them is refused before anything is computed from it. */
#define FDRY_GRAPH_NODES_MAX (1u << 22)
#define FDRY_GRAPH_EDGES_MAX (1u << 24)
#define FDRY_GRAPH_EVENTS_MAX (1u << 15)
#define FDRY_GRAPH_KERNELS_MAX (1u << 16)      /* distinct kernels of one graph */
#define FDRY_GRAPH_CONFIGS_MAX (1u << 16)      /* distinct configurations of its kernel nodes */
#define FDRY_GRAPH_ATTRS_MAX (1u << 20)        /* in all attribute sets together */
#define FDRY_GRAPH_ATTR_SET_MAX 32u            /* in one attribute set */
#define FDRY_GRAPH_EDGE_DATA_MAX 255u
#define FDRY_GRAPH_MEMOPS_MAX (1u << 22)       /* in all nodes together */
#define FDRY_GRAPH_HOST_NAME_MAX 255u          /* bytes of the name of a function or semaphore */
#define FDRY_GRAPH_HOST_BYTES_MAX (1u << 24)   /* of the names in all host nodes */
#define FDRY_GRAPH_SEMAPHORE_BYTES_MAX (1u << 24) /* in all nodes together */
#define FDRY_GRAPH_CONDITIONALS_MAX (1u << 15) /* nodes; no handle looks like an address */
#define FDRY_GRAPH_DEPTH_MAX 64u               /* of graphs within graphs */
#define FDRY_GRAPH_ARG_BYTES_MAX (1ull << 31)
#define FDRY_GRAPH_PATCHES_MAX (FDRY_GRAPH_ARG_BYTES_MAX / 4)
#define FDRY_GRAPH_SECTIONS_MAX 64u
#define FDRY_GRAPH_SIZE_MAX (1ull << 32)

#define FDRY_GRAPH_ALIGN FDRY_SECTION_ALIGN /* of each node's argument block */

struct fdry_graph_header {
	uint8_t magic[8];      /* FDRY_GRAPH_MAGIC */
	uint32_t version;      /* FDRY_GRAPH_VERSION */
	uint32_t sections;     /* entries of the directory that follows the header */
	uint32_t incompat;     /* an unknown bit: the reader must refuse the object */
	uint32_t compat;       /* an unknown bit: the reader ignores it */
	uint64_t size;         /* of the whole object, bytes; a multiple of 8 */
	uint32_t nodes;        /* of all kinds */
	uint32_t kernel_nodes;
	uint32_t memset_nodes;
	uint32_t memcpy_nodes;
	uint32_t event_nodes;  /* record and wait nodes */
	uint32_t events;       /* distinct events that they name */
	uint32_t kernels;      /* distinct kernels */
	uint32_t launches;     /* distinct launch configurations */
	uint32_t attr_sets;    /* distinct attribute sets that are not empty */
	uint32_t attrs;        /* attributes in all of them */
	uint32_t edges;        /* besides those of the chain */
	uint32_t edge_data;    /* distinct edge data that is not the default */
	uint64_t arg_bytes;    /* of all decoded argument blocks, with padding */
	uint32_t configs;      /* distinct configurations of kernel nodes */
	uint32_t patches;      /* in all argument blocks together */
	uint32_t breaks;       /* of the chain */
	uint32_t subgraphs;    /* graphs of child graph and conditional nodes, at any depth */
	uint32_t host_nodes;
	uint32_t host_bytes;   /* of the names in all of them */
	uint32_t memop_nodes;
	uint32_t memops;       /* in all of them */
	uint32_t conditional_nodes;
	uint32_t semaphore_bytes; /* of the column of nodes of semaphores */
};

/*
 * One kernel of the graph; configurations name it by its index here. Nodes that pass fewer
 * arguments than the kernel has parameters are an entry of their own, with FDRY_GRAPH_KERNEL_SHORT.
 */
#define FDRY_GRAPH_KERNEL_SHORT (1u << 31)
struct fdry_graph_kernel {
	uint32_t index;       /* in the image's kernel table */
	uint32_t param_bytes; /* length of its nodes' argument blocks: of the parameter buffer; or
				 FDRY_GRAPH_KERNEL_SHORT and the bytes that the nodes pass */
};

struct fdry_graph_launch {
	uint32_t grid[3];  /* blocks, each at least 1 */
	uint32_t block[3]; /* threads, each at least 1 */
	uint32_t shared;   /* dynamic shared memory of a block, bytes */
};

#define FDRY_GRAPH_ATTR_VALUE 64
struct fdry_graph_attr {
	uint32_t id;   /* as in attr.h, which is CUlaunchAttributeID */
	uint32_t size; /* bytes of value in use; the rest is zero */
	uint8_t value[FDRY_GRAPH_ATTR_VALUE];
};

struct fdry_graph_memset {
	uint64_t dst;
	uint64_t pitch;        /* bytes from row to row; 0 if height is 1 */
	uint64_t width;        /* elements in a row, at least 1 */
	uint64_t height;       /* rows, at least 1 */
	uint32_t value;        /* its low element_size bytes; the others are zero */
	uint32_t element_size; /* 1, 2 or 4 bytes */
};

struct fdry_graph_memcpy {
	uint64_t src;        /* a device address, or a place in host memory or in an array */
	uint64_t src_pitch;  /* bytes from row to row; the width if there is one row; of an array
				the number of the first row */
	uint64_t src_height; /* rows from slice to slice; the height if depth is 1; of an array the
				number of the first slice */
	uint64_t dst;        /* as src */
	uint64_t dst_pitch;
	uint64_t dst_height;
	uint64_t width;      /* bytes in a row, at least 1 */
	uint64_t height;     /* rows, at least 1 */
	uint64_t depth;      /* slices, at least 1 */
};

/* Edge data, laid out as CUgraphEdgeData. */
struct fdry_graph_edge_data {
	uint8_t from_port;
	uint8_t to_port;
	uint8_t type;
	uint8_t reserved[5];
};

/* A graph within the graph. Its nodes end at the first node of the next one. */
struct fdry_graph_subgraph {
	uint32_t owner; /* the node that holds it */
	uint32_t first; /* its first node */
};

/* A conditional node, with numbers as in cuda.h. */
struct fdry_graph_conditional {
	uint32_t handle; /* from 1 */
	uint32_t type;   /* 0 if, 1 while, 2 switch */
	uint32_t size;   /* graphs that it holds, */
	uint32_t first;  /* and the number of the first, as in subgraph.h */
};

/* A condition. The first one has handle 1. */
struct fdry_graph_condition {
	uint32_t node;  /* index of its conditional node among such nodes */
	uint32_t graph; /* for which the handle was created */
	uint32_t value; /* at the beginning of each launch if flags is 1; else 0 */
	uint32_t flags;
};

/* A memory operation, numbered and flagged as in cuda.h. A barrier has neither address nor
 * value. */
struct fdry_graph_memop {
	uint32_t operation; /* 1, 4 wait for 32, 64 bits; 2, 5 write them; 6 barrier */
	uint32_t flags;     /* of a wait 0 to 3, of a barrier 0 to 1, else 0 */
	uint64_t addr;      /* a multiple of the value's size */
	uint64_t value;
};

/* A semaphore of a node. Its name follows, padded with zeros to a multiple of 8. */
struct fdry_graph_semaphore {
	uint64_t value;   /* of a fence: to signal, or to wait for */
	uint64_t key;     /* of a mutex with keys */
	uint32_t timeout; /* of a wait for such a mutex, milliseconds; else 0 */
	uint32_t name;    /* bytes of the name, without padding */
};

/* The bytes at its address that an operation reads or writes. */
static inline uint32_t fdry_graph_memop_bytes(const struct fdry_graph_memop *op)
{
	if (op->operation == 6)
		return 0;
	return op->operation == 4 || op->operation == 5 ? 8 : 4;
}

/* X(id, NAME, name for people, bytes of an entry, header field that counts the entries). Only
 * version 1 used the ids 6 to 9. */
#define FDRY_GRAPH_SECTIONS(X) \
	X(1, KIND, "node kinds", 1, nodes) \
	X(2, KERNEL, "kernels", 8, kernels) \
	X(3, LAUNCH, "launch configurations", 28, launches) \
	X(4, ATTR_SET, "attribute set ends", 4, attr_sets) \
	X(5, ATTR, "attributes", 72, attrs) \
	X(10, MEMSET, "memset nodes", 40, memset_nodes) \
	X(11, MEMCPY, "memcpy nodes", 72, memcpy_nodes) \
	X(12, EVENT, "event of event nodes", 4, event_nodes) \
	X(13, EDGE_FROM, "edge sources", 4, edges) \
	X(14, EDGE_TO, "edge targets", 4, edges) \
	X(15, EDGE_INDEX, "edge data of edges", 1, edges) \
	X(16, EDGE_DATA, "edge data", 8, edge_data) \
	X(17, CONFIG_KERNEL, "kernel of configurations", 4, configs) \
	X(18, CONFIG_LAUNCH, "launch of configurations", 4, configs) \
	X(19, CONFIG_ATTRS, "attribute set of configurations", 4, configs) \
	X(20, NODE_CONFIG, "configuration of kernel nodes", 2, kernel_nodes) \
	X(21, NODE_LIKE, "likeness of kernel nodes", 2, kernel_nodes) \
	X(22, NODE_PATCHES, "patch counts of kernel nodes", 2, kernel_nodes) \
	X(23, PATCH_AT, "places of patches", 2, patches) \
	X(24, PATCH, "patches", 4, patches) \
	X(25, BREAK, "breaks of the chain", 4, breaks) \
	X(26, SUBGRAPH, "graphs of child graph nodes", 8, subgraphs) \
	X(27, HOST_END, "name ends of host nodes", 4, host_nodes) \
	X(28, HOST_NAME, "names of host functions", 1, host_bytes) \
	X(29, MEMOP_END, "ends of memory operation nodes", 4, memop_nodes) \
	X(30, MEMOP, "memory operations", 24, memops) \
	X(31, CONDITIONAL, "conditional nodes", 16, conditional_nodes) \
	X(32, CONDITION, "conditions", 16, conditional_nodes) \
	X(33, SEMAPHORE, "semaphores of nodes", 1, semaphore_bytes)

enum fdry_graph_section_id {
#define X(id, NAME, name, size, count) FDRY_GSEC_##NAME = id,
	FDRY_GRAPH_SECTIONS(X)
#undef X
	FDRY_GSEC_END
};

#define FDRY_FROZEN(type, field, at) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field " is frozen")

_Static_assert(sizeof(struct fdry_graph_header) == 128, "frozen");
FDRY_FROZEN(fdry_graph_header, version, 8);
FDRY_FROZEN(fdry_graph_header, sections, 12);
FDRY_FROZEN(fdry_graph_header, incompat, 16);
FDRY_FROZEN(fdry_graph_header, compat, 20);
FDRY_FROZEN(fdry_graph_header, size, 24);
FDRY_FROZEN(fdry_graph_header, nodes, 32);
FDRY_FROZEN(fdry_graph_header, kernel_nodes, 36);
FDRY_FROZEN(fdry_graph_header, memset_nodes, 40);
FDRY_FROZEN(fdry_graph_header, memcpy_nodes, 44);
FDRY_FROZEN(fdry_graph_header, event_nodes, 48);
FDRY_FROZEN(fdry_graph_header, events, 52);
FDRY_FROZEN(fdry_graph_header, kernels, 56);
FDRY_FROZEN(fdry_graph_header, launches, 60);
FDRY_FROZEN(fdry_graph_header, attr_sets, 64);
FDRY_FROZEN(fdry_graph_header, attrs, 68);
FDRY_FROZEN(fdry_graph_header, edges, 72);
FDRY_FROZEN(fdry_graph_header, edge_data, 76);
FDRY_FROZEN(fdry_graph_header, arg_bytes, 80);
FDRY_FROZEN(fdry_graph_header, configs, 88);
FDRY_FROZEN(fdry_graph_header, patches, 92);
FDRY_FROZEN(fdry_graph_header, breaks, 96);
FDRY_FROZEN(fdry_graph_header, subgraphs, 100);
FDRY_FROZEN(fdry_graph_header, host_nodes, 104);
FDRY_FROZEN(fdry_graph_header, host_bytes, 108);
FDRY_FROZEN(fdry_graph_header, memop_nodes, 112);
FDRY_FROZEN(fdry_graph_header, memops, 116);
FDRY_FROZEN(fdry_graph_header, conditional_nodes, 120);
FDRY_FROZEN(fdry_graph_header, semaphore_bytes, 124);

_Static_assert(sizeof(struct fdry_graph_kernel) == 8, "frozen");
FDRY_FROZEN(fdry_graph_kernel, index, 0);
FDRY_FROZEN(fdry_graph_kernel, param_bytes, 4);

_Static_assert(sizeof(struct fdry_graph_launch) == 28, "frozen");
FDRY_FROZEN(fdry_graph_launch, grid, 0);
FDRY_FROZEN(fdry_graph_launch, block, 12);
FDRY_FROZEN(fdry_graph_launch, shared, 24);

_Static_assert(sizeof(struct fdry_graph_attr) == 72, "frozen");
FDRY_FROZEN(fdry_graph_attr, id, 0);
FDRY_FROZEN(fdry_graph_attr, size, 4);
FDRY_FROZEN(fdry_graph_attr, value, 8);

_Static_assert(sizeof(struct fdry_graph_memset) == 40, "frozen");
FDRY_FROZEN(fdry_graph_memset, pitch, 8);
FDRY_FROZEN(fdry_graph_memset, width, 16);
FDRY_FROZEN(fdry_graph_memset, height, 24);
FDRY_FROZEN(fdry_graph_memset, value, 32);
FDRY_FROZEN(fdry_graph_memset, element_size, 36);

_Static_assert(sizeof(struct fdry_graph_memcpy) == 72, "frozen");
FDRY_FROZEN(fdry_graph_memcpy, src_pitch, 8);
FDRY_FROZEN(fdry_graph_memcpy, src_height, 16);
FDRY_FROZEN(fdry_graph_memcpy, dst, 24);
FDRY_FROZEN(fdry_graph_memcpy, dst_pitch, 32);
FDRY_FROZEN(fdry_graph_memcpy, dst_height, 40);
FDRY_FROZEN(fdry_graph_memcpy, width, 48);
FDRY_FROZEN(fdry_graph_memcpy, height, 56);
FDRY_FROZEN(fdry_graph_memcpy, depth, 64);

_Static_assert(sizeof(struct fdry_graph_edge_data) == 8, "frozen");
FDRY_FROZEN(fdry_graph_edge_data, type, 2);
FDRY_FROZEN(fdry_graph_edge_data, reserved, 3);

_Static_assert(sizeof(struct fdry_graph_subgraph) == 8, "frozen");
FDRY_FROZEN(fdry_graph_subgraph, first, 4);

_Static_assert(sizeof(struct fdry_graph_conditional) == 16, "frozen");
FDRY_FROZEN(fdry_graph_conditional, type, 4);
FDRY_FROZEN(fdry_graph_conditional, size, 8);
FDRY_FROZEN(fdry_graph_conditional, first, 12);

_Static_assert(sizeof(struct fdry_graph_condition) == 16, "frozen");
FDRY_FROZEN(fdry_graph_condition, graph, 4);
FDRY_FROZEN(fdry_graph_condition, value, 8);
FDRY_FROZEN(fdry_graph_condition, flags, 12);

_Static_assert(sizeof(struct fdry_graph_memop) == 24, "frozen");
FDRY_FROZEN(fdry_graph_memop, flags, 4);
FDRY_FROZEN(fdry_graph_memop, addr, 8);
FDRY_FROZEN(fdry_graph_memop, value, 16);

_Static_assert(sizeof(struct fdry_graph_semaphore) == 24, "frozen");
FDRY_FROZEN(fdry_graph_semaphore, key, 8);
FDRY_FROZEN(fdry_graph_semaphore, timeout, 16);
FDRY_FROZEN(fdry_graph_semaphore, name, 20);

#undef FDRY_FROZEN

#endif
