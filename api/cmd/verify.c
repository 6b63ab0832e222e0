// SPDX-License-Identifier: Apache-2.0
/* verify.c - checks the store and lists what is damaged. It opens the store by itself, since damage
 * may be the reason that it cannot be opened. */
#include "api/cmd/cmd.h"

struct findings {
	struct json j;
	bool json;
	uint64_t count;
	struct cmd_progress progress;
};

static const char *const kinds[] = {
	[FDRY_FINDING_DAMAGED] = "damaged", [FDRY_FINDING_QUARANTINED] = "quarantined",
	[FDRY_FINDING_MISSING] = "missing", [FDRY_FINDING_REF] = "ref",
	[FDRY_FINDING_LOOSE] = "loose",	    [FDRY_FINDING_PAGES] = "pages",
};

static void finding_json(struct json *j, const struct fdry_finding *f)
{
	json_open(j, NULL, '{');
	json_string(j, "kind", kinds[f->kind]);
	if (f->oid)
		json_oid(j, "id", f->oid);
	if (f->other)
		json_oid(j, "link", f->other);
	json_string(j, "text", f->text);
	json_close(j, '}');
}

static void finding(void *arg, const struct fdry_finding *f)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct findings *fs = arg;

	fs->count++;
	cmd_progress_pause(&fs->progress);
	if (fs->json)
		finding_json(&fs->j, f);
	else if (f->oid)
		printf("%s: %s\n", fdry_oid_hex(f->oid, hex), cmd_text(f->text));
	else
		printf("%s\n", cmd_text(f->text));
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct findings *fs = arg;

	cmd_progress_to(&fs->progress, done, total);
}

static void report_json(struct json *j, const struct fdry_verify_report *r)
{
	json_close(j, ']');
	json_number(j, "objects", r->objects);
	json_number(j, "bytes", r->bytes);
	json_number(j, "damaged", r->damaged);
	json_number(j, "missing", r->missing);
	json_number(j, "quarantined", r->quarantined);
	json_number(j, "crashes", r->crashes);
	json_number(j, "refs", r->refs);
	json_number(j, "dangling_refs", r->dangling_refs);
	json_close(j, '}');
}

int cmd_verify(const struct cmd_args *a, struct fdry_store *s)
{
	struct findings f = { .j = { .f = stdout }, .json = cmd_has(a, JSON) };
	struct fdry_verify_how opts = { .finding = finding, .progress = progress, .arg = &f };
	struct fdry_verify_report r = { 0 };
	int err;

	(void)s;
	if (f.json) {
		json_open(&f.j, NULL, '{');
		json_open(&f.j, "findings", '[');
	}
	cmd_progress_begin(&f.progress, a, "verify", true);
	err = fdry_store_check_at(a->store, &opts, &r);
	cmd_progress_end(&f.progress);
	if (f.json)
		report_json(&f.j, &r);
	if (err)
		return cmd_fail(err);
	if (!f.json)
		printf("%llu object%s (%s) and %llu ref%s checked, %llu fault%s found\n",
		       (unsigned long long)r.objects, cmd_plural(r.objects), cmd_size(r.bytes).text,
		       (unsigned long long)r.refs, cmd_plural(r.refs), (unsigned long long)f.count,
		       cmd_plural(f.count));
	return f.count ? CMD_FOUND : CMD_OK;
}
