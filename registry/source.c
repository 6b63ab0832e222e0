// SPDX-License-Identifier: Apache-2.0
/*
 * source.c - the registry that FOUNDRY_REGISTRY names as a source of repairs.
 *
 * An object is one blob, whose digest is the object's id. So objects are asked for by their ids
 * alone, whichever images of the repository have them. Kinds, links and size are those that the
 * store has recorded. No manifest is read, and SHA-256 decides which bytes count.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/config.h"
#include "lib/log.h"
#include "lib/threads.h"
#include "registry/registry.h"
#include "store/repair.h"

/* An object that did not come. */
struct missed {
	struct fdry_oid oid;
	int err; /* FDRY_E_NOENT, FDRY_E_CORRUPT: the registry; FDRY_E_STATE: no record */
};

struct registry_source {
	struct fdry_source src;
	struct fdry_wait wait;
	struct fdry_saved_err failed; /* the registry is not asked again */
	struct fdry_buf missed;       /* struct missed each */
	int len;                      /* of the name in @from, before the tag */
	char from[];
};
/* In messages. */
#define THE_REGISTRY "the registry %.*s of FOUNDRY_REGISTRY "
#define the_registry(rs) (rs)->len, (rs)->from

/* One call of supply(). */
struct asking {
	struct registry_source *rs;
	struct fdry_store *to;
	fdry_supply_fn fn;
	void *arg;
	struct fdry_buf blobs; /* struct fdry_registry_blob each */
	struct fdry_buf order; /* size_t each: all of them, in their order */
	bool begun;
	int err; /* of a function that the client called */
};

static int miss(struct registry_source *rs, const struct fdry_oid *oid, int err)
{
	const struct missed m = { *oid, err };

	return fdry_buf_put(&rs->missed, &m, sizeof(m));
}

/* --- functions that the client calls --- */

static int on_next(void *arg, const size_t **ret, size_t *count)
{
	struct asking *a = arg;

	*ret = fdry_array(a->order, size_t);
	*count = a->begun ? 0 : fdry_array_count(a->order, size_t);
	a->begun = true;
	return 0;
}

static int on_put(void *arg, size_t i, struct fdry_span bytes)
{
	struct asking *a = arg;
	const struct fdry_registry_blob *b = fdry_array(a->blobs, struct fdry_registry_blob) + i;
	struct fdry_supply supply = { .oid = b->oid, .kinds = b->kinds, .data = bytes };
	struct fdry_oid *links = NULL;

	a->err = fdry_store_links(a->to, &b->oid, &links, &supply.nlinks);
	if (a->err == -FDRY_E_NOENT || a->err == -FDRY_E_CORRUPT) /* collected meanwhile */
		return a->err = miss(a->rs, &b->oid, -FDRY_E_STATE);
	if (a->err)
		return a->err;
	supply.links = links;
	a->err = a->fn(a->arg, &supply);
	free(links);
	return a->err;
}

static int on_miss(void *arg, size_t i, int err)
{
	struct asking *a = arg;

	a->err = miss(a->rs, &fdry_array(a->blobs, struct fdry_registry_blob)[i].oid, err);
	return a->err;
}

static int on_progress(void *arg, const struct fdry_registry_done *done)
{
	(void)arg;
	(void)done;
	return 0;
}

/* --- the source --- */

/* Ask for the object, unless the store has lost its record. */
static int object_add(struct asking *a, const struct fdry_oid *oid)
{
	size_t at = fdry_array_count(a->blobs, struct fdry_registry_blob);
	struct fdry_registry_blob blob = { .oid = *oid };
	struct fdry_object_info info;
	int err = fdry_store_info(a->to, oid, &info);

	if (err == -FDRY_E_NOENT || err == -FDRY_E_CORRUPT)
		return miss(a->rs, oid, -FDRY_E_STATE);
	if (err)
		return err;
	blob.size = info.size;
	blob.kinds = info.kinds;
	return fdry_buf_put(&a->blobs, &blob, sizeof(blob)) ?:
	       fdry_buf_put(&a->order, &at, sizeof(at));
}

static int objects_add(struct asking *a, const struct fdry_idset *wanted)
{
	struct fdry_buf list = { 0 };
	size_t i;
	int err = fdry_idset_list(wanted, &list);

	for (i = 0; !err && i < fdry_array_count(list, struct fdry_oid); i++)
		err = object_add(a, &fdry_array(list, struct fdry_oid)[i]);
	fdry_buf_release(&list);
	return err;
}

/* Returns only errors that are not the registry's. */
static int ask(struct asking *a)
{
	const struct fdry_registry_caller caller = { .arg = a, .next = on_next, .put = on_put,
						     .miss = on_miss, .progress = on_progress,
						     .patience_ms = a->rs->wait.ms };
	size_t count = fdry_array_count(a->blobs, struct fdry_registry_blob);
	struct fdry_registry_report report = { .sz = sizeof(report) };
	const struct fdry_registry_opts stop = { .sz = sizeof(stop), .stop = a->rs->wait.stop,
						 .stop_arg = a->rs->wait.arg };
	const struct fdry_registry_client *client;
	struct fdry_registry_opts opts;
	int err = fdry_registry_opts_take(&stop, &opts) ?: fdry_registry_open(&client);

	if (!err)
		err = fdry_registry_result(
			client,
			client->blobs(a->rs->from, &opts,
				      fdry_array(a->blobs, struct fdry_registry_blob), count,
				      &caller, &report),
			a->err);
	if (a->err || err == -FDRY_E_NOMEM || err == -FDRY_E_CALLBACK)
		return err;
	fdry_saved_err_set(&a->rs->failed, err);
	if (err)
		fdry_warn(THE_REGISTRY "is left out: %s", the_registry(a->rs), fdry_last_error());
	else
		fdry_info(THE_REGISTRY "supplied %llu of %zu objects", the_registry(a->rs),
			  (unsigned long long)report.objects_moved, count);
	return 0;
}

static int registry_supply(struct fdry_source *src, struct fdry_store *to,
			   const struct fdry_idset *wanted, fdry_supply_fn fn, void *arg)
{
	struct registry_source *rs = (struct registry_source *)src;
	struct asking a = { .rs = rs, .to = to, .fn = fn, .arg = arg };
	int err;

	if (rs->failed.err)
		return 0;
	rs->missed.len = 0;
	err = objects_add(&a, wanted);
	if (!err && a.blobs.len)
		err = ask(&a);
	fdry_buf_release(&a.blobs);
	fdry_buf_release(&a.order);
	return err;
}

static const char *reason(int err)
{
	return err == -FDRY_E_NOENT ? "was asked, and does not have it" :
	       err == -FDRY_E_CORRUPT ? "was asked, and has other bytes in its place, or the "
					"store's record of their number is damaged; compare "
					"the SHA-256 of what is there with the id, and if it "
					"differs, delete it and push the image again" :
					"cannot be asked for it, as its record in the store is "
					"damaged; run foundry-store repair, then pull the image";
}

static int registry_why(const struct fdry_source *src, const struct fdry_oid *oid,
			struct fdry_buf *ret)
{
	const struct registry_source *rs = (const struct registry_source *)src;
	const struct missed *m = fdry_array(rs->missed, const struct missed);
	size_t i, n = fdry_array_count(rs->missed, struct missed);
	size_t len = ret->len;
	int err = 0;

	for (i = 0; i < n && !fdry_oid_eq(&m[i].oid, oid); i++)
		;
	if (i < n)
		err = fdry_buf_printf(ret, THE_REGISTRY "%s", the_registry(rs), reason(m[i].err));
	else if (rs->failed.err)
		err = fdry_buf_printf(ret, THE_REGISTRY "does not help: %s", the_registry(rs),
				      rs->failed.why);
	return err || ret->len == len ? err : fdry_buf_put(ret, "", 1);
}

static void registry_close(struct fdry_source *src)
{
	struct registry_source *rs = (struct registry_source *)src;

	fdry_buf_release(&rs->missed);
	free(rs);
}

static const struct fdry_source_ops registry_ops = { .supply = registry_supply,
						     .why = registry_why,
						     .close = registry_close };

int fdry_registry_source_new(const struct fdry_wait *wait, struct fdry_source **ret)
{
	struct registry_source *rs;
	const char *registry = NULL;
	size_t len;
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY, &registry);

	*ret = NULL;
	if (err || !registry)
		return err;
	len = strlen(registry) + sizeof(":latest");
	rs = calloc(1, sizeof(*rs) + len);
	if (!rs)
		return fdry_nomem();
	rs->src.ops = &registry_ops;
	if (wait)
		rs->wait = *wait;
	rs->len = (int)strlen(registry);
	snprintf(rs->from, len, "%s:latest", registry); /* as for loads, a tag is refused */
	*ret = &rs->src;
	return 0;
}
