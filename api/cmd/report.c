// SPDX-License-Identifier: Apache-2.0
/* report.c - writes a page that describes an image, for a browser; it needs no other file. */
#include "api/cmd/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/cmd/output.h"
#include "lib/file.h"

/* --- the top --- */

struct names {
	struct report *r;
	uint32_t count;
};

static int name_print(void *arg, const struct fdry_ref *ref)
{
	struct names *n = arg;

	if (!fdry_oid_eq(&ref->oid, &n->r->info.oid))
		return 0;
	fputs(n->count++ ? ", " : "", n->r->f);
	html_text(n->r->f, ref->name);
	return 0;
}

static void card(const struct report *r, const char *what, const char *value)
{
	fprintf(r->f, "<div class=\"card\"><span>%s</span><strong>", what);
	html_text(r->f, value);
	fputs("</strong></div>\n", r->f);
}

static void card_number(const struct report *r, const char *what, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	card(r, what, text);
}

/* The day; the time beside it is smaller. */
static void card_date(const struct report *r, const char *what, uint64_t when)
{
	struct cmd_when date = cmd_date(when);

	if (!when) {
		card(r, what, "not known");
		return;
	}
	fprintf(r->f,
		"<div class=\"card\"><span>%s</span><strong>%.10s <small>%.5s UTC</small>"
		"</strong></div>\n",
		what, date.text, date.text + 11);
}

static uint64_t device_bytes(const struct fdry_manifest *m)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < m->n_segments; i++)
		bytes += m->segments[i].size;
	return bytes;
}

static void cards(const struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	const char *arch = fdry_manifest_fact(m, "fdry.gpu.arch");

	fputs("<div class=\"cards\">\n", r->f);
	card(r, "GPU", arch ? arch : "not stated");
	card_number(r, "Graphs", m->n_graphs);
	card_number(r, "Nodes", r->nodes);
	card_number(r, "Kernels", m->n_kernels);
	card(r, "Device memory", cmd_size(device_bytes(m)).text);
	card(r, "Size at rest", cmd_size(r->sums[0].stored).text);
	card_date(r, "Created", r->times.created);
	card_date(r, "Last used", r->times.used);
	fputs("</div>\n", r->f);
}

static int head(struct report *r)
{
	struct names names = { .r = r };
	char hex[FDRY_OID_HEX_SIZE];
	int err;

	fputs("<header>\n<h1>", r->f);
	err = fdry_ref_each(r->s, name_print, &names);
	if (!names.count)
		fputs("An image without a name", r->f);
	fprintf(r->f, "</h1>\n<div class=\"dim\">Image <code>%s</code> of the store <code>",
		fdry_oid_hex(&r->info.oid, hex));
	html_text(r->f, fdry_store_path(r->s));
	fprintf(r->f,
		"</code></div>\n<nav><a href=\"#graphs\">Graphs</a><a href=\"#kernels\">Kernels</a>"
		"%s<a href=\"#memory\">Memory</a><a href=\"#objects\">Objects</a>"
		"<a href=\"#shared\">Shared</a><a href=\"#facts\">Facts</a></nav>\n</header>\n",
		r->measured ? "<a href=\"#times\">Times</a>" : "");
	cards(r);
	return err;
}

/* --- objects and facts --- */

static void objects(const struct report *r)
{
	static const char *const colours[] = { "", "b0", "b1", "b2", "b3" };
	int kind;

	html_section(r->f, "objects", "Objects");
	fputs("<div class=\"stack\">", r->f);
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
		if (r->sums[kind].stored)
			fprintf(r->f, "<i class=\"%s\" style=\"width:%.2f%%\"></i>", colours[kind],
				100.0 * (double)r->sums[kind].stored /
					(double)r->sums[0].stored);
	fputs("</div>\n<table><thead><tr><th>Kind</th><th class=\"num\">Objects</th>"
	      "<th class=\"num\">Unpacked</th><th>At rest</th></tr></thead><tbody>\n",
	      r->f);
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++) {
		fprintf(r->f,
			"<tr><td><div class=\"legend\" style=\"margin:0\"><span><i "
			"class=\"%s\"></i>%s</span></div></td><td class=\"num\">%llu</td>"
			"<td class=\"num\">%s</td>",
			colours[kind], fdry_object_kind_name((enum fdry_object_kind)kind),
			(unsigned long long)r->sums[kind].objects,
			cmd_size(r->sums[kind].bytes).text);
		html_bar(r->f, "bytes", r->sums[kind].stored, r->sums[0].stored,
			 cmd_size(r->sums[kind].stored).text);
		fputs("</tr>\n", r->f);
	}
	fputs("</tbody></table>\n", r->f);
}

static void facts(const struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	uint32_t i;

	html_section(r->f, "facts", "Facts");
	fputs("<p class=\"dim\">These values must be equal where the image is loaded.</p>\n"
	      "<table><tbody>\n",
	      r->f);
	for (i = 0; i < m->n_facts; i++) {
		fputs("<tr><td class=\"name\"><code>", r->f);
		html_text(r->f, fdry_manifest_str(m, m->facts[i].key));
		fputs("</code></td><td class=\"name\"><code>", r->f);
		html_text(r->f, fdry_manifest_str(m, m->facts[i].value));
		fputs("</code></td></tr>\n", r->f);
	}
	fprintf(r->f, "</tbody></table>\n<p class=\"dim\">Region %#llx to %#llx.</p>\n",
		(unsigned long long)m->header->base, (unsigned long long)m->header->end);
}

/* --- the page --- */

void report_list(const struct report *r, const struct report_list *l, const uint32_t *order)
{
	uint32_t shown = l->n < l->shown ? l->n : l->shown, most = l->n < l->most ? l->n : l->most;

	l->table(r, order, 0, shown);
	if (most > shown) {
		fprintf(r->f, "<details><summary>%u more</summary>\n", most - shown);
		l->table(r, order, shown, most);
		fputs("</details>\n", r->f);
	}
	if (l->n > most)
		fprintf(r->f, "<p class=\"dim\">%u further %s are not listed.</p>\n", l->n - most,
			l->what);
}

static int page_write(struct report *r, const char *name)
{
	int err;

	html_begin(r->f, name);
	err = head(r);
	if (err)
		return err;
	err = report_graphs(r);
	if (err)
		return err;
	report_kernels(r);
	err = r->measured ? report_times(r) : 0;
	if (err)
		return err;
	report_memory(r);
	objects(r);
	err = report_shared(r);
	facts(r);
	html_end(r->f);
	return err;
}

static int times_read(struct report *r)
{
	struct fdry_buf all = { 0 };
	int err = fdry_store_times_read(r->s, &all);

	r->times = fdry_times_of(&all, &r->info.oid);
	fdry_buf_release(&all);
	return err;
}

static int image_read(struct report *r, const struct fdry_oid *oid)
{
	return fdry_store_info(r->s, oid, &r->info) ?: cmd_reach(r->s, oid, r->sums) ?:
	       times_read(r) ?: cmd_image_open(r->reader, oid, &r->im) ?: report_kernels_read(r);
}

static int file_write(const char *page, size_t len, const char *path)
{
	struct cmd_output o;
	int e, err = cmd_output_open(path, &o);

	if (err)
		return err;
	e = fdry_write(o.fd, page, len);
	errno = e;
	return cmd_output_close(&o, e ? cmd_write_failed(path ? path : "the output") : 0);
}

/* The page is made in memory: a page that fails leaves no part of it. */
static int report_write(struct report *r, const struct fdry_oid *oid, const char *name,
			const char *path)
{
	char *page = NULL;
	size_t len = 0;
	int err = fdry_reader_begin(r->s, &r->reader);

	if (err)
		return err;
	err = image_read(r, oid);
	if (err)
		goto out_end;
	r->f = open_memstream(&page, &len);
	if (!r->f) {
		err = fdry_nomem();
		goto out_end;
	}
	err = page_write(r, name);
	if (fclose(r->f) && !err)
		err = fdry_nomem();
	if (err)
		goto out_free;
	err = file_write(page, len, path);
out_free:
	free(page);
out_end:
	report_kernels_release(r);
	cmd_image_close(&r->im);
	fdry_reader_end(r->reader);
	return err;
}

static void report_json(const struct report *r, const char *path)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_oid(&j, "image", &r->info.oid);
	json_string(&j, "page", path);
	json_number(&j, "graphs", r->graphs);
	json_number(&j, "nodes", r->nodes);
	json_number(&j, "drawn", r->drawn);
	json_close(&j, '}');
}

int cmd_report(const struct cmd_args *a, struct fdry_store *s)
{
	const char *path = cmd_value(a, OUTPUT);
	struct report r = { .s = s };
	bool file = path && strcmp(path, "-");
	struct fdry_oid oid;
	int err;

	if (cmd_has(a, JSON) && !file)
		return cmd_usage(
			a->cmd,
			"--json and the page cannot both be on standard output; use -o FILE");
	err = cmd_resolve(s, a->argv[0], true, &oid) ?:
	      (cmd_has(a, TIME) ? report_times_measure(&r, &oid) : 0) ?:
	      report_write(&r, &oid, a->argv[0], path);
	report_times_release(&r);
	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		report_json(&r, path);
	else if (file)
		cmd_say(a, "wrote %s: %u graphs, %llu nodes\n", path, r.graphs,
			(unsigned long long)r.nodes);
	return CMD_OK;
}
