// SPDX-License-Identifier: Apache-2.0
/* show.c - one object: what it is, what it reaches, its names, and what an image says of itself. */
#include "api/cmd/cmd.h"

#include <stdlib.h>

#include "api/foundry.h"

struct show {
	struct fdry_object_info info;
	struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1];
	struct json j;
	bool json;
	char *text; /* of an image */
};

static int show_ref(void *arg, const struct fdry_ref *ref)
{
	const struct fdry_oid *oid = &ref->oid;
	const char *name = ref->name;
	struct show *show = arg;

	if (!fdry_oid_eq(oid, &show->info.oid))
		return 0;
	if (show->json)
		json_string(&show->j, NULL, name);
	else
		printf("ref %s\n", name);
	return 0;
}

static int show_text(struct show *show, struct fdry_store *s)
{
	char hex[FDRY_OID_HEX_SIZE];
	int kind, err;

	printf("%s %s\n", fdry_object_kind_name(show->info.kind), fdry_oid_hex(&show->info.oid, hex));
	err = fdry_ref_each(s, show_ref, show);
	printf("size %llu, stored %llu, links %u\n", (unsigned long long)show->info.size,
	       (unsigned long long)show->info.stored, show->info.nlinks);
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
		if (show->sums[kind].objects)
			printf("reaches %llu %s%s: %s, stored in %s\n", (unsigned long long)show->sums[kind].objects,
			       fdry_object_kind_name(kind), cmd_plural(show->sums[kind].objects),
			       cmd_size(show->sums[kind].bytes).text, cmd_size(show->sums[kind].stored).text);
	printf("%s", show->text ? show->text : "");
	return err;
}

static int show_json(struct show *show, struct fdry_store *s)
{
	struct json *j = &show->j;
	int kind, err;

	json_open(j, NULL, '{');
	json_oid(j, "id", &show->info.oid);
	json_string(j, "kind", fdry_object_kind_name(show->info.kind));
	json_open(j, "refs", '[');
	err = fdry_ref_each(s, show_ref, show);
	json_close(j, ']');
	json_number(j, "bytes", show->info.size);
	json_number(j, "stored", show->info.stored);
	json_number(j, "links", show->info.nlinks);
	json_open(j, "reaches", '{');
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++) {
		json_open(j, fdry_object_kind_name(kind), '{');
		json_number(j, "objects", show->sums[kind].objects);
		json_number(j, "bytes", show->sums[kind].bytes);
		json_number(j, "stored", show->sums[kind].stored);
		json_close(j, '}');
	}
	json_close(j, '}');
	if (show->text)
		json_string(j, "text", show->text);
	json_close(j, '}');
	return err;
}

int cmd_show(const struct cmd_args *a, struct fdry_store *s)
{
	struct show show = { .j = { .f = stdout }, .json = cmd_has(a, CMD_OPT_JSON) };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;
	int err = fdry_store_resolve(s, a->argv[0], &oid);

	if (!err)
		err = fdry_store_info(s, &oid, &show.info);
	if (!err)
		err = cmd_reach(s, &oid, show.sums);
	if (!err && show.info.kind == FDRY_OBJECT_MANIFEST)
		err = fdry_image_describe(s, fdry_oid_hex(&oid, hex), &show.text);
	if (!err)
		err = show.json ? show_json(&show, s) : show_text(&show, s);
	free(show.text);
	return err ? cmd_fail() : CMD_OK;
}
