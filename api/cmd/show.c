// SPDX-License-Identifier: Apache-2.0
/* show.c - describes an object: its kind, size, names and what it reaches; of an image, its
 * manifest. */
#include "api/cmd/cmd.h"

#include <stdlib.h>

#include "api/cmd/audit.h"
#include "api/cmd/image.h"
#include "foundry.h"

struct show {
	struct fdry_object_info info;
	struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1];
	struct json j;
	bool json;
	char *text; /* of an image's manifest */
	struct cmd_image im; /* the same image, if there is a text */
	struct fdry_image_times times;
	bool audited;
	struct fdry_audit audit;
};

static int show_ref(void *arg, const struct fdry_ref *ref)
{
	struct show *show = arg;

	if (!fdry_oid_eq(&ref->oid, &show->info.oid))
		return 0;
	if (show->json)
		json_string(&show->j, NULL, ref->name);
	else
		printf("ref %s\n", ref->name);
	return 0;
}

/* Print how many kernels are slices, and for each reason how many are not, in the order of the
 * manifest's strings. */
static void kernels_text(const struct fdry_manifest *m)
{
	uint32_t *counts = calloc((size_t)m->n_strings + 1, sizeof(*counts)), i, whole = 0;

	for (i = 0; i < m->n_kernels; i++)
		whole += m->kernels[i].whole_reason != 0;
	if (m->n_kernels)
		printf("kernels %u, %u of them sliced out of their cubins\n", m->n_kernels,
		       m->n_kernels - whole);
	for (i = 0; counts && i < m->n_kernels; i++)
		counts[m->kernels[i].whole_reason]++; /* equal reasons are one string */
	for (i = 1; counts && i < m->n_strings; i++)
		if (counts[i])
			printf("kernels whole %u: %s\n", counts[i],
			       cmd_text(fdry_manifest_str(m, i)));
	free(counts);
}

static int show_text(struct show *show, struct fdry_store *s)
{
	char hex[FDRY_OID_HEX_SIZE];
	int kind, err;

	printf("%s %s\n", fdry_object_kind_name(show->info.kind),
	       fdry_oid_hex(&show->info.oid, hex));
	err = fdry_ref_each(s, show_ref, show);
	printf("size %llu, stored %llu, links %u\n", (unsigned long long)show->info.size,
	       (unsigned long long)show->info.stored, show->info.nlinks);
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
		if (show->sums[kind].objects)
			printf("reaches %llu %s%s: %s, stored in %s\n",
			       (unsigned long long)show->sums[kind].objects,
			       fdry_object_kind_name(kind), cmd_plural(show->sums[kind].objects),
			       cmd_size(show->sums[kind].bytes).text,
			       cmd_size(show->sums[kind].stored).text);
	if (show->times.created)
		printf("created %s\n", cmd_date(show->times.created).text);
	if (show->times.used)
		printf("last used %s\n", cmd_date(show->times.used).text);
	printf("%s", show->text ? show->text : "");
	if (show->text)
		kernels_text(&show->im.m);
	if (show->audited)
		audit_print(&show->im.m, &show->audit);
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
	if (show->times.created)
		json_number(j, "created", show->times.created);
	if (show->times.used)
		json_number(j, "used", show->times.used);
	if (show->text) {
		json_string(j, "text", show->text);
		cmd_image_json(j, &show->im.m);
		if (show->audited)
			audit_json(j, &show->im.m, &show->audit);
	}
	json_close(j, '}');
	return err;
}

static int times_read(struct show *show, struct fdry_store *s)
{
	struct fdry_buf all = { 0 };
	int err = fdry_store_times_read(s, &all);

	show->times = fdry_times_of(&all, &show->info.oid);
	fdry_buf_release(&all);
	return err;
}

static int show_image(struct show *show, struct fdry_store *s, bool audit)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_reader *reader;
	int err = fdry_image_describe(s, fdry_oid_hex(&show->info.oid, hex), &show->text);

	if (err)
		return err;
	err = times_read(show, s) ?: fdry_reader_begin(s, &reader);
	if (err)
		return err;
	err = cmd_image_open(reader, &show->info.oid, &show->im);
	if (!err && audit)
		err = audit_read(reader, &show->im.m, &show->audit);
	show->audited = !err && audit;
	fdry_reader_end(reader);
	return err;
}

int cmd_show(const struct cmd_args *a, struct fdry_store *s)
{
	struct show show = { .j = { .f = stdout }, .json = cmd_has(a, JSON) };
	struct fdry_oid oid;
	int err;

	if (cmd_has(a, HTML))
		return cmd_has(a, AUDIT) ? cmd_usage(a->cmd, "the page has no audit")
					 : cmd_report(a, s);
	err = cmd_resolve(s, a->argv[0], false, &oid) ?:
	      fdry_store_info(s, &oid, &show.info) ?: cmd_reach(s, &oid, show.sums);
	if (err)
		return cmd_fail(err);
	if (show.info.kind == FDRY_OBJECT_MANIFEST)
		err = show_image(&show, s, cmd_has(a, AUDIT));
	if (!err)
		err = show.json ? show_json(&show, s) : show_text(&show, s);
	free(show.text);
	fdry_audit_release(&show.audit);
	cmd_image_close(&show.im);
	return err ? cmd_fail(err) : CMD_OK;
}
