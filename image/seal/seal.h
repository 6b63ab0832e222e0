/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - the functions of a seal, internal to image/seal: seal.c runs the phases, and each other
 * file does one. */
#ifndef FDRY_IMAGE_SEAL_SEAL_H
#define FDRY_IMAGE_SEAL_SEAL_H

#include "image/audit.h"
#include "image/layout.h"
#include "image/manifest.h"
#include "graph/graph.h"
#include "graph/heap.h"
#include "lib/clock.h"
#include "mm/maps.h"
#include "store/store.h"

/* The number of pieces of memory that are read at the same time: one for each thread, and one
 * more. */
#define FDRY_SEAL_BLOCKS 17u

/* The parts of a seal. Each seal logs their times in milliseconds. */
#define FDRY_SEAL_PARTS(X) \
	X(begin) X(layout) X(words) X(kept_graphs) X(read_graphs) X(slices) X(kernels) \
	X(fingerprints) X(content) X(host) X(still) X(facts) X(selftest) X(encode) X(commit) X(end)

enum fdry_seal_part {
#define X(part) FDRY_SEAL_PART_##part,
	FDRY_SEAL_PARTS(X)
#undef X
	FDRY_SEAL_PART_COUNT,
};

/* Whether @len bytes are zero. */
static inline bool fdry_seal_is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* mapped.c: the mappings of the process at the beginning of the seal. */
struct fdry_seal_maps {
	struct fdry_maps_range *list; /* ascending */
	size_t n;
	struct fdry_maps_range near; /* the mapping or gap that holds the last address */
	bool near_mapped;            /* whether @near is a mapping */
};

/* pinned.c: the pinned memory of the capture at the beginning of the seal. */
enum fdry_seal_pinned_state {
	FDRY_SEAL_PINNED_UNUSED, /* nothing points to it */
	FDRY_SEAL_PINNED_FOUND,
	FDRY_SEAL_PINNED_STORED,
};

struct fdry_seal_pinned {
	struct fdry_alloc *list; /* ascending */
	size_t n;
	uint8_t *state;          /* for each: enum fdry_seal_pinned_state */
	struct fdry_buf roles, chunks; /* of the manifest's entries, in any order */
	uint8_t *chunk;          /* FDRY_MF_CHUNK_MAX bytes */
};

/* audit.c: what the audit needs beside its sections of the manifest. */
struct fdry_seal_audit {
	struct fdry_mf_audit content;
	struct fdry_fingerprint memory; /* as in struct fdry_sealed_audit */
	struct fdry_buf pinned;        /* words that point to pinned memory */
};

struct fdry_seal {
	struct fdry_capture *cap;      /* locked */
	struct fdry_store *store;
	struct fdry_writer *writer;
	struct fdry_kernel_set *kernels;
	struct fdry_mem_reader *reader;
	struct fdry_seal_maps maps;
	struct fdry_seal_pinned pinned;
	struct fdry_pointers *pointers;
	struct fdry_heap heap;         /* of cap, if its context has one: heap.c */
	struct fdry_hook_live live;    /* the counters when the seal began */
	struct fdry_layout layout;
	const struct fdry_alloc *near; /* an allocation of the layout, which holds the last word;
					  see ptr.c */
	struct fdry_buf host_tensors, hosts; /* see host.c */
	struct fdry_buf graphs;        /* struct fdry_capture_graph * each: to seal, by key */
	struct fdry_buf rng_uses;      /* struct fdry_capture_rng_use each: of these graphs */
	struct fdry_buf graph_pointers; /* struct fdry_graph_word each: of the graph that is read */
	struct fdry_buf arg_pointers, content_pointers, value_pointers; /* see targets.c */
	struct fdry_buf found;         /* struct fdry_sealed_word each: the pointers to module
					  variables that the last search found */
	struct fdry_buf arrays, mipmaps; /* see arrays.c */
	struct fdry_buf events;        /* CUevent each: of the graph that is read */
	struct fdry_buf event_uses;    /* see events.c */
	struct fdry_manifest_writer w; /* gathers the manifest */
	struct fdry_seal_audit audit;
	/* The variable whose value is being searched for pointers, or NULL, and its address. */
	const char *variable;
	uint64_t variable_addr;
	bool array;                    /* an array is being searched for pointers */
	char what[300];                /* see ptr.c */
	struct fdry_seal_report report;
	double start_ms;               /* the time of the call */
	double mark, parts[FDRY_SEAL_PART_COUNT]; /* see fdry_seal_spent() */
};

/* Add the time since the last call to @part. */
#define fdry_seal_spent(s, part) \
	((s)->parts[FDRY_SEAL_PART_##part] += fdry_elapsed_ms(&(s)->mark))

/* Report the progress to the function of the capture. */
static inline void fdry_seal_progress(struct fdry_seal *s, enum fdry_seal_phase phase,
				      uint64_t done, uint64_t total)
{
	fdry_capture_report(s->cap, phase, done, total, s->start_ms);
}

/* ptr.c: implements fdry_where_fn. @arg: the seal. */
int fdry_seal_ptr(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		    const char **what) __must_check;

int fdry_seal_maps_init(struct fdry_seal_maps *m) __must_check;
void fdry_seal_maps_release(struct fdry_seal_maps *m);
/* Does the process have a mapping at @addr? Only the sealing thread may call it. It is fastest in
 * the order of addresses. */
bool fdry_seal_mapped(struct fdry_seal *s, uint64_t addr);

/* graphs.c: list the graphs to seal, and what they draw. */
int fdry_seal_graphs_list(struct fdry_seal *s) __must_check;
/* After the layout: read them, which interns their kernels, and store their objects. */
int fdry_seal_graphs(struct fdry_seal *s) __must_check;
/* After the kernels are sliced: check that no argument is the address of a function that kernels
 * call through pointers, or points into the device's heap. If one may be, the graphs are read
 * again: the reader refuses it, and names the node. */
int fdry_seal_args_again(struct fdry_seal *s) __must_check;

/* kernels.c: slice the kernels of the graphs. */
int fdry_seal_kernels(struct fdry_seal *s) __must_check;
/* After the content: store their objects, and add both to the manifest. The kernels are sliced
 * again if content has pointers to more of their variables. */
int fdry_seal_kernels_put(struct fdry_seal *s) __must_check;

/* functions.c: after the kernels are sliced, check the functions that they call through pointers.
 * FDRY_E_REFUSED names one whose address is not in its table. */
int fdry_seal_functions(struct fdry_seal *s) __must_check;
/* Whether an argument of a graph may be the address of such a function. */
bool fdry_seal_functions_in_args(const struct fdry_seal *s);

/* heap.c: after the kernels are sliced, find the device's heap, if one of them allocates or
 * any kernel has. */
int fdry_seal_heap(struct fdry_seal *s) __must_check;
/* Whether @addr may point into it. If the bounds are not exact, the driver must not know @addr. */
static inline bool fdry_seal_heap_may_hold(const struct fdry_seal *s, uint64_t addr)
{
	return addr - s->heap.start < s->heap.end - s->heap.start;
}

/* arrays.c: implements fdry_cuarray_fn. @arg: the seal. */
int fdry_seal_array(void *arg, CUgraph graph, CUarray handle, uint32_t *number,
		    struct fdry_cuarray *ret) __must_check;
/* Store the content of arrays. */
int fdry_seal_arrays_content(struct fdry_seal *s) __must_check;
/* Call @fn for each array. */
int fdry_seal_arrays_each(const struct fdry_seal *s,
			  int (*fn)(void *arg, const struct fdry_cuarray *array),
			  void *arg) __must_check;
/* FDRY_E_STATE if an array was destroyed since a graph named it. */
int fdry_seal_arrays_still(const struct fdry_seal *s) __must_check;

/* host.c: add the segments of host tensors to the manifest. FDRY_E_STATE if the memory of a tensor
 * was freed. */
int fdry_seal_hosts(struct fdry_seal *s) __must_check;
/* Implements fdry_host_fn. @arg: the seal. */
void fdry_seal_host(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret);
/* Add the addresses of segments that lie in pinned memory which graphs use at its own address. */
int fdry_seal_host_places(struct fdry_seal *s) __must_check;
/* Call @fn for each external host tensor with a byte in [@addr, @end), in the order of addresses.
 */
int fdry_seal_host_externals(const struct fdry_seal *s, uint64_t addr, uint64_t end,
			     int (*fn)(void *arg, uint64_t addr, uint64_t end),
			     void *arg) __must_check;
/* Store the content of host segments. */
int fdry_seal_host_content(struct fdry_seal *s) __must_check;
/* Return FDRY_E_STATE if host memory was freed since fdry_seal_hosts(). */
int fdry_seal_hosts_still(const struct fdry_seal *s) __must_check;

/* pinned.c: pinned host memory that graphs use at its own address. */

/* List the pinned memory of the capture. */
int fdry_seal_pinned_list(struct fdry_seal *s) __must_check;
/* Find the kind of memory at @addr like fdry_seal_ptr(), if it is or was pinned memory of the
 * capture; else return false. The image gets all allocations that were found. */
bool fdry_seal_pinned_ptr(struct fdry_seal *s, uint64_t addr, uint64_t bytes, enum fdry_where *ret,
			  const char **what);
/* pinned_content.c: after all other content, store the allocations that were found, and those that
 * their content points to. */
int fdry_seal_pinned(struct fdry_seal *s) __must_check;
/* Write the entries of all that was stored to the manifest. */
int fdry_seal_pinned_put(struct fdry_seal *s) __must_check;
/* Whether a listed allocation holds the byte at @addr. */
bool fdry_seal_pinned_lists(const struct fdry_seal *s, uint64_t addr);
/* Whether the image has an allocation that holds the byte at @addr. */
bool fdry_seal_pinned_holds(const struct fdry_seal *s, uint64_t addr);
/* FDRY_E_STATE if such an allocation was freed since it was listed. */
int fdry_seal_pinned_still(const struct fdry_seal *s) __must_check;
void fdry_seal_pinned_release(struct fdry_seal *s);

/* pointers.c: search content for pointers to memory that an image does not hold, and count them in
 * the report. */
struct fdry_pointers;
/* Words into the region are searched for, too: the audit counts them. */
int fdry_pointers_new(const struct fdry_seal_maps *maps, const struct fdry_layout *l,
		      struct fdry_pointers **ret) __must_check;
void fdry_pointers_free(struct fdry_pointers *p);
/* FDRY_E_REFUSED: the message names the place of the pointer and its target. */
/* Pointers to variables of the kernels' modules are no error. They are appended to s->found. */
int fdry_pointers_look(struct fdry_seal *s, uint64_t addr, const uint8_t *bytes,
		       size_t len) __must_check;
/* The same in two steps. First, any thread appends the words that may be pointers to @words, as
 * struct fdry_sealed_word. The result depends only on the bytes and on the upper halves. */
int fdry_pointers_find(const struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len,
		       struct fdry_buf *words) __must_check;
/* Second, the sealing thread judges these words, in the order of addresses. */
int fdry_pointers_judge(struct fdry_seal *s, const struct fdry_sealed_word *words,
			size_t n) __must_check;
/* Search for the words whose upper halves are in @before, those of an earlier seal. If the process
 * has mappings with other upper halves, the results of earlier seals may lack words. Then return
 * true, and add the upper halves of all mappings and of their neighbours. Neighbours are added
 * because stacks of threads and the heap grow into them between seals.
 */
bool fdry_pointers_remember(struct fdry_pointers *p, const uint64_t *before);
void fdry_pointers_halves(const struct fdry_pointers *p, uint64_t *ret);
/* Search for words that point into the heap, too. */
void fdry_pointers_heap(struct fdry_pointers *p, const struct fdry_heap *heap);

/* variables.c: after the kernels are sliced, search the values of their variables for pointers.
 * FDRY_E_REFUSED names a variable that points to memory which the image does not hold. */
int fdry_seal_values_search(struct fdry_seal *s) __must_check;
/* Store the values. */
int fdry_seal_values(struct fdry_seal *s) __must_check;

/* targets.c: note the pointers to module variables in the graph that entered the manifest last. */
int fdry_seal_graph_pointers(struct fdry_seal *s, const struct fdry_buf *words) __must_check;
/* After all graphs: find these variables. If one is unknown, *ret is the index of its graph among
 * those of the manifest; otherwise UINT32_MAX. */
int fdry_seal_args_find(struct fdry_seal *s, uint32_t *ret) __must_check;
/* Whether a chunk has a word of s->found. */
bool fdry_seal_chunk_points(const struct fdry_seal *s, const struct fdry_mf_chunk *chunk);
/* Set these words to zero in the bytes of such a chunk, note them as pointers in content, and
 * change the chunk's id and fingerprint. */
int fdry_seal_chunk_pointers(struct fdry_seal *s, struct fdry_mf_chunk *chunk,
			     struct fdry_fingerprint *print, uint8_t *bytes) __must_check;
/* The same for the value of a variable. @variable: its index in the manifest. */
int fdry_seal_value_pointers(struct fdry_seal *s, uint32_t variable, uint64_t base, uint64_t addr,
			     uint8_t *bytes, size_t len) __must_check;
/* After the kernels and values: add the variables and the pointers to the manifest. */
int fdry_seal_targets(struct fdry_seal *s) __must_check;

/* events.c: note the events of the graph that entered the manifest last: CUevent each, by index. */
int fdry_seal_graph_events(struct fdry_seal *s, const struct fdry_buf *events) __must_check;
/* After the graphs, add the events that several of them use to the manifest. */
int fdry_seal_events(struct fdry_seal *s) __must_check;

/* random.c: list what the graphs of the seal draw. The strings are the capture's. */
int fdry_seal_rng_uses_list(struct fdry_seal *s) __must_check;
/* After the layout, set the cells of generators to zero and add the generators to the manifest. */
int fdry_seal_generators(struct fdry_seal *s) __must_check;
/* Add the draws of graph @g, the next of the manifest, to the manifest. FDRY_E_REFUSED if the graph
 * reads its seed elsewhere. */
int fdry_seal_rng_uses(struct fdry_seal *s, const struct fdry_capture_graph *g,
		       const struct fdry_graph_view *view) __must_check;

/* externals.c: after all tensors are in the manifest, add the fingerprints of external
 * constants. */
int fdry_seal_externals(struct fdry_seal *s) __must_check;

/* selftest.c: after all tensors are in the manifest, replay the graphs if the program asked for it,
 * and add the results to the manifest. */
int fdry_seal_selftest(struct fdry_seal *s) __must_check;

/* audit.c: after the layout and the list of pinned memory, before the others. */
int fdry_seal_audit_begin(struct fdry_seal *s) __must_check;
/* Count the words of the graph that entered the manifest last. @bytes: its object. */
int fdry_seal_audit_graph(struct fdry_seal *s, struct fdry_capture_graph *g,
			  struct fdry_span bytes) __must_check;
/* Count words of content. Those that fdry_pointers_find() leaves out are no pointers. */
int fdry_seal_audit_words(struct fdry_seal *s, const struct fdry_sealed_word *words,
			  size_t n) __must_check;
/* After pinned memory and targets: add the audit to the manifest. */
int fdry_seal_audit_put(struct fdry_seal *s) __must_check;
void fdry_seal_audit_release(struct fdry_seal *s);

/* content.c: store the content of the layout, and add its chunks to the manifest. */
int fdry_seal_content(struct fdry_seal *s) __must_check;

#endif
