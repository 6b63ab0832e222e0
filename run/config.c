// SPDX-License-Identifier: Apache-2.0
/* config.c - the list of environment variables for callers; see foundry/config.h. */
#include "lib/config.h"

#include "foundry/run.h"
#include "lib/opts.h"

int fdry_variable_at(size_t i, struct fdry_variable *ret)
{
	const struct fdry_config_var *v;
	int err = fdry_need(ret);

	if (err)
		return err;
	if (i >= FDRY_CONFIG_COUNT)
		return fdry_fail(
			FDRY_E_RANGE,
			"there are %d variables, but number %zu was asked for; count from 0",
			FDRY_CONFIG_COUNT, i);
	v = &fdry_config_vars[i];
	*ret = (struct fdry_variable){ v->name, v->type_name, v->fallback, v->allowed, v->meaning };
	return 0;
}

int fdry_variable_check(const char *name)
{
	enum fdry_config id;
	bool found = !name;
	int err;

	for (id = 0; id < FDRY_CONFIG_COUNT; id++) {
		if (name && strcmp(name, fdry_config_vars[id].name))
			continue;
		found = true;
		err = fdry_config_check(id);
		if (err)
			return err;
	}
	if (!found)
		return fdry_fail(FDRY_E_INVAL,
				 "'%.80s' is not a variable of this library; see "
				 "Documentation/api/environment.rst",
				 name);
	return 0;
}
