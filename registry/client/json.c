// SPDX-License-Identifier: Apache-2.0
/* json.c - reading JSON from outside; see json.h. */
#include "registry/client/json.h"

#include <errno.h>
#include <string.h>

#include "lib/fd.h"

#define DIGEST "sha256:"

int fdry_json_read(struct fdry_span text, const char *what, json_t **ret)
{
	json_error_t why;
	json_t *root = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, &why);
	char *near = root ? NULL : strstr(why.text, " near ");

	if (near) /* the document's own words, which may be a password */
		*near = '\0';
	if (!root && !*why.text) /* libjansson gives no reason if it cannot allocate */
		return fdry_nomem();
	if (!root)
		return fdry_fail(FDRY_E_BADIMAGE, "%s is no JSON document: %s in line %d", what,
				 why.text, why.line);
	if (!json_is_object(root)) {
		json_decref(root);
		return fdry_fail(FDRY_E_BADIMAGE, "%s is not a JSON object", what);
	}
	*ret = root;
	return 0;
}

int fdry_json_file(const char *path, size_t most, struct fdry_buf *ret, bool *there)
{
	FILE *f = fdry_fopen_read(path);
	void *to = NULL;
	size_t n;
	int err;

	*there = f;
	if (!f && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (!f)
		return fdry_fail(FDRY_E_ENV, "cannot read %s: %s", path, strerror(errno));
	err = fdry_buf_grow(ret, most + 1, &to);
	if (err)
		goto out_close;
	n = fread(to, 1, most + 1, f);
	ret->len -= most + 1 - n;
	if (ferror(f))
		err = fdry_fail(FDRY_E_ENV, "cannot read %s: %s", path, strerror(errno));
	else if (n > most)
		err = fdry_fail(FDRY_E_ENV, "%s is longer than %zu bytes", path, most);
out_close:
	fclose(f);
	return err;
}

const char *fdry_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

bool fdry_json_digest(const json_t *object, const char *key, struct fdry_oid *ret)
{
	const char *text = fdry_json_text(object, key);

	return !strncmp(text, DIGEST, strlen(DIGEST)) &&
	       !fdry_oid_parse(text + strlen(DIGEST), ret);
}

bool fdry_json_count(const json_t *object, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(object, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(v);
	return true;
}

void fdry_json_error(struct fdry_span text, char *ret, size_t size)
{
	json_t *root = text.len ? json_loadb((const char *)text.data, text.len, 0, NULL) : NULL;
	json_t *first = json_array_get(json_object_get(root, "errors"), 0);
	const char *code = fdry_json_text(first, "code"), *why = fdry_json_text(first, "message");

	snprintf(ret, size, "%s%s%s", code, *code && *why ? ": " : "", why);
	json_decref(root);
}
