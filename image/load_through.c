// SPDX-License-Identifier: Apache-2.0
/*
 * load_through.c - implements fdry_image_load(): what the store lacks is fetched from the registry
 * that the environment names.
 */
#include "image/image.h"
#include "lib/threads.h"
#include "registry/registry.h"

int fdry_image_load_reporting(struct fdry_store *store, const char *name,
			      const struct fdry_load_opts *opts, struct fdry_mismatch *mismatch,
			      struct fdry_image **ret)
{
	struct fdry_mismatch before = { .field = "" };
	struct fdry_saved_err missing, why;
	bool fetched = false;
	int err;

	if (mismatch)
		before = *mismatch;
	err = fdry_image_load_stored(store, name, opts, mismatch, ret);
	if (err != -FDRY_E_NOENT && err != -FDRY_E_IDENTITY)
		return err;
	fdry_saved_err_set(&missing, err);
	fdry_saved_err_set(&why, fdry_registry_fetch(store, name, &fetched));
	if (fetched && mismatch)
		*mismatch = before;
	if (fetched)
		return fdry_image_load_stored(store, name, opts, mismatch, ret);
	if (!why.err)
		return fdry_saved_err_restore(&missing);
	return fdry_fail((enum fdry_errcode)-err, "%s; and it cannot be fetched: %s", missing.why,
			 why.why);
}

int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret)
{
	return fdry_image_load_reporting(store, name, opts, NULL, ret);
}
