// SPDX-License-Identifier: Apache-2.0
/* name.c - reading the name of an artifact; see name.h. */
#include "registry/name.h"

#include <string.h>

#define SCHEME "oci://"
#define SCHEME_PLAIN "oci+http://"
#define DIGEST "sha256:"
#define LATEST "latest"

static bool is_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_word(char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static int wrong(const char *text, const char *what)
{
	return fdry_fail(FDRY_E_INVAL,
			 "'%.200s' is no name in a registry: %s; write "
			 "oci://HOST[:PORT]/REPOSITORY[:TAG]",
			 text, what);
}

/* One or two of "._" and any number of "-" join words. Slashes join components. */
int fdry_registry_repo_check(const char *repo, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (is_lower(repo[i]))
			continue;
		if (!strchr("._-/", repo[i]) || !i || i + 1 == len ||
		    (!is_lower(repo[i - 1]) && repo[i] != repo[i - 1]) ||
		    (repo[i] == '/' && !is_lower(repo[i - 1])) ||
		    (repo[i] == '.' && !is_lower(repo[i - 1])))
			goto bad;
		if (repo[i + 1] == '/' || (repo[i] == '/' && !is_lower(repo[i + 1])))
			goto bad;
	}
	if (len && len <= FDRY_REGISTRY_REPO_MAX)
		return 0;
bad:
	return fdry_fail(FDRY_E_INVAL,
			 "'%.*s' is no repository's name; use lower-case letters and digits, "
			 "joined by one of . _ - or /",
			 (int)(len < 200 ? len : 200), repo);
}

/* The length of an IPv6 address in brackets, with the brackets; 0 if @host has none. */
static size_t address_length(const char *host, size_t len)
{
	const char *end = memchr(host, ']', len);
	size_t i, n = end ? (size_t)(end - host) + 1 : 0;

	for (i = 1; i + 1 < n; i++)
		if (!strchr("0123456789abcdefABCDEF:.", host[i]))
			return 0;
	return n > 2 ? n : 0;
}

static size_t name_length(const char *host, size_t len)
{
	size_t n = 0;

	if (len && (host[0] == '-' || host[0] == '.'))
		return 0;
	while (n < len && (is_word(host[n]) || host[n] == '.' || host[n] == '-'))
		n++;
	return n;
}

static bool port_fits(const char *port, size_t len)
{
	size_t i;
	unsigned int n = 0;

	for (i = 0; i < len; i++) {
		if (port[i] < '0' || port[i] > '9' || n > 65535)
			return false;
		n = n * 10 + (unsigned int)(port[i] - '0');
	}
	return n && n <= 65535;
}

/* A name or an address, optionally followed by ":PORT". */
static bool host_fits(const char *host, size_t len)
{
	size_t n;

	if (!len || len > FDRY_REGISTRY_HOST_MAX)
		return false;
	n = host[0] == '[' ? address_length(host, len) : name_length(host, len);
	if (!n)
		return false;
	return n == len || (host[n] == ':' && port_fits(host + n + 1, len - n - 1));
}

static bool tag_fits(const char *tag, size_t len)
{
	size_t i;

	if (!len || len > FDRY_REGISTRY_TAG_MAX || tag[0] == '.' || tag[0] == '-')
		return false;
	for (i = 0; i < len; i++)
		if (!is_word(tag[i]) && !strchr("._-", tag[i]))
			return false;
	return true;
}

/* @tail: ":TAG", "@sha256:DIGEST", or both in this order. */
static int tail_parse(const char *text, const char *tail, struct fdry_registry_name *n)
{
	const char *at = strchr(tail, '@');
	size_t len = at ? (size_t)(at - tail) : strlen(tail);

	if (len && !tag_fits(tail + 1, len - 1))
		return wrong(text, "the tag has 1 to 128 letters, digits and _ . -");
	if (len)
		memcpy(n->tag, tail + 1, len - 1);
	else if (!at)
		memcpy(n->tag, LATEST, sizeof(LATEST));
	if (!at)
		return 0;
	if (strncmp(at + 1, DIGEST, strlen(DIGEST)) ||
	    fdry_oid_parse(at + 1 + strlen(DIGEST), &n->digest))
		return wrong(text, "after @ comes sha256: and 64 lower-case hexadecimal digits");
	n->by_digest = true;
	return 0;
}

int fdry_registry_name_parse(const char *text, struct fdry_registry_name *ret)
{
	struct fdry_registry_name n = { .plain = !strncmp(text, SCHEME_PLAIN,
							  strlen(SCHEME_PLAIN)) };
	const char *host = text + strlen(n.plain ? SCHEME_PLAIN : SCHEME), *repo;
	size_t len;
	int err;

	if (!n.plain && strncmp(text, SCHEME, strlen(SCHEME)))
		return wrong(text, "it does not begin with oci://");
	repo = strchr(host, '/');
	if (!repo || repo == host)
		return wrong(text, "it has no host or no repository");
	if (!host_fits(host, (size_t)(repo - host)))
		return wrong(text, "the host must be a name, or an IPv6 address in brackets, and "
				   "its port a number from 1 to 65535");
	memcpy(n.host, host, (size_t)(repo - host));
	repo++;
	len = strcspn(repo, ":@");
	err = fdry_registry_repo_check(repo, len);
	if (err)
		return err;
	memcpy(n.repo, repo, len);
	err = tail_parse(text, repo + len, &n);
	if (err)
		return err;
	*ret = n;
	return 0;
}
