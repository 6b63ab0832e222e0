// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_slice.c - kernel objects out of a kernel set.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/kernel_set.h"

static int object_whole(struct fdry_kernel_set *set, struct fdry_set_entry *e, const char *reason)
{
	const struct fdry_set_code *code = &((struct fdry_set_code *)set->codes.data)[e->code];
	const struct fdry_set_object *o = (struct fdry_set_object *)set->objects.data;
	struct fdry_set_object add = { .oid = code->oid, .bytes = code->bytes };
	uint32_t i;

	e->k.whole = true;
	e->k.whole_reason = strdup(reason);
	e->k.object = code->oid;
	if (!e->k.whole_reason)
		return fdry_nomem();
	for (i = 0; i < fdry_kernel_set_object_count(set); i++)
		if (fdry_oid_eq(&o[i].oid, &code->oid))
			return 0;
	return fdry_buf_put(&set->objects, &add, sizeof(add));
}

int fdry_kernel_set_slice(struct fdry_kernel_set *set)
{
	struct fdry_set_entry **e = (struct fdry_set_entry **)set->entries.data;
	uint32_t i;
	int err = 0;

	for (i = 0; i < fdry_kernel_set_count(set) && !err; i++)
		err = object_whole(set, e[i], "software driver object");
	return err;
}
