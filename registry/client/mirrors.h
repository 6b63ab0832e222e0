/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirrors.h - the places that a pull asks before the registry itself;
 * Documentation/format/mirrors.rst specifies the file that names them.
 *
 * The registry itself says which digest a tag names. Everything else is asked for by its digest, so
 * a mirror that is stale, damaged or down costs time, and nothing else. Each mirror is a session of
 * its own, with the credentials and certificates of its own host.
 */
#ifndef FDRY_REGISTRY_MIRRORS_H
#define FDRY_REGISTRY_MIRRORS_H

#include "registry/client/http.h"

#define FDRY_MIRRORS_MAX 8u /* of one prefix */

/* The mirrors and then the registry itself. */
struct fdry_sources {
	struct fdry_http http[FDRY_MIRRORS_MAX + 1];
	bool out[FDRY_MIRRORS_MAX + 1]; /* it has failed, and is not used again */
	size_t origin;                  /* the position of the registry itself, which is the last */
};

/* FDRY_E_ENV if the user's file of mirrors cannot be used. */
int fdry_sources_open(struct fdry_sources *s, const struct fdry_registry_name *name,
		      const struct fdry_http_opts *opts) __must_check;
void fdry_sources_close(struct fdry_sources *s);
/* The first place at @from or behind it that has not failed. */
size_t fdry_sources_next(const struct fdry_sources *s, size_t from);
/* Whether to ask the next place for what @i did not deliver: false if the error is our own. The
 * last error says what happened; it is logged. */
bool fdry_sources_pass_over(struct fdry_sources *s, size_t i, int err);
/* Do not ask mirror @i again in this pull, nor for half a minute in other pulls of this process. */
void fdry_sources_drop(struct fdry_sources *s, size_t i);

#endif
