// SPDX-License-Identifier: Apache-2.0
/*
 * fetch.c - the registry that FOUNDRY_REGISTRY names: a tag for each ref, and images fetched by
 * name.
 *
 * All images lie in one repository, so that objects which they share are stored and sent once. The
 * tag is the ref; a byte that tags do not allow is written as _ and two hexadecimal digits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/config.h"
#include "lib/log.h"
#include "lib/threads.h"
#include "registry/registry.h"

#define TAG_MAX 128
#define KEY "registry" /* of claims, with the ref behind its terminator */
#define WAIT_MS 3600000u

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
				"the name '%s' is too long for a tag of %u characters; choose a "
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

struct fdry_registry_fetch {
	struct fdry_store *s;
	fdry_registry_order_fn order;
	struct fdry_wait wait; /* for another fetch; its function may stop this one, too */
	struct fdry_claim *claim;
	struct fdry_arrival *arrival;
	struct fdry_saved_err failed;
	pthread_t thread;
	bool started;
	char ref[FDRY_REF_NAME_MAX + 1];
};

static int pull(struct fdry_registry_fetch *f)
{
	struct fdry_registry_opts opts = { .sz = sizeof(opts), .ref = f->ref,
					   .stop = f->wait.stop, .stop_arg = f->wait.arg };
	const struct fdry_registry_pull how = { .opts = &opts, .order = f->order,
						.arrival = f->arrival };
	struct fdry_buf from = { 0 };
	int err = fdry_registry_target(f->ref, &from) ?:
		  fdry_registry_pull(f->s, (const char *)from.data, &how, NULL);

	if (!err)
		fdry_info("fetched '%s' from %s", f->ref, (const char *)from.data);
	fdry_buf_release(&from);
	return err;
}

static void *fetch_run(void *arg)
{
	struct fdry_registry_fetch *f = arg;
	int err = pull(f);

	fdry_saved_err_set(&f->failed, err);
	fdry_arrival_end(f->arrival, err);
	return NULL;
}

/* Wait for another process or thread that already fetches it. */
static int claim_begin(struct fdry_registry_fetch *f, bool *waited)
{
	struct fdry_buf key = { 0 };
	int err = fdry_buf_put(&key, KEY, sizeof(KEY)) ?:
		  fdry_buf_put(&key, f->ref, strlen(f->ref)) ?:
		  fdry_claim_begin(f->s, key.data, key.len, &f->wait, waited, &f->claim);

	fdry_buf_release(&key);
	return err;
}

/* The image of the ref; zero if there is none. */
static struct fdry_oid image_of(struct fdry_store *s, const char *ref)
{
	struct fdry_oid oid = { { 0 } };

	if (fdry_ref_get(s, ref, &oid))
		memset(&oid, 0, sizeof(oid));
	return oid;
}

static int fetch_start(struct fdry_registry_fetch *f)
{
	struct fdry_oid before = image_of(f->s, f->ref), after;
	bool waited = false;
	int err = claim_begin(f, &waited);

	if (err)
		return err;
	after = image_of(f->s, f->ref);
	if (waited && !fdry_oid_eq(&before, &after))
		return 0; /* another process has fetched it; otherwise that fetch has failed */
	err = fdry_arrival_new(&f->arrival);
	if (err)
		return err;
	f->started = fdry_thread_start(&f->thread, "fdry-fetch", fetch_run, f);
	if (!f->started)
		(void)fetch_run(f);
	return 0;
}

int fdry_registry_fetch_begin(struct fdry_store *s, const char *ref, fdry_registry_order_fn order,
			      const struct fdry_wait *stop, struct fdry_registry_fetch **ret)
{
	struct fdry_registry_fetch *f;
	const char *registry = NULL;
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY, &registry);

	*ret = NULL;
	if (err || !registry || fdry_ref_check(ref))
		return err;
	f = calloc(1, sizeof(*f));
	if (!f)
		return fdry_nomem();
	f->s = s;
	f->order = order;
	if (stop)
		f->wait = *stop;
	f->wait.ms = WAIT_MS;
	snprintf(f->ref, sizeof(f->ref), "%s", ref);
	err = fetch_start(f);
	if (err) {
		fdry_saved_err_set(&f->failed, err);
		return fdry_registry_fetch_end(f);
	}
	*ret = f;
	return 0;
}

struct fdry_arrival *fdry_registry_fetch_arrival(struct fdry_registry_fetch *f)
{
	return f->started && fdry_arrival_has_images(f->arrival) ? f->arrival : NULL;
}

int fdry_registry_fetch_end(struct fdry_registry_fetch *f)
{
	int err;

	if (f->started)
		(void)pthread_join(f->thread, NULL);
	fdry_claim_end(f->claim);
	fdry_arrival_free(f->arrival);
	err = fdry_saved_err_restore(&f->failed);
	free(f);
	return err;
}
