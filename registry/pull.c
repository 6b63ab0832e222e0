// SPDX-License-Identifier: Apache-2.0
/* pull.c - stores what the client fetches; see registry.h. */
#include <stdlib.h>

#include "lib/opts.h"
#include "registry/registry.h"
#include "store/pack.h"

struct pull {
	struct fdry_store *s;
	struct fdry_registry_opts opts;
	struct fdry_fetch *fetch;
	struct fdry_registry_blob *blobs; /* the objects of the list */
	struct fdry_registry_report report;
	int err; /* of a function that the client called */
};

/* --- what the client asks --- */

static int list_take(struct pull *p, struct fdry_span list)
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

	p->err = list_take(p, list);
	*ret = p->blobs;
	*count = p->report.objects;
	return p->err;
}

static int on_begin(void *arg)
{
	const struct fdry_fetch_object *o;
	struct pull *p = arg;
	size_t i, n;

	p->err = fdry_fetch_begin(p->fetch, p->s);
	if (p->err)
		return p->err;
	n = fdry_fetch_objects(p->fetch, &o);
	for (i = 0; i < n; i++)
		p->blobs[i].has = o[i].has;
	return 0;
}

static int on_put(void *arg, size_t i, struct fdry_span bytes)
{
	struct pull *p = arg;

	p->err = fdry_fetch_put(p->fetch, i, bytes);
	return p->err;
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct pull *p = arg;

	if (p->opts.progress)
		p->opts.progress(p->opts.progress_arg, done, total);
	return 0;
}

/* --- the call --- */

static int pull(struct pull *p, const char *from)
{
	const struct fdry_registry_caller caller = { .arg = p, .list = on_list, .begin = on_begin,
						     .put = on_put, .progress = on_progress };
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
	return err ?: fdry_fetch_finish(p->fetch, &end, &stats);
}

int fdry_store_pull(struct fdry_store *store, const char *from,
		    const struct fdry_registry_opts *opts, struct fdry_registry_report *report)
{
	struct pull p = { .s = store };
	int err = fdry_need(store) ?: fdry_need(from) ?: fdry_report_check(report) ?:
		  fdry_registry_opts_take(opts, &p.opts) ?: fdry_store_busy(store);

	if (err)
		return err;
	err = pull(&p, from) ?: fdry_report_give(&p.report, sizeof(p.report), report);
	fdry_fetch_free(p.fetch);
	free(p.blobs);
	fdry_store_idle(store);
	return err;
}
