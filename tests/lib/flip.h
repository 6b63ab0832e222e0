/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flip.h - flips bits in a store's file after they were verified. The notes of verified objects are
 * valid for one state of data.mdb, which a write of a test ends. flip_trust() restores the notes
 * for the new state, as if memory or the disk had changed the bit without a write.
 */
#ifndef FDRY_TESTS_LIB_FLIP_H
#define FDRY_TESTS_LIB_FLIP_H

#include "tests/lib/store.h"

struct flip_chunk {
	int data; /* data.mdb */
	off_t at;        /* the bytes of the chunk in data.mdb */
	uint64_t len;
	struct fdry_buf trusted; /* the notes when the chunk was looked up */
};

/* The first chunk of tensor @name of image @ref, on the device or in host memory. */
void flip_find(struct fdry_store *s, const char *ref, const char *name, struct flip_chunk *ret);
/* Chunk @i of @ref, counted over those on the device, then those in host memory, then those in
 * pinned memory, then the pieces of arrays. False if there are fewer. */
bool flip_nth(struct fdry_store *s, const char *ref, uint32_t i, struct flip_chunk *ret);
void flip_bit(const struct flip_chunk *c, uint64_t bit);
void flip_trust(const struct flip_chunk *c);
void flip_release(struct flip_chunk *c);

#endif
