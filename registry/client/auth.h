/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.h - proving to a registry that this user may use it: Basic, or Bearer tokens that a server
 * named by the registry issues for the user's credentials.
 *
 * A session has one token. Its scope has every repository that the session uses.
 */
#ifndef FDRY_REGISTRY_AUTH_H
#define FDRY_REGISTRY_AUTH_H

#include "lib/buf.h"
#include "registry/client/creds.h"

struct fdry_http;

struct fdry_auth {
	struct fdry_creds creds;
	bool creds_read;
	struct fdry_buf scope;  /* words with spaces between them, with a terminator */
	struct fdry_buf header; /* "Authorization: ..." with a terminator; empty: none yet */
	struct fdry_buf realm, service; /* of the last challenge with Bearer; with terminators */
	unsigned int number;    /* of the header: a later one has a higher number */
	double until;           /* ms: when it should be replaced; 0: never */
};

/* The first scope; the session's own. */
int fdry_auth_init(struct fdry_auth *a, const char *scope) __must_check;
void fdry_auth_release(struct fdry_auth *a);
/* Get a header that the challenge of a 401 asks for. FDRY_E_PERM if there are no credentials for it
 * or the server refuses them. */
int fdry_auth_answer(struct fdry_http *h, const char *challenge) __must_check;
/* Replace a token that is about to expire. */
int fdry_auth_renew(struct fdry_http *h) __must_check;

/* One challenge of a header WWW-Authenticate. */
struct fdry_challenge {
	bool bearer, basic;
	char realm[1024], service[256], scope[1024]; /* "" if missing */
};
/* The Bearer challenge among those in @text, else the Basic one. FDRY_E_PERM if there is neither,
 * or a value is too long. */
int fdry_challenge_parse(const char *text, struct fdry_challenge *ret) __must_check;

#endif
