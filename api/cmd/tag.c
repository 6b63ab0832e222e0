// SPDX-License-Identifier: Apache-2.0
/* tag.c - names an image. */
#include "api/cmd/cmd.h"

int cmd_tag(const struct cmd_args *a, struct fdry_store *s)
{
	struct json j = { .f = stdout };
	char hex[FDRY_OID_HEX_SIZE], was_hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid, was;
	bool had;
	int err = fdry_store_resolve(s, a->argv[0], &oid);

	if (!err)
		err = fdry_ref_check(a->argv[1]);
	if (err)
		return cmd_fail();
	had = !fdry_ref_get(s, a->argv[1], &was);
	if (fdry_ref_set(s, a->argv[1], &oid, NULL))
		return cmd_fail();
	if (cmd_has(a, CMD_OPT_JSON)) {
		json_open(&j, NULL, '{');
		json_string(&j, "ref", a->argv[1]);
		json_oid(&j, "id", &oid);
		if (had)
			json_oid(&j, "was", &was);
		json_close(&j, '}');
	} else {
		printf("%s is %s", a->argv[1], fdry_oid_hex(&oid, hex));
		if (had && !fdry_oid_eq(&oid, &was))
			printf(", was %s", fdry_oid_hex(&was, was_hex));
		printf("\n");
	}
	return CMD_OK;
}
