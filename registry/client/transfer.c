// SPDX-License-Identifier: Apache-2.0
/* transfer.c - one try of a request: libcurl's options and callbacks; see transfer.h. */
#include "registry/client/transfer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "lib/clock.h"
#include "lib/log.h"

#define ASK_MS 20.0 /* between two questions whether to stop, at least */
#define CONNECT_S 10
#define CONNECT_MIRROR_S 3
#define BUFFER_BYTES (256l << 10)
/* libcurl 7.88 needs five times the processor time for an upload by HTTP/2. */
#define HTTP1_BYTES (64u << 10)
#define HEADER_MAX 8192 /* bytes of one header's value that are kept */

/* --- URLs --- */

int fdry_http_url(const struct fdry_http *h, struct fdry_http_req *r, const char *fmt, ...)
{
	char *path = NULL, *url = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&path, fmt, ap);
	va_end(ap);
	if (n < 0)
		return fdry_nomem();
	n = asprintf(&url, "%s%s", h->base, path);
	free(path);
	if (n < 0)
		return fdry_nomem();
	free(r->url);
	free(r->first);
	r->url = url;
	r->first = NULL;
	return 0;
}

static bool part_is(CURLU *a, CURLU *b, CURLUPart part)
{
	char *x = NULL, *y = NULL;
	bool same = !curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) &&
		    !curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) && !strcasecmp(x, y);

	curl_free(x);
	curl_free(y);
	return same;
}

bool fdry_http_is_own(const struct fdry_http *h, const char *url)
{
	CURLU *own = curl_url(), *other = curl_url();
	bool same = own && other && !curl_url_set(own, CURLUPART_URL, h->base, 0) &&
		    !curl_url_set(other, CURLUPART_URL, url, 0) &&
		    part_is(own, other, CURLUPART_SCHEME) && part_is(own, other, CURLUPART_HOST) &&
		    part_is(own, other, CURLUPART_PORT);

	curl_url_cleanup(own);
	curl_url_cleanup(other);
	return same;
}

int fdry_http_shown(const char *url)
{
	size_t n = strcspn(url, "?#");

	return n < 200 ? (int)n : 200;
}

int fdry_http_check_scheme(const struct fdry_http *h, const char *url)
{
	if (!strncasecmp(url, "https://", 8) ||
	    (h->opts.plain && !strncasecmp(url, "http://", 7)))
		return 0;
	return fdry_fail(FDRY_E_NETWORK,
			 "the registry %s leads to %.*s, which is not HTTPS; if a proxy in front "
			 "of it speaks TLS, it must pass X-Forwarded-Proto", h->name.host,
			 fdry_http_shown(url), url);
}

int fdry_http_follow(const struct fdry_http *h, struct fdry_http_req *r)
{
	CURLU *u = curl_url();
	CURLUcode code = CURLUE_NO_HOST;
	char *url = NULL, *copy;
	int err = 0;

	if (!u)
		return fdry_nomem();
	/* Not every libcurl knows FTP: such an address is accepted here and refused below. */
	if (r->location)
		code = curl_url_set(u, CURLUPART_URL, r->url, 0) ?:
		       curl_url_set(u, CURLUPART_URL, r->location, CURLU_NON_SUPPORT_SCHEME) ?:
		       curl_url_get(u, CURLUPART_URL, &url, 0);
	if (code == CURLUE_OUT_OF_MEMORY) {
		err = fdry_nomem();
		goto out_cleanup;
	}
	if (code) {
		err = fdry_fail(FDRY_E_NETWORK, "the registry %s answered %ld without an address "
				"for the rest of the upload; see its log", h->name.host, r->status);
		goto out_cleanup;
	}
	err = fdry_http_check_scheme(h, url);
	if (err)
		goto out_cleanup;
	copy = strdup(url);
	if (!copy) {
		err = fdry_nomem();
		goto out_cleanup;
	}
	free(r->url);
	r->url = copy;
out_cleanup:
	curl_free(url);
	curl_url_cleanup(u);
	return err;
}

/* --- a stop --- */

int fdry_http_stop_ask(struct fdry_http *h)
{
	double mark = fdry_now_ms();
	bool stops;

	if (!h->opts.stop || mark - h->asked_ms < ASK_MS)
		return 0;
	h->asked_ms = mark;
	stops = h->opts.stop(h->opts.stop_arg);
	h->heard_ms += fdry_elapsed_ms(&mark); /* the registry is not silent for the program */
	return stops ? fdry_fail(FDRY_E_CALLBACK, "the program has stopped the transfer") : 0;
}

void fdry_http_heard(struct fdry_http *h, long status)
{
	if (status >= 200 && status < 500 && status != 429)
		h->heard_ms = fdry_now_ms();
}

int fdry_http_stop_check(struct fdry_http *h)
{
	double now = fdry_now_ms();

	if (h->opts.patience_ms && now - h->heard_ms > h->opts.patience_ms)
		return fdry_fail(FDRY_E_NETWORK, "nothing of use came from the registry %s for "
				 "%.0f s; look into its log, or set FOUNDRY_REGISTRY_TIMEOUT "
				 "higher",
				 h->name.host, h->opts.patience_ms / 1e3);
	return fdry_http_stop_ask(h);
}

/* --- callbacks --- */

static int fault(struct fdry_http_req *r, int err)
{
	r->fault = err;
	return err;
}

static bool is_good(const struct fdry_http_req *r)
{
	return r->status >= 200 && r->status < 300;
}

/* Drop the bytes that came. */
static void begin_anew(struct fdry_http_req *r)
{
	r->in.len = r->resumed = 0;
	fdry_hash_release(&r->hashing);
}

/* The first bytes of an answer to a request for the rest: 206 must begin behind the bytes that are
 * there, 200 begins anew. */
static int range_check(struct fdry_http_req *r)
{
	char want[64];

	if (r->status == 206) {
		snprintf(want, sizeof(want), "bytes %zu-", r->in.len);
		if (r->content_range && !strncasecmp(r->content_range, want, strlen(want)))
			return 0;
		return fdry_fail(FDRY_E_NETWORK, "the registry sent another range of %.*s than "
				 "it was asked for; look into its log", fdry_http_shown(r->url),
				 r->url);
	}
	begin_anew(r);
	return 0;
}

static int body_append(struct fdry_http_req *r, const void *data, size_t n)
{
	if (!r->most) /* the body of a success that nobody needs */
		return 0;
	r->exceeds = n > r->most || r->in.len > r->most - n;
	if (r->exceeds)
		return fdry_fail(FDRY_E_BADIMAGE, "the registry sent more than %llu bytes for "
				 "%.*s; its content is damaged",
				 (unsigned long long)r->most, fdry_http_shown(r->url), r->url);
	if (r->hash && fdry_hash_update(&r->hashing, data, n))
		return -FDRY_E_NOMEM;
	return fdry_buf_put(&r->in, data, n);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct fdry_http_req *r = arg;
	size_t keep = FDRY_HTTP_TEXT_MAX - r->text.len;
	bool is_first = !r->status;
	int err;

	n *= size;
	if (is_first)
		curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
	if (is_good(r)) {
		r->session->heard_ms = fdry_now_ms();
		err = (is_first ? range_check(r) : 0) ?: body_append(r, data, n);
		return err && fault(r, err) ? 0 : n;
	}
	err = fdry_buf_put(&r->text, data, n < keep ? n : keep);
	if (err && fault(r, err))
		return 0;
	return n > keep ? 0 : n; /* it may have no end */
}

static size_t on_read(char *to, size_t size, size_t n, void *arg)
{
	struct fdry_http_req *r = arg;
	size_t left = r->body.len - r->sent;

	n *= size;
	if (n > left)
		n = left;
	if (n)
		memcpy(to, r->body.data + r->sent, n);
	r->sent += n;
	return n;
}

/* libcurl sends the body again if it was sent on an idle connection that had been closed. */
static int on_seek(void *arg, curl_off_t at, int from)
{
	struct fdry_http_req *r = arg;

	if (from != SEEK_SET || at < 0 || (size_t)at > r->body.len)
		return CURL_SEEKFUNC_FAIL;
	r->sent = (size_t)at;
	return CURL_SEEKFUNC_OK;
}

/* Seconds, or a date. */
static uint64_t seconds_of(const char *value)
{
	time_t at, now = time(NULL);
	char *end;
	unsigned long long s = strtoull(value, &end, 10);

	if (end != value)
		return s;
	at = curl_getdate(value, NULL);
	return at > now ? (uint64_t)(at - now) : 0;
}

static int keep(char **to, const char *value, size_t len, bool join)
{
	size_t before = join && *to ? strlen(*to) : 0;
	char *all;

	if (len > HEADER_MAX || before > HEADER_MAX)
		return 0;
	all = malloc(before + len + 3);
	if (!all)
		return fdry_nomem();
	if (before)
		memcpy(all, *to, before);
	if (before)
		memcpy(all + before, ", ", 2);
	before += before ? 2 : 0;
	memcpy(all + before, value, len);
	all[before + len] = '\0';
	free(*to);
	*to = all;
	return 0;
}

static void headers_drop(struct fdry_http_req *r)
{
	char **all[] = { &r->location, &r->content_type, &r->content_digest, &r->link,
			 &r->subject, &r->challenge, &r->content_range };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		free(*all[i]);
		*all[i] = NULL;
	}
	r->retry_after = 0;
}

static int header_keep(struct fdry_http_req *r, const char *name, size_t nlen, const char *value,
		       size_t len)
{
	const struct { const char *name; char **to; } known[] = {
		{ "location", &r->location },
		{ "content-type", &r->content_type },
		{ "docker-content-digest", &r->content_digest },
		{ "link", &r->link },
		{ "oci-subject", &r->subject },
		{ "www-authenticate", &r->challenge },
		{ "content-range", &r->content_range },
	};
	char number[64] = "";
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (nlen == strlen(known[i].name) && !strncasecmp(name, known[i].name, nlen))
			return keep(known[i].to, value, len, known[i].to == &r->challenge);
	if (nlen == 11 && !strncasecmp(name, "retry-after", nlen) && len < sizeof(number)) {
		memcpy(number, value, len);
		r->retry_after = seconds_of(number);
	}
	return 0;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct fdry_http_req *r = arg;
	const char *colon = memchr(data, ':', n * size), *value;
	size_t len = n * size, nlen;

	if (len >= 5 && !memcmp(data, "HTTP/", 5)) {
		headers_drop(r); /* of an earlier answer, such as a proxy's or 100 Continue */
		return len;
	}
	if (!colon)
		return len;
	nlen = (size_t)(colon - data);
	value = colon + 1;
	len -= nlen + 1;
	for (; len && (*value == ' ' || *value == '\t'); value++)
		len--;
	while (len && strchr(" \t\r\n", value[len - 1]))
		len--;
	return header_keep(r, data, nlen, value, len) && fault(r, -FDRY_E_NOMEM) ? 0 : n * size;
}

/* --- one try --- */

int fdry_http_easy(const struct fdry_http *h, CURL *easy, const char *url)
{
	bool own = fdry_http_is_own(h, url);
	int bad = 0;

	bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
	bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR,
				h->opts.plain ? "http,https" : "https");
	bad |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
				h->opts.mirror ? (long)CONNECT_MIRROR_S : (long)CONNECT_S);
	bad |= curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1l);
	bad |= curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)h->stall_s);
	bad |= curl_easy_setopt(easy, CURLOPT_USERAGENT, "foundry/" FDRY_VERSION);
	bad |= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (h->ca || h->system_ca)
		bad |= curl_easy_setopt(easy, CURLOPT_CAINFO, h->ca ?: h->system_ca);
	if (h->system_ca)
		bad |= curl_easy_setopt(easy, CURLOPT_PROXY_CAINFO, h->system_ca);
	if (h->system_folder)
		bad |= curl_easy_setopt(easy, CURLOPT_CAPATH, h->system_folder) |
		       curl_easy_setopt(easy, CURLOPT_PROXY_CAPATH, h->system_folder);
	if (h->cert && own)
		bad |= curl_easy_setopt(easy, CURLOPT_SSLCERT, h->cert);
	if (h->key && own)
		bad |= curl_easy_setopt(easy, CURLOPT_SSLKEY, h->key);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A request that ends does not wait for the answer of a name server. An older libcurl
	 * refuses this, and waits. */
	(void)curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l);
#endif
	if (bad == CURLE_OUT_OF_MEMORY) /* no option failed for another reason */
		return fdry_nomem();
	return bad ? fdry_fail(FDRY_E_NETWORK, "this libcurl lacks an option that Foundry needs; "
			       "install version 7.85 or newer") : 0;
}

static int headers_set(struct fdry_http *h, struct fdry_http_req *r)
{
	struct curl_slist *all = NULL, *more;
	char line[256];
	const char *lines[4] = { "Expect:" };
	size_t i, n = 1;

	if (r->type) {
		snprintf(line, sizeof(line), "Content-Type: %s", r->type);
		lines[n++] = line;
	}
	if (h->auth.header.len && fdry_http_is_own(h, r->url))
		lines[n++] = (const char *)h->auth.header.data;
	r->token = h->auth.number;
	for (i = 0; i < n; i++) {
		more = curl_slist_append(all, lines[i]);
		if (!more)
			goto out_free;
		all = more;
	}
	if (r->accept) {
		more = curl_slist_append(all, r->accept);
		if (!more)
			goto out_free;
		all = more;
	}
	curl_slist_free_all(r->headers);
	r->headers = all;
	return curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, all) ? fdry_nomem() : 0;
out_free:
	curl_slist_free_all(all);
	return fdry_nomem();
}

static int body_set(struct fdry_http_req *r)
{
	int bad = 0;

	r->sent = 0;
	if (!strcmp(r->method, "HEAD"))
		return curl_easy_setopt(r->easy, CURLOPT_NOBODY, 1l) ? fdry_nomem() : 0;
	if (!strcmp(r->method, "GET"))
		return 0;
	bad |= curl_easy_setopt(r->easy, CURLOPT_CUSTOMREQUEST, r->method);
	if (!strcmp(r->method, "DELETE"))
		return bad ? fdry_nomem() : 0;
	bad |= curl_easy_setopt(r->easy, CURLOPT_UPLOAD, 1l);
	bad |= curl_easy_setopt(r->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body.len);
	bad |= curl_easy_setopt(r->easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
	bad |= curl_easy_setopt(r->easy, CURLOPT_READFUNCTION, on_read);
	bad |= curl_easy_setopt(r->easy, CURLOPT_READDATA, r);
	bad |= curl_easy_setopt(r->easy, CURLOPT_SEEKFUNCTION, on_seek);
	bad |= curl_easy_setopt(r->easy, CURLOPT_SEEKDATA, r);
	if (r->body.len >= HTTP1_BYTES)
		bad |= curl_easy_setopt(r->easy, CURLOPT_HTTP_VERSION,
					(long)CURL_HTTP_VERSION_1_1);
	return bad ? fdry_nomem() : 0;
}

/* Go on behind the bytes of the last try. range_check() examines the answer: with
 * CURLOPT_RESUME_FROM, libcurl 8.14 treats a redirect like a server that cannot resume. */
static int resume_set(struct fdry_http_req *r)
{
	char range[32];

	r->resumed = r->in.len;
	if (!r->resumed)
		return 0;
	snprintf(range, sizeof(range), "%zu-", r->resumed);
	return curl_easy_setopt(r->easy, CURLOPT_RANGE, range) ? fdry_nomem() : 0;
}

static int options_set(struct fdry_http *h, struct fdry_http_req *r)
{
	int bad = 0, err = fdry_http_easy(h, r->easy, r->url);

	if (err)
		return err;
	bad |= curl_easy_setopt(r->easy, CURLOPT_URL, r->url);
	bad |= curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	bad |= curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->why);
	bad |= curl_easy_setopt(r->easy, CURLOPT_PIPEWAIT, 1l);
	bad |= curl_easy_setopt(r->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	bad |= curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_body);
	bad |= curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
	bad |= curl_easy_setopt(r->easy, CURLOPT_HEADERFUNCTION, on_header);
	bad |= curl_easy_setopt(r->easy, CURLOPT_HEADERDATA, r);
	/* An old libcurl without HTTP/2 refuses this; HTTP/1.1 is enough. */
	(void)curl_easy_setopt(r->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	if (bad)
		return fdry_nomem();
	return headers_set(h, r) ?: body_set(r) ?: resume_set(r);
}

int fdry_transfer_begin(struct fdry_http *h, struct fdry_http_req *r)
{
	int err;

	r->easy = curl_easy_init();
	if (!r->easy)
		return fdry_nomem();
	r->session = h;
	r->status = 0;
	r->fault = 0;
	r->exceeds = false;
	r->why[0] = '\0';
	r->text.len = 0;
	headers_drop(r);
	/* A try may break off behind the last byte; servers refuse to send nothing. */
	if (!r->hash || !r->hashing.ctx || r->in.len == r->most)
		begin_anew(r);
	err = options_set(h, r);
	if (err)
		return err;
	return curl_multi_add_handle(h->multi, r->easy) ? fdry_nomem() : 0;
}

/* --- its end --- */

static int tls_failed(const struct fdry_http *h, const char *why)
{
	return fdry_fail(FDRY_E_NETWORK, "no secure connection to the registry %s: %s; for a CA of "
			 "your own set FOUNDRY_REGISTRY_CA, for plain HTTP use oci+http://",
			 h->name.host, why);
}

static bool is_tls(CURLcode code)
{
	return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR ||
	       code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM ||
	       code == CURLE_SSL_ISSUER_ERROR || code == CURLE_USE_SSL_FAILED ||
	       code == CURLE_SSL_CIPHER;
}

static bool breaks_off(CURLcode code)
{
	return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
	       code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT ||
	       code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
	       code == CURLE_GOT_NOTHING || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM ||
	       code == CURLE_SEND_FAIL_REWIND;
}

int fdry_transfer_end(struct fdry_http *h, struct fdry_http_req *r, CURLcode code, bool *passes)
{
	const char *why = r->why[0] ? r->why : curl_easy_strerror(code);

	*passes = false;
	curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
	curl_easy_cleanup(r->easy); /* it has large buffers, and the answer may have to wait */
	r->easy = NULL;
	if (r->exceeds && r->may_exceed)
		return 0;
	if (r->fault)
		return r->fault;
	if (code == CURLE_OUT_OF_MEMORY)
		return fdry_nomem();
	if (r->status == 416) /* there is no such range */
		begin_anew(r);
	if (!code || (code == CURLE_WRITE_ERROR && r->text.len == FDRY_HTTP_TEXT_MAX)) {
		fdry_http_heard(h, r->status);
		return 0;
	}
	if (is_tls(code))
		return tls_failed(h, why);
	*passes = breaks_off(code);
	/* A server that cannot resume; begin anew. */
	if (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME) {
		begin_anew(r);
		*passes = true;
	}
	return fdry_fail(FDRY_E_NETWORK, "the registry %s cannot be reached, or a transfer broke "
			 "off: %s; check its name and the network", h->name.host, why);
}

void fdry_http_req_release(struct fdry_http_req *r)
{
	curl_easy_cleanup(r->easy);
	curl_slist_free_all(r->headers);
	headers_drop(r);
	fdry_buf_release(&r->in);
	fdry_buf_release(&r->text);
	fdry_hash_release(&r->hashing);
	free(r->url);
	free(r->first);
	*r = (struct fdry_http_req){ 0 };
}
