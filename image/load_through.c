// SPDX-License-Identifier: Apache-2.0
/*
 * load_through.c - implements fdry_image_load(). If the store lacks an image, the load fetches it
 * from the registry that the environment names.
 *
 * The load begins when the manifest is there. Kernels are loaded and graphs are built while content
 * arrives. No graph is launched before the load returns, so all content is there and compared then.
 */
#include "image/image.h"
#include "image/pull.h"
#include "lib/opts.h"
#include "lib/threads.h"
#include "registry/registry.h"

struct load_args {
	const struct fdry_load_opts *opts;
	struct fdry_mismatch *mismatch;
	struct fdry_image **ret;
};

/* Load while objects arrive, or else when all are there. A failure of the fetch is the reason of
 * every other one: @why. */
static int load_fetched(struct fdry_load_source *from, struct fdry_registry_fetch *fetch,
			const struct load_args *args, struct fdry_saved_err *why)
{
	struct fdry_saved_err loaded = { 0 };
	struct fdry_image *img = NULL;

	from->arrival = fdry_registry_fetch_arrival(fetch);
	if (from->arrival)
		fdry_saved_err_set(&loaded, fdry_image_load_stored(from, args->opts,
								   args->mismatch, &img));
	fdry_saved_err_set(why, fdry_registry_fetch_end(fetch));
	if (why->err) {
		fdry_image_unload(img);
		return why->err;
	}
	if (!from->arrival)
		return fdry_image_load_stored(from, args->opts, args->mismatch, args->ret);
	if (loaded.err)
		return fdry_saved_err_restore(&loaded);
	*args->ret = img;
	return 0;
}

/* Fetch what the store lacks, and load: @err was the result of a load without that. *@before: the
 * mismatch before that load. */
static int fetch_and_load(struct fdry_load_source *from, const struct load_args *args,
			  const struct fdry_mismatch *before, int err)
{
	struct fdry_mismatch *mismatch = args->mismatch, first = *before;
	struct fdry_registry_fetch *fetch = NULL;
	struct fdry_saved_err missing, why = { 0 };
	struct fdry_load_opts opts;
	struct fdry_wait stop;

	fdry_saved_err_set(&missing, err);
	err = fdry_opts_take(args->opts, &opts, sizeof(opts));
	if (err)
		return err;
	stop = (struct fdry_wait){ .stop = opts.stop, .arg = opts.stop_arg };
	fdry_saved_err_set(&why, fdry_registry_fetch_begin(from->store, from->name,
							   fdry_image_order, &stop, &fetch));
	if (mismatch) {
		first = *mismatch;
		*mismatch = *before;
	}
	if (fetch)
		err = load_fetched(from, fetch, args, &why);
	if (fetch && !why.err)
		return err;
	if (mismatch)
		*mismatch = first;
	if (!why.err)
		return fdry_saved_err_restore(&missing);
	if (why.err == -FDRY_E_CALLBACK)
		return fdry_saved_err_restore(&why);
	return fdry_fail((enum fdry_errcode)-missing.err, "%s; and it cannot be fetched: %s",
			 missing.why, why.why);
}

#define CALLER_CODES 200 /* errors below are the caller's, and no miss */

int fdry_image_load_reporting(struct fdry_store *store, const char *name,
			      const struct fdry_load_opts *opts, struct fdry_mismatch *mismatch,
			      struct fdry_image **ret)
{
	const struct load_args args = { opts, mismatch, ret };
	struct fdry_load_source from = { store, name, NULL };
	struct fdry_mismatch before = { .field = "" };
	int err;

	if (mismatch)
		before = *mismatch;
	err = fdry_image_load_stored(&from, opts, mismatch, ret);
	if (err == -FDRY_E_NOENT || err == -FDRY_E_IDENTITY)
		err = fetch_and_load(&from, &args, &before, err);
	return err <= -CALLER_CODES ? fdry_store_note_miss(store, err) : err;
}

int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret)
{
	return fdry_image_load_reporting(store, name, opts, NULL, ret);
}
