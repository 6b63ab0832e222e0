// SPDX-License-Identifier: Apache-2.0
/* selftest.c - loads an image on the GPU, replays its graphs as its seal did, and prints each
 * result that differs. */
#include "api/cmd/cmd.h"

#include "foundry.h"

struct testing {
	struct json j;
	bool json;
};

static void difference(void *arg, const char *text)
{
	struct testing *t = arg;

	if (t->json)
		json_string(&t->j, NULL, text);
	else
		printf("%s\n", cmd_text(text));
}

static void report_json(struct json *j, const struct fdry_selftest_report *r)
{
	json_number(j, "graphs", r->graphs);
	json_number(j, "left_out", r->left_out);
	json_number(j, "outputs", r->outputs);
	json_number(j, "unstable", r->unstable);
	json_number(j, "differ", r->differ);
}

static void report_print(const struct fdry_selftest_report *r)
{
	printf("%llu graph%s replayed, %llu result%s compared, %llu differ",
	       (unsigned long long)r->graphs, cmd_plural(r->graphs),
	       (unsigned long long)r->outputs, cmd_plural(r->outputs),
	       (unsigned long long)r->differ);
	if (r->unstable)
		printf("; %llu not compared, because they differ from replay to replay",
		       (unsigned long long)r->unstable);
	if (r->left_out)
		printf("; %llu graph%s left out, because the seal could not replay them",
		       (unsigned long long)r->left_out, cmd_plural(r->left_out));
	putchar('\n');
}

int cmd_selftest(const struct cmd_args *a, struct fdry_store *s)
{
	struct testing t = { .j = { .f = stdout }, .json = cmd_has(a, JSON) };
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;
	int err = fdry_image_load(s, a->argv[0], NULL, &img);

	if (err)
		return cmd_fail(cmd_suggest_ref(s, a->argv[0], err));
	if (t.json) {
		json_open(&t.j, NULL, '{');
		json_open(&t.j, "differences", '[');
	}
	err = fdry_image_selftest(img, difference, &t, &r);
	fdry_image_unload(img);
	if (t.json) {
		json_close(&t.j, ']');
		report_json(&t.j, &r);
		json_close(&t.j, '}');
	}
	if (err && err != -FDRY_E_CORRUPT)
		return cmd_fail(err);
	if (!t.json)
		report_print(&r);
	return r.differ ? CMD_FOUND : CMD_OK;
}
