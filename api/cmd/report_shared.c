// SPDX-License-Identifier: Apache-2.0
/* report_shared.c - the objects that an image shares with other images of its store. */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/report.h"

#define ROWS_MAX 50u

struct object {
	struct fdry_oid oid;
	uint64_t stored;
	bool shared;
};

/* Another image with a ref. */
struct other {
	struct fdry_oid oid;
	char name[FDRY_REF_NAME_MAX + 1]; /* its first ref's */
	uint32_t names;
	uint64_t objects, stored; /* that both have */
};

struct sharing {
	struct report *r;
	struct fdry_buf objects; /* struct object, by id */
	struct fdry_buf others;  /* struct other */
	struct other *now;       /* the image that is read */
};

static int object_add(void *arg, const struct fdry_object_info *info)
{
	const struct object o = { .oid = info->oid, .stored = info->stored };
	struct sharing *sh = arg;

	return fdry_buf_put(&sh->objects, &o, sizeof(o));
}

static int object_look(void *arg, const struct fdry_object_info *info)
{
	struct sharing *sh = arg;
	struct object *o = bsearch(&info->oid, sh->objects.data, sh->objects.len / sizeof(*o),
				   sizeof(*o), fdry_oid_cmp);

	if (!o)
		return 0;
	o->shared = true;
	sh->now->objects++;
	sh->now->stored += o->stored;
	return 0;
}

static int ref_add(void *arg, const struct fdry_ref *ref)
{
	struct other o = { .oid = ref->oid, .names = 1 };
	struct sharing *sh = arg;

	if (fdry_oid_eq(&ref->oid, &sh->r->info.oid))
		return 0;
	memcpy(o.name, ref->name, sizeof(o.name));
	return fdry_buf_put(&sh->others, &o, sizeof(o));
}

static int by_oid(const void *a, const void *b)
{
	const struct other *x = a, *y = b;
	int order = fdry_oid_cmp(&x->oid, &y->oid);

	return order ? order : strcmp(x->name, y->name);
}

static int by_stored(const void *a, const void *b)
{
	const struct other *x = a, *y = b;

	if (x->stored != y->stored)
		return x->stored > y->stored ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* One entry for each image, however many names it has. */
static void others_join(struct sharing *sh)
{
	struct other *o = (void *)sh->others.data;
	size_t i, n = sh->others.len / sizeof(*o), out = 0;

	if (n)
		qsort(o, n, sizeof(*o), by_oid);
	for (i = 0; i < n; i++) {
		if (out && fdry_oid_eq(&o[out - 1].oid, &o[i].oid))
			o[out - 1].names++;
		else
			o[out++] = o[i];
	}
	sh->others.len = out * sizeof(*o);
}

/* If an image lacks an object, its other objects count. */
static int others_read(struct sharing *sh)
{
	struct other *o = (void *)sh->others.data;
	size_t i, n = sh->others.len / sizeof(*o);
	int err;

	for (i = 0; i < n; i++) {
		sh->now = &o[i];
		err = fdry_store_reach(sh->r->s, &o[i].oid, object_look, sh);
		if (err && err != -FDRY_E_NOENT)
			return err;
	}
	if (n)
		qsort(o, n, sizeof(*o), by_stored);
	return 0;
}

static void row(const struct sharing *sh, const struct other *o)
{
	const struct report *r = sh->r;
	char hex[FDRY_OID_HEX_SIZE];

	fputs("<tr><td class=\"name\">", r->f);
	html_text(r->f, o->name);
	if (o->names > 1)
		fprintf(r->f, " <small>and %u more name%s</small>", o->names - 1,
			cmd_plural(o->names - 1));
	fprintf(r->f, "</td><td><code>%.12s</code></td><td class=\"num\">%llu</td>",
		fdry_oid_hex(&o->oid, hex), (unsigned long long)o->objects);
	html_bar(r->f, "bytes", o->stored, r->sums[0].stored, cmd_size(o->stored).text);
	fputs("</tr>\n", r->f);
}

static void table(const struct sharing *sh)
{
	const struct other *o = (const void *)sh->others.data;
	size_t i, n = sh->others.len / sizeof(*o), with = 0;
	FILE *f = sh->r->f;

	while (with < n && o[with].objects)
		with++;
	if (with)
		fputs("<table><thead><tr><th>Image</th><th>Id</th><th class=\"num\">Objects of "
		      "both</th><th>Size at rest</th></tr></thead><tbody>\n",
		      f);
	for (i = 0; i < with && i < ROWS_MAX; i++)
		row(sh, &o[i]);
	if (with)
		fputs("</tbody></table>\n", f);
	fprintf(f, "<p class=\"dim\">%zu of %zu other images of the store share objects with this "
		   "one.%s</p>\n",
		with, n, with > ROWS_MAX ? " The first 50 are listed." : "");
}

static void print(const struct sharing *sh)
{
	const struct object *o = (const void *)sh->objects.data;
	size_t i, n = sh->objects.len / sizeof(*o);
	uint64_t shared = 0, all = sh->r->sums[0].stored;

	for (i = 0; i < n; i++)
		shared += o[i].shared ? o[i].stored : 0;
	html_section(sh->r->f, "shared", "Shared with other images");
	fprintf(sh->r->f,
		"<div class=\"stack\"><i class=\"b1\" style=\"width:%.2f%%\"></i></div>"
		"<div class=\"legend\"><span><i class=\"b1\"></i>shared: %s at rest</span>"
		"<span><i class=\"bgap\"></i>of this image alone: %s</span></div>\n",
		all ? 100.0 * (double)shared / (double)all : 0, cmd_size(shared).text,
		cmd_size(all > shared ? all - shared : 0).text);
	table(sh);
}

int report_shared(struct report *r)
{
	struct sharing sh = { .r = r };
	int err = fdry_store_reach(r->s, &r->info.oid, object_add, &sh);

	if (err)
		goto out_release;
	qsort(sh.objects.data, sh.objects.len / sizeof(struct object), sizeof(struct object),
	      fdry_oid_cmp);
	err = fdry_ref_each(r->s, ref_add, &sh);
	if (err)
		goto out_release;
	others_join(&sh);
	err = others_read(&sh);
	if (!err)
		print(&sh);
out_release:
	fdry_buf_release(&sh.objects);
	fdry_buf_release(&sh.others);
	return err;
}
