// SPDX-License-Identifier: Apache-2.0
/* creds.c - credentials from the files and helpers of container tools; see creds.h. */
#include "registry/client/creds.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <strings.h>

#include "lib/config.h"
#include "lib/fd.h"
#include "lib/log.h"
#include "registry/client/helper.h"
#include "registry/client/http.h"
#include "registry/client/json.h"
#include "registry/client/places.h"

#define FILE_MAX (1u << 20)
#define IDENTITY_USER "<token>" /* the helpers' user for a refresh token */

/* A search for the credentials of one repository. */
struct search {
	const char *path, *host, *repo;
	struct fdry_http *http;
	json_t *root;
	struct fdry_creds *ret;
};

static int bad(const char *path, const char *what)
{
	return fdry_fail(FDRY_E_ENV, "the credentials in %s cannot be used: %s; log in to the "
			 "registry again", path, what);
}

static int copy(const char *text, char **ret)
{
	*ret = strdup(text);
	return *ret ? 0 : fdry_nomem();
}

/* --- one entry --- */

static int identity_set(const char *token, struct fdry_creds *ret)
{
	return copy(token, &ret->identity);
}

static int pair_set(const char *user, const char *secret, struct fdry_creds *ret)
{
	return copy(user, &ret->user) ?: copy(secret, &ret->secret);
}

/* "auth": USER:SECRET in base64. */
static int auth_decode(struct search *s, const char *text)
{
	size_t len = strlen(text), pad = len > 1 && text[len - 2] == '=' ? 2 :
					 len && text[len - 1] == '=';
	char *plain, *colon;
	int n, err;

	if (len > FILE_MAX)
		return bad(s->path, "an entry is too long");
	plain = malloc(len + 4);
	if (!plain)
		return fdry_nomem();
	n = EVP_DecodeBlock((unsigned char *)plain, (const unsigned char *)text, (int)len);
	if (n < (int)pad) {
		err = bad(s->path, "\"auth\" is not base64");
		goto out_free;
	}
	plain[n - (int)pad] = '\0';
	colon = strchr(plain, ':');
	if (!colon) {
		err = bad(s->path, "\"auth\" has no colon");
		goto out_free;
	}
	*colon = '\0';
	err = pair_set(plain, colon + 1, s->ret);
out_free:
	OPENSSL_cleanse(plain, len + 4);
	free(plain);
	return err;
}

static int entry_read(struct search *s, json_t *entry)
{
	const char *auth = json_string_value(json_object_get(entry, "auth"));
	const char *identity = json_string_value(json_object_get(entry, "identitytoken"));
	const char *user = json_string_value(json_object_get(entry, "username"));
	const char *secret = json_string_value(json_object_get(entry, "password"));

	if (identity && *identity)
		return identity_set(identity, s->ret);
	if (auth && *auth)
		return auth_decode(s, auth);
	return user && secret ? pair_set(user, secret, s->ret) : 0;
}

/* --- a helper --- */

/* A registry may be open to all, so the search goes on. */
static int helper_absent(struct search *s, const char *helper)
{
	free(s->ret->absent);
	if (asprintf(&s->ret->absent, "docker-credential-%.200s", helper) < 0) {
		s->ret->absent = NULL;
		return fdry_nomem();
	}
	fdry_warn("the credential helper %s is not in PATH; going on without it", s->ret->absent);
	return 0;
}

static int helper_ask(struct search *s, const char *helper)
{
	const char *user, *secret;
	struct fdry_buf out = { 0 };
	json_t *answer = NULL;
	bool there = false;
	int err;

	err = fdry_creds_helper(s->http, helper, &out, &there);
	if (!err && !there)
		err = helper_absent(s, helper);
	if (err || !out.len)
		goto out_release;
	err = fdry_json_read((struct fdry_span){ out.data, out.len }, "the helper's answer",
			     &answer);
	if (err)
		goto out_release;
	user = json_string_value(json_object_get(answer, "Username"));
	secret = json_string_value(json_object_get(answer, "Secret"));
	if (!user || !secret)
		err = bad(s->path, "the credential helper answers without Username and Secret");
	else
		err = !strcmp(user, IDENTITY_USER) ? identity_set(secret, s->ret)
						   : pair_set(user, secret, s->ret);
out_release:
	json_decref(answer);
	if (out.data)
		OPENSSL_cleanse(out.data, out.cap);
	fdry_buf_release(&out);
	return err;
}

/* --- a file --- */

/* The key's host and path, without scheme; Docker once wrote "https://HOST/v1/". */
static size_t key_fits(const struct search *s, const char *key)
{
	const char *at = strstr(key, "://");
	size_t host = strlen(s->host), len;

	at = at ? at + 3 : key;
	if (strncasecmp(at, s->host, host) || (at[host] && at[host] != '/'))
		return 0;
	at += host;
	len = strlen(at);
	if (len <= 1 || !strcmp(at, "/v1/") || !strcmp(at, "/v2/") || !strcmp(at, "/v1") ||
	    !strcmp(at, "/v2"))
		return 1;
	at++;
	len--;
	return !strncmp(at, s->repo, len) && (!s->repo[len] || s->repo[len] == '/') ? 1 + len : 0;
}

static json_t *auths_find(const struct search *s)
{
	json_t *auths = json_object_get(s->root, "auths"), *entry, *best = NULL;
	const char *key;
	size_t fit, most = 0;

	json_object_foreach(auths, key, entry) {
		fit = key_fits(s, key);
		if (fit > most) {
			most = fit;
			best = entry;
		}
	}
	return best;
}

static int root_search(struct search *s)
{
	const char *helper = json_string_value(
		json_object_get(json_object_get(s->root, "credHelpers"), s->host));
	const char *all = json_string_value(json_object_get(s->root, "credsStore"));
	json_t *entry;
	int err = helper ? helper_ask(s, helper) : 0;

	if (err || helper)
		return err;
	entry = auths_find(s);
	err = entry ? entry_read(s, entry) : 0;
	if (err || fdry_creds_some(s->ret))
		return err;
	return all ? helper_ask(s, all) : 0;
}

static int file_search(struct search *s)
{
	struct fdry_buf bytes = { 0 };
	bool there = false;
	int err = fdry_json_file(s->path, FILE_MAX, &bytes, &there);

	if (err || !there)
		goto out_release;
	err = fdry_json_read((struct fdry_span){ bytes.data, bytes.len }, s->path, &s->root);
	if (err)
		goto out_release;
	err = root_search(s);
	json_decref(s->root);
out_release:
	if (bytes.data)
		OPENSSL_cleanse(bytes.data, bytes.cap);
	fdry_buf_release(&bytes);
	return err;
}

/* --- all files --- */

/* Search this file, unless another had an entry. */
static int place_search(struct search *s, int (*place)(const char *, struct fdry_buf *),
			const char *name)
{
	struct fdry_buf path = { 0 };
	int err;

	if (fdry_creds_some(s->ret))
		return 0;
	err = place(name, &path);
	if (err || !path.len)
		goto out_release;
	err = fdry_buf_put(&path, "", 1);
	if (err)
		goto out_release;
	s->path = (const char *)path.data;
	err = file_search(s);
out_release:
	fdry_buf_release(&path);
	return err;
}

int fdry_creds_read(struct fdry_http *h, struct fdry_creds *ret)
{
	struct fdry_creds found = { 0 };
	struct search s = { .host = h->name.host, .repo = h->name.repo, .http = h, .ret = &found };
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY_AUTH_FILE, &s.path);

	if (err)
		return err;
	if (s.path)
		err = file_search(&s);
	else
		err = place_search(&s, fdry_registry_runtime_place, "containers/auth.json") ?:
		      place_search(&s, fdry_registry_config_place, "containers/auth.json") ?:
		      place_search(&s, fdry_registry_docker_place, "config.json");
	if (err) {
		fdry_creds_release(&found);
		return err;
	}
	*ret = found;
	return 0;
}

static void wipe(char *text)
{
	if (text)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
}

void fdry_creds_release(struct fdry_creds *c)
{
	wipe(c->user);
	wipe(c->secret);
	wipe(c->identity);
	free(c->absent);
	*c = (struct fdry_creds){ 0 };
}
