/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - libfoundry's own part of pushes to container registries and pulls from them.
 *
 * registry.c opens libfoundry-registry.so, which speaks with registries. push.c gives it objects
 * to send, and pull.c stores the objects that it fetches. fdry_store_push() and fdry_store_pull()
 * are in image/, since the store and this folder do not read what a manifest says about content.
 */
#ifndef FDRY_REGISTRY_REGISTRY_H
#define FDRY_REGISTRY_REGISTRY_H

#include "registry/client.h"
#include "store/store.h"

/* The client, opened by the first call. FDRY_E_NOCLIENT. */
int fdry_registry_open(const struct fdry_registry_client **ret) __must_check;
/* Turn the result of a client's call into an error with its message. @own: the error that one of
 * the caller's own functions returned during the call, whose message is already set, or 0. */
int fdry_registry_result(const struct fdry_registry_client *client, int ret, int own) __must_check;
/* The rate of a push or pull. Zero it to start. */
struct fdry_registry_meter {
	double start_ms, last_ms, said_ms;
	double rate; /* bytes a second */
	uint64_t last_moved;
};
/* Call the functions of @opts, and write a message every ten seconds. Errors: FDRY_E_CALLBACK (one
 * of them stops the push or pull). */
int fdry_registry_meter_report(struct fdry_registry_meter *m, const struct fdry_registry_opts *opts,
			       const struct fdry_registry_done *done) __must_check;
/* Options with their defaults. FDRY_E_OPTS, FDRY_E_LIMIT. */
int fdry_registry_opts_take(const struct fdry_registry_opts *opts,
			    struct fdry_registry_opts *ret) __must_check;

/* Append "oci://HOST/REPOSITORY:TAG" for a ref, in the repository that FOUNDRY_REGISTRY names, with
 * a terminator. FDRY_E_INVAL if the variable is not set; FDRY_E_NAME. */
int fdry_registry_target(const char *ref, struct fdry_buf *ret) __must_check;
/* Append the ids of an image's objects in the order in which a load needs them. @manifest is 8-byte
 * aligned, and need not be valid. */
typedef int (*fdry_registry_order_fn)(struct fdry_span manifest, struct fdry_buf *ret);

struct fdry_registry_pull {
	const struct fdry_registry_opts *opts; /* NULL: the defaults */
	fdry_registry_order_fn order;
	struct fdry_arrival *arrival; /* NULL, or notified of the objects that have been
				       * stored; the caller ends it */
};
/* As fdry_store_pull(). */
int fdry_registry_pull(struct fdry_store *s, const char *from, const struct fdry_registry_pull *how,
		       struct fdry_registry_report *report) __must_check;

struct fdry_registry_fetch;

/*
 * fdry_registry_fetch_begin() - Fetch the images of a ref from the registry that FOUNDRY_REGISTRY
 * names, in a thread.
 * @stop: NULL, or the function that may stop it, in this thread and in the one that fetches; @ms
 * does not matter
 * @ret: NULL if no registry is named, or @ref is no ref. fdry_registry_fetch_end() must follow
 *
 * Several processes that call this at the same time fetch once: the others wait.
 */
int fdry_registry_fetch_begin(struct fdry_store *s, const char *ref, fdry_registry_order_fn order,
			      const struct fdry_wait *stop,
			      struct fdry_registry_fetch **ret) __must_check;
/* The arrival from which a load may begin before all objects are in the store. NULL if the fetch
 * has ended: then the images are in the store, or fdry_registry_fetch_end() returns the error. */
struct fdry_arrival *fdry_registry_fetch_arrival(struct fdry_registry_fetch *f);
/* Wait for the end of the fetch. Returns its error. The arrival is freed. */
int fdry_registry_fetch_end(struct fdry_registry_fetch *f) __must_check;

/* A source of repairs (store/repair.h): the repository that FOUNDRY_REGISTRY names. @wait: NULL, or
 * the function that may end the wait for it, and the longest time in which nothing comes from it,
 * 0: as FOUNDRY_REGISTRY_TIMEOUT and FOUNDRY_REGISTRY_RETRIES allow. @ret: NULL if none is named.
 * The registry is asked when the first object is wanted, and not again after a failure.
 * fdry_source_close() frees it. */
int fdry_registry_source_new(const struct fdry_wait *wait,
			     struct fdry_source **ret) __must_check;

/* Called for each image of a push, with its manifest, 8-byte aligned: an error refuses the push. */
typedef int (*fdry_registry_check_fn)(struct fdry_store *s, const struct fdry_oid *image,
				      struct fdry_span manifest);
/* As fdry_store_push(). @check: NULL, or called unless FDRY_REGISTRY_PRIVATE is set. */
int fdry_registry_push(struct fdry_store *s, const char *const *names, size_t count, const char *to,
		       const struct fdry_registry_opts *opts, fdry_registry_check_fn check,
		       struct fdry_registry_report *report) __must_check;

#endif
