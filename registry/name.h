/* SPDX-License-Identifier: Apache-2.0 */
/* name.h - the name of an artifact: oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]. */
#ifndef FDRY_REGISTRY_NAME_H
#define FDRY_REGISTRY_NAME_H

#include <stdbool.h>

#include "lib/oid.h"

#define FDRY_REGISTRY_HOST_MAX 255
#define FDRY_REGISTRY_REPO_MAX 255
#define FDRY_REGISTRY_TAG_MAX 128

struct fdry_registry_name {
	bool plain;                            /* oci+http:// */
	char host[FDRY_REGISTRY_HOST_MAX + 1]; /* with the port */
	char repo[FDRY_REGISTRY_REPO_MAX + 1];
	char tag[FDRY_REGISTRY_TAG_MAX + 1];   /* "latest" if neither tag nor digest is given */
	bool by_digest;
	struct fdry_oid digest;
};

/* FDRY_E_INVAL, with a message that says which part is wrong. */
int fdry_registry_name_parse(const char *text, struct fdry_registry_name *ret) __must_check;
/* FDRY_E_INVAL if it is no repository's name. */
int fdry_registry_repo_check(const char *repo, size_t len) __must_check;

#endif
