/* SPDX-License-Identifier: Apache-2.0 */
/*
 * creds.h - the user's credentials for a registry, from the files and helpers that container tools
 * use.
 *
 * The files, in this order: REGISTRY_AUTH_FILE alone if it is set; else containers/auth.json in
 * XDG_RUNTIME_DIR and in XDG_CONFIG_HOME (~/.config), and config.json in DOCKER_CONFIG (~/.docker).
 * The first file with an entry for the registry counts. In a file, a helper of "credHelpers" comes
 * first, then "auths", whose key may have a path (the longest that fits counts), then "credsStore".
 */
#ifndef FDRY_REGISTRY_CREDS_H
#define FDRY_REGISTRY_CREDS_H

#include <stdbool.h>

#include "lib/err.h"

struct fdry_creds {
	char *user, *secret; /* NULL: none */
	char *identity;      /* a refresh token in place of both */
	char *absent;        /* a helper that should have been asked and is not in PATH, or NULL */
};

struct fdry_http;

/* Those for the registry of a session. No entry is no error: @ret is then empty. FDRY_E_ENV if a
 * file or a helper cannot be used; FDRY_E_CALLBACK. */
int fdry_creds_read(struct fdry_http *h, struct fdry_creds *ret) __must_check;
void fdry_creds_release(struct fdry_creds *c);
/* Whether there are any. */
static inline bool fdry_creds_some(const struct fdry_creds *c)
{
	return c->user || c->identity;
}

#endif
