// SPDX-License-Identifier: Apache-2.0
/* tag.c - names an image, or all images of another name. */
#include "api/cmd/cmd.h"

#include <stdlib.h>

#include "foundry.h"

/* The images that the name held before. */
struct before {
	struct fdry_ref *refs;
	size_t count;
};

static const struct fdry_ref *same_identity(const struct before *b, const struct fdry_ref *now)
{
	size_t i;

	for (i = 0; i < b->count; i++)
		if (fdry_oid_eq(&b->refs[i].identity, &now->identity))
			return &b->refs[i];
	return NULL;
}

static void tag_json(struct json *j, const struct fdry_ref *now, const struct fdry_ref *was)
{
	json_open(j, NULL, '{');
	json_string(j, "ref", now->name);
	json_oid(j, "id", &now->oid);
	if (was)
		json_oid(j, "was", &was->oid);
	json_close(j, '}');
}

static void tag_text(const struct cmd_args *a, const struct fdry_ref *now,
		     const struct fdry_ref *was)
{
	char hex[FDRY_OID_HEX_SIZE], was_hex[FDRY_OID_HEX_SIZE];

	if (was && !fdry_oid_eq(&now->oid, &was->oid))
		cmd_say(a, "%s is %s, was %s\n", now->name, fdry_oid_hex(&now->oid, hex),
			fdry_oid_hex(&was->oid, was_hex));
	else
		cmd_say(a, "%s is %s\n", now->name, fdry_oid_hex(&now->oid, hex));
}

/* The refs that were set are newer than all earlier ones. */
static void report(const struct cmd_args *a, const struct before *b, const struct fdry_ref *now,
		   size_t count)
{
	struct json j = { .f = stdout };
	bool json = cmd_has(a, JSON);
	size_t i;

	if (json) {
		json_open(&j, NULL, '{');
		json_open(&j, "tagged", '[');
	}
	for (i = 0; i < count && (!b->count || now[i].change > b->refs[0].change); i++) {
		if (json)
			tag_json(&j, &now[i], same_identity(b, &now[i]));
		else
			tag_text(a, &now[i], same_identity(b, &now[i]));
	}
	if (json) {
		json_close(&j, ']');
		json_close(&j, '}');
	}
}

int cmd_tag(const struct cmd_args *a, struct fdry_store *s)
{
	struct before b = { .count = 0 };
	struct fdry_ref *now = NULL;
	struct fdry_oid oid;
	size_t count = 0;
	int err = cmd_resolve(s, a->argv[0], true, &oid);

	if (err)
		return cmd_fail(err);
	if (fdry_ref_list(s, a->argv[1], &b.refs, &b.count))
		b.count = 0; /* the name is new, or setting it reports what is wrong */
	err = fdry_image_tag(s, a->argv[0], a->argv[1])
		      ?: fdry_ref_list(s, a->argv[1], &now, &count);
	if (!err)
		report(a, &b, now, count);
	free(b.refs);
	free(now);
	return err ? cmd_fail(err) : CMD_OK;
}
