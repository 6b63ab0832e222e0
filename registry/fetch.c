// SPDX-License-Identifier: Apache-2.0
/*
 * fetch.c - the registry that FOUNDRY_REGISTRY names: a tag for each ref, and images fetched by
 * name.
 *
 * All images lie in one repository, so that objects which they share are stored and sent once. The
 * tag is the ref; a sign that tags do not allow is written as _ and two hexadecimal digits.
 */
#include <stdio.h>

#include "lib/config.h"
#include "lib/log.h"
#include "registry/registry.h"

#define TAG_MAX 128
#define WAIT_MS 3600000u
#define KEY "registry" /* of claims, with the ref behind its terminator */

/* --- tags --- */

static bool is_plain(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (!first && (c == '.' || c == '-'));
}

static int tag_put(const char *ref, struct fdry_buf *ret)
{
	size_t before = ret->len;
	const char *c;
	int err = 0;

	for (c = ref; *c && !err; c++)
		err = is_plain(*c, c == ref) ? fdry_buf_put(ret, c, 1) :
					       fdry_buf_printf(ret, "_%02X", (unsigned char)*c);
	if (!err && ret->len - before > TAG_MAX)
		err = fdry_fail(FDRY_E_NAME,
				"the name '%s' is too long for a tag of %u signs; choose a "
				"shorter one",
				ref, TAG_MAX);
	return err ?: fdry_buf_put(ret, "", 1);
}

int fdry_registry_target(const char *ref, struct fdry_buf *ret)
{
	const char *registry = NULL;
	int err = fdry_ref_check(ref) ?: fdry_config_path(FDRY_CONFIG_REGISTRY, &registry);

	if (err)
		return err;
	if (!registry)
		return fdry_fail(FDRY_E_INVAL,
				 "no registry is named; give oci://HOST/REPOSITORY, or set "
				 "FOUNDRY_REGISTRY");
	return fdry_buf_printf(ret, "%s:", registry) ?: tag_put(ref, ret);
}

/* --- fetching --- */

static int pull(struct fdry_store *s, const char *ref)
{
	struct fdry_registry_opts opts = { .sz = sizeof(opts), .ref = ref };
	struct fdry_buf from = { 0 };
	int err = fdry_registry_target(ref, &from) ?:
		  fdry_store_pull(s, (const char *)from.data, &opts, NULL);

	if (!err)
		fdry_info("fetched '%s' from %s", ref, (const char *)from.data);
	fdry_buf_release(&from);
	return err;
}

/* Wait for a process that fetches it already. */
static int claim_begin(struct fdry_store *s, const char *ref, bool *waited, struct fdry_claim **ret)
{
	struct fdry_buf key = { 0 };
	int err = fdry_buf_put(&key, KEY, sizeof(KEY)) ?: fdry_buf_put(&key, ref, strlen(ref)) ?:
		  fdry_claim_begin(s, key.data, key.len, WAIT_MS, waited, ret);

	fdry_buf_release(&key);
	return err;
}

int fdry_registry_fetch(struct fdry_store *s, const char *ref, bool *fetched)
{
	struct fdry_claim *claim = NULL;
	const char *registry = NULL;
	struct fdry_oid oid;
	bool waited = false;
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY, &registry);

	*fetched = false;
	if (err || !registry || fdry_ref_check(ref))
		return err;
	err = claim_begin(s, ref, &waited, &claim);
	if (err)
		return err;
	if (!waited || fdry_ref_get(s, ref, &oid))
		err = pull(s, ref);
	fdry_claim_end(claim);
	*fetched = !err;
	return err;
}
