/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - the calls of the client's table: see registry/client.h. */
#ifndef FDRY_REGISTRY_CALLS_H
#define FDRY_REGISTRY_CALLS_H

#include "registry/client.h"

int fdry_client_push(const char *to, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_push *in, const struct fdry_registry_caller *caller,
		     struct fdry_registry_report *report) __must_check;
int fdry_client_pull(const char *from, const struct fdry_registry_opts *opts,
		     const struct fdry_registry_caller *caller,
		     struct fdry_registry_report *report) __must_check;
int fdry_client_blobs(const char *from, const struct fdry_registry_opts *opts,
		      const struct fdry_registry_blob *blobs, size_t count,
		      const struct fdry_registry_caller *caller,
		      struct fdry_registry_report *report) __must_check;
int fdry_client_repo(const char *name, const struct fdry_repo_call *call,
		     struct fdry_repo_report *report) __must_check;

#endif
