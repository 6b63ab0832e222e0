// SPDX-License-Identifier: Apache-2.0
/* mirrors.c - reads which mirrors a registry has; see mirrors.h. */
#include "registry/client/mirrors.h"

#include <pthread.h>
#include <strings.h>

#include "lib/clock.h"
#include "lib/config.h"
#include "lib/log.h"
#include "registry/client/json.h"
#include "registry/client/places.h"

#define FILE_MAX (1u << 20)
#define VERSION 1
#define PAUSE_MS 30000.0 /* in which a mirror that failed is not used */
#define FAILED_MAX 16u   /* mirrors of which that is known */

struct mirrors {
	struct fdry_registry_name names[FDRY_MIRRORS_MAX];
	size_t count;
};

/* --- the file --- */

static int bad(const char *path, const char *what)
{
	return fdry_fail(FDRY_E_ENV, "the mirrors in %s cannot be used: %s", path, what);
}

/* Whether @object has no members but these two. */
static bool has_only(const json_t *object, const char *a, const char *b)
{
	return json_object_size(object) ==
	       (size_t)(json_object_get(object, a) != NULL) +
		       (size_t)(b && json_object_get(object, b) != NULL);
}

/* The repository behind @prefix, which is HOST or HOST/PATH. NULL if the name is not in it. */
static const char *rest_of(const char *prefix, const struct fdry_registry_name *name)
{
	size_t host = strcspn(prefix, "/"), len = strlen(prefix);

	if (strlen(name->host) != host || strncasecmp(prefix, name->host, host))
		return NULL;
	if (len == host)
		return name->repo;
	len -= host + 1;
	if (strncmp(name->repo, prefix + host + 1, len))
		return NULL;
	return !name->repo[len] ? "" : name->repo[len] == '/' ? name->repo + len + 1 : NULL;
}

/* The name of @rest at a mirror. */
static int location_read(const char *path, const char *location, const char *rest,
			 struct fdry_registry_name *ret)
{
	char text[FDRY_REGISTRY_HOST_MAX + 2 * FDRY_REGISTRY_REPO_MAX + 32];
	int n = snprintf(text, sizeof(text), "%s%s%s", location, *rest ? "/" : "", rest);

	if (n >= (int)sizeof(text) || strchr(rest, ':') || fdry_registry_name_parse(text, ret) ||
	    strcmp(ret->tag, "latest") || ret->by_digest ||
	    (strlen(text) > 7 && !strcmp(text + strlen(text) - 7, ":latest")))
		return bad(path, "a \"location\" is oci://HOST[:PORT][/PATH], without a tag");
	return 0;
}

static int mirrors_check(const char *path, const json_t *mirrors)
{
	struct fdry_registry_name any;
	const json_t *m;
	size_t i;
	int err = 0;

	if (!json_is_array(mirrors) || json_array_size(mirrors) > FDRY_MIRRORS_MAX)
		return bad(path, "\"mirrors\" is a list of 8 mirrors at most");
	for (i = 0; i < json_array_size(mirrors) && !err; i++) {
		m = json_array_get(mirrors, i);
		if (!json_is_object(m) || !has_only(m, "location", NULL))
			return bad(path, "a mirror is an object with \"location\"");
		err = location_read(path, fdry_json_text(m, "location"), "x", &any);
	}
	return err;
}

static int registry_check(const char *path, const json_t *r)
{
	char text[FDRY_REGISTRY_HOST_MAX + FDRY_REGISTRY_REPO_MAX + 32];
	const char *prefix = fdry_json_text(r, "prefix");
	struct fdry_registry_name any;

	if (!json_is_object(r) || !has_only(r, "prefix", "mirrors"))
		return bad(path, "a registry is an object with \"prefix\" and \"mirrors\"");
	snprintf(text, sizeof(text), "oci://%s/x", prefix);
	if (strpbrk(prefix, "@") || strlen(prefix) + 9 > sizeof(text) ||
	    fdry_registry_name_parse(text, &any))
		return bad(path, "a \"prefix\" is HOST[:PORT] or HOST[:PORT]/PATH");
	return mirrors_check(path, json_object_get(r, "mirrors"));
}

static int root_check(const char *path, const json_t *root)
{
	const json_t *list = json_object_get(root, "registries");
	uint64_t version;
	size_t i;
	int err = 0;

	if (!fdry_json_count(root, "version", &version) || version != VERSION ||
	    !has_only(root, "version", "registries") || !json_is_array(list))
		return bad(path, "its members must be \"version\", which is 1, and the list "
				 "\"registries\"");
	for (i = 0; i < json_array_size(list) && !err; i++)
		err = registry_check(path, json_array_get(list, i));
	return err;
}

/* The longest prefix counts, and of equal ones the first. */
static int mirrors_find(const char *path, const json_t *root, const struct fdry_registry_name *name,
			struct mirrors *ret)
{
	const json_t *list = json_object_get(root, "registries"), *mirrors = NULL, *r;
	const char *best = "", *prefix, *rest = NULL;
	struct mirrors found = { .count = 0 };
	int err = 0;
	size_t i;

	for (i = 0; i < json_array_size(list); i++) {
		r = json_array_get(list, i);
		prefix = fdry_json_text(r, "prefix");
		if (!rest_of(prefix, name) || strlen(prefix) <= strlen(best))
			continue;
		best = prefix;
		rest = rest_of(prefix, name);
		mirrors = json_object_get(r, "mirrors");
	}
	for (i = 0; i < json_array_size(mirrors) && !err; i++)
		err = location_read(path, fdry_json_text(json_array_get(mirrors, i), "location"),
				    rest, &found.names[found.count++]);
	if (!err)
		*ret = found;
	return err;
}

static int parse(struct fdry_span text, const char *path, const struct fdry_registry_name *name,
		 struct mirrors *ret)
{
	json_t *root = NULL;
	int err;

	if (fdry_json_read(text, path, &root))
		return bad(path, "it is not a JSON object, or it names a member twice");
	err = root_check(path, root) ?: mirrors_find(path, root, name, ret);
	json_decref(root);
	return err;
}

/* The path with a terminator; nothing if there is no place for the file. @named: by the variable,
 * so it must exist. */
static int path_put(struct fdry_buf *ret, bool *named)
{
	const char *path = NULL;
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY_MIRRORS, &path);

	*named = path;
	if (err)
		return err;
	err = path ? fdry_buf_printf(ret, "%s", path) :
		     fdry_registry_config_place("foundry/mirrors.json", ret);
	return err || !ret->len ? err : fdry_buf_put(ret, "", 1);
}

/* Append the mirrors in their order; none if there is no file. */
static int mirrors_read(const struct fdry_registry_name *name, struct mirrors *ret)
{
	struct fdry_buf path = { 0 }, text = { 0 };
	bool named = false, there = false;
	const char *file;
	int err = path_put(&path, &named);

	ret->count = 0;
	if (err || !path.len)
		goto out_release;
	file = (const char *)path.data;
	err = fdry_json_file(file, FILE_MAX, &text, &there);
	if (err)
		goto out_release;
	if (there)
		err = parse((struct fdry_span){ text.data, text.len }, file, name, ret);
	else if (named)
		err = bad(file, "it does not exist");
out_release:
	fdry_buf_release(&text);
	fdry_buf_release(&path);
	return err;
}

/* --- mirrors that have failed --- */

static pthread_mutex_t failed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char host[FDRY_REGISTRY_HOST_MAX + 1];
	double until_ms;
} failed[FAILED_MAX]; /* under the lock; the oldest one is replaced */

static bool has_failed(const char *host)
{
	double now = fdry_now_ms();
	bool found = false;
	size_t i;

	pthread_mutex_lock(&failed_lock);
	for (i = 0; i < FAILED_MAX; i++)
		found |= failed[i].until_ms > now && !strcmp(failed[i].host, host);
	pthread_mutex_unlock(&failed_lock);
	return found;
}

static void failure_note(const char *host)
{
	size_t i, at = 0;

	pthread_mutex_lock(&failed_lock);
	for (i = 1; i < FAILED_MAX; i++)
		if (failed[i].until_ms < failed[at].until_ms)
			at = i;
	snprintf(failed[at].host, sizeof(failed[at].host), "%s", host);
	failed[at].until_ms = fdry_now_ms() + PAUSE_MS;
	pthread_mutex_unlock(&failed_lock);
}

/* --- sessions --- */

static int mirror_open(struct fdry_sources *s, size_t i, const struct fdry_registry_name *name,
		       const struct fdry_http_opts *opts)
{
	char scope[FDRY_REGISTRY_REPO_MAX + 32];
	struct fdry_http_opts own = { .requests = opts->requests, .scope = scope, .mirror = true,
				      .stop = opts->stop, .stop_arg = opts->stop_arg,
				      .patience_ms = opts->patience_ms };
	int err;

	snprintf(scope, sizeof(scope), "repository:%s:pull", name->repo);
	err = fdry_http_open(&s->http[i], name, &own);
	if (!err)
		s->out[i] = has_failed(name->host);
	return err;
}

int fdry_sources_open(struct fdry_sources *s, const struct fdry_registry_name *name,
		      const struct fdry_http_opts *opts)
{
	struct mirrors mirrors;
	int err = mirrors_read(name, &mirrors);

	*s = (struct fdry_sources){ .origin = 0 };
	while (!err && s->origin < mirrors.count) {
		err = mirror_open(s, s->origin, &mirrors.names[s->origin], opts);
		s->origin += !err;
	}
	err = err ?: fdry_http_open(&s->http[s->origin], name, opts);
	if (err)
		fdry_sources_close(s);
	return err;
}

void fdry_sources_close(struct fdry_sources *s)
{
	size_t i;

	for (i = 0; i <= s->origin; i++)
		fdry_http_close(&s->http[i]);
}

size_t fdry_sources_next(const struct fdry_sources *s, size_t from)
{
	while (from < s->origin && s->out[from])
		from++;
	return from < s->origin ? from : s->origin;
}

bool fdry_sources_pass_over(struct fdry_sources *s, size_t i, int err)
{
	if (i == s->origin ||
	    (err != -FDRY_E_NETWORK && err != -FDRY_E_PERM && err != -FDRY_E_NOENT &&
	     err != -FDRY_E_BADIMAGE && err != -FDRY_E_CORRUPT && err != -FDRY_E_LIMIT &&
	     err != -FDRY_E_ENV))
		return false;
	fdry_info("the mirror %s failed: %s", s->http[i].name.host, fdry_last_error());
	return true;
}

void fdry_sources_drop(struct fdry_sources *s, size_t i)
{
	fdry_warn("the mirror %s failed and is not used again: %s", s->http[i].name.host,
		  fdry_last_error());
	s->out[i] = true;
	failure_note(s->http[i].name.host);
}
