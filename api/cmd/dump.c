// SPDX-License-Identifier: Apache-2.0
/*
 * dump.c - objects as text that undump reads: Documentation/format/store-text.rst.
 *
 * The same objects result in the same text. Objects follow the objects that they link to, so a
 * reader can store each at once. One read session has one view of the store throughout.
 */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cmd/image.h"
#include "api/cmd/output.h"
#include "api/cmd/text.h"
#include "graph/graph.h"

struct dump {
	const struct cmd_args *a;
	struct fdry_store *s;
	struct fdry_reader *reader;
	FILE *f;
	const char *path; /* for messages */
	struct fdry_buf objects; /* struct fdry_object_info */
	const struct fdry_object_info *now;
	struct cmd_progress progress;
};

/* --- one object --- */

static void bytes_print(FILE *f, const struct fdry_buf *bytes)
{
	static const char digits[] = "0123456789abcdef";
	char line[2 * CMD_TEXT_LINE + 1];
	size_t i, n = 0;

	fprintf(f, "bytes %zu\n", bytes->len);
	for (i = 0; i < bytes->len; i++) {
		line[n++] = digits[bytes->data[i] >> 4];
		line[n++] = digits[bytes->data[i] & 15];
		if (n < 2 * CMD_TEXT_LINE && i + 1 < bytes->len)
			continue;
		line[n++] = '\n';
		fwrite(line, 1, n, f);
		n = 0;
	}
}

/* Nodes share arguments in the object, but not in text: a few bytes could become very many. */
static bool grows(const struct fdry_graph_view *v)
{
	return v->header.arg_bytes > 256 * v->header.size + (16u << 20);
}

/* A graph is dumped as text if that text can be turned into the same object. This holds for all
 * graphs of this version, unless the text is too large. */
static int graph_print(FILE *f, const struct fdry_buf *bytes, bool *ret)
{
	struct fdry_buf text = { 0 }, again = { 0 };
	struct fdry_graph_view view;
	int err = fdry_graph_view_init((struct fdry_span){ bytes->data, bytes->len }, &view);

	*ret = false;
	if (err || grows(&view))
		goto out;
	err = fdry_graph_to_text(&view, NULL, 0, &text);
	if (err)
		goto out;
	err = fdry_graph_from_text((struct fdry_span){ text.data, text.len }, &again);
	*ret = !err && again.len == bytes->len && !memcmp(again.data, bytes->data, again.len);
	if (*ret) {
		fprintf(f, "text\n");
		fwrite(text.data, 1, text.len, f);
	}
out:
	fdry_buf_release(&text);
	fdry_buf_release(&again);
	return err == -FDRY_E_NOMEM ? err : 0;
}

static int head_print(struct dump *d)
{
	const struct fdry_object_info *o = d->now;
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid *links;
	const char *comma = "";
	size_t i, n;
	int kind, err = fdry_store_links(d->s, &o->oid, &links, &n);

	if (err)
		return err;
	fprintf(d->f, "object %s ", fdry_oid_hex(&o->oid, hex));
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
		if (o->kinds & 1u << kind) {
			fprintf(d->f, "%s%s", comma,
				fdry_object_kind_name((enum fdry_object_kind)kind));
			comma = ",";
		}
	fputc('\n', d->f);
	for (i = 0; i < n; i++)
		fprintf(d->f, "link %s\n", fdry_oid_hex(&links[i], hex));
	free(links);
	return err;
}

static int object_print(struct dump *d)
{
	struct fdry_buf bytes = { 0 };
	bool done = false;
	int err = fdry_reader_copy(d->reader, &d->now->oid, &bytes);

	if (err)
		return err;
	err = head_print(d);
	if (err)
		goto out_release;
	if (d->now->kinds & 1u << FDRY_OBJECT_GRAPH)
		err = graph_print(d->f, &bytes, &done);
	if (err)
		goto out_release;
	if (!done)
		bytes_print(d->f, &bytes);
	fprintf(d->f, "end\n");
	if (ferror(d->f))
		err = cmd_write_check(d->f, d->path);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

/* --- which objects --- */

static int object_put(void *arg, const struct fdry_object_info *info)
{
	return fdry_buf_put(arg, info, sizeof(*info));
}

/* Manifests come last, after the objects that they link to: nothing else has links. */
static int by_place(const void *a, const void *b)
{
	const struct fdry_object_info *x = a, *y = b;

	if (!x->nlinks != !y->nlinks)
		return x->nlinks ? 1 : -1;
	return memcmp(&x->oid, &y->oid, sizeof(x->oid));
}

static int object_named(struct dump *d, const char *name)
{
	struct fdry_object_info info;
	struct fdry_oid oid;
	int err = cmd_resolve(d->s, name, false, &oid);

	if (err)
		return err;
	if (cmd_has(d->a, REACH))
		return fdry_store_reach(d->s, &oid, object_put, &d->objects);
	return fdry_store_info(d->s, &oid, &info) ?: object_put(&d->objects, &info);
}

static int objects_named(struct dump *d)
{
	int i, err = 0;

	for (i = 0; i < d->a->argc && !err; i++)
		err = object_named(d, d->a->argv[i]);
	return err;
}

/* --- refs --- */

static int ref_put(void *arg, const struct fdry_ref *ref)
{
	return fdry_buf_put(arg, ref, sizeof(*ref));
}

/* In the order in which they were set: the last one set holds a name with several images. */
static int by_change(const void *a, const void *b)
{
	const struct fdry_ref *x = a, *y = b;

	return x->change != y->change ? (x->change < y->change ? -1 : 1) : strcmp(x->name, y->name);
}

static void ref_print(const struct dump *d, const struct fdry_ref *r)
{
	static const struct fdry_oid unsaid;
	char hex[FDRY_OID_HEX_SIZE];

	fprintf(d->f, "ref %s %s", r->name, fdry_oid_hex(&r->oid, hex));
	if (!fdry_oid_eq(&r->identity, &unsaid))
		fprintf(d->f, " identity %s", fdry_oid_hex(&r->identity, hex));
	fprintf(d->f, "%s\n", r->pinned ? " pinned" : "");
}

/* The refs of the objects that were written. */
static int refs_print(struct dump *d)
{
	size_t i, n = d->objects.len / sizeof(struct fdry_object_info);
	struct fdry_object_info info;
	struct fdry_buf refs = { 0 };
	struct fdry_ref *r;
	int err = cmd_has(d->a, NO_REFS) ? 0 : fdry_ref_each(d->s, ref_put, &refs);

	if (err)
		goto out_release;
	r = (void *)refs.data;
	if (refs.len)
		qsort(r, refs.len / sizeof(*r), sizeof(*r), by_change);
	for (i = 0; i < refs.len / sizeof(*r); i++)
		if (!fdry_store_info(d->s, &r[i].oid, &info) &&
		    bsearch(&info, d->objects.data, n, sizeof(info), by_place))
			ref_print(d, &r[i]);
out_release:
	fdry_buf_release(&refs);
	return err;
}

static int objects_print(struct dump *d)
{
	struct fdry_object_info *o;
	size_t i, n;
	int err = d->a->argc ? objects_named(d) : fdry_store_each(d->s, object_put, &d->objects);

	if (err)
		return err;
	o = (void *)d->objects.data;
	n = d->objects.len / sizeof(*o);
	if (n)
		qsort(o, n, sizeof(*o), by_place);
	fprintf(d->f, CMD_TEXT_FIRST "\n");
	for (i = 0; i < n && !err; i++) {
		d->now = &o[i];
		if (!i || !fdry_oid_eq(&o[i].oid, &o[i - 1].oid))
			err = object_print(d);
		cmd_progress_to(&d->progress, i + 1, n);
	}
	return err ? err : refs_print(d);
}

static int dump_to(struct dump *d)
{
	int err = fdry_reader_begin(d->s, &d->reader);

	if (err)
		return err;
	if (!isatty(fileno(d->f))) /* on a terminal the text itself shows the progress */
		cmd_progress_begin(&d->progress, d->a, "objects", false);
	err = objects_print(d);
	cmd_progress_end(&d->progress);
	fdry_reader_end(d->reader);
	fdry_buf_release(&d->objects);
	return err;
}

int cmd_dump(const struct cmd_args *a, struct fdry_store *s)
{
	const char *path = cmd_value(a, OUTPUT);
	struct dump d = { .a = a, .s = s, .path = path && strcmp(path, "-") ? path : "the output" };
	struct cmd_output o;
	int err;

	if (cmd_has(a, JSON))
		return cmd_usage(a->cmd, "a dump is text already; show --json describes an object");
	err = cmd_output_open(path, &o);
	if (err)
		return cmd_fail(err);
	err = cmd_output_stream(&o);
	d.f = o.f;
	err = cmd_output_close(&o, err ?: dump_to(&d));
	return err ? cmd_fail(err) : CMD_OK;
}
