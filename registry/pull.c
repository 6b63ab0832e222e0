// SPDX-License-Identifier: Apache-2.0
/*
 * pull.c - stores what the client fetches; see registry.h.
 *
 * The manifests of the images come first, and stay in memory until the end. They give the order of
 * the other objects. A loader that waits for them is notified of each transaction.
 */
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/opts.h"
#include "lib/search.h"
#include "registry/order.h"
#include "registry/registry.h"
#include "store/pack.h"

/* A loader waits until objects are committed, so no transaction is delayed longer than this. */
#define COMMIT_MS 100

struct pull {
	struct fdry_store *s;
	struct fdry_registry_opts opts;
	struct fdry_registry_meter meter;
	fdry_registry_order_fn order_fn;
	struct fdry_arrival *arrival; /* NULL: no loader waits */
	struct fdry_fetch *fetch;
	struct fdry_registry_blob *blobs; /* the objects of the list */
	struct fdry_order order;
	bool begun, ordered;      /* manifests and the other objects were asked for */
	struct fdry_buf early;    /* size_t each: manifests of images ... */
	struct fdry_buf *manifests; /* ... and their bytes, which are stored at the end */
	struct fdry_buf missing;  /* size_t each: manifests to fetch, then the other objects */
	size_t stored;            /* of these */
	double commit_ms;         /* time of the last transaction, about */
	struct fdry_registry_report report;
	int err; /* of a function that the client called */
};

#define positions(buf) fdry_array(buf, size_t)
#define position_count(buf) fdry_array_count(buf, size_t)

/* --- functions that the client calls --- */

static int list_read(struct pull *p, struct fdry_span list)
{
	const struct fdry_fetch_object *o;
	const struct fdry_pack_image *images;
	size_t i, n;
	int err = fdry_fetch_new(list, &p->fetch);

	if (err)
		return err;
	n = fdry_fetch_objects(p->fetch, &o);
	p->blobs = calloc(n + 1, sizeof(*p->blobs));
	if (!p->blobs)
		return fdry_nomem();
	for (i = 0; i < n; i++) {
		p->blobs[i] = (struct fdry_registry_blob){ .oid = o[i].oid, .size = o[i].size,
							   .kinds = o[i].kinds };
		p->report.bytes += o[i].size;
	}
	p->report.objects = n;
	p->report.images = fdry_fetch_images(p->fetch, &images);
	return 0;
}

static int on_list(void *arg, struct fdry_span list, const struct fdry_registry_blob **ret,
		   size_t *count)
{
	struct pull *p = arg;

	p->err = list_read(p, list);
	*ret = p->blobs;
	*count = p->report.objects;
	return p->err;
}

/* --- manifests --- */

static int manifests_begin(struct pull *p)
{
	const struct fdry_fetch_object *o;
	size_t i, n, at;
	int err = fdry_fetch_begin(p->fetch, p->s);

	if (err)
		return err;
	n = fdry_fetch_objects(p->fetch, &o);
	for (i = 0; i < n; i++)
		p->blobs[i].has = o[i].has;
	err = fdry_order_init(&p->order, p->fetch) ?: fdry_order_early(&p->order, &p->early);
	if (err)
		return err;
	n = position_count(p->early);
	p->manifests = calloc(n + 1, sizeof(*p->manifests));
	if (!p->manifests)
		return fdry_nomem();
	for (i = 0; i < n && !err; i++) {
		at = positions(p->early)[i];
		if (!o[at].has)
			err = fdry_buf_put(&p->missing, &at, sizeof(at));
	}
	return err;
}

/* Read the manifests that the store has. */
static int manifests_read(struct pull *p)
{
	const struct fdry_fetch_object *o;
	struct fdry_reader *reader;
	size_t i;
	int err = fdry_reader_begin(p->s, &reader);

	if (err)
		return err;
	(void)fdry_fetch_objects(p->fetch, &o);
	for (i = 0; i < position_count(p->early) && !err; i++)
		if (o[positions(p->early)[i]].has)
			err = fdry_reader_copy(reader, &o[positions(p->early)[i]].oid,
					       &p->manifests[i]);
	fdry_reader_end(reader);
	return err;
}

/* --- the other objects --- */

static struct fdry_span manifest_at(const struct pull *p, size_t i)
{
	return (struct fdry_span){ p->manifests[i].data, p->manifests[i].len };
}

/* The place of an object among the manifests; their number if it is none. */
static size_t manifest_find(const struct pull *p, size_t at)
{
	size_t n = position_count(p->early);
	size_t low = fdry_lower_bound(i, n, positions(p->early)[i] < at);

	return low < n && positions(p->early)[low] == at ? low : n;
}

static int arrival_begin(struct pull *p)
{
	const struct fdry_pack_image *images;
	const struct fdry_fetch_object *o;
	size_t i, k, n = fdry_fetch_images(p->fetch, &images);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		k = manifest_find(p, fdry_order_find(&p->order, &images[i].oid));
		if (k < position_count(p->early) &&
		    !(i && fdry_oid_eq(&images[i].oid, &images[i - 1].oid))) /* another name */
			err = fdry_arrival_add_image(p->arrival, &images[i].oid,
						     &images[i].identity, manifest_at(p, k));
	}
	(void)fdry_fetch_objects(p->fetch, &o);
	for (i = 0; i < position_count(p->missing) && !err; i++)
		err = fdry_arrival_add(p->arrival, &o[positions(p->missing)[i]].oid);
	if (err)
		return err;
	p->commit_ms = fdry_now_ms();
	fdry_arrival_begin(p->arrival);
	return 0;
}

/* Order the other objects as the manifests ask for them. */
static int objects_begin(struct pull *p)
{
	struct fdry_buf wanted = { 0 };
	size_t i;
	int err = manifests_read(p);

	for (i = 0; i < position_count(p->early) && !err; i++)
		err = p->order_fn(manifest_at(p, i), &wanted);
	err = err ?: fdry_order_rest(&p->order, fdry_array(wanted, struct fdry_oid),
				     fdry_array_count(wanted, struct fdry_oid), &p->missing);
	fdry_buf_release(&wanted);
	if (err || !p->arrival)
		return err;
	return arrival_begin(p);
}

static int next(struct pull *p)
{
	int err;

	p->missing.len = 0;
	if (!p->begun) {
		p->begun = true;
		err = manifests_begin(p);
		if (err || p->missing.len)
			return err;
	}
	if (p->ordered)
		return 0;
	p->ordered = true;
	return objects_begin(p);
}

static int on_next(void *arg, const size_t **ret, size_t *count)
{
	struct pull *p = arg;

	p->err = next(p);
	*ret = positions(p->missing);
	*count = position_count(p->missing);
	return p->err;
}

/* Whether kernels and graphs end here: then a load can begin to build. */
static bool code_ends(const struct pull *p)
{
	const size_t *next = positions(p->missing) + p->stored;

	return p->stored < position_count(p->missing) &&
	       !(p->blobs[next[-1]].kinds & 1u << FDRY_OBJECT_CHUNK) &&
	       p->blobs[next[0]].kinds & 1u << FDRY_OBJECT_CHUNK;
}

static int object_put(struct pull *p, size_t i, struct fdry_span bytes)
{
	int err = fdry_fetch_put(p->fetch, i, bytes);

	p->stored++;
	if (err || !p->arrival)
		return err;
	if (fdry_now_ms() - p->commit_ms >= COMMIT_MS || code_ends(p)) {
		err = fdry_fetch_flush(p->fetch);
		p->commit_ms = fdry_now_ms();
	}
	if (err)
		return err;
	fdry_arrival_reach(p->arrival, p->stored - fdry_fetch_pending(p->fetch));
	return 0;
}

static int on_put(void *arg, size_t i, struct fdry_span bytes)
{
	struct pull *p = arg;

	if (p->order.early[i])
		p->err = fdry_buf_put(&p->manifests[manifest_find(p, i)], bytes.data, bytes.len);
	else
		p->err = object_put(p, i, bytes);
	return p->err;
}

/* At the end the store gets the manifests, too. */
static int manifests_store(struct pull *p)
{
	size_t i, at;
	int err = 0;

	for (i = 0; i < position_count(p->early) && !err; i++) {
		at = positions(p->early)[i];
		if (!p->blobs[at].has)
			err = fdry_fetch_put(p->fetch, at, manifest_at(p, i));
	}
	return err;
}

static int on_progress(void *arg, const struct fdry_registry_done *done)
{
	struct pull *p = arg;

	p->err = fdry_registry_meter_report(&p->meter, &p->opts, done);
	return p->err;
}

/* --- the call --- */

static int pull(struct pull *p, const char *from)
{
	const struct fdry_registry_caller caller = { .arg = p,
						     .list = on_list,
						     .next = on_next,
						     .put = on_put,
						     .progress = on_progress };
	const struct fdry_fetch_end end = { .ref = p->opts.ref,
					    .no_refs = p->opts.flags & FDRY_REGISTRY_NO_REFS,
					    .image = p->opts.image,
					    .image_arg = p->opts.image_arg };
	const struct fdry_registry_client *client;
	struct fdry_writer_stats stats;
	int err = fdry_registry_open(&client);

	if (err)
		return err;
	err = client->pull(from, &p->opts, &caller, &p->report);
	err = fdry_registry_result(client, err, p->err);
	return err ?: manifests_store(p) ?: fdry_fetch_finish(p->fetch, &end, &stats);
}

static void pull_release(struct pull *p)
{
	size_t i;

	for (i = 0; p->manifests && i < position_count(p->early); i++)
		fdry_buf_release(&p->manifests[i]);
	free(p->manifests);
	fdry_buf_release(&p->early);
	fdry_buf_release(&p->missing);
	fdry_order_release(&p->order);
	fdry_fetch_free(p->fetch);
	free(p->blobs);
}

int fdry_registry_pull(struct fdry_store *s, const char *from, const struct fdry_registry_pull *how,
		       struct fdry_registry_report *report)
{
	struct pull p = { .s = s, .order_fn = how->order, .arrival = how->arrival };
	int err = fdry_report_check(report) ?: fdry_registry_opts_take(how->opts, &p.opts) ?:
		  fdry_store_busy(s);

	if (err)
		return err;
	err = pull(&p, from) ?: fdry_report_give(&p.report, sizeof(p.report), report);
	pull_release(&p);
	fdry_store_idle(s);
	return err;
}
