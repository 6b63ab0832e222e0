// SPDX-License-Identifier: Apache-2.0
/* prune.c - removes images from a repository in a container registry: all but those that are kept
 * (prune), or one (unpush). */
#include "api/cmd/registry.h"

#include <stdlib.h>
#include <string.h>

struct prune {
	const struct cmd_args *a;
	bool dry_run;
	struct json j;
};

static void item_say(const struct prune *p, const struct fdry_repo_item *item)
{
	const char *tag = item->tag ? item->tag : "untagged";

	if (item->fate == FDRY_REPO_REMOVED)
		cmd_say(p->a, "%s %s, %.12s\n", p->dry_run ? "would remove" : "removed", tag,
			item->id);
	else if (!item->why)
		cmd_say(p->a, "keep %s, %.12s: it signs an image without a tag\n", tag, item->id);
	else if (strcmp(item->why, tag))
		cmd_say(p->a, "keep %s, %.12s: %s needs it\n", tag, item->id, item->why);
	else
		cmd_say(p->a, "keep %s, %.12s\n", tag, item->id);
}

static void on_item(void *arg, const struct fdry_repo_item *item)
{
	struct prune *p = arg;

	item_say(p, item);
	if (!cmd_has(p->a, JSON))
		return;
	json_open(&p->j, NULL, '{');
	if (item->tag)
		json_string(&p->j, "tag", item->tag);
	json_string(&p->j, "digest", item->id);
	json_bool(&p->j, "kept", item->fate == FDRY_REPO_KEPT);
	if (item->why)
		json_string(&p->j, "why", item->why);
	json_close(&p->j, '}');
}

static void report(struct prune *p, const struct fdry_repo_report *r)
{
	cmd_say(p->a, "%s %llu manifest%s%s\n", p->dry_run ? "would remove" : "removed",
		(unsigned long long)r->removed, cmd_plural(r->removed),
		r->bytes ? "" : "; all blobs are needed by others");
	if (r->bytes)
		cmd_say(p->a, "the registry's own collection then frees %s\n",
			cmd_size(r->bytes).text);
	if (!cmd_has(p->a, JSON))
		return;
	json_close(&p->j, ']');
	json_bool(&p->j, "dry_run", p->dry_run);
	json_number(&p->j, "removed", r->removed);
	json_number(&p->j, "bytes", r->bytes);
	json_number(&p->j, "requests", r->requests);
	json_number(&p->j, "retries", r->retries);
	json_close(&p->j, '}');
}

static int run(struct prune *p, const char *const *keep, size_t count)
{
	struct fdry_repo_opts opts = {
		.sz = sizeof(opts),
		.flags = (cmd_has(p->a, PLAIN_HTTP) ? FDRY_REPO_PLAIN_HTTP : 0) |
			 (p->dry_run ? FDRY_REPO_DRY_RUN : 0),
		.keep = keep,
		.count_keep = count,
		.item = on_item,
		.item_arg = p,
	};
	struct fdry_repo_report r = { .sz = sizeof(r) };
	int err;

	p->j.f = stdout;
	if (cmd_has(p->a, JSON)) {
		json_open(&p->j, NULL, '{');
		json_open(&p->j, "items", '[');
	}
	err = (keep ? fdry_repo_prune : fdry_repo_unpush)(p->a->argv[0], &opts, &r);
	if (!err || cmd_has(p->a, JSON))
		report(p, &r);
	return err ? cmd_fail(err) : CMD_OK;
}

int cmd_prune(const struct cmd_args *a, struct fdry_store *unused)
{
	struct prune p = { .a = a, .dry_run = !cmd_has(a, APPLY) };
	const char **keep = NULL;
	char *text = NULL;
	size_t count = 0;
	int status, err;

	(void)unused;
	if (!cmd_has(a, KEEP))
		return cmd_usage(a->cmd, "prune needs --keep, which names the tags that stay");
	err = cmd_words_split(cmd_value(a, KEEP), &text, &keep, &count);
	status = err ? cmd_fail(err) : run(&p, keep, count);
	free(keep);
	free(text);
	return status;
}

int cmd_unpush(const struct cmd_args *a, struct fdry_store *unused)
{
	struct prune p = { .a = a, .dry_run = cmd_has(a, DRY_RUN) };

	(void)unused;
	if (!cmd_confirm(a, "Remove %s from the registry, with its signatures?", a->argv[0]))
		return cmd_declined();
	return run(&p, NULL, 0);
}
