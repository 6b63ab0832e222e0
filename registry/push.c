// SPDX-License-Identifier: Apache-2.0
/* push.c - gives the client a store's images to send; see registry.h. */
#include <stdlib.h>

#include "lib/opts.h"
#include "registry/registry.h"
#include "store/pack.h"

struct push {
	struct fdry_store *s;
	struct fdry_registry_opts opts;
	struct fdry_registry_meter meter;
	struct fdry_pack_plan plan;
	struct fdry_buf list;
	struct fdry_registry_blob *blobs;
	struct fdry_registry_report report;
	bool only_sign;
	int err; /* of a function that the client called */
};

static int on_read(void *arg, size_t i, struct fdry_buf *ret)
{
	struct push *p = arg;

	p->err = fdry_pack_plan_read(&p->plan, i, ret);
	return p->err;
}

static int on_progress(void *arg, const struct fdry_registry_done *done)
{
	struct push *p = arg;

	p->err = fdry_registry_meter_report(&p->meter, &p->opts, done);
	return p->err;
}

/* --- what is in it --- */

static int image_check(struct push *p, const struct fdry_pack_image *image,
		       fdry_registry_check_fn check)
{
	struct fdry_buf manifest = { 0 };
	struct fdry_reader *reader;
	int err = fdry_reader_begin(p->s, &reader);

	if (err)
		return err;
	err = fdry_reader_copy(reader, &image->oid, &manifest);
	fdry_reader_end(reader);
	err = err ?: check(p->s, &image->oid, (struct fdry_span){ manifest.data, manifest.len });
	fdry_buf_release(&manifest);
	return err;
}

static int images_check(struct push *p, fdry_registry_check_fn check)
{
	size_t i;
	int err = 0;

	if (!check || p->opts.flags & FDRY_REGISTRY_PRIVATE)
		return 0;
	for (i = 0; i < p->plan.nimages && !err; i++)
		err = image_check(p, &p->plan.images[i], check);
	return err;
}

static int blobs_list(struct push *p)
{
	const struct fdry_pack_entry *e = (const void *)p->plan.entries.data;
	size_t i, n = fdry_pack_plan_count(&p->plan);

	p->blobs = calloc(n, sizeof(*p->blobs));
	if (!p->blobs)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		p->blobs[i] = (struct fdry_registry_blob){ .oid = e[i].oid, .size = e[i].size,
							   .kinds = e[i].kinds };
	p->report.images = p->plan.nimages;
	p->report.objects = n;
	p->report.bytes = p->plan.bytes;
	return 0;
}

/* --- the call --- */

static int send(struct push *p, const char *to)
{
	const struct fdry_registry_caller caller = { .arg = p, .read = on_read,
						     .progress = on_progress };
	struct fdry_registry_push in = { .list = { p->list.data, p->list.len }, .blobs = p->blobs,
					 .count = fdry_pack_plan_count(&p->plan),
					 .only_sign = p->only_sign };
	const struct fdry_registry_client *client;
	int err = fdry_registry_open(&client) ?:
		  fdry_oid_of(p->list.data, p->list.len, &in.list_id);

	if (err)
		return err;
	err = client->push(to, &p->opts, &in, &caller, &p->report);
	return fdry_registry_result(client, err, p->err);
}

/* Without a target the image goes to the registry of FOUNDRY_REGISTRY. */
static int target_find(const char *const *names, size_t count, const char **to,
		       struct fdry_buf *text)
{
	int err;

	if (*to)
		return 0;
	if (count != 1)
		return fdry_fail(FDRY_E_INVAL, "one image at a time goes to the registry of "
				 "FOUNDRY_REGISTRY; name a registry for several");
	err = fdry_need(names) ?: fdry_need(names[0]) ?: fdry_registry_target(names[0], text);
	*to = (const char *)text->data;
	return err;
}

/* What a push and a signature have in common. @p has the store, and is otherwise empty. */
static int run(struct push *p, const char *const *names, size_t count, const char *to,
	       fdry_registry_check_fn check)
{
	struct fdry_buf target = { 0 };
	int err = target_find(names, count, &to, &target) ?: fdry_store_busy(p->s);

	if (err)
		goto out_release;
	p->plan.s = p->s;
	p->plan.flags = p->opts.flags & FDRY_REGISTRY_NO_REFS ? FDRY_EXPORT_NO_REFS : 0;
	err = fdry_pack_plan_init(&p->plan, names, count) ?: images_check(p, check) ?:
	      fdry_pack_put_list(&p->plan, &p->list) ?: blobs_list(p) ?: send(p, to);
	free(p->blobs);
	fdry_buf_release(&p->list);
	fdry_pack_plan_release(&p->plan);
	fdry_store_idle(p->s);
out_release:
	fdry_buf_release(&target);
	return err;
}

int fdry_registry_push(struct fdry_store *s, const char *const *names, size_t count, const char *to,
		       const struct fdry_registry_opts *opts, fdry_registry_check_fn check,
		       struct fdry_registry_report *report)
{
	struct push p = { .s = s };
	int err = fdry_need(s) ?: fdry_report_check(report) ?:
		  fdry_registry_opts_take(opts, &p.opts) ?: run(&p, names, count, to, check);

	return err ?: fdry_report_give(&p.report, sizeof(p.report), report);
}

int fdry_store_sign(struct fdry_store *store, const char *const *names, size_t count,
		    const char *to, const struct fdry_registry_opts *opts,
		    struct fdry_registry_report *report)
{
	struct push p = { .s = store, .only_sign = true };
	int err = fdry_need(store) ?: fdry_report_check(report) ?:
		  fdry_registry_opts_take(opts, &p.opts) ?: run(&p, names, count, to, NULL);

	return err ?: fdry_report_give(&p.report, sizeof(p.report), report);
}
