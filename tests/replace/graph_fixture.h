/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_fixture.h - code of tests that read and build graphs: a driver with a region,
 * kernels of one module as a kernel table, and steps to put driver graphs together.
 *
 * It replaces graph/kernel.c at link time: a kernel table of functions of one module.
 */
#ifndef FDRY_TESTS_REPLACE_GRAPH_FIXTURE_H
#define FDRY_TESTS_REPLACE_GRAPH_FIXTURE_H

#include "mm/region.h"
#include "tests/lib/backend.h"
#include "tests/lib/graph_built.h"
#include "tests/lib/graph_objects.h"
#include "tests/lib/test.h"

enum { STEP, ODD, NOTHING, REVERSE, WORDS, CONDITION, KERNELS };

extern struct graph_fixture {
	const struct test_backend *backend; /* backend_sim, unless main() sets another */
	struct fdry_driver drv; /* a copy: tests replace single functions */
	CUdevice dev;
	CUcontext ctx;
	CUstream stream;
	CUmodule module;
	CUfunction func[KERNELS];
	CUkernel kern;          /* counts as "step" too */
	struct fdry_kernel kernels[KERNELS];
	struct fdry_region *region;
	CUdeviceptr mem;        /* 64 KiB of it */
	uint8_t *pinned; /* the capture's host segments, followed by the loader's */
	struct fdry_host_segment hosts[2], moved[2];
	struct fdry_graph_reader reader;
	struct fdry_graph_builder builder;
	uint32_t print;         /* distinguishes kernels, beside the index */
	unsigned int asked;     /* how often test_where() was called */
	CUdeviceptr fail_where; /* the address at which it fails */
	CUdeviceptr freed;      /* an address whose memory was freed */
	CUevent events[4];      /* for event nodes; destroyed at the end */
	int nevents;
} gf;

#define ODD_BYTES 96
#define REGION_SIZE (64ull << 20)

void graph_fixture_open(void);
/* Forget the conditional nodes of graphs that were destroyed. */
void graph_fixture_forget(void);

/* Nothing that a test made may be left over. */
void graph_fixture_close(void);

CUgraph graph_make(void);

CUDA_KERNEL_NODE_PARAMS kernel_params(int i, void **args);

CUgraphNode kernel_add(CUgraph g, const CUgraphNode *after, int i, void **args);

/* "step" on the @i-th number of the memory: x = x * constant + salt. */
CUgraphNode step_node(CUgraph g, const CUgraphNode *after, int i, uint64_t salt);

CUgraphNode memset_add(CUgraph g, const CUgraphNode *after, CUDA_MEMSET_NODE_PARAMS p);

CUgraphNode memcpy_add(CUgraph g, const CUgraphNode *after, CUDA_MEMCPY3D p);

CUevent event_make(void);

/* A handle of @g, whose value at the beginning of a launch is @value. */
CUgraphConditionalHandle handle_make(CUgraph g, unsigned int value);
/* A conditional node with @size bodies, at most 8, and its @bodies. */
CUgraphNode conditional_add(CUgraph g, const CUgraphNode *after,
			    const CUDA_CONDITIONAL_NODE_PARAMS *params, CUgraph *bodies);
/* The condition of @h becomes the number at word @word of the memory, less @down. */
CUgraphNode condition_set(CUgraph g, const CUgraphNode *after, CUgraphConditionalHandle h,
			  unsigned int word, uint32_t down);

CUgraphNode empty_add(CUgraph g, const CUgraphNode *after);

void edge_add(CUgraph g, CUgraphNode from, CUgraphNode to, CUgraphEdgeData data);

/* Read with a new reader. */
int graph_read(CUgraph g, struct fdry_buf *ret);

/* The object of a driver graph. */
struct fdry_buf graph_object(CUgraph g);

/* Destroys the graph. */
void graph_refused(CUgraph g, const char *words);

void built_of(const struct fdry_buf *object, struct fdry_graph_built *ret);

void graph_run(CUgraph g);

/* A graph with every kind of node, attributes, a fork, a join and edges with data. */
CUgraph graph_of_all(void);

/* The text of @g's object, without the two lines at its top, as if the region began at
 * 0x500000000000. @g is destroyed. */
void reads_as(CUgraph g, const char *text);

/* Both are destroyed. */
void objects_equal(CUgraph a, CUgraph b);

/* Pack arguments of "odd", with @junk in the gaps between parameters. */
void odd_pack(uint8_t packed[ODD_BYTES], uint8_t junk);

CUgraph odd_graph(uint8_t *packed, bool as_buffer);

/* Arguments of "words": it writes the first @n of @w to @dst. */
struct words_args {
	uint64_t dst, n;
	uint64_t w[4093];
};

/* The first @n words are set. */
struct words_args *words_args(uint64_t n);

/* A graph with a node that passes @bytes of @args as a packed buffer. */
CUgraph words_graph(struct words_args *args, size_t bytes);

void same_bytes(const struct fdry_buf *a, const struct fdry_buf *b);

/* Fill the memory with pseudo-random numbers, run @g, and return the memory. */
void run_on_seed(CUgraph g, uint8_t mem[65536]);

/* Built from its object, a graph reads the same and does the same. @g is destroyed. */
void round_trip(CUgraph g);

#endif
