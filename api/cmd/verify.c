// SPDX-License-Identifier: Apache-2.0
/* verify.c - checks the store and names what is damaged; a report of its own, since damage may keep it from opening. */
#include "api/cmd/cmd.h"

struct findings {
	struct json j;
	bool json;
	uint64_t count;
};

static void finding(void *arg, const struct fdry_oid *oid, const char *text)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct findings *f = arg;

	f->count++;
	if (f->json) {
		json_open(&f->j, NULL, '{');
		if (oid)
			json_oid(&f->j, "id", oid);
		json_string(&f->j, "text", text);
		json_close(&f->j, '}');
	} else if (oid) {
		printf("%s: %s\n", fdry_oid_hex(oid, hex), text);
	} else {
		printf("%s\n", text);
	}
}

static void report_json(struct json *j, const struct fdry_verify_report *r)
{
	json_close(j, ']');
	json_number(j, "objects", r->objects);
	json_number(j, "bytes", r->bytes);
	json_number(j, "damaged", r->damaged);
	json_number(j, "missing", r->missing);
	json_number(j, "crashes", r->crashes);
	json_number(j, "refs", r->refs);
	json_number(j, "dangling_refs", r->dangling_refs);
	json_close(j, '}');
}

int cmd_verify(const struct cmd_args *a, struct fdry_store *s)
{
	struct findings f = { .j = { .f = stdout }, .json = cmd_has(a, CMD_OPT_JSON) };
	struct fdry_verify_report r = { 0 };
	int err;

	(void)s;
	if (f.json) {
		json_open(&f.j, NULL, '{');
		json_open(&f.j, "findings", '[');
	}
	err = fdry_store_verify_at(a->store, finding, &f, &r);
	if (f.json)
		report_json(&f.j, &r);
	if (err)
		return cmd_fail();
	if (!f.json)
		printf("%llu object%s (%s) and %llu ref%s checked, %llu fault%s found\n", (unsigned long long)r.objects,
		       cmd_plural(r.objects), cmd_size(r.bytes).text, (unsigned long long)r.refs, cmd_plural(r.refs),
		       (unsigned long long)f.count, cmd_plural(f.count));
	return f.count ? CMD_DAMAGED : CMD_OK;
}
