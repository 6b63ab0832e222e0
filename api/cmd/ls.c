// SPDX-License-Identifier: Apache-2.0
/* ls.c - lists refs with their sizes, or all objects. */
#include "api/cmd/ls.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct ls {
	const struct cmd_args *a;
	struct fdry_usage usage;
	struct fdry_reader *reader;
	struct fdry_buf times;
	struct fdry_buf rows; /* struct row */
	struct fdry_buf lines; /* of --format: one for each row, with a terminator; see row.line */
};

/* --- collecting --- */

static bool wanted(const struct cmd_args *a, const char *name)
{
	int i;

	for (i = 0; i < a->argc; i++)
		if (!fnmatch(a->argv[i], name, 0))
			return true;
	return !a->argc;
}

static int row_keep(struct ls *ls, struct row *r, const struct fdry_manifest *m)
{
	const char *format = cmd_value(ls->a, FORMAT);
	int err = 0;

	if (!ls_filters_match(ls->a, r, m))
		return 0;
	r->line = ls->lines.len;
	if (format)
		err = ls_format_row(format, r, m, &ls->lines) ?: fdry_buf_put(&ls->lines, "", 1);
	return err ? err : fdry_buf_put(&ls->rows, r, sizeof(*r));
}

/* If a manifest cannot be read, only its row is marked as broken. */
static int row_read(struct ls *ls, struct row *r)
{
	struct cmd_image im;
	const char *arch;
	int err;

	if (cmd_image_open(ls->reader, &r->oid, &im)) {
		r->broken = true;
		return row_keep(ls, r, NULL);
	}
	arch = fdry_manifest_fact(&im.m, "fdry.gpu.arch");
	snprintf(r->arch, sizeof(r->arch), "%s", arch ? arch : "");
	r->graphs = im.m.n_graphs;
	r->nodes = cmd_image_nodes(&im.m);
	err = row_keep(ls, r, &im.m);
	cmd_image_close(&im);
	return err;
}

static int row_put(void *arg, const struct fdry_ref *ref)
{
	struct row r = { .oid = ref->oid, .change = ref->change, .pinned = ref->pinned };
	const struct fdry_image_usage *u;
	struct ls *ls = arg;

	if (!wanted(ls->a, ref->name))
		return 0;
	memcpy(r.name, ref->name, sizeof(r.name));
	u = fdry_usage_of(&ls->usage, &ref->oid);
	r.broken = !u || u->broken;
	if (u) {
		r.all = u->all;
		r.unique = u->unique;
	}
	r.times = fdry_times_of(&ls->times, &ref->oid);
	return row_read(ls, &r);
}

/* --- sorting --- */

/* Images of one name are sorted by age, the newest first. */
static int by_name(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (order)
		return order;
	return x->change > y->change ? -1 : x->change < y->change;
}

/* The largest first; equal ones by name. */
#define BY(what, field) \
	static int by_##what(const void *a, const void *b) \
	{ \
		const struct row *x = a, *y = b; \
		return x->field != y->field ? (x->field < y->field ? 1 : -1) : by_name(a, b); \
	}
BY(size, all.stored)
BY(unique, unique.stored)
BY(graphs, graphs)
BY(created, times.created)
BY(used, times.used)

static const struct {
	const char *name;
	int (*by)(const void *a, const void *b);
} sorts[] = {
	{ "name", by_name }, { "size", by_size }, { "unique", by_unique }, { "graphs", by_graphs },
	{ "created", by_created }, { "used", by_used },
};
#define SORTS (sizeof(sorts) / sizeof(sorts[0]))

static size_t sort_of(const struct cmd_args *a)
{
	const char *name = cmd_value(a, SORT);
	size_t i;

	for (i = 0; name && i < SORTS && strcmp(sorts[i].name, name); i++)
		;
	return i;
}

static void rows_sort(struct ls *ls)
{
	struct row *rows = (void *)ls->rows.data, swap;
	size_t i, n = ls->rows.len / sizeof(*rows);

	if (n)
		qsort(rows, n, sizeof(*rows), sorts[sort_of(ls->a)].by);
	for (i = 0; cmd_has(ls->a, REVERSE) && i < n / 2; i++) {
		swap = rows[i];
		rows[i] = rows[n - 1 - i];
		rows[n - 1 - i] = swap;
	}
}

/* --- printing --- */

static void row_text(const struct row *r, int width, bool full)
{
	const struct cmd_colours *c = cmd_colours();
	char hex[FDRY_OID_HEX_SIZE];

	printf("%s%-*s%s  %s%.12s%s  %-8s %6llu", c->name, width, r->name, c->reset, c->id,
	       fdry_oid_hex(&r->oid, hex), c->reset, *r->arch ? cmd_text(r->arch) : "-",
	       (unsigned long long)r->graphs);
	if (full)
		printf(" %8llu %8llu %11s", (unsigned long long)r->nodes,
		       (unsigned long long)r->all.objects, cmd_size(r->all.bytes).text);
	printf(" %11s %11s", cmd_size(r->all.stored).text, cmd_size(r->unique.stored).text);
	if (full)
		printf(" %11s", cmd_size(r->all.stored - r->unique.stored).text);
	printf("  %-13s %s", cmd_age(r->times.created).text, cmd_age(r->times.used).text);
	printf("%s%s%s%s\n", r->pinned ? "  pinned" : "", c->bad,
	       r->broken ? "  broken, see verify" : "", c->reset);
}

static void rows_text(const struct ls *ls)
{
	const struct row *rows = (const void *)ls->rows.data;
	size_t i, n = ls->rows.len / sizeof(*rows);
	bool full = cmd_has(ls->a, LONG);
	int width = 4;

	for (i = 0; i < n; i++)
		if ((int)strlen(rows[i].name) > width)
			width = (int)strlen(rows[i].name);
	if (!cmd_has(ls->a, QUIET))
		printf("%-*s  %-12s  %-8s %6s%s %11s %11s%s  %-13s %s\n", width, "NAME", "IMAGE",
		       "GPU", "GRAPHS", full ? "    NODES  OBJECTS    UNPACKED" : "", "SIZE",
		       "UNIQUE", full ? "      SHARED" : "", "CREATED", "USED");
	for (i = 0; i < n; i++) {
		if (cmd_has(ls->a, QUIET) && i && !strcmp(rows[i].name, rows[i - 1].name))
			continue; /* the name holds several images: print it once */
		if (cmd_has(ls->a, QUIET))
			puts(rows[i].name);
		else
			row_text(&rows[i], width, full);
	}
}

static void rows_lines(const struct ls *ls)
{
	const struct row *rows = (const void *)ls->rows.data;
	size_t i;

	for (i = 0; i < ls->rows.len / sizeof(*rows); i++)
		fputs((const char *)ls->lines.data + rows[i].line, stdout);
}

static void row_json(struct json *j, const struct row *r)
{
	json_open(j, NULL, '{');
	json_string(j, "ref", r->name);
	json_oid(j, "id", &r->oid);
	json_bool(j, "pinned", r->pinned);
	json_bool(j, "broken", r->broken);
	json_string(j, "gpu", r->arch);
	json_number(j, "graphs", r->graphs);
	json_number(j, "nodes", r->nodes);
	json_number(j, "objects", r->all.objects);
	json_number(j, "bytes", r->all.bytes);
	json_number(j, "stored", r->all.stored);
	json_number(j, "unique_objects", r->unique.objects);
	json_number(j, "unique_bytes", r->unique.bytes);
	json_number(j, "unique_stored", r->unique.stored);
	if (r->times.created)
		json_number(j, "created", r->times.created);
	if (r->times.used)
		json_number(j, "used", r->times.used);
	json_close(j, '}');
}

static void rows_json(const struct ls *ls, struct fdry_store *s)
{
	const struct row *rows = (const void *)ls->rows.data;
	struct json j = { .f = stdout };
	size_t i;

	json_open(&j, NULL, '{');
	json_string(&j, "store", fdry_store_path(s));
	json_open(&j, "refs", '[');
	for (i = 0; i < ls->rows.len / sizeof(*rows); i++)
		row_json(&j, &rows[i]);
	json_close(&j, ']');
	json_close(&j, '}');
}

/* --- objects --- */

struct objects {
	struct json j;
	bool json, quiet;
};

static int object_print(void *arg, const struct fdry_object_info *info)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct objects *o = arg;

	fdry_oid_hex(&info->oid, hex);
	if (o->quiet && !o->json) {
		puts(hex);
	} else if (!o->json) {
		printf("%s %-8s %12llu %12llu %6u\n", hex, fdry_object_kind_name(info->kind),
		       (unsigned long long)info->size, (unsigned long long)info->stored,
		       info->nlinks);
	} else {
		json_open(&o->j, NULL, '{');
		json_string(&o->j, "id", hex);
		json_string(&o->j, "kind", fdry_object_kind_name(info->kind));
		json_number(&o->j, "bytes", info->size);
		json_number(&o->j, "stored", info->stored);
		json_number(&o->j, "links", info->nlinks);
		json_close(&o->j, '}');
	}
	return 0;
}

static int ls_objects(const struct cmd_args *a, struct fdry_store *s)
{
	struct objects o = { .j = { .f = stdout },
			     .json = cmd_has(a, JSON),
			     .quiet = cmd_has(a, QUIET) };
	int err;

	if (o.json) {
		json_open(&o.j, NULL, '{');
		json_string(&o.j, "store", fdry_store_path(s));
		json_open(&o.j, "objects", '[');
	}
	err = fdry_store_each(s, object_print, &o);
	if (o.json) {
		json_close(&o.j, ']');
		json_close(&o.j, '}');
	}
	return err ? cmd_fail(err) : CMD_OK;
}

/* --- the command --- */

static int ls_refs(struct ls *ls, struct fdry_store *s)
{
	struct cmd_progress p;
	int err;

	cmd_progress_begin(&p, ls->a, "images", false);
	err = fdry_store_usage(s, cmd_progress_step, &p, &ls->usage);
	cmd_progress_end(&p);
	if (err)
		return err;
	err = fdry_store_times_read(s, &ls->times) ?: fdry_reader_begin(s, &ls->reader);
	if (err)
		return err;
	err = fdry_ref_each(s, row_put, ls);
	fdry_reader_end(ls->reader);
	if (err)
		return err;
	rows_sort(ls);
	if (cmd_has(ls->a, JSON))
		rows_json(ls, s);
	else if (cmd_has(ls->a, FORMAT))
		rows_lines(ls);
	else
		rows_text(ls);
	return 0;
}

int cmd_ls(const struct cmd_args *a, struct fdry_store *s)
{
	struct ls ls = { .a = a };
	int err, status;

	if (sort_of(a) == SORTS)
		return cmd_usage(a->cmd,
				 "refs cannot be sorted by '%s'; use name, size, unique, graphs, "
				 "created or used",
				 cmd_value(a, SORT));
	if (cmd_has(a, FORMAT) && (cmd_has(a, OBJECTS) || cmd_has(a, JSON) || cmd_has(a, QUIET)))
		return cmd_usage(a->cmd,
				 "--format cannot be used with --objects, --json or --quiet");
	if (cmd_has(a, FILTER) && cmd_has(a, OBJECTS))
		return cmd_usage(a->cmd, "filters are for refs, not for objects");
	status = ls_filters_check(a);
	if (status < 0)
		status = ls_format_check(a);
	if (status >= 0)
		return status;
	if (cmd_has(a, OBJECTS))
		return a->argc ? cmd_usage(a->cmd, "patterns are for refs, not for objects")
			       : ls_objects(a, s);
	err = ls_refs(&ls, s);
	fdry_buf_release(&ls.rows);
	fdry_buf_release(&ls.times);
	fdry_buf_release(&ls.lines);
	fdry_usage_release(&ls.usage);
	return err ? cmd_fail(err) : CMD_OK;
}
