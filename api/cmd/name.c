// SPDX-License-Identifier: Apache-2.0
/* name.c - resolves a typed name to an id. Refs have precedence over ids, and images over other
 * objects. */
#include "api/cmd/cmd.h"

#include <string.h>

#define PREFIX_MIN 4 /* digits */
#define SHOWN 8      /* candidates that a message names */

struct candidates {
	bool images;     /* images alone count */
	uint64_t count;
	struct fdry_oid oid; /* the last one */
	char text[SHOWN * 32]; /* ", 0123456789abcdef chunk" each */
};

static int candidate(void *arg, const struct fdry_object_info *info)
{
	struct candidates *c = arg;
	char hex[FDRY_OID_HEX_SIZE];
	size_t len = strlen(c->text);

	if (c->images && !(info->kinds & 1u << FDRY_OBJECT_MANIFEST))
		return 0;
	c->oid = info->oid;
	if (c->count++ < SHOWN)
		snprintf(c->text + len, sizeof(c->text) - len, "%s%.16s %s", len ? ", " : "",
			 fdry_oid_hex(&info->oid, hex), fdry_object_kind_name(info->kind));
	return 0;
}

/* Resolve the beginning of an id; @err: the error for the same text as a name. */
static int by_prefix(struct fdry_store *s, const char *digits, bool images, int err,
		     struct fdry_oid *ret)
{
	struct candidates c = { .images = images };
	int walk;

	if (strlen(digits) < PREFIX_MIN || strspn(digits, "0123456789abcdef") != strlen(digits) ||
	    strlen(digits) >= 2 * FDRY_OID_SIZE)
		return err;
	walk = fdry_store_prefix(s, digits, candidate, &c);
	if (walk)
		return walk;
	if (!c.count)
		return fdry_fail(-err,
				 "there is no ref '%s', and no %s whose id begins with it; see "
				 "foundry-store ls",
				 digits, images ? "image" : "object");
	if (c.count > 1)
		return fdry_fail(FDRY_E_AMBIGUOUS,
				 "several ids begin with '%s': %s%s; type more digits", digits,
				 c.text, c.count > SHOWN ? ", ..." : "");
	*ret = c.oid;
	return 0;
}

static int must_be_image(struct fdry_store *s, const struct fdry_oid *oid)
{
	struct fdry_object_info info;
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_store_info(s, oid, &info);

	if (err || info.kinds & 1u << FDRY_OBJECT_MANIFEST)
		return err;
	return fdry_fail(FDRY_E_INVAL, "object %s is not an image but a %s; name an image",
			 fdry_oid_hex(oid, hex), fdry_object_kind_name(info.kind));
}

int cmd_resolve(struct fdry_store *s, const char *name, bool images, struct fdry_oid *ret)
{
	struct fdry_oid oid;
	int err = fdry_store_resolve(s, name, &oid);

	if (err == -FDRY_E_AMBIGUOUS || err == -FDRY_E_NOENT)
		err = by_prefix(s, name, images || err == -FDRY_E_AMBIGUOUS, err, &oid);
	if (err)
		return cmd_suggest_ref(s, name, err);
	if (images)
		err = must_be_image(s, &oid);
	if (err)
		return err;
	*ret = oid;
	return 0;
}
