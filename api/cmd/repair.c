// SPDX-License-Identifier: Apache-2.0
/* repair.c - verifies the store and restores damaged and missing objects. */
#include "api/cmd/cmd.h"

struct repairing {
	const struct cmd_args *a;
	struct json j;
	struct cmd_progress progress;
};

static const char *const events[] = {
	[FDRY_REPAIRED_BACK] = "back",
	[FDRY_REPAIRED_QUARANTINED] = "quarantined",
	[FDRY_REPAIRED_LOST] = "lost",
	[FDRY_REPAIRED_IMAGE] = "ref",
};

static void repaired(void *arg, int what, const char *id, const char *ref, const char *text)
{
	struct repairing *r = arg;

	cmd_progress_pause(&r->progress);
	if (!cmd_has(r->a, JSON)) {
		if (ref)
			cmd_say(r->a, "ref '%s' %s\n", cmd_text(ref), text);
		else
			cmd_say(r->a, "%s: %s\n", id, text);
		return;
	}
	json_open(&r->j, NULL, '{');
	json_string(&r->j, "event", events[what]);
	json_string(&r->j, "id", id);
	if (ref)
		json_string(&r->j, "ref", ref);
	json_close(&r->j, '}');
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct repairing *r = arg;

	cmd_progress_to(&r->progress, done, total);
}

static void report(struct repairing *rp, const struct fdry_repair_report *r)
{
	struct json *j = &rp->j;

	if (!cmd_has(rp->a, JSON)) {
		cmd_say(rp->a,
			"%llu brought back, %llu in quarantine, %llu missing; %llu ref%s cannot be "
			"loaded%s\n",
			(unsigned long long)r->back, (unsigned long long)r->quarantined,
			(unsigned long long)r->lost,
			(unsigned long long)r->broken, cmd_plural(r->broken),
			cmd_has(rp->a, DRY_RUN) ? " (nothing was written)" : "");
		return;
	}
	json_close(j, ']');
	json_bool(j, "dry_run", cmd_has(rp->a, DRY_RUN));
	json_number(j, "damaged", r->damaged);
	json_number(j, "missing", r->missing);
	json_number(j, "back", r->back);
	json_number(j, "quarantined", r->quarantined);
	json_number(j, "lost", r->lost);
	json_number(j, "refs_broken", r->broken);
	json_close(j, '}');
}

int cmd_repair(const struct cmd_args *a, struct fdry_store *s)
{
	struct repairing rp = { .a = a, .j = { .f = stdout } };
	struct fdry_repair_opts opts = { .sz = sizeof(opts),
					 .flags = cmd_has(a, DRY_RUN) ? FDRY_REPAIR_DRY_RUN : 0,
					 .repaired = repaired, .repaired_arg = &rp,
					 .progress = progress, .progress_arg = &rp };
	struct fdry_repair_report r = { .sz = sizeof(r) };
	int err;

	(void)s;
	if (cmd_has(a, JSON)) {
		json_open(&rp.j, NULL, '{');
		json_open(&rp.j, "events", '[');
	}
	cmd_progress_begin(&rp.progress, a, "verify", true);
	err = fdry_store_repair(a->store, (const char *const *)a->argv, (size_t)a->argc, &opts, &r);
	cmd_progress_end(&rp.progress);
	if (!err || cmd_has(a, JSON))
		report(&rp, &r);
	if (err)
		return cmd_fail(err);
	return r.quarantined || r.lost || r.broken ? CMD_FOUND : CMD_OK;
}
