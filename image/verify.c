// SPDX-License-Identifier: Apache-2.0
/*
 * verify.c - implements fdry_store_verify() and fdry_store_repair(): the store checks its objects,
 * and this file adds what the store does not know: the fingerprints of content, which manifests
 * record, and the registry.
 */
#include "image/manifest.h"
#include "lib/log.h"
#include "registry/registry.h"
#include "store/repair.h"

static void prints_read(struct fdry_span manifest, fdry_verify_print_fn fn, void *arg)
{
	struct fdry_manifest m;
	uint32_t i;

	if (fdry_manifest_init(manifest, &m)) {
		fdry_debug("no fingerprints of a manifest: %s", fdry_last_error());
		return;
	}
	for (i = 0; i < m.n_fingerprints; i++)
		fn(arg, &m.chunks[i].oid, m.fingerprints[i]);
	for (i = 0; i < m.n_host_fingerprints; i++)
		fn(arg, &m.host_chunks[i].oid, m.host_fingerprints[i]);
	for (i = 0; i < m.n_pinned_chunks; i++)
		fn(arg, &m.pinned_chunks[i].oid, m.pinned_chunks[i].print);
	for (i = 0; i < m.n_array_pieces; i++)
		fn(arg, &m.array_pieces[i].oid, m.array_pieces[i].print);
}

int fdry_store_verify(const char *path, const struct fdry_verify_opts *opts,
		      struct fdry_verify_report *report)
{
	return fdry_verify_store(path, opts, prints_read, report);
}

int fdry_store_repair(const char *path, const char *const *sources, size_t count,
		      const struct fdry_repair_opts *opts, struct fdry_repair_report *report)
{
	struct fdry_source *registry = NULL;
	int err = fdry_registry_source_new(NULL, &registry);

	if (err)
		return err;
	err = fdry_repair_store(path, sources, count, registry, opts, report);
	fdry_source_close(registry);
	return err;
}
