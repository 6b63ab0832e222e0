// SPDX-License-Identifier: Apache-2.0
/* policy.c - reads a policy, and finds the rule for a name; see policy.h. */
#include "registry/client/policy.h"

#include <strings.h>

#include "registry/client/json.h"

#define FILE_MAX (1u << 20)
#define VERSION 1
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define SCOPE_MAX (FDRY_REGISTRY_HOST_MAX + FDRY_REGISTRY_REPO_MAX + FDRY_REGISTRY_TAG_MAX + 3)

static int bad(const struct fdry_policy *p, const char *what)
{
	return fdry_fail(FDRY_E_ENV, "the policy %s cannot be used: %s", p->path, what);
}

/* The port that a host has if none is given: "host" and "host:443" are one. */
static const char *default_port(bool plain)
{
	return plain ? ":80" : ":443";
}

/* Whether @host ends with that port. */
static bool has_default_port(const char *host, size_t len, bool plain)
{
	const char *port = default_port(plain);
	size_t n = strlen(port);

	return len > n && !memcmp(host + len - n, port, n);
}

/* --- the form of the file --- */

/* Whether @object has no members but these. */
static bool has_only(const json_t *object, const char *const *names, size_t count)
{
	size_t i, known = 0;

	for (i = 0; i < count; i++)
		known += json_object_get(object, names[i]) != NULL;
	return known == json_object_size(object);
}

static bool is_word(const json_t *rule)
{
	const char *word = json_string_value(rule);

	return word && (!strcmp(word, "accept") || !strcmp(word, "reject"));
}

static int keys_check(const struct fdry_policy *p, const json_t *keys)
{
	size_t i, n = json_array_size(keys);

	if (!json_is_array(keys) || !n || n > FDRY_POLICY_KEYS)
		return bad(p, "\"keys\" is a list of 1 to 16 paths of public keys");
	for (i = 0; i < n; i++)
		if (!json_string_length(json_array_get(keys, i)))
			return bad(p, "\"keys\" is a list of 1 to 16 paths of public keys");
	return 0;
}

static int rule_check(const struct fdry_policy *p, const json_t *rule)
{
	static const char *const names[] = { "keys", "identity", "signedAs" };
	const char *identity = fdry_json_text(rule, "identity");
	const json_t *as = json_object_get(rule, "signedAs");

	if (is_word(rule))
		return 0;
	if (!json_is_object(rule) || !has_only(rule, names, 3))
		return bad(p, "a rule is \"accept\", \"reject\", or an object with \"keys\" and "
			      "perhaps \"identity\" and \"signedAs\"");
	if (json_object_get(rule, "identity") && strcmp(identity, "tag") &&
	    strcmp(identity, "repository"))
		return bad(p, "\"identity\" is \"tag\" or \"repository\"");
	if (as && !json_string_length(as))
		return bad(p, "\"signedAs\" is HOST or HOST/REPOSITORY");
	return keys_check(p, json_object_get(rule, "keys"));
}

/* HOST, HOST/REPOSITORY or HOST/REPOSITORY:TAG. A scope of another form would never be met, and a
 * weaker rule would count in its place. */
static bool is_scope(const char *scope)
{
	struct fdry_registry_name n;
	char text[SCOPE_MAX + 16];

	if (strlen(scope) > SCOPE_MAX || strcspn(scope, CAPITALS) < strcspn(scope, "/"))
		return false;
	snprintf(text, sizeof(text), "oci://%s%s", scope, strchr(scope, '/') ? "" : "/x");
	return !fdry_registry_name_parse(text, &n) && !n.by_digest;
}

/* "host" and "host:443" are one host, and a rule for each would leave open which counts. */
static int twice_check(const struct fdry_policy *p, const json_t *scopes, const char *scope)
{
	size_t host = strcspn(scope, "/");
	char other[SCOPE_MAX + 8];
	int plain;

	for (plain = 0; plain <= 1; plain++) {
		snprintf(other, sizeof(other), "%.*s%s%s", (int)host, scope, default_port(plain),
			 scope + host);
		if (json_object_get(scopes, other))
			return bad(p, "it names a host with and without its default port");
	}
	return 0;
}

/* "signedAs" stands for the beginning of a repository's name. */
static int scope_rule_check(const struct fdry_policy *p, const char *scope, const json_t *rule)
{
	const char *slash = strchr(scope, '/');

	if (!is_scope(scope))
		return bad(p, "a name is HOST, HOST/REPOSITORY or HOST/REPOSITORY:TAG, without "
			      "oci://, and its host is in lower case");
	if (slash && strchr(slash, ':') && json_object_get(rule, "signedAs"))
		return bad(p, "the rule for a tag has no \"signedAs\"");
	return rule_check(p, rule);
}

static int scopes_check(const struct fdry_policy *p, json_t *scopes)
{
	const char *scope;
	json_t *rule;
	int err;

	if (scopes && !json_is_object(scopes))
		return bad(p, "\"names\" is an object");
	json_object_foreach(scopes, scope, rule) {
		err = scope_rule_check(p, scope, rule) ?: twice_check(p, scopes, scope);
		if (err)
			return err;
	}
	return 0;
}

static int root_check(const struct fdry_policy *p)
{
	static const char *const names[] = { "version", "default", "names" };
	uint64_t version;

	if (!fdry_json_count(p->root, "version", &version) || version != VERSION)
		return bad(p, "\"version\" is 1");
	if (!has_only(p->root, names, 3))
		return bad(p, "its members must be \"version\", \"default\" and \"names\"");
	if (json_object_get(json_object_get(p->root, "default"), "signedAs"))
		return bad(p, "the default has no \"signedAs\"");
	return rule_check(p, json_object_get(p->root, "default")) ?:
	       scopes_check(p, json_object_get(p->root, "names"));
}

/* --- the rule for a name --- */

/* A host in capital letters is the same host, and must not meet a weaker rule. */
static void host_lower(char *scope)
{
	for (; *scope && *scope != '/'; scope++)
		if (*scope >= 'A' && *scope <= 'Z')
			*scope += 'a' - 'A';
}

/* Write the name's host, without that port and in lower case, a slash and the repository. */
static void scope_set(const struct fdry_registry_name *name, char scope[SCOPE_MAX])
{
	int host = (int)strlen(name->host);

	if (has_default_port(name->host, strlen(name->host), name->plain))
		host -= (int)strlen(default_port(name->plain));
	snprintf(scope, SCOPE_MAX, "%.*s/%s", host, name->host, name->repo);
	host_lower(scope);
}

/* The rule for a scope, whose host the policy may write with its port. */
static const json_t *rule_get(const json_t *scopes, const char *scope, bool plain)
{
	char with_port[SCOPE_MAX + 8];
	int host = (int)strcspn(scope, "/");
	const json_t *rule = json_object_get(scopes, scope);

	snprintf(with_port, sizeof(with_port), "%.*s%s%s", host, scope, default_port(plain),
		 scope + host);
	return rule ? rule : json_object_get(scopes, with_port);
}

/* The rule of the longest scope that has the name in it: the tag, the repository, the folders that
 * it is in, the host. @scope: the scope's text. */
static const json_t *rule_find(const struct fdry_policy *p, const struct fdry_registry_name *name,
			       char scope[SCOPE_MAX])
{
	const json_t *scopes = json_object_get(p->root, "names"), *rule = NULL;
	char *end;

	scope_set(name, scope);
	if (name->tag[0]) {
		end = scope + strlen(scope);
		snprintf(end, SCOPE_MAX - strlen(scope), ":%s", name->tag);
		rule = rule_get(scopes, scope, name->plain);
		*end = '\0';
	}
	while (!rule) {
		rule = rule_get(scopes, scope, name->plain);
		end = strrchr(scope, '/');
		if (rule || !end)
			break;
		*end = '\0';
	}
	return rule ? rule : json_object_get(p->root, "default");
}

/* The repository that signatures must name: "signedAs" stands for the scope. */
static int repo_set(struct fdry_policy *p, const struct fdry_registry_name *name,
		    const char *scope, const char *as)
{
	char repo[SCOPE_MAX];
	int n;

	scope_set(name, repo);
	if (!*as)
		n = snprintf(p->repo, sizeof(p->repo), "%s", repo);
	else
		n = snprintf(p->repo, sizeof(p->repo), "%s%s", as, repo + strlen(scope));
	return n < (int)sizeof(p->repo) ? 0 : bad(p, "\"signedAs\" is too long");
}

static int rule_set(struct fdry_policy *p, const struct fdry_registry_name *name)
{
	char scope[SCOPE_MAX];
	const json_t *rule = rule_find(p, name, scope);
	const char *word = json_string_value(rule);
	bool any_tag = !strcmp(fdry_json_text(rule, "identity"), "repository");

	p->rule = !word ? FDRY_POLICY_SIGNED :
		  !strcmp(word, "accept") ? FDRY_POLICY_ACCEPT : FDRY_POLICY_REJECT;
	p->keys = json_object_get(rule, "keys");
	p->plain = name->plain;
	/* A digest says which image it is; its tag may be another one, or be gone. */
	p->tag = any_tag || name->by_digest ? "" : name->tag;
	return repo_set(p, name, scope, fdry_json_text(rule, "signedAs"));
}

int fdry_policy_parse(struct fdry_span text, const char *path,
		      const struct fdry_registry_name *name, struct fdry_policy *ret)
{
	struct fdry_policy p = { .path = path };
	int err = fdry_json_read(text, path, &p.root);

	if (err)
		return bad(&p, "it is not a JSON object, or it names a member twice");
	err = root_check(&p) ?: rule_set(&p, name);
	if (err) {
		json_decref(p.root);
		return err;
	}
	*ret = p;
	return 0;
}

/* --- keys --- */

/* A path that does not begin with / begins in the policy's folder. */
static int key_path(const struct fdry_policy *p, size_t i, struct fdry_buf *ret)
{
	const char *key = json_string_value(json_array_get(p->keys, i));
	const char *slash = strrchr(p->path, '/');

	if (key[0] == '/' || !slash)
		return fdry_buf_printf(ret, "%s", key);
	return fdry_buf_printf(ret, "%.*s/%s", (int)(slash - p->path), p->path, key);
}

static int key_add(struct fdry_policy *p)
{
	struct fdry_buf path = { 0 };
	int err = key_path(p, p->count, &path) ?: fdry_buf_put(&path, "", 1) ?:
		  fdry_key_public((const char *)path.data, &p->pkeys[p->count]);

	if (!err)
		p->count++;
	fdry_buf_release(&path);
	return err;
}

int fdry_policy_keys_put(const struct fdry_policy *p, struct fdry_buf *ret)
{
	size_t i;
	int err = p->count > 1 ? fdry_buf_printf(ret, "one of ") : 0;

	for (i = 0; i < p->count && !err; i++)
		err = (i ? fdry_buf_printf(ret, ", ") : 0) ?: key_path(p, i, ret);
	return err ?: fdry_buf_put(ret, "", 1);
}

/* --- the whole --- */

int fdry_policy_init(const char *path, const struct fdry_registry_name *name,
		     struct fdry_policy *ret)
{
	struct fdry_policy p = { .path = path };
	struct fdry_buf text = { 0 };
	bool there = false;
	int err = fdry_json_file(path, FILE_MAX, &text, &there);

	if (!err && !there)
		err = bad(&p, "it does not exist");
	err = err ?: fdry_policy_parse((struct fdry_span){ text.data, text.len }, path, name, &p);
	fdry_buf_release(&text);
	while (!err && p.count < json_array_size(p.keys))
		err = key_add(&p);
	if (err)
		fdry_policy_release(&p);
	else
		*ret = p;
	return err;
}

void fdry_policy_release(struct fdry_policy *p)
{
	size_t i;

	for (i = 0; i < p->count; i++)
		EVP_PKEY_free(p->pkeys[i]);
	json_decref(p->root);
	p->root = NULL;
	p->count = 0;
}

bool fdry_policy_fits(const struct fdry_policy *p, const char *reference)
{
	size_t host = strcspn(p->repo, "/"), own = host, other = strcspn(reference, "/");
	const char *rest;
	size_t len;

	if (has_default_port(p->repo, own, p->plain))
		own -= strlen(default_port(p->plain));
	if (has_default_port(reference, other, p->plain))
		other -= strlen(default_port(p->plain));
	rest = reference + strcspn(reference, "/");
	len = strlen(p->repo + host);
	if (own != other || strncasecmp(reference, p->repo, own) ||
	    strncmp(rest, p->repo + host, len))
		return false;
	if (!*p->tag)
		return !rest[len] || rest[len] == ':';
	return rest[len] == ':' && !strcmp(rest + len + 1, p->tag);
}
