// SPDX-License-Identifier: Apache-2.0
/* verify.c - checks the store and lists what is damaged. It opens the store by itself, since damage
 * may be the reason that it cannot be opened. */
#include "api/cmd/cmd.h"

struct verifying {
	struct json j;
	bool json;
	struct cmd_progress progress;
};

static const char *const kinds[] = {
	[FDRY_FAULT_DAMAGED] = "damaged",
	[FDRY_FAULT_QUARANTINED] = "quarantined",
	[FDRY_FAULT_MISSING] = "missing",
	[FDRY_FAULT_IMAGE] = "ref",
	[FDRY_FAULT_LOOSE] = "loose",
	[FDRY_FAULT_PAGES] = "pages",
};

static void fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	struct verifying *v = arg;

	cmd_progress_pause(&v->progress);
	if (!v->json) {
		printf("%s%s%s\n", id ? id : "", id ? ": " : "", cmd_text(text));
		return;
	}
	json_open(&v->j, NULL, '{');
	json_string(&v->j, "kind", kinds[kind]);
	if (id)
		json_string(&v->j, "id", id);
	if (other)
		json_string(&v->j, "link", other);
	json_string(&v->j, "text", text);
	json_close(&v->j, '}');
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct verifying *v = arg;

	cmd_progress_to(&v->progress, done, total);
}

static void report_json(struct json *j, const struct fdry_verify_report *r)
{
	json_close(j, ']');
	json_number(j, "objects", r->objects);
	json_number(j, "bytes", r->bytes);
	json_number(j, "compared", r->compared);
	json_number(j, "compared_bytes", r->compared_bytes);
	json_number(j, "damaged", r->damaged);
	json_number(j, "missing", r->missing);
	json_number(j, "quarantined", r->quarantined);
	json_number(j, "crashes", r->crashes);
	json_number(j, "refs", r->refs);
	json_number(j, "dangling_refs", r->dangling);
	json_close(j, '}');
}

static void report_print(const struct fdry_verify_report *r, bool fast)
{
	printf("%llu object%s (%s) and %llu ref%s checked, %llu fault%s found",
	       (unsigned long long)r->objects, cmd_plural(r->objects), cmd_size(r->bytes).text,
	       (unsigned long long)r->refs, cmd_plural(r->refs), (unsigned long long)r->faults,
	       cmd_plural(r->faults));
	if (fast)
		printf("; %llu object%s (%s) by fingerprints, the others by SHA-256",
		       (unsigned long long)r->compared, cmd_plural(r->compared),
		       cmd_size(r->compared_bytes).text);
	putchar('\n');
}

int cmd_verify(const struct cmd_args *a, struct fdry_store *s)
{
	struct verifying v = { .j = { .f = stdout }, .json = cmd_has(a, JSON) };
	struct fdry_verify_opts opts = { .sz = sizeof(opts),
					 .flags = cmd_has(a, FAST) ? FDRY_VERIFY_FAST : 0,
					 .fault = fault, .fault_arg = &v,
					 .progress = progress, .progress_arg = &v };
	struct fdry_verify_report r = { .sz = sizeof(r) };
	int err;

	(void)s;
	if (v.json) {
		json_open(&v.j, NULL, '{');
		json_open(&v.j, "findings", '[');
	}
	cmd_progress_begin(&v.progress, a, "verify", true);
	err = fdry_store_verify(a->store, &opts, &r);
	cmd_progress_end(&v.progress);
	if (v.json)
		report_json(&v.j, &r);
	if (err)
		return cmd_fail(err);
	if (!v.json)
		report_print(&r, opts.flags & FDRY_VERIFY_FAST);
	return r.faults ? CMD_FOUND : CMD_OK;
}
