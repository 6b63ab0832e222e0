/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed.h - the results of a capture's last seal that the next seal can use again.
 *
 * The next seal computes the fingerprints of all memory on the GPU. It does not read back memory
 * whose fingerprint did not change, but uses the results that the last seal stored here. A result
 * depends only on the address and the bytes of the memory, so an old one is never wrong.
 */
#ifndef FDRY_IMAGE_CAPTURE_SEALED_H
#define FDRY_IMAGE_CAPTURE_SEALED_H

#include "graph/fingerprint.h"
#include "image/manifest_format.h"

struct fdry_capture;

/* Addresses have 47 bits, so their upper halves have 15: see seal/pointers.c. */
#define FDRY_SEALED_HALVES (1u << 15)

/* A word of content that may be a pointer, and its address. */
struct fdry_sealed_word {
	uint64_t at, word;
};

/* A cell is the piece of content that a seal looks up at once: see seal/content.c. */
struct fdry_sealed_cell {
	uint64_t origin, addr, len;
	struct fdry_fingerprint print; /* of all its bytes */
	uint64_t zeros;                /* bytes that are in no chunk */
	size_t chunk, nchunks;         /* its chunks */
	size_t word, nwords;           /* its words */
	bool wordy; /* it had too many words to keep, or pointers to module variables */
};

/* A chunk of a host segment. */
struct fdry_sealed_host {
	uint64_t addr, size;
	struct fdry_fingerprint print;
	struct fdry_oid oid;
};

/* The blocks of a piece of memory that still have the stamp, with which the region fills memory
 * allocated during a stream's capture: see layout.c. */
#define FDRY_SEALED_BLOCKS 1024u
struct fdry_sealed_stamps {
	uint64_t addr, len;
	struct fdry_fingerprint print;
	uint64_t stamped[FDRY_SEALED_BLOCKS / 64];
};

/* The audit of a graph's arguments: it follows from the graph object and from the memory by which
 * words are judged. */
struct fdry_sealed_audit {
	bool has;
	struct fdry_oid object;
	struct fdry_fingerprint memory; /* of the segments, the region's bounds and pinned memory */
	struct fdry_mf_audit entry;
};

struct fdry_sealed {
	struct fdry_buf cells;  /* of struct fdry_sealed_cell, ascending */
	struct fdry_buf chunks; /* of struct fdry_mf_chunk, ascending */
	struct fdry_buf prints; /* of struct fdry_fingerprint, one for each chunk */
	struct fdry_buf words;  /* of struct fdry_sealed_word, ascending */
	struct fdry_buf stamps; /* of struct fdry_sealed_stamps, ascending */
	/* The upper halves of addresses that the last seal searched for. */
	uint64_t halves[FDRY_SEALED_HALVES / 64];
	struct fdry_buf hosts; /* of struct fdry_sealed_host, in the order of the manifest */
	struct fdry_shared_fingerprinter *f; /* of the capture's context; NULL until it is used */
	bool unreadable; /* the device cannot read some memory of this seal, so no kernel may read
			    any */
};

/* Add a cell after the others. Its chunks, fingerprints and words are copied. */
int fdry_sealed_add(struct fdry_sealed *s, const struct fdry_sealed_cell *cell,
		    const struct fdry_mf_chunk *chunks, const struct fdry_fingerprint *prints,
		    const struct fdry_sealed_word *words) __must_check;

/* The result for this address and size; NULL if there is none. */
const struct fdry_sealed_cell *fdry_sealed_cell(const struct fdry_sealed *s, uint64_t origin,
						uint64_t addr, uint64_t len);
const struct fdry_sealed_stamps *fdry_sealed_stamps(const struct fdry_sealed *s, uint64_t addr,
						    uint64_t len);
/* The chunk with these bytes at this address; NULL if there is none. */
const struct fdry_mf_chunk *fdry_sealed_chunk(const struct fdry_sealed *s, uint64_t addr,
					      uint64_t len, struct fdry_fingerprint print);

/* Free the results for content in device memory. The others stay. */
void fdry_sealed_content_release(struct fdry_sealed *s);
/* Free everything. The context of the capture must be current. @alive: false if there is none, as
 * in a child of fork(). */
void fdry_sealed_release(struct fdry_sealed *s, bool alive);

/**
 * fdry_sealed_fingerprints() - Compute fingerprints of memory on the GPU.
 * @ret: one for each range
 *
 * Return: whether the GPU computed them. If not, the failure is counted, and the caller must read
 * the memory, which is as exact but slower. Context: that of the capture must be current, and the
 * device idle.
 */
bool fdry_sealed_fingerprints(struct fdry_capture *cap, const struct fdry_fingerprint_range *ranges,
			      size_t n, struct fdry_fingerprint *ret);

#endif
