/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - which keys must have signed which images: a file that the user names;
 * Documentation/format/policy.rst specifies it.
 *
 * A policy that cannot be read or has a fault refuses every image.
 */
#ifndef FDRY_REGISTRY_POLICY_H
#define FDRY_REGISTRY_POLICY_H

#include <jansson.h>

#include "registry/client/key.h"
#include "registry/client/signature.h"
#include "registry/name.h"

#define FDRY_POLICY_KEYS 16 /* of one rule */

enum fdry_policy_rule { FDRY_POLICY_ACCEPT, FDRY_POLICY_REJECT, FDRY_POLICY_SIGNED };

/* The rule for one name. */
struct fdry_policy {
	const char *path;
	json_t *root;
	enum fdry_policy_rule rule;
	const json_t *keys; /* paths; the signature of one of them is enough */
	EVP_PKEY *pkeys[FDRY_POLICY_KEYS];
	size_t count;
	/* The name that a signature must state: this repository and, unless it is "", this tag. */
	char repo[FDRY_SIGNATURE_REFERENCE_MAX];
	const char *tag;
	bool plain; /* the name is one of HTTP, whose port is 80 */
};

/* Read the rule for @name, and its keys. FDRY_E_ENV. */
int fdry_policy_init(const char *path, const struct fdry_registry_name *name,
		     struct fdry_policy *ret) __must_check;
/* The same from a text, without the keys. @path is for messages. */
int fdry_policy_parse(struct fdry_span text, const char *path,
		      const struct fdry_registry_name *name, struct fdry_policy *ret) __must_check;
void fdry_policy_release(struct fdry_policy *p);

/* Whether a signature for @reference counts for the name. */
bool fdry_policy_fits(const struct fdry_policy *p, const char *reference);
/* Append the paths of the keys, as "a.pub" or "one of a.pub, b.pub", with a terminator. */
int fdry_policy_keys_put(const struct fdry_policy *p, struct fdry_buf *ret) __must_check;

#endif
