/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graph objects: a CUDA graph as canonical bytes, by columns.
 *
 * A driver graph becomes bytes (read.c), bytes a checked view (codec.c), and a view a driver graph
 * (build.c) or text (dump.c). Kernels appear as indices into the image's kernel table. Equal graphs
 * give equal bytes in any process, on any machine, with any driver: nodes are in canonical order
 * (edge.h), and the bytes hold no handles and no defaults.
 *
 * A loader calls fdry_graph_view_init() once, which checks everything; fdry_graph_build() when the
 * graph is needed; and fdry_graph_built_release() once its exec exists or is no longer used.
 *
 * Locking: none; objects belong to the caller. The driver is called in the current context.
 */
#ifndef FDRY_GRAPH_GRAPH_H
#define FDRY_GRAPH_GRAPH_H

#include "lib/buf.h"
#include "arch/unreported.h"
#include "arch/driver.h"
#include "graph/codec.h"
#include "graph/cuarray.h"
#include "graph/host.h"
#include "graph/kernel.h"
#include "graph/wordset.h"

/* The memory that a pointer in an argument or a copy points to. */
enum fdry_where {
	FDRY_WHERE_NOTHING, /* no memory known to the driver: a plain number */
	FDRY_WHERE_REGION,  /* a live allocation of a region */
	FDRY_WHERE_OUTSIDE, /* memory that an image does not hold */
	FDRY_WHERE_FREED,   /* freed memory of the region; an access would fault */
	FDRY_WHERE_VARIABLE, /* device memory outside of the region: maybe a module variable */
	FDRY_WHERE_HOST,    /* pinned host memory, which only copies may use */
	FDRY_WHERE_HEAP,    /* the device's heap, from which kernels allocate */
};

/*
 * Finds the kind of memory that holds all @bytes bytes at @addr. If @bytes is 0, @addr is a
 * pointer, which may also point one past the end of an allocation. For OUTSIDE, FREED, VARIABLE,
 * HOST and HEAP, @what names the memory in messages ("host memory", "a module variable"); the
 * string is static, or valid until the next call. The reader calls it once for each distinct value.
 */
typedef int (*fdry_where_fn)(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
			     const char **what);

/* Sets *ret to the place (host.h) of the @bytes bytes of host memory at @addr, if one host segment
 * of the image holds them all. */
typedef void (*fdry_host_fn)(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret);

/* Sets *ret to the array @array that a node of @graph names, and *number to its number in the
 * image. FDRY_E_REFUSED says why an image cannot hold it. */
typedef int (*fdry_cuarray_fn)(void *arg, CUgraph graph, CUarray array, uint32_t *number,
			       struct fdry_cuarray *ret);

/* Sets *ret to what the driver does not report of a conditional node. FDRY_E_REFUSED if it is not
 * known. */
typedef int (*fdry_conditional_fn)(void *arg, CUgraphNode node, struct fdry_conditional *ret);

/* Sets *ret to the attributes of a kernel node that the driver does not report. */
typedef void (*fdry_attributes_fn)(void *arg, CUgraphNode node,
				   struct fdry_unreported_attrs *ret);

/* Facts that readers found, valid for every graph of the process. It holds no handles. */
struct fdry_graph_memo {
	struct fdry_wordset words; /* argument words that are numbers, or point into the region */
	struct fdry_intern prints; /* of kernels: fdry_kernel_set_print() */
	uint64_t prints_id;        /* of this table; no other one of the process has it */
	struct fdry_buf fresh;     /* the attributes of a fresh node, for each print */
	struct fdry_intern
		rehearsed; /* number of a print and attribute set, accepted on a fresh node */
	/* u32 for each kernel of the reader's set: the number of its print and 1; 0: not known. */
	struct fdry_buf numbers;
};

/* The program must not allocate or free device memory while a reader is in use. */
struct fdry_graph_reader {
	const struct fdry_driver *drv;
	struct fdry_kernel_set *kernels;
	fdry_where_fn where;
	void *where_arg;   /* of @where, @host, @array, @conditional and @attributes */
	fdry_host_fn
		host; /* for copies outside of the region; NULL: the image has no host memory */
	fdry_cuarray_fn array;           /* NULL: copies from and to arrays are refused */
	fdry_conditional_fn conditional; /* NULL: conditional nodes are refused */
	fdry_attributes_fn attributes;   /* NULL: no node has such attributes */
	const struct fdry_host_function *functions; /* that have names */
	size_t nfunctions;
	const struct fdry_semaphore *semaphores; /* that have names */
	size_t nsemaphores;
	struct fdry_graph_memo memo; /* zero it to start */
	bool words_again;            /* fdry_graph_memo_adopt() found all words unchanged */
	struct fdry_buf *events;     /* fdry_graph_read() appends the graph's events, CUevent each,
					by index; NULL: they are not wanted */
	struct fdry_buf *pointers;   /* fdry_graph_read() appends the graph's pointers to memory
					that may be a module variable, struct fdry_graph_word each,
					ascending; the object has zeros there. NULL: such pointers
					are refused */
};

/* 8 bytes of a kernel node's arguments, which a graph object has as zeros. */
struct fdry_graph_word {
	uint32_t node;   /* in canonical order */
	uint32_t offset; /* in the node's arguments */
	uint64_t value;
};

/**
 * fdry_graph_read() - Read a driver graph into the canonical bytes of a graph object.
 * @graph: not modified; the context of its kernels must be current
 * @ret: an empty buffer, to be released by the caller; untouched on failure
 *
 * Interns the graph's kernels into @rd->kernels, in canonical order.
 * Errors: FDRY_E_REFUSED names a node that cannot be restored exactly, its kernel and the reason:
 * other kinds of nodes, host memory or arrays that @rd does not know, pointers to memory outside
 * the region, events of the application, attributes that cannot be set again.
 */
int fdry_graph_read(struct fdry_graph_reader *rd, CUgraph graph, struct fdry_buf *ret) __must_check;

/* The object of a graph, and the other facts that the object depends on. Zero it to start. */
struct fdry_graph_kept {
	struct fdry_buf object;  /* empty: the graph was not read, or reading failed */
	struct fdry_buf nodes;   /* CUgraphNode each, as the driver lists them */
	uint64_t nedges;
	struct fdry_buf words;   /* u64 each: words of arguments that may be addresses */
	bool ask;                /* ask about them whatever the memo has: one points to memory
				    that was freed, or the memo lacks them */
	struct fdry_buf ranges;  /* memory that nodes copy, set or keep in a cache */
	struct fdry_buf kernels; /* handles of kernels, in the order of first use */
	struct fdry_buf prints;  /* u32 each: the numbers of their prints in the memo's table */
	uint64_t prints_id;      /* of that table */
	struct fdry_buf events;  /* CUevent each, by index */
	struct fdry_buf pointers; /* struct fdry_graph_word each, as in the reader */
	struct fdry_oid oid;     /* of the object, if a caller has set it; */
	bool has_oid;            /* false again when the object is read anew */
};

/**
 * fdry_graph_reread() - Read a graph that nothing has changed since this function read it last.
 * @kept: of this graph; kept->object is the graph object afterwards, or empty after a failure
 *
 * The object also depends on the code, parameters, attributes and index of each kernel, and on the
 * memory that each word and range points to. The driver is asked for the nodes again only if one of
 * these has changed. Result, errors and what is interned into @rd->kernels are those of
 * fdry_graph_read().
 */
int fdry_graph_reread(struct fdry_graph_reader *rd, CUgraph graph,
		      struct fdry_graph_kept *kept) __must_check;
/**
 * fdry_graph_memo_adopt() - Before the first graph: take over the facts that earlier readers found.
 * @memo: of the reader that read all graphs which fdry_graph_reread() will read again, but those
 *        with @ask set; zeroed if there is none. It is empty afterwards.
 *
 * Graphs of one program have most words in common. If each word is still a number or points into
 * the region, the reader knows them all, and fdry_graph_reread() does not check the words of each
 * graph. Words are checked in the order of addresses. A fact about a kernel is valid for all
 * kernels with the same print.
 */
void fdry_graph_memo_adopt(struct fdry_graph_reader *rd, struct fdry_graph_memo *memo);
/* Move the memo out of a reader. @all: it has read all graphs; if not, its words are left out. */
void fdry_graph_memo_yield(struct fdry_graph_reader *rd, bool all, struct fdry_graph_memo *memo);
void fdry_graph_memo_release(struct fdry_graph_memo *memo);
void fdry_graph_kept_release(struct fdry_graph_kept *kept);
/* Bytes of host memory that it occupies. */
size_t fdry_graph_kept_bytes(const struct fdry_graph_kept *kept);

/* A built graph; it belongs to the caller until released. */
struct fdry_graph_built {
	CUgraph graph;
	CUevent *events; /* the events of its event nodes ... */
	uint32_t nevents;
	const CUevent *shared; /* ... as in struct fdry_graph_builder; the others are its own */
	CUgraphNode *semaphores; /* the nodes that signal or await semaphores, in their order */
	uint32_t nsemaphores;
};

/* The inputs that all graphs of an image are built from. */
struct fdry_graph_builder {
	const struct fdry_driver *drv;
	CUcontext ctx;                       /* the current context */
	const struct fdry_kernel *kernels;   /* the image's kernel table ... */
	uint32_t nkernels;
	const struct fdry_kernel_bank *bank; /* ... and the kernels loaded from it */
	const struct fdry_host_segment *hosts; /* the image's host segments */
	uint32_t nhosts;
	const struct fdry_cuarray *arrays; /* the image's arrays */
	uint32_t narrays;
	/* Those that host nodes call: fdry_graph_view_check_functions() found them all. */
	const struct fdry_host_function *functions;
	size_t nfunctions;
	/* Those that nodes use: fdry_graph_view_check_semaphores() found them all. */
	const struct fdry_semaphore *semaphores;
	size_t nsemaphores;
	/* For each event of the graph, the one that other graphs use as well, or NULL: the graph
	 * gets an event of its own. They outlive what is built. NULL: all events are its own. */
	const CUevent *events;
	/* The words that the object has as zeros, ascending. */
	const struct fdry_graph_word *words;
	uint32_t nwords;
	/* Not NULL: the nodes of each graph run one after the other, in their order and without the
	 * graph's own edges, and a launch records these events between them:
	 * fdry_graph_marks() of them, in the places of fdry_graph_mark(). */
	const CUevent *marks;
};

/* The events that @marks of a builder needs. A launch records the first two with nothing between
 * them. */
static inline size_t fdry_graph_marks(const struct fdry_graph_view *v)
{
	return (size_t)v->header.nodes + v->header.subgraphs + 2;
}
/* The event before @node, which is in graph @i (subgraph.h); the next one comes after it. */
static inline size_t fdry_graph_mark(uint32_t i, uint32_t node)
{
	return (size_t)node + i + 1;
}

/**
 * fdry_graph_build() - Build a driver graph.
 * @view: checked against kernel table, host segments and arrays here; its bytes must stay until
 * this returns
 *
 * Makes two allocations for the whole graph, none for a node. A failure leaves nothing behind.
 * Errors: FDRY_E_BADIMAGE, FDRY_E_DRIVER, FDRY_E_NODEVMEM.
 */
int fdry_graph_build(const struct fdry_graph_builder *in, const struct fdry_graph_view *view,
		     struct fdry_graph_built *ret) __must_check;
/* The flags for instantiating a graph of @view. By default, drivers run all nodes with the priority
 * of the launching stream; a flag makes them use the priorities of the nodes. */
unsigned long long fdry_graph_exec_flags(const struct fdry_graph_view *view);
/* Give the semaphores of @exec, an instance of @built, the values that @in has for them; if it is
 * NULL, those of the graph of @built, which still exists. FDRY_E_DRIVER: some may have changed. */
int fdry_graph_semaphores_set(const struct fdry_graph_builder *in,
			      const struct fdry_graph_view *view,
			      const struct fdry_graph_built *built, CUgraphExec exec) __must_check;
/* Destroy graph and events. An exec needs the events, not the graph: the caller may destroy the
 * graph earlier and set it to NULL. */
void fdry_graph_built_release(const struct fdry_driver *drv, struct fdry_graph_built *b);

/**
 * fdry_graph_to_text() - Write a graph object as lines of text, complete and stable.
 * @kernels: the image's kernel table, whose names are added as comments; NULL: none
 * @ret: an empty buffer, to be released by the caller; a NUL follows the text, and is not counted
 */
int fdry_graph_to_text(const struct fdry_graph_view *view, const struct fdry_kernel *kernels,
		       uint32_t nkernels, struct fdry_buf *ret) __must_check;
/* Convert a text back to the same graph object. FDRY_E_INVAL names the line. */
int fdry_graph_from_text(struct fdry_span text, struct fdry_buf *ret) __must_check;

#endif
