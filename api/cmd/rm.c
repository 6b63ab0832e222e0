// SPDX-License-Identifier: Apache-2.0
/* rm.c - removes refs: those that it can, naming the others. */
#include "api/cmd/cmd.h"

int cmd_rm(const struct cmd_args *a, struct fdry_store *s)
{
	struct json j = { .f = stdout };
	bool json = cmd_has(a, CMD_OPT_JSON);
	char hex[FDRY_OID_HEX_SIZE];
	int i, status = CMD_OK;
	struct fdry_oid oid;

	if (json)
		json_open(&j, NULL, '[');
	for (i = 0; i < a->argc; i++) {
		if (fdry_ref_get(s, a->argv[i], &oid) || fdry_ref_delete(s, a->argv[i])) {
			status = cmd_fail();
		} else if (json) {
			json_open(&j, NULL, '{');
			json_string(&j, "ref", a->argv[i]);
			json_oid(&j, "id", &oid);
			json_close(&j, '}');
		} else {
			printf("removed %s, which was %s\n", a->argv[i], fdry_oid_hex(&oid, hex));
		}
	}
	if (json)
		json_close(&j, ']');
	return status;
}
