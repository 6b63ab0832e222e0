// SPDX-License-Identifier: Apache-2.0
/* ls.c - lists refs with what they reach, or all objects. */
#include "api/cmd/cmd.h"

struct ls {
	struct fdry_store *s;
	struct json j;
	bool json;
};

/* A ref whose image is broken is listed all the same: without sums. */
static int ls_ref(void *arg, const struct fdry_ref *ref)
{
	const struct fdry_oid *oid = &ref->oid;
	const char *name = ref->name;
	struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1];
	char hex[FDRY_OID_HEX_SIZE];
	struct ls *ls = arg;
	bool broken = cmd_reach(ls->s, oid, sums) != 0;

	if (!ls->json) {
		printf("%.12s %8llu %12s %12s  %s%s\n", fdry_oid_hex(oid, hex), (unsigned long long)sums[0].objects,
		       cmd_size(sums[0].bytes).text, cmd_size(sums[0].stored).text, name, broken ? " (broken, see verify)" : "");
		return 0;
	}
	json_open(&ls->j, NULL, '{');
	json_string(&ls->j, "ref", name);
	json_oid(&ls->j, "id", oid);
	json_bool(&ls->j, "broken", broken);
	json_number(&ls->j, "objects", sums[0].objects);
	json_number(&ls->j, "bytes", sums[0].bytes);
	json_number(&ls->j, "stored", sums[0].stored);
	json_close(&ls->j, '}');
	return 0;
}

static int ls_object(void *arg, const struct fdry_object_info *info)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct ls *ls = arg;

	if (!ls->json) {
		printf("%s %-8s %12llu %12llu %6u\n", fdry_oid_hex(&info->oid, hex), fdry_object_kind_name(info->kind),
		       (unsigned long long)info->size, (unsigned long long)info->stored, info->nlinks);
		return 0;
	}
	json_open(&ls->j, NULL, '{');
	json_oid(&ls->j, "id", &info->oid);
	json_string(&ls->j, "kind", fdry_object_kind_name(info->kind));
	json_number(&ls->j, "bytes", info->size);
	json_number(&ls->j, "stored", info->stored);
	json_number(&ls->j, "links", info->nlinks);
	json_close(&ls->j, '}');
	return 0;
}

int cmd_ls(const struct cmd_args *a, struct fdry_store *s)
{
	struct ls ls = { .s = s, .j = { .f = stdout }, .json = cmd_has(a, CMD_OPT_JSON) };
	bool objects = cmd_has(a, CMD_OPT_OBJECTS);
	int err;

	if (ls.json) {
		json_open(&ls.j, NULL, '{');
		json_string(&ls.j, "store", fdry_store_path(s));
		json_open(&ls.j, objects ? "objects" : "refs", '[');
	}
	err = objects ? fdry_store_each(s, ls_object, &ls) : fdry_ref_each(s, ls_ref, &ls);
	if (ls.json) {
		json_close(&ls.j, ']');
		json_close(&ls.j, '}');
	}
	return err ? cmd_fail() : CMD_OK;
}
