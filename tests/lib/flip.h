/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flip.h - bits that flip in a store's file after they were verified.
 *
 * The notes of what was verified hold for one state of data.mdb, which a write of a test ends.
 * flip_trust() puts the notes back for the state after it, as if memory or the disk had changed the
 * bit and no file system knew.
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
/* Chunk @i of @ref, counted over those on the device and then those in host memory. False if there
 * are fewer. */
bool flip_nth(struct fdry_store *s, const char *ref, uint32_t i, struct flip_chunk *ret);
void flip_bit(const struct flip_chunk *c, uint64_t bit);
void flip_trust(const struct flip_chunk *c);
void flip_release(struct flip_chunk *c);

#endif
