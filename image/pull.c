// SPDX-License-Identifier: Apache-2.0
/* pull.c - implements fdry_store_pull(); the order in which a load needs objects. */
#include "image/pull.h"

#include "foundry.h"
#include "image/manifest.h"
#include "lib/opts.h"
#include "registry/registry.h"

/* Append the ids of all entries of a section. */
#define oids_put(m, member, ret) ({ \
	int err_ = 0; \
	for (uint32_t i_ = 0; i_ < (m)->n_##member && !err_; i_++) \
		err_ = fdry_buf_put(ret, &(m)->member[i_].oid, sizeof((m)->member[i_].oid)); \
	err_; \
})

int fdry_image_order(struct fdry_span manifest, struct fdry_buf *ret)
{
	struct fdry_manifest m;

	if (fdry_manifest_init(manifest, &m)) /* a later version's, perhaps: in any order, then */
		return 0;
	return oids_put(&m, objects, ret) ?: oids_put(&m, variables, ret) ?:
	       oids_put(&m, graphs, ret) ?: oids_put(&m, chunks, ret) ?:
	       oids_put(&m, pinned_chunks, ret) ?: oids_put(&m, host_chunks, ret) ?:
	       oids_put(&m, array_pieces, ret);
}

/* Without a source the image comes from the registry of FOUNDRY_REGISTRY, by its name. */
static int source_find(const struct fdry_registry_opts *opts, const char **from,
		       struct fdry_buf *text)
{
	struct fdry_registry_opts o;
	int err;

	if (*from)
		return 0;
	err = fdry_registry_opts_take(opts, &o);
	if (err)
		return err;
	if (!o.ref)
		return fdry_fail(FDRY_E_INVAL, "neither a registry nor a ref is named; give "
				 "oci://HOST/REPOSITORY:TAG, or set FOUNDRY_REGISTRY and name the "
				 "ref");
	err = fdry_registry_target(o.ref, text);
	*from = (const char *)text->data;
	return err;
}

int fdry_store_pull(struct fdry_store *store, const char *from,
		    const struct fdry_registry_opts *opts, struct fdry_registry_report *report)
{
	const struct fdry_registry_pull how = { .opts = opts, .order = fdry_image_order };
	struct fdry_buf source = { 0 };
	int err = fdry_need(store) ?: source_find(opts, &from, &source) ?:
		  fdry_registry_pull(store, from, &how, report);

	fdry_buf_release(&source);
	return err;
}
