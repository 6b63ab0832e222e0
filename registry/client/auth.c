// SPDX-License-Identifier: Apache-2.0
/* auth.c - Basic authentication and tokens; see auth.h. */
#include "registry/client/auth.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <strings.h>

#include "lib/clock.h"
#include "registry/client/http.h"
#include "registry/client/json.h"

#define ANSWER_MAX (1u << 20)
#define TRIES 4
#define WAIT_MS 250
#define LIFE_S 60       /* of a token whose server does not say */
#define LIFE_PART 0.8   /* of its life, after which it is replaced */
#define ADVICE_SIZE 320

/* Append @text and a terminator that is not counted as text by the next call. */
static int text_set(struct fdry_buf *b, const char *text)
{
	b->len = 0;
	return fdry_buf_put(b, text, strlen(text) + 1);
}

static const char *text_of(const struct fdry_buf *b)
{
	return b->len ? (const char *)b->data : "";
}

int fdry_auth_init(struct fdry_auth *a, const char *scope)
{
	return text_set(&a->scope, scope ? scope : "");
}

static void wipe(struct fdry_buf *b)
{
	if (b->data)
		OPENSSL_cleanse(b->data, b->cap);
	fdry_buf_release(b);
}

void fdry_auth_release(struct fdry_auth *a)
{
	fdry_creds_release(&a->creds);
	wipe(&a->header);
	fdry_buf_release(&a->scope);
	fdry_buf_release(&a->realm);
	fdry_buf_release(&a->service);
	*a = (struct fdry_auth){ 0 };
}

static bool word_in(const char *words, const char *word, size_t len)
{
	const char *at = words;

	for (; (at = strstr(at, word)) && len; at++)
		if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* Add the words of a challenge's scope that are missing. */
static int scope_add(struct fdry_auth *a, const char *scope)
{
	char word[1024];
	size_t len;
	int err = 0;

	for (; !err && *scope; scope += len + strspn(scope + len, " ")) {
		len = strcspn(scope, " ");
		if (!len || len >= sizeof(word))
			continue;
		memcpy(word, scope, len);
		word[len] = '\0';
		if (word_in(text_of(&a->scope), word, len))
			continue;
		a->scope.len -= !!a->scope.len; /* the terminator */
		err = fdry_buf_printf(&a->scope, "%s%s", a->scope.len ? " " : "", word) ?:
		      fdry_buf_put(&a->scope, "", 1);
	}
	return err;
}

/* --- Basic --- */

/* For the end of a message about missing credentials. */
static const char *helper_advice(const struct fdry_auth *a, char ret[ADVICE_SIZE])
{
	snprintf(ret, ADVICE_SIZE, "%s%s%s",
		 a->creds.absent ? "; the credential helper " : "",
		 a->creds.absent ? a->creds.absent : "", a->creds.absent ? " is not in PATH" : "");
	return ret;
}

/* "USER:SECRET" in base64, appended with a terminator. */
static int basic_put(const struct fdry_creds *c, struct fdry_buf *ret)
{
	struct fdry_buf plain = { 0 };
	void *to = NULL;
	int err = fdry_buf_printf(&plain, "%s:%s", c->user, c->secret) ?:
		  fdry_buf_grow(ret, (plain.len + 2) / 3 * 4 + 1, &to);

	if (!err)
		EVP_EncodeBlock(to, plain.data, (int)plain.len);
	wipe(&plain);
	return err;
}

static int header_set(struct fdry_auth *a, double until)
{
	a->number++;
	a->until = until;
	return 0;
}

static int basic_answer(struct fdry_http *h)
{
	char advice[ADVICE_SIZE];
	struct fdry_auth *a = &h->auth;
	int err;

	if (!a->creds.user)
		return fdry_fail(FDRY_E_PERM,
				 "the registry %s asks for a password; log in to it with "
				 "docker login or podman login%s",
				 h->name.host, helper_advice(a, advice));
	a->header.len = 0;
	err = fdry_buf_printf(&a->header, "Authorization: Basic ") ?:
	      basic_put(&a->creds, &a->header);
	return err ?: header_set(a, 0);
}

/* --- tokens --- */

/* One request to the server of tokens. */
struct token {
	struct fdry_http *h;
	CURL *easy;
	struct curl_slist *headers;
	struct fdry_buf url, form, in;
	long status;
	int fault; /* the error of a callback, which ends the request */
	char why[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct token *t = arg;

	n *= size;
	t->fault = t->in.len + n <= ANSWER_MAX
			   ? fdry_buf_put(&t->in, data, n)
			   : fdry_fail(FDRY_E_NETWORK, "the server %.200s of the registry's tokens "
				       "sent more than %u bytes", text_of(&t->h->auth.realm),
				       ANSWER_MAX);
	return t->fault ? 0 : n;
}

/* libcurl calls it at least once a second. */
static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct token *t = arg;

	(void)a, (void)b, (void)c, (void)d;
	t->fault = t->fault ?: fdry_http_stop_check(t->h);
	return t->fault != 0;
}

/* Append "NAME=VALUE", escaped. @value: NULL appends nothing. */
static int pair_put(struct token *t, struct fdry_buf *to, const char *name, const char *value)
{
	const char *join = !to->len ? "" : to->data[to->len - 1] == '?' ? "" : "&";
	char *escaped;
	int err;

	if (!value)
		return 0;
	escaped = curl_easy_escape(t->easy, value, 0);
	err = escaped ? fdry_buf_printf(to, "%s%s=%s", join, name, escaped) : fdry_nomem();
	curl_free(escaped);
	return err;
}

/* Each word of the scope is a parameter of its own in a URL, but they are one in a form. */
static int scopes_put(struct token *t, struct fdry_buf *to)
{
	char *words = strdup(text_of(&t->h->auth.scope)), *rest = words, *word;
	int err = words ? 0 : fdry_nomem();

	while (!err && (word = strsep(&rest, " ")))
		if (*word)
			err = pair_put(t, to, "scope", word);
	free(words);
	return err;
}

static int basic_add(struct token *t)
{
	struct fdry_buf line = { 0 };
	int err;

	if (!t->h->auth.creds.user)
		return 0;
	err = fdry_buf_printf(&line, "Authorization: Basic ")
		      ?: basic_put(&t->h->auth.creds, &line);
	if (!err) {
		t->headers = curl_slist_append(NULL, (const char *)line.data);
		err = t->headers ? 0 : fdry_nomem();
	}
	wipe(&line);
	return err;
}

static int get_prepare(struct token *t)
{
	struct fdry_auth *a = &t->h->auth;
	const char *realm = text_of(&a->realm);
	const char *service = a->service.len > 1 ? text_of(&a->service) : NULL;

	return fdry_buf_printf(&t->url, "%s%s", realm, strchr(realm, '?') ? "&" : "?") ?:
	       pair_put(t, &t->url, "service", service) ?: scopes_put(t, &t->url) ?:
	       pair_put(t, &t->url, "account", a->creds.user) ?: fdry_buf_put(&t->url, "", 1) ?:
	       basic_add(t);
}

/* With a refresh token in place of a password. */
static int post_prepare(struct token *t)
{
	struct fdry_auth *a = &t->h->auth;
	int err = text_set(&t->url, text_of(&a->realm)) ?:
		  pair_put(t, &t->form, "grant_type", "refresh_token") ?:
		  pair_put(t, &t->form, "client_id", "foundry") ?:
		  pair_put(t, &t->form, "service", text_of(&a->service)) ?:
		  pair_put(t, &t->form, "scope", text_of(&a->scope)) ?:
		  pair_put(t, &t->form, "refresh_token", a->creds.identity);

	return err ?: fdry_buf_put(&t->form, "", 1);
}

static int options_set(struct token *t)
{
	int bad = 0, err = fdry_http_easy(t->h, t->easy, (const char *)t->url.data);

	if (err)
		return err;
	bad |= curl_easy_setopt(t->easy, CURLOPT_URL, t->url.data);
	/* A token is short, so all of it must arrive in this time. */
	bad |= curl_easy_setopt(t->easy, CURLOPT_TIMEOUT, (long)t->h->stall_s);
	bad |= curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->why);
	bad |= curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
	bad |= curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	bad |= curl_easy_setopt(t->easy, CURLOPT_NOPROGRESS, 0L);
	bad |= curl_easy_setopt(t->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	bad |= curl_easy_setopt(t->easy, CURLOPT_XFERINFODATA, t);
	if (t->headers)
		bad |= curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	if (t->form.len)
		bad |= curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->form.data);
	return bad ? fdry_nomem() : 0;
}

static int refused(const struct token *t)
{
	char advice[ADVICE_SIZE], text[200];

	fdry_json_error((struct fdry_span){ t->in.data, t->in.len }, text, sizeof(text));
	if (t->status >= 500 || t->status == 429)
		return fdry_fail(FDRY_E_NETWORK, "the server %.200s of the registry's tokens "
				 "answered %ld (%s); try again later", text_of(&t->h->auth.realm),
				 t->status, text);
	return fdry_fail(FDRY_E_PERM,
			 "the server %.200s of the registry's tokens answered %ld (%s); "
			 "log in to %s with docker login or podman login%s",
			 text_of(&t->h->auth.realm), t->status, text, t->h->name.host,
			 helper_advice(&t->h->auth, advice));
}

/* Until there is an answer that is not a passing failure. */
static int ask(struct token *t)
{
	unsigned int i;
	CURLcode code;
	int err = 0;

	for (i = 0; i < TRIES; i++) {
		if (i) {
			fdry_sleep_ms(WAIT_MS << i);
			err = fdry_http_stop_check(t->h);
			if (err)
				return err;
		}
		t->in.len = 0;
		code = curl_easy_perform(t->easy);
		if (t->fault)
			return t->fault;
		if (code == CURLE_OUT_OF_MEMORY)
			return fdry_nomem();
		if (code) {
			err = fdry_fail(FDRY_E_NETWORK,
					"the server %.200s of the registry's tokens "
					"cannot be reached: %s",
					text_of(&t->h->auth.realm),
					t->why[0] ? t->why : curl_easy_strerror(code));
			continue;
		}
		curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
		fdry_http_heard(t->h, t->status);
		err = t->status == 200 ? 0 : refused(t);
		if (err != -FDRY_E_NETWORK)
			return err;
	}
	return err;
}

static int token_read(struct token *t)
{
	struct fdry_auth *a = &t->h->auth;
	uint64_t life = LIFE_S;
	const char *token;
	json_t *root = NULL;
	int err = fdry_json_read((struct fdry_span){ t->in.data, t->in.len },
				 "the answer of the server of the registry's tokens", &root);

	if (err)
		return err;
	token = fdry_json_text(root, "token");
	if (!*token)
		token = fdry_json_text(root, "access_token");
	if (!*token || strpbrk(token, "\r\n"))
		err = fdry_fail(FDRY_E_PERM, "the server %.200s of the registry's tokens sent none",
				text_of(&a->realm));
	(void)fdry_json_count(root, "expires_in", &life);
	if (life < 10)
		life = LIFE_S;
	a->header.len = 0;
	err = err ?: fdry_buf_printf(&a->header, "Authorization: Bearer %s", token) ?:
	      fdry_buf_put(&a->header, "", 1);
	json_decref(root);
	return err ?: header_set(a, fdry_now_ms() + (double)life * 1e3 * LIFE_PART);
}

static int token_get(struct fdry_http *h)
{
	struct token t = { .h = h, .easy = curl_easy_init() };
	int err = t.easy ? 0 : fdry_nomem();

	if (!err)
		err = h->auth.creds.identity ? post_prepare(&t) : get_prepare(&t);
	err = err ?: options_set(&t) ?: ask(&t) ?: token_read(&t);
	curl_easy_cleanup(t.easy);
	curl_slist_free_all(t.headers);
	fdry_buf_release(&t.url);
	wipe(&t.form);
	wipe(&t.in);
	return err;
}

/* --- answers to challenges --- */

static int creds_need(struct fdry_http *h)
{
	int err;

	if (h->auth.creds_read)
		return 0;
	err = fdry_creds_read(h, &h->auth.creds);
	h->auth.creds_read = !err;
	return err;
}

int fdry_auth_answer(struct fdry_http *h, const char *challenge)
{
	struct fdry_auth *a = &h->auth;
	struct fdry_challenge c;
	int err = fdry_challenge_parse(challenge, &c) ?: creds_need(h);

	if (err)
		return err;
	if (c.basic)
		return basic_answer(h);
	err = fdry_http_check_scheme(h, c.realm) ?: text_set(&a->realm, c.realm) ?:
	      text_set(&a->service, c.service) ?: scope_add(a, c.scope);
	return err ?: token_get(h);
}

int fdry_auth_renew(struct fdry_http *h)
{
	if (!h->auth.until || fdry_now_ms() < h->auth.until)
		return 0;
	return token_get(h);
}
