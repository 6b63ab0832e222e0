/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - many requests to one registry at the same time, by libcurl's multi interface.
 *
 * A request is repeated after failures that may pass: a broken connection, a stall, and the
 * statuses 408, 425, 429, 500, 502, 503 and 504. The wait between two tries doubles and is partly
 * random; Retry-After makes it longer. A download continues behind the bytes that it has, by Range,
 * or begins anew if it has all bytes or the answer is 416.
 * After 401 the request is repeated with a new token. A redirect is followed; the Authorization
 * header is sent to the registry's own scheme, host and port alone, and HTTPS never becomes HTTP.
 *
 * Locking: one thread uses a session.
 */
#ifndef FDRY_REGISTRY_HTTP_H
#define FDRY_REGISTRY_HTTP_H

#include <curl/curl.h>
#include <stdbool.h>

#include "lib/buf.h"
#include "lib/oid.h"
#include "registry/client/auth.h"
#include "registry/name.h"

#define FDRY_HTTP_TEXT_MAX 4096 /* bytes of an error's body that are kept */

struct fdry_http;
struct fdry_http_req;

struct fdry_http_opts {
	bool plain;            /* HTTP, not HTTPS */
	unsigned int requests; /* in flight */
	const char *scope;     /* of the token that the session asks for first */
	bool mirror;           /* another place has the same: fail soon, and not after a wait */
	fdry_stop_fn stop;     /* NULL, or asked several times a second */
	void *stop_arg;
	uint32_t patience_ms;  /* 0, or the session fails when nothing of use has come for so long,
				  in a request or in the wait for a repetition: no part of a good
				  answer, and no complete one with a status below 500, except 429 */
};

struct fdry_http_req {
	/* The caller sets these, zero the rest, and keeps the request until @done was called. */
	const char *method; /* GET, HEAD, POST, PUT or DELETE */
	char *url;          /* absolute, from malloc(); the session frees and replaces it */
	const char *accept; /* NULL: none */
	const char *type;   /* of @body; NULL: no body */
	struct fdry_span body;
	uint64_t most;      /* bytes of a good answer; a longer one is an error. 0: ignored */
	bool hash;          /* compute the SHA-256 of a good answer */
	bool may_refuse;    /* @done also gets status 401 */
	bool may_fail;      /* one try: @done gets any status, also if the connection breaks */
	bool may_exceed;    /* @done also gets a good answer that is longer than @most */
	/* Called when the answer is final: its status is neither repeated nor followed. An error
	 * ends fdry_http_run(), which returns it. It may start requests, this one too. */
	int (*done)(struct fdry_http *h, struct fdry_http_req *r);
	/* NULL, or called before a repetition: it sets the request anew. */
	int (*again)(struct fdry_http *h, struct fdry_http_req *r);
	void *arg;

	/* The answer. */
	long status;
	struct fdry_buf in;   /* the body of a good answer */
	bool exceeds;         /* ... of which bytes behind @most are missing */
	struct fdry_buf text; /* the beginning of another one */
	struct fdry_oid digest;
	char *location, *content_type, *content_digest, *link, *subject;

	/* Of the session. */
	struct fdry_http *session;
	CURL *easy;
	struct curl_slist *headers;
	char *first; /* the URL before a redirect, or NULL: a redirect may hold for one try alone */
	struct fdry_hash hashing;
	size_t sent, resumed; /* bytes of @body that were sent; bytes of @in before this try */
	size_t furthest;      /* most bytes of @in after a try that failed */
	char *challenge, *content_range;
	uint64_t retry_after; /* seconds */
	unsigned int tries, auth_tries, refusals, redirects;
	unsigned int token;   /* the number of the token of the last try */
	double not_before;    /* ms: when the next try begins */
	int fault;            /* an error of a callback of libcurl's */
	struct fdry_http_req *next;
	char why[CURL_ERROR_SIZE];
};

struct fdry_http {
	CURLM *multi;
	struct fdry_http_opts opts;
	struct fdry_registry_name name;
	char base[FDRY_REGISTRY_HOST_MAX + 16]; /* https://HOST */
	const char *ca, *cert, *key;            /* NULL: none */
	/* The system's authorities; NULL if libcurl knows where they are. */
	const char *system_ca, *system_folder;
	struct fdry_buf certs;                  /* their paths if they come from a folder */
	uint64_t stall_s, retries_max;
	struct fdry_auth auth;
	struct fdry_http_req *waiting;          /* not in flight */
	struct fdry_http_req **last;            /* the end of that list */
	struct fdry_http_req *flying;           /* in flight */
	unsigned int active;                    /* their number */
	uint64_t requests, retries;
	double asked_ms;                        /* the time of the last question whether to stop */
	double heard_ms;                        /* when the run began, or something of use came;
						   later by the time that the program takes */
};

int fdry_http_open(struct fdry_http *h, const struct fdry_registry_name *name,
		   const struct fdry_http_opts *opts) __must_check;
void fdry_http_close(struct fdry_http *h);

/* Set the URL: "https://HOST" and the path. */
int fdry_http_url(const struct fdry_http *h, struct fdry_http_req *r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4))) __must_check;
/* Set the URL to the answer's Location, which may be relative. FDRY_E_NETWORK if it has none. */
int fdry_http_follow(const struct fdry_http *h, struct fdry_http_req *r) __must_check;
/* Begin it as soon as the number of requests in flight allows. The answer is emptied. */
void fdry_http_start(struct fdry_http *h, struct fdry_http_req *r);
/* Run until no request is left, or until the first error. After an error all requests are idle. */
int fdry_http_run(struct fdry_http *h) __must_check;
/* Start one request, whose @done is NULL, and run until it is done. */
int fdry_http_do(struct fdry_http *h, struct fdry_http_req *r) __must_check;
/* FDRY_E_CALLBACK if the program wants the session to stop; FDRY_E_NETWORK if its patience has
 * ended. */
int fdry_http_stop_check(struct fdry_http *h) __must_check;
/* The same without the patience, while something other than the registry is waited for. */
int fdry_http_stop_ask(struct fdry_http *h) __must_check;
/* A complete answer came, from the registry or from a server that it leads to. */
void fdry_http_heard(struct fdry_http *h, long status);
/* Free what the request owns. */
void fdry_http_req_release(struct fdry_http_req *r);

/* 0 if the answer has status @want or @other, else the error for its status. */
int fdry_http_expect(const struct fdry_http *h, const struct fdry_http_req *r, long want,
		     long other) __must_check;
/* The error for the answer's status. */
int fdry_http_refused(const struct fdry_http *h, const struct fdry_http_req *r) __must_check;
/* Options of TLS, time-outs and protocols that every connection has. The registry itself sees the
 * client's certificate, and no other host. */
int fdry_http_easy(const struct fdry_http *h, CURL *easy, const char *url) __must_check;
/* Does @url lead to the registry's own scheme, host and port? */
bool fdry_http_is_own(const struct fdry_http *h, const char *url);
/* Bytes of @url that a message shows: not what is behind "?", which may be a signature. */
int fdry_http_shown(const char *url);
/* FDRY_E_NETWORK unless the URL's scheme is https, or http if the session is plain. */
int fdry_http_check_scheme(const struct fdry_http *h, const char *url) __must_check;

#endif
