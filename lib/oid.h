/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oid.h - object ids: the SHA-256 of an object's canonical, uncompressed bytes.
 *
 * Only this file computes an id, reads it from text or writes it as text. The text form is 64
 * lower-case hexadecimal digits.
 */
#ifndef FDRY_LIB_OID_H
#define FDRY_LIB_OID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/err.h"

#define FDRY_OID_SIZE 32
#define FDRY_OID_HEX_SIZE (2 * FDRY_OID_SIZE + 1)

struct fdry_oid {
	uint8_t b[FDRY_OID_SIZE];
};

/* The id of @len bytes. */
int fdry_oid_of(const void *data, size_t len, struct fdry_oid *ret) __must_check;
/* Write 64 digits and a terminator to @hex, and return it. */
char *fdry_oid_hex(const struct fdry_oid *oid, char hex[FDRY_OID_HEX_SIZE]);
/* Exactly 64 digits; anything else is FDRY_E_INVAL. */
int fdry_oid_parse(const char *hex, struct fdry_oid *ret) __must_check;

static inline bool fdry_oid_eq(const struct fdry_oid *a, const struct fdry_oid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* For qsort() and bsearch(): compares ids, or structs that begin with an id. */
static inline int fdry_oid_cmp(const void *a, const void *b)
{
	return memcmp(a, b, FDRY_OID_SIZE);
}

/* An id of bytes that come in pieces. Zero it, update it, then call final, which frees it, or
 * release. */
struct fdry_hash {
	void *ctx;
};
int fdry_hash_update(struct fdry_hash *h, const void *data, size_t len) __must_check;
int fdry_hash_final(struct fdry_hash *h, struct fdry_oid *ret) __must_check;
void fdry_hash_release(struct fdry_hash *h);

#endif
