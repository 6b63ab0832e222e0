// SPDX-License-Identifier: Apache-2.0
/* http.c - requests to a registry: which answer is final, and when a request is repeated; see
 * http.h. */
#include "registry/client/http.h"

#include <stdlib.h>
#include <sys/random.h>

#include "lib/clock.h"
#include "lib/config.h"
#include "lib/log.h"
#include "registry/client/certs.h"
#include "registry/client/json.h"
#include "registry/client/transfer.h"

#define REDIRECTS_MAX 5
#define AUTH_TRIES_MAX 2 /* new tokens that one request asks for */
#define REFUSALS_MAX 8   /* of one request, whichever one asked for tokens */
#define WAIT_MS 250
#define WAIT_MAX_MS 20000
#define STOP_MS 200.0 /* between two questions whether to stop, at most */
#define RETRY_AFTER_MAX_S 300
#define HOST_CONNECTIONS 8
#define MIRROR_STALL_S 10
#define MIRROR_RETRIES 1

int fdry_http_open(struct fdry_http *h, const struct fdry_registry_name *name,
		   const struct fdry_http_opts *opts)
{
	int err;

	*h = (struct fdry_http){ .opts = *opts, .name = *name };
	h->opts.plain |= name->plain;
	h->last = &h->waiting;
	snprintf(h->base, sizeof(h->base), "http%s://%s", h->opts.plain ? "" : "s", name->host);
	err = fdry_config_number(FDRY_CONFIG_REGISTRY_TIMEOUT, &h->stall_s) ?:
	      fdry_config_number(FDRY_CONFIG_REGISTRY_RETRIES, &h->retries_max) ?:
	      fdry_http_certs_find(h) ?: fdry_auth_init(&h->auth, opts->scope);
	if (err)
		goto out_close;
	if (opts->mirror && h->stall_s > MIRROR_STALL_S)
		h->stall_s = MIRROR_STALL_S;
	if (opts->mirror && h->retries_max > MIRROR_RETRIES)
		h->retries_max = MIRROR_RETRIES;
	if (opts->mirror && h->opts.patience_ms > MIRROR_STALL_S * 1000)
		h->opts.patience_ms = MIRROR_STALL_S * 1000;
	h->multi = curl_multi_init();
	if (!h->multi) {
		err = fdry_nomem();
		goto out_close;
	}
	curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
	curl_multi_setopt(h->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)HOST_CONNECTIONS);
	return 0;
out_close:
	fdry_http_close(h);
	return err;
}

void fdry_http_close(struct fdry_http *h)
{
	curl_multi_cleanup(h->multi);
	fdry_auth_release(&h->auth);
	fdry_buf_release(&h->certs);
	*h = (struct fdry_http){ 0 };
}

/* --- starting --- */

void fdry_http_start(struct fdry_http *h, struct fdry_http_req *r)
{
	r->next = NULL;
	*h->last = r;
	h->last = &r->next;
}

static int begin(struct fdry_http *h, struct fdry_http_req *r)
{
	int err = fdry_auth_renew(h) ?: fdry_transfer_begin(h, r);

	if (err)
		return err;
	r->next = h->flying;
	h->flying = r;
	h->active++;
	h->requests++;
	return 0;
}

/* Begin waiting requests whose time has come. @wait_ms: until the next one, at most what it was. */
static int begin_due(struct fdry_http *h, double *wait_ms)
{
	struct fdry_http_req **at = &h->waiting, *r;
	double now = fdry_now_ms();
	int err;

	while (*at && h->active < h->opts.requests) {
		r = *at;
		if (r->not_before > now) {
			if (*wait_ms > r->not_before - now)
				*wait_ms = r->not_before - now;
			at = &r->next;
			continue;
		}
		*at = r->next;
		if (!r->next)
			h->last = at;
		err = begin(h, r);
		if (err)
			return err;
	}
	return 0;
}

/* --- repeating --- */

static double jitter(double ms)
{
	uint32_t bits = 0;

	if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) < 0)
		bits = 1u << 31;
	return ms * (0.5 + 0.5 * bits / UINT32_MAX);
}

static int repeat(struct fdry_http *h, struct fdry_http_req *r)
{
	int err = r->again ? r->again(h, r) : 0;

	if (r->first && !r->again) {
		free(r->url);
		r->url = r->first;
		r->first = NULL;
		r->redirects = 0;
	}
	if (err)
		return err;
	fdry_http_start(h, r);
	return 0;
}

/* Can another request bring anything before the patience ends? */
static bool others_go_on(const struct fdry_http *h)
{
	const struct fdry_http_req *r;

	if (h->active)
		return true;
	for (r = h->waiting; r; r = r->next)
		if (r->not_before <= h->heard_ms + h->opts.patience_ms)
			return true;
	return false;
}

/* The last error has the reason. It stays if there are no more tries. */
static int retry(struct fdry_http *h, struct fdry_http_req *r, int err)
{
	double wait;

	if (r->in.len > r->furthest && !h->opts.mirror) { /* it makes progress, if slowly */
		r->furthest = r->in.len;
		r->tries = 0;
	}
	if (r->tries >= h->retries_max || (h->opts.mirror && r->retry_after))
		return err;
	if (r->retry_after > RETRY_AFTER_MAX_S)
		return fdry_fail(-err, "the registry %s asks to wait for %llu seconds; try again "
				 "later", h->name.host, (unsigned long long)r->retry_after);
	wait = r->tries < 7 ? WAIT_MS << r->tries : WAIT_MAX_MS;
	wait = jitter(wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS);
	if (wait < (double)r->retry_after * 1e3)
		wait = (double)r->retry_after * 1e3 + jitter(WAIT_MS);
	if (h->opts.patience_ms && fdry_now_ms() + wait > h->heard_ms + h->opts.patience_ms &&
	    !others_go_on(h))
		return err;
	fdry_debug("again in %.0f ms: %s", wait, fdry_last_error());
	r->tries++;
	h->retries++;
	r->not_before = fdry_now_ms() + wait;
	return repeat(h, r);
}

static bool may_pass(long status)
{
	return status == 408 || status == 416 || status == 425 || status == 429 || status == 500 ||
	       status == 502 || status == 503 || status == 504;
}

/* docker-registry on a file system writes its links in place. While others push the same blobs, it
 * may read an empty link, and calls the manifest's digests invalid. */
static bool is_race(const struct fdry_http_req *r)
{
	char why[64];

	if (r->status != 400 || strcmp(r->method, "PUT") || !strstr(r->url, "/manifests/"))
		return false;
	fdry_json_error((struct fdry_span){ r->text.data, r->text.len }, why, sizeof(why));
	return !strncmp(why, "DIGEST_INVALID", strlen("DIGEST_INVALID"));
}

/* --- answers --- */

static int authorise(struct fdry_http *h, struct fdry_http_req *r)
{
	int err;

	bool newest = r->token == h->auth.number; /* no other request has got a new one meanwhile */

	if (++r->refusals > REFUSALS_MAX ||
	    (newest && (r->auth_tries++ >= AUTH_TRIES_MAX || !fdry_http_is_own(h, r->url))))
		return r->may_refuse ? r->done(h, r) : fdry_http_refused(h, r);
	err = newest ? fdry_auth_answer(h, r->challenge ? r->challenge : "") : 0;
	return err ?: repeat(h, r);
}

static bool is_redirect(const struct fdry_http_req *r)
{
	bool reads = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");

	return r->status == 307 || r->status == 308 ||
	       (reads && r->status >= 301 && r->status <= 303);
}

static int redirect(struct fdry_http *h, struct fdry_http_req *r)
{
	int err;

	if (++r->redirects > REDIRECTS_MAX)
		return fdry_fail(FDRY_E_NETWORK, "the registry %s redirects without end; check "
				 "its configuration", h->name.host);
	if (!r->first) {
		r->first = strdup(r->url);
		if (!r->first)
			return fdry_nomem();
	}
	err = fdry_http_follow(h, r);
	if (err)
		return err;
	fdry_http_start(h, r);
	return 0;
}

static int answered(struct fdry_http *h, struct fdry_http_req *r)
{
	int err;

	if (r->may_fail)
		return r->done(h, r);
	if (r->status == 401)
		return authorise(h, r);
	if (is_redirect(r))
		return redirect(h, r);
	if (may_pass(r->status) || is_race(r))
		return retry(h, r, fdry_http_refused(h, r));
	err = r->hash ? fdry_hash_final(&r->hashing, &r->digest) : 0;
	if (err)
		return err;
	return r->done ? r->done(h, r) : 0;
}

/* A request is not in flight any more. */
static void landed(struct fdry_http *h, const struct fdry_http_req *r)
{
	struct fdry_http_req **at = &h->flying;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	h->active--;
	curl_multi_remove_handle(h->multi, r->easy);
}

/* One transfer has ended. */
static int ended(struct fdry_http *h, struct fdry_http_req *r, CURLcode code)
{
	bool passes = false;
	int err;

	landed(h, r);
	err = fdry_transfer_end(h, r, code, &passes);
	if (!err || (passes && r->may_fail))
		return answered(h, r);
	return passes ? retry(h, r, err) : err;
}

/* @some: whether a transfer has ended. */
static int messages_read(struct fdry_http *h, bool *some)
{
	struct fdry_http_req *r;
	CURLMsg *m;
	int left, err = 0;

	while (!err && (m = curl_multi_info_read(h->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		*some = true;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&r);
		err = ended(h, r, m->data.result);
	}
	return err;
}

static int multi_failed(CURLMcode code)
{
	return fdry_fail(code == CURLM_OUT_OF_MEMORY ? FDRY_E_NOMEM : FDRY_E_NETWORK,
			 "libcurl failed: %s", curl_multi_strerror(code));
}

static int step(struct fdry_http *h)
{
	double wait_ms = 1000;
	bool some = false;
	int running = 0, err = begin_due(h, &wait_ms);
	CURLMcode code;

	if (err)
		return err;
	code = curl_multi_perform(h->multi, &running);
	if (code)
		return multi_failed(code);
	err = messages_read(h, &some);
	if (err || (!h->active && !h->waiting)) /* nothing more is waited for */
		return err;
	err = fdry_http_stop_check(h);
	if (err || some) /* other requests can begin */
		return err;
	if (h->opts.stop && wait_ms > STOP_MS)
		wait_ms = STOP_MS;
	code = curl_multi_poll(h->multi, NULL, 0, (int)wait_ms + 1, NULL);
	return code ? multi_failed(code) : 0;
}

/* End a transfer that nobody waits for. */
static void drop(struct fdry_http *h, struct fdry_http_req *r)
{
	landed(h, r);
	curl_easy_cleanup(r->easy);
	r->easy = NULL;
}

int fdry_http_run(struct fdry_http *h)
{
	int err = 0;

	h->heard_ms = fdry_now_ms();
	while (!err && (h->active || h->waiting))
		err = step(h);
	while (h->flying)
		drop(h, h->flying);
	h->waiting = NULL;
	h->last = &h->waiting;
	return err;
}

int fdry_http_do(struct fdry_http *h, struct fdry_http_req *r)
{
	fdry_http_start(h, r);
	return fdry_http_run(h);
}

/* --- refusals --- */

static enum fdry_errcode code_of(long status)
{
	return status == 401 || status == 403 || status == 405 ? FDRY_E_PERM
	       : status == 404			? FDRY_E_NOENT
	       : status == 413			? FDRY_E_LIMIT
						: FDRY_E_NETWORK;
}

static const char *advice_of(long status)
{
	return status == 401   ? "log in to it with docker login or podman login"
	       : status == 403 ? "ask for the right to do this, or log in as another user"
	       : status == 405 ? "its configuration does not allow this"
	       : status == 404 ? "check the name, and whether it was pushed"
	       : status == 413 ? "its limit for one request is too small"
	       : status == 429 ? "it gets too many requests; try again later"
	       : status >= 500 ? "look into its log, or try again later"
			       : "look into its log";
}

int fdry_http_expect(const struct fdry_http *h, const struct fdry_http_req *r, long want,
		     long other)
{
	return r->status == want || r->status == other ? 0 : fdry_http_refused(h, r);
}

int fdry_http_refused(const struct fdry_http *h, const struct fdry_http_req *r)
{
	const char *path = strstr(r->url, "://");
	char why[200];

	path = path ? strchr(path + 3, '/') : NULL;
	path = path ? path : "/";
	fdry_json_error((struct fdry_span){ r->text.data, r->text.len }, why, sizeof(why));
	return fdry_fail(code_of(r->status), "the registry %s answered %ld to %s %.*s%s%s%s; %s",
			 h->name.host, r->status, r->method, fdry_http_shown(path), path,
			 *why ? " (" : "", why, *why ? ")" : "", advice_of(r->status));
}
