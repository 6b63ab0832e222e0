/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - the inside of a seal: seal.c puts its phases together, other files do one each. */
#ifndef FDRY_IMAGE_SEAL_SEAL_H
#define FDRY_IMAGE_SEAL_SEAL_H

#include "image/layout.h"
#include "image/manifest.h"
#include "graph/graph.h"
#include "store/store.h"

/* Pieces of memory that are read at the same time: as many as threads work on content, and one ahead. */
#define FDRY_SEAL_BLOCKS 17u

struct fdry_seal {
	struct fdry_capture *cap;      /* locked */
	struct fdry_store *store;
	struct fdry_writer *writer;
	struct fdry_kernel_set *kernels;
	struct fdry_mem_reader *reader;
	struct fdry_pointers *pointers;
	struct fdry_hook_live live;    /* as it was at the beginning */
	struct fdry_layout layout;
	struct fdry_buf host_tensors, hosts; /* seal_host.c's */
	struct fdry_manifest_writer w; /* what goes into the manifest, as it becomes known */
	struct fdry_seal_report report;
};

/* seal_where.c: a fdry_where_fn whose @arg is the seal. */
int fdry_seal_where(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		    const char **what) __must_check;

/* seal_host.c: host segments of the host tensors, into the manifest. FDRY_E_STATE where the memory of one is gone. */
int fdry_seal_hosts(struct fdry_seal *s) __must_check;
/* A fdry_host_fn whose @arg is the seal. */
void fdry_seal_host(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret);
/* Store the content of host segments. */
int fdry_seal_host_content(struct fdry_seal *s) __must_check;
/* FDRY_E_STATE where host memory went since. */
int fdry_seal_hosts_still(const struct fdry_seal *s) __must_check;

/* seal_pointers.c: look at content for pointers to what an image does not hold; into the report. */
struct fdry_pointers;
int fdry_pointers_new(struct fdry_pointers **ret) __must_check;
void fdry_pointers_free(struct fdry_pointers *p);
/* FDRY_E_REFUSED says where the pointer is and what it points to. */
int fdry_pointers_look(struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len) __must_check;
/* The same in two steps: put words that may be pointers into @words, by any thread, */
int fdry_pointers_find(const struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len, struct fdry_buf *words) __must_check;
/* then judge them, in the order of addresses. */
int fdry_pointers_judge(struct fdry_seal *s, const struct fdry_buf *words) __must_check;

/* seal_random.c: once the layout is known, set the cells of generators to zero, and generators into the manifest. */
int fdry_seal_generators(struct fdry_seal *s) __must_check;
/* What graph @g, the next of the manifest, draws, into the manifest. FDRY_E_REFUSED where it cannot be what the graph reads. */
int fdry_seal_draws(struct fdry_seal *s, const struct fdry_capture_graph *g, const struct fdry_graph_view *view) __must_check;

/* seal_content.c: store the content of the layout, in chunks; into segments, chunks and the report. */
int fdry_seal_content(struct fdry_seal *s) __must_check;

#endif
