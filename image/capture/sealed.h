/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed.h - what a capture remembers of the memory that it sealed last.
 *
 * The next seal computes the fingerprints of all memory on the GPU. Memory whose fingerprint is
 * still the same is not read back: all that a seal found out about it stands here. An entry follows
 * from its address and its bytes alone, so an old one is never wrong.
 */
#ifndef FDRY_IMAGE_CAPTURE_SEALED_H
#define FDRY_IMAGE_CAPTURE_SEALED_H

#include "graph/fingerprint.h"
#include "image/manifest_format.h"

struct fdry_capture;

/* Upper halves of addresses have 15 bits: see seal/pointers.c. */
#define FDRY_SEALED_HALVES (1u << 15)

/* A word of content that may be a pointer, and its address. */
struct fdry_sealed_word {
	uint64_t at, word;
};

/* A cell of content: see seal/content.c. */
struct fdry_sealed_cell {
	uint64_t origin, addr, len;
	struct fdry_fingerprint print; /* of all its bytes */
	uint64_t zeros;                /* bytes that are in no chunk */
	size_t chunk, nchunks;         /* its chunks */
	size_t word, nwords;           /* its words; */
	bool wordy;                    /* there were more than are worth keeping */
};

/* Whether the blocks of a piece of memory still have the stamp: see layout.c. */
#define FDRY_SEALED_BLOCKS 1024u
struct fdry_sealed_stamps {
	uint64_t addr, len;
	struct fdry_fingerprint print;
	uint64_t stamped[FDRY_SEALED_BLOCKS / 64];
};

struct fdry_sealed {
	struct fdry_buf cells;  /* of struct fdry_sealed_cell, ascending */
	struct fdry_buf chunks; /* of struct fdry_mf_chunk, ascending */
	struct fdry_buf prints; /* of struct fdry_fingerprint, one for each chunk */
	struct fdry_buf words;  /* of struct fdry_sealed_word, ascending */
	struct fdry_buf stamps; /* of struct fdry_sealed_stamps, ascending */
	/* The upper halves that words were searched for. */
	uint64_t halves[FDRY_SEALED_HALVES / 64];
	struct fdry_fingerprinter *f; /* of the capture's context; NULL until it is used */
	bool unreadable; /* this seal has memory that the device cannot read, so no kernel may */
};

/* Add a cell behind the others; it has copies of its chunks, fingerprints and words. */
int fdry_sealed_add(struct fdry_sealed *s, const struct fdry_sealed_cell *cell,
		    const struct fdry_mf_chunk *chunks, const struct fdry_fingerprint *prints,
		    const struct fdry_sealed_word *words) __must_check;

/* NULL if there is none of this place and size. */
const struct fdry_sealed_cell *fdry_sealed_cell(const struct fdry_sealed *s, uint64_t origin,
						uint64_t addr, uint64_t len);
const struct fdry_sealed_stamps *fdry_sealed_stamps(const struct fdry_sealed *s, uint64_t addr,
						    uint64_t len);
/* The chunk with these bytes at this address; NULL if there is none. */
const struct fdry_mf_chunk *fdry_sealed_chunk(const struct fdry_sealed *s, uint64_t addr,
					      uint64_t len, struct fdry_fingerprint print);

/* Free what it remembers of content; what it remembers of stamps and the kernel stay. */
void fdry_sealed_content_release(struct fdry_sealed *s);
/* Free all. The context of the capture is current; false @alive: there is none, as in a child. */
void fdry_sealed_release(struct fdry_sealed *s, bool alive);

/**
 * fdry_sealed_fingerprints() - Compute fingerprints of memory on the GPU.
 * @ret: one for each range
 *
 * Return: whether it worked. If not, the caller reads the memory: that is as exact, and slower. It
 * is counted. Context: that of the capture is current, and the device is idle.
 */
bool fdry_sealed_fingerprints(struct fdry_capture *cap, const struct fdry_fingerprint_range *ranges,
			      size_t n, struct fdry_fingerprint *ret);

#endif
