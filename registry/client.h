/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - the table of libfoundry-registry.so, through which libfoundry talks to registries.
 *
 * That library holds all code that needs libcurl, TLS and JSON (registry/client/). libfoundry opens
 * it when a program first names a registry. It knows nothing of stores: the functions here ask
 * for objects and deliver them. It has an error state of its own, which @last_error reads; a
 * function of the caller returns its code through the client; libfoundry keeps its message.
 *
 * Documentation/format/registry.rst describes how an image lies in a registry.
 */
#ifndef FDRY_REGISTRY_CLIENT_H
#define FDRY_REGISTRY_CLIENT_H

#include "foundry/registry.h"
#include "lib/buf.h"
#include "lib/oid.h"

/* An object of a list: see store/pack.h. */
struct fdry_registry_blob {
	struct fdry_oid oid;
	uint64_t size;
	uint32_t kinds;
	bool has; /* for a pull: the store has it */
};

/* How much of a push or pull is done. This counts objects that the other side already had, except
 * in @bytes_moved. */
struct fdry_registry_done {
	uint64_t bytes, bytes_total, objects, objects_total, bytes_moved;
};

/* The functions of the caller that the client calls during a push or pull. Each returns 0 or an
 * error, which ends the push or pull. */
struct fdry_registry_caller {
	void *arg;
	/* For a push: append the bytes of blob @i, checked against its id. */
	int (*read)(void *arg, size_t i, struct fdry_buf *ret);
	/* For a pull: the list has arrived. @ret lasts until the call ends. */
	int (*list)(void *arg, struct fdry_span list, const struct fdry_registry_blob **ret,
		    size_t *count);
	/* For a pull: the positions of @count blobs to fetch, in the order in which they are put.
	 * It is called until there are none; the first call marks the blobs that the store has.
	 * @ret lasts until the next call. */
	int (*next)(void *arg, const size_t **ret, size_t *count);
	/* For a pull: store blob @i, which the store lacks. The client has compared its SHA-256
	 * with its id. */
	int (*put)(void *arg, size_t i, struct fdry_span bytes);
	/* For fetched blobs: neither the registry nor a mirror has blob @i. @err: FDRY_E_NOENT, or
	 * FDRY_E_CORRUPT for other bytes in its place. */
	int (*miss)(void *arg, size_t i, int err);
	/* More has been done since the last call. */
	int (*progress)(void *arg, const struct fdry_registry_done *done);
	/* For a pull: 0, or the longest time in which nothing may come, with all repetitions. A
	 * mirror gets 10 s of it at most. */
	uint32_t patience_ms;
};

struct fdry_registry_push {
	struct fdry_span list;
	struct fdry_oid list_id;
	const struct fdry_registry_blob *blobs;
	size_t count;
	bool only_sign; /* send nothing but the signature; the registry must have the rest */
};

enum fdry_repo_mode { FDRY_REPO_TAGS, FDRY_REPO_UNPUSH, FDRY_REPO_PRUNE };
struct fdry_repo_call {
	enum fdry_repo_mode mode;
	const struct fdry_repo_opts *opts; /* complete */
};

struct fdry_registry_client {
	const char *version; /* FDRY_VERSION of both sides must be equal */
	const char *(*last_error)(void);
	/* @opts are complete. They set @id, @manifests, @requests, @objects_sent, @bytes_sent and
	 * their siblings in @report. */
	int (*push)(const char *to, const struct fdry_registry_opts *opts,
		    const struct fdry_registry_push *push,
		    const struct fdry_registry_caller *caller,
		    struct fdry_registry_report *report);
	int (*pull)(const char *from, const struct fdry_registry_opts *opts,
		    const struct fdry_registry_caller *caller,
		    struct fdry_registry_report *report);
	/* Fetch blobs by their ids alone: @list of the caller is not called, and no policy counts,
	 * as no manifest is read. @from: any tag. */
	int (*blobs)(const char *from, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_blob *blobs, size_t count,
		     const struct fdry_registry_caller *caller,
		     struct fdry_registry_report *report);
	int (*repo)(const char *name, const struct fdry_repo_call *call,
		    struct fdry_repo_report *report);
};

#define FDRY_REGISTRY_CLIENT_SYMBOL "fdry_registry_client"
extern const struct fdry_registry_client fdry_registry_client;

#endif
