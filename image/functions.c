// SPDX-License-Identifier: Apache-2.0
/* functions.c - see functions.h. */
#include "image/functions.h"

#include <stdlib.h>
#include <string.h>

#include "image/tensor.h"

static int function_check(const struct fdry_buf *list, const struct fdry_host_function *f)
{
	const struct fdry_host_function *have = fdry_array(*list, struct fdry_host_function);
	size_t i, n = fdry_array_count(*list, struct fdry_host_function);
	int err = fdry_name_check("host function", f->name);

	if (err)
		return err;
	if (!f->fn)
		return fdry_fail(FDRY_E_INVAL, "host function '%s' is NULL; pass its address",
				 f->name);
	for (i = 0; i < n; i++)
		if (!strcmp(have[i].name, f->name))
			return fdry_fail(FDRY_E_EXISTS, "the host function '%s' was named before",
					 f->name);
	return 0;
}

int fdry_functions_add(struct fdry_buf *list, const struct fdry_host_function *f)
{
	struct fdry_host_function add = *f;
	int err = function_check(list, f);

	if (err)
		return err;
	add.name = strdup(f->name);
	err = add.name ? fdry_buf_put(list, &add, sizeof(add)) : fdry_nomem();
	if (err)
		free((char *)add.name);
	return err;
}

int fdry_functions_take(struct fdry_buf *list, const struct fdry_load_opts *o)
{
	size_t i;
	int err = 0;

	for (i = 0; !err && i < o->nfunctions; i++)
		err = fdry_functions_add(list, &o->functions[i]);
	return err;
}

void fdry_functions_release(struct fdry_buf *list)
{
	size_t i;

	for (i = 0; i < fdry_array_count(*list, struct fdry_host_function); i++)
		free((char *)fdry_array(*list, struct fdry_host_function)[i].name);
	fdry_buf_release(list);
}
