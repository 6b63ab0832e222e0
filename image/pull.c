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

int fdry_store_pull(struct fdry_store *store, const char *from,
		    const struct fdry_registry_opts *opts, struct fdry_registry_report *report)
{
	const struct fdry_registry_pull how = { .opts = opts, .order = fdry_image_order };
	int err = fdry_need(store) ?: fdry_need(from);

	return err ?: fdry_registry_pull(store, from, &how, report);
}
