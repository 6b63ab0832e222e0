// SPDX-License-Identifier: Apache-2.0
/*
 * du.c - prints how many bytes each ref occupies at rest: alone, and shared with others.
 *
 * A ref's unique bytes are those that gc would free after the ref is removed, if its image has no
 * other name. Shared bytes are counted for each ref, and once in the sum.
 */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>

struct du {
	const struct cmd_args *a;
	struct fdry_usage usage;
	struct fdry_store_stat stat;
	struct json j;
	struct fdry_ref last; /* read but not printed yet; its name is "" if there is none */
	bool several;         /* several images have its name, as far as they were read */
};

static void sum_json(struct json *j, const char *key, const struct fdry_sum *sum)
{
	json_open(j, key, '{');
	json_number(j, "objects", sum->objects);
	json_number(j, "bytes", sum->bytes);
	json_number(j, "stored", sum->stored);
	json_close(j, '}');
}

static struct fdry_sum minus(const struct fdry_sum *a, const struct fdry_sum *b)
{
	/* the two may have been counted at different times */
	return (struct fdry_sum){ a->objects > b->objects ? a->objects - b->objects : 0,
				  a->bytes > b->bytes ? a->bytes - b->bytes : 0,
				  a->stored > b->stored ? a->stored - b->stored : 0 };
}

static bool wanted(const struct cmd_args *a, const char *name)
{
	int i;

	for (i = 0; i < a->argc; i++)
		if (!strcmp(a->argv[i], name))
			return true;
	return !a->argc;
}

static void line_json(struct json *j, const struct fdry_ref *ref, const struct fdry_image_usage *u,
		      const struct fdry_sum *shared)
{
	json_open(j, NULL, '{');
	json_string(j, "ref", ref->name);
	json_oid(j, "id", &ref->oid);
	sum_json(j, "unique", &u->unique);
	sum_json(j, "shared", shared);
	sum_json(j, "all", &u->all);
	json_close(j, '}');
}

/* If the name holds several images: ":DIGITS", as commands accept it after the name. */
static void line_print(struct du *du, bool several)
{
	const struct fdry_image_usage *u =
		*du->last.name ? fdry_usage_of(&du->usage, &du->last.oid) : NULL;
	char hex[FDRY_OID_HEX_SIZE], which[10] = "";
	struct fdry_sum shared;

	if (!u || !wanted(du->a, du->last.name)) /* or it was set after the count */
		return;
	shared = minus(&u->all, &u->unique);
	if (cmd_has(du->a, JSON)) {
		line_json(&du->j, &du->last, u, &shared);
		return;
	}
	if (several)
		snprintf(which, sizeof(which), ":%.8s", fdry_oid_hex(&du->last.oid, hex));
	printf("%11s %11s %11s  %s%s\n", cmd_size(u->unique.stored).text,
	       cmd_size(shared.stored).text, cmd_size(u->all.stored).text, du->last.name, which);
}

/* Images of one name follow each other. */
static int du_ref(void *arg, const struct fdry_ref *ref)
{
	struct du *du = arg;
	bool again = !strcmp(du->last.name, ref->name);

	line_print(du, du->several || again);
	du->last = *ref;
	du->several = again;
	return 0;
}

/* Each name on the command line must exist. */
static int names_check(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_oid oid;
	int i, err = 0;

	for (i = 0; i < a->argc && !err; i++)
		err = cmd_suggest_ref(s, a->argv[i], fdry_ref_get(s, a->argv[i], &oid));
	return err;
}

static int du_read(struct du *du, struct fdry_store *s)
{
	struct cmd_progress p;
	int err;

	cmd_progress_begin(&p, du->a, "images", false);
	err = fdry_store_usage(s, cmd_progress_step, &p, &du->usage);
	cmd_progress_end(&p);
	if (err)
		return err;
	cmd_progress_begin(&p, du->a, "objects", false);
	err = fdry_store_stat(s, cmd_progress_step, &p, &du->stat);
	cmd_progress_end(&p);
	return err;
}

static void sums_text(const struct du *du, const struct fdry_sum *shared,
		      const struct fdry_sum *loose)
{
	printf("%11s %s\n", cmd_size(shared->stored).text,
	       "shared by several images, counted once");
	printf("%11s %s\n", cmd_size(loose->stored).text, "that no ref reaches (see gc)");
	printf("%11s %s\n", cmd_size(du->stat.kinds[0].stored).text, "all objects");
	printf("%11s %s\n", cmd_size(du->stat.file.disk_bytes).text, "data.mdb on disk");
}

static int du_print(struct du *du, struct fdry_store *s)
{
	struct fdry_sum shared = du->usage.reached,
			loose = minus(&du->stat.kinds[0], &du->usage.reached);
	bool json = cmd_has(du->a, JSON);
	size_t i;
	int err;

	for (i = 0; i < du->usage.count; i++)
		shared = minus(&shared, &du->usage.images[i].unique);
	if (json) {
		json_open(&du->j, NULL, '{');
		json_open(&du->j, "refs", '[');
	} else {
		printf("%11s %11s %11s  %s\n", "UNIQUE", "SHARED", "SIZE", "NAME");
	}
	err = fdry_ref_each(s, du_ref, du);
	line_print(du, du->several);
	if (!json) {
		sums_text(du, &shared, &loose);
		return err;
	}
	json_close(&du->j, ']');
	sum_json(&du->j, "shared", &shared);
	sum_json(&du->j, "loose", &loose);
	sum_json(&du->j, "all", &du->stat.kinds[0]);
	json_number(&du->j, "file", du->stat.file.disk_bytes);
	json_close(&du->j, '}');
	return err;
}

int cmd_du(const struct cmd_args *a, struct fdry_store *s)
{
	struct du du = { .a = a, .j = { .f = stdout } };
	int err = names_check(a, s) ?: du_read(&du, s) ?: du_print(&du, s);

	fdry_usage_release(&du.usage);
	return err ? cmd_fail(err) : CMD_OK;
}
