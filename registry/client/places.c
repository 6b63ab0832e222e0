// SPDX-License-Identifier: Apache-2.0
/* places.c - the folders of container tools; see places.h. */
#include "registry/client/places.h"

#include "lib/config.h"

/* @own: the variable that names the folder; @in_home: where it is otherwise, NULL: nowhere. */
static int place(enum fdry_config own, const char *in_home, const char *name,
		 struct fdry_buf *ret)
{
	const char *folder = NULL, *home = NULL;
	int err = fdry_config_path(own, &folder);

	if (err)
		return err;
	if (folder)
		return fdry_buf_printf(ret, "%s/%s", folder, name);
	err = in_home ? fdry_config_path(FDRY_CONFIG_HOME, &home) : 0;
	if (err || !home)
		return err;
	return fdry_buf_printf(ret, "%s/%s/%s", home, in_home, name);
}

int fdry_registry_config_place(const char *name, struct fdry_buf *ret)
{
	return place(FDRY_CONFIG_CONFIG_HOME, ".config", name, ret);
}

int fdry_registry_docker_place(const char *name, struct fdry_buf *ret)
{
	return place(FDRY_CONFIG_DOCKER_CONFIG, ".docker", name, ret);
}

int fdry_registry_runtime_place(const char *name, struct fdry_buf *ret)
{
	return place(FDRY_CONFIG_RUNTIME_DIR, NULL, name, ret);
}
