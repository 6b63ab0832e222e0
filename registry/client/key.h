/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - keys that sign images and verify signatures: Ed25519, and ECDSA on the curve P-256. */
#ifndef FDRY_REGISTRY_KEY_H
#define FDRY_REGISTRY_KEY_H

#include <openssl/evp.h>
#include <stdbool.h>

#include "lib/buf.h"

/* A private or a public key from a file in PEM format. FDRY_E_ENV if there is no key of these kinds
 * in it, or it is encrypted. The caller calls EVP_PKEY_free(). */
int fdry_key_private(const char *path, EVP_PKEY **ret) __must_check;
int fdry_key_public(const char *path, EVP_PKEY **ret) __must_check;
/* Append the signature of @text. */
int fdry_key_sign(EVP_PKEY *key, struct fdry_span text, struct fdry_buf *ret) __must_check;
/* Whether @key made @signature for @text. */
bool fdry_key_verifies(EVP_PKEY *key, struct fdry_span text, struct fdry_span signature);

#endif
