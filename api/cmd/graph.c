// SPDX-License-Identifier: Apache-2.0
/* graph.c - writes one of an image's graphs, as complete text or as a picture. */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>

#include "api/cmd/dot.h"
#include "api/cmd/image.h"
#include "api/cmd/output.h"
#include "graph/graph.h"

struct picture {
	const struct cmd_args *a;
	struct fdry_oid image;
	uint64_t key;
	bool dot, svg;
	struct cmd_image im;
	const struct fdry_mf_graph *entry; /* in the image */
	struct fdry_buf text;              /* a NUL that is not counted follows */
};

static int graph_find(struct picture *p)
{
	p->entry = fdry_manifest_graph(&p->im.m, p->key);
	if (p->entry)
		return 0;
	return fdry_fail(FDRY_E_NOKEY,
			 "the image has no graph with key %llu; see foundry-store show",
			 (unsigned long long)p->key);
}

/* Kernel names are comments in the text; it refers to kernels by number. */
static int text_make(struct picture *p, const struct fdry_graph_view *v)
{
	struct fdry_kernel *names = calloc((size_t)p->im.m.n_kernels + 1, sizeof(*names));
	uint32_t i;
	int err;

	if (!names)
		return fdry_nomem();
	for (i = 0; i < p->im.m.n_kernels; i++)
		names[i].name = fdry_manifest_str(&p->im.m, p->im.m.kernels[i].name);
	err = fdry_graph_to_text(v, names, p->im.m.n_kernels, &p->text);
	free(names);
	return err;
}

static int form_make(struct picture *p, const struct fdry_graph_view *v)
{
	const char *name = fdry_manifest_str(&p->im.m, p->entry->name);
	char title[256];

	if (!p->dot && !p->svg)
		return text_make(p, v);
	snprintf(title, sizeof(title), "%s", name);
	if (!*name)
		snprintf(title, sizeof(title), "%s %llu", p->a->argv[0],
			 (unsigned long long)p->key);
	return cmd_dot(&p->im.m, v, title, &p->text);
}

static int picture_make(struct picture *p, struct fdry_reader *reader)
{
	struct cmd_graph_object g;
	int err = cmd_image_open(reader, &p->image, &p->im);

	if (err)
		return err;
	err = graph_find(p);
	if (err)
		return err;
	err = cmd_graph_open(reader, &p->entry->oid, &g);
	if (err)
		return err;
	err = form_make(p, &g.view);
	cmd_graph_close(&g);
	return err;
}

/* --- writing --- */

static void picture_json(const struct picture *p, FILE *f)
{
	struct json j = { .f = f };

	json_open(&j, NULL, '{');
	json_oid(&j, "image", &p->image);
	json_number(&j, "key", p->key);
	json_string(&j, "name", fdry_manifest_str(&p->im.m, p->entry->name));
	json_oid(&j, "id", &p->entry->oid);
	json_number(&j, "nodes", p->entry->nodes);
	json_string(&j, p->dot ? "dot" : "text", (const char *)p->text.data);
	json_close(&j, '}');
}

static int picture_write(const struct picture *p, FILE *f)
{
	if (p->svg)
		return cmd_svg((struct fdry_span){ p->text.data, p->text.len }, fileno(f));
	if (cmd_has(p->a, JSON))
		picture_json(p, f);
	else
		fwrite(p->text.data, 1, p->text.len, f);
	return 0;
}

static int file_write(const struct picture *p, const char *path)
{
	struct cmd_output o;
	int err = cmd_output_open(path, &o);

	if (err)
		return err;
	return cmd_output_close(&o, cmd_output_stream(&o) ?: picture_write(p, o.f));
}

static int graph_write(struct picture *p, struct fdry_store *s)
{
	const char *path = cmd_value(p->a, OUTPUT);
	struct fdry_reader *reader;
	int err = cmd_parse_number(p->a->argv[1], "a graph's key", &p->key);

	if (err)
		return err;
	err = cmd_resolve(s, p->a->argv[0], true, &p->image);
	if (err)
		return err;
	err = fdry_reader_begin(s, &reader);
	if (err)
		return err;
	err = picture_make(p, reader);
	fdry_reader_end(reader);
	if (err)
		return err;
	return file_write(p, path);
}

int cmd_graph(const struct cmd_args *a, struct fdry_store *s)
{
	const char *format = cmd_value(a, FORMAT) ? cmd_value(a, FORMAT) : "text";
	struct picture p = { .a = a, .dot = !strcmp(format, "dot"), .svg = !strcmp(format, "svg") };
	int err;

	if (!p.dot && !p.svg && strcmp(format, "text"))
		return cmd_usage(a->cmd, "there is no format '%s'", format);
	if (p.svg && cmd_has(a, JSON))
		return cmd_usage(a->cmd, "--json has no SVG; use --format dot or text");
	err = graph_write(&p, s);
	fdry_buf_release(&p.text);
	cmd_image_close(&p.im);
	return err ? cmd_fail(err) : CMD_OK;
}
