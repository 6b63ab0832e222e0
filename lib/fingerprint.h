/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.h - 128 bits computed from bytes, to detect that the bytes have changed.
 *
 * A fingerprint finds accidents: a changed bit, bytes that were swapped, moved, cut off or filled
 * with zeros. It has no key and is no defence against an attacker; object ids (oid.h) are. It runs
 * at the speed of memory, and a GPU can compute the same value.
 *
 * Bytes are cut into blocks of FDRY_FINGERPRINT_BLOCK from their start. Each block has a value of
 * its own, and the values of all blocks give the fingerprint.
 */
#ifndef FDRY_LIB_FINGERPRINT_H
#define FDRY_LIB_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/fingerprint_mix.h"

/* The fingerprint of @len bytes. It never fails. */
struct fdry_fingerprint fdry_fingerprint_of(const void *bytes, size_t len);

/* The value of one block: @len is at least 1 and at most FDRY_FINGERPRINT_BLOCK. */
struct fdry_fingerprint fdry_fingerprint_block(const void *bytes, size_t len);

/* How many blocks @len bytes have. */
static inline size_t fdry_fingerprint_blocks(uint64_t len)
{
	return (size_t)(len / FDRY_FINGERPRINT_BLOCK + (len % FDRY_FINGERPRINT_BLOCK != 0));
}

/* The fingerprint of @len bytes, from the values of their blocks in order. */
struct fdry_fingerprint fdry_fingerprint_join(uint64_t len, const struct fdry_fingerprint *blocks);

static inline bool fdry_fingerprint_eq(struct fdry_fingerprint x, struct fdry_fingerprint y)
{
	return x.a == y.a && x.b == y.b;
}

#endif
