/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - images of a store in container registries: what libfoundry itself does for that.
 *
 * client.c opens libfoundry-registry.so, which speaks with registries. push.c and pull.c ask and
 * feed it. fdry_store_pull() is in pull.c; fdry_store_push() is in image/push.c, since the store
 * and this folder do not know what a manifest says about an image's content.
 */
#ifndef FDRY_REGISTRY_REGISTRY_H
#define FDRY_REGISTRY_REGISTRY_H

#include "registry/client.h"
#include "store/store.h"

/* The client, opened by the first call. FDRY_E_NOCLIENT. */
int fdry_registry_open(const struct fdry_registry_client **ret) __must_check;
/* What a call of the client returned, with its message. @own: what a function of the caller
 * returned in it, or 0; its message is in place. */
int fdry_registry_result(const struct fdry_registry_client *client, int ret, int own) __must_check;
/* Options with their defaults. FDRY_E_OPTS, FDRY_E_LIMIT. */
int fdry_registry_opts_take(const struct fdry_registry_opts *opts,
			    struct fdry_registry_opts *ret) __must_check;

/* Append "oci://HOST/REPOSITORY:TAG" for a ref, in the repository that FOUNDRY_REGISTRY names, with
 * a terminator. FDRY_E_INVAL if the variable is not set; FDRY_E_NAME. */
int fdry_registry_target(const char *ref, struct fdry_buf *ret) __must_check;
/* Fetch the images of a ref from there. Several processes that call this at the same time fetch
 * once. Without the variable, and for other names, nothing happens. */
int fdry_registry_fetch(struct fdry_store *s, const char *ref, bool *fetched) __must_check;

/* Called for each image of a push, with its manifest, 8-byte aligned: an error refuses the push. */
typedef int (*fdry_registry_check_fn)(struct fdry_store *s, const struct fdry_oid *image,
				      struct fdry_span manifest);
/* As fdry_store_push(). @check: NULL, or called unless FDRY_REGISTRY_PRIVATE is set. */
int fdry_registry_push(struct fdry_store *s, const char *const *names, size_t count, const char *to,
		       const struct fdry_registry_opts *opts, fdry_registry_check_fn check,
		       struct fdry_registry_report *report) __must_check;

#endif
