// SPDX-License-Identifier: Apache-2.0
/* tags.c - lists the tags of a repository in a container registry. */
#include "api/cmd/registry.h"

#include <fnmatch.h>
#include <string.h>

struct tags {
	const struct cmd_args *a;
	struct fdry_buf rows; /* struct row */
	int width, err;
};

struct row {
	char tag[129], id[FDRY_ID_SIZE];
	uint64_t objects, bytes;
	bool is_image, is_signed;
};

static bool wanted(const struct cmd_args *a, const struct fdry_repo_item *item)
{
	int i;

	if (item->is_signature && !cmd_has(a, LONG))
		return false;
	for (i = 1; i < a->argc; i++)
		if (!fnmatch(a->argv[i], item->tag, 0))
			return true;
	return a->argc == 1;
}

static void on_item(void *arg, const struct fdry_repo_item *item)
{
	struct row r = { .objects = item->objects, .bytes = item->bytes,
			 .is_image = item->is_image, .is_signed = item->is_signed };
	struct tags *t = arg;

	if (t->err || !wanted(t->a, item))
		return;
	snprintf(r.tag, sizeof(r.tag), "%s", item->tag);
	memcpy(r.id, item->id, sizeof(r.id));
	if ((int)strlen(r.tag) > t->width)
		t->width = (int)strlen(r.tag);
	t->err = fdry_buf_put(&t->rows, &r, sizeof(r));
}

static void rows_text(const struct tags *t)
{
	const struct row *r = fdry_array(t->rows, struct row);
	size_t i, n = fdry_array_count(t->rows, struct row);
	const struct cmd_colours *c = cmd_colours();
	bool full = cmd_has(t->a, LONG);

	if (!cmd_has(t->a, QUIET))
		printf("%-*s  %-*s %8s %11s\n", t->width, "TAG", full ? 64 : 12, "DIGEST",
		       "OBJECTS", "SIZE");
	for (i = 0; i < n; i++)
		if (cmd_has(t->a, QUIET))
			puts(r[i].tag);
		else
			printf("%s%-*s%s  %s%.*s%s %8llu %11s%s%s\n", c->name, t->width, r[i].tag,
			       c->reset, c->id, full ? 64 : 12, r[i].id, c->reset,
			       (unsigned long long)r[i].objects, cmd_size(r[i].bytes).text,
			       r[i].is_signed ? "  signed" : "",
			       r[i].is_image ? "" : "  no image");
}

static void rows_json(const struct tags *t)
{
	const struct row *r = fdry_array(t->rows, struct row);
	size_t i, n = fdry_array_count(t->rows, struct row);
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_open(&j, "tags", '[');
	for (i = 0; i < n; i++) {
		json_open(&j, NULL, '{');
		json_string(&j, "tag", r[i].tag);
		json_string(&j, "digest", r[i].id);
		json_number(&j, "objects", r[i].objects);
		json_number(&j, "bytes", r[i].bytes);
		json_bool(&j, "image", r[i].is_image);
		json_bool(&j, "signed", r[i].is_signed);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
}

int cmd_tags(const struct cmd_args *a, struct fdry_store *unused)
{
	struct tags t = { .a = a, .width = 3 };
	struct fdry_repo_opts opts = { .sz = sizeof(opts),
				       .flags = cmd_has(a, PLAIN_HTTP) ? FDRY_REPO_PLAIN_HTTP : 0,
				       .item = on_item, .item_arg = &t };
	int err = fdry_repo_tags(a->argv[0], &opts, NULL) ?: t.err;

	(void)unused;
	if (err)
		goto out_release;
	if (cmd_has(a, JSON))
		rows_json(&t);
	else
		rows_text(&t);
out_release:
	fdry_buf_release(&t.rows);
	return err ? cmd_fail(err) : CMD_OK;
}
