// SPDX-License-Identifier: Apache-2.0
/* repair.c - verifies the store and restores damaged and missing objects. */
#include "api/cmd/cmd.h"

#include "store/repair.h"

struct repairing {
	const struct cmd_args *a;
	struct json j;
	struct cmd_progress progress;
};

static const char *const events[] = {
	[FDRY_REPAIR_BACK] = "back",
	[FDRY_REPAIR_QUARANTINED] = "quarantined",
	[FDRY_REPAIR_LOST] = "lost",
	[FDRY_REPAIR_REF] = "ref",
};

static void told_json(struct json *j, enum fdry_repair_event event, const struct fdry_oid *oid,
		      const char *ref)
{
	json_open(j, NULL, '{');
	json_string(j, "event", events[event]);
	json_oid(j, "id", oid);
	if (ref)
		json_string(j, "ref", ref);
	json_close(j, '}');
}

static void told(void *arg, enum fdry_repair_event event, const struct fdry_oid *oid,
		 const char *ref, const char *text)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct repairing *r = arg;

	cmd_progress_pause(&r->progress);
	fdry_oid_hex(oid, hex);
	if (cmd_has(r->a, JSON))
		told_json(&r->j, event, oid, ref);
	else if (ref)
		cmd_say(r->a, "ref '%s' %s\n", cmd_text(ref), text);
	else
		cmd_say(r->a, "%s: %s\n", hex, text);
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
			(unsigned long long)r->lost, (unsigned long long)r->refs_broken,
			cmd_plural(r->refs_broken),
			cmd_has(rp->a, DRY_RUN) ? " (nothing was written)" : "");
		return;
	}
	json_close(j, ']');
	json_bool(j, "dry_run", cmd_has(rp->a, DRY_RUN));
	json_number(j, "damaged", r->found.damaged);
	json_number(j, "missing", r->found.missing);
	json_number(j, "back", r->back);
	json_number(j, "quarantined", r->quarantined);
	json_number(j, "lost", r->lost);
	json_number(j, "refs_broken", r->refs_broken);
	json_close(j, '}');
}

int cmd_repair(const struct cmd_args *a, struct fdry_store *s)
{
	struct repairing rp = { .a = a, .j = { .f = stdout } };
	struct fdry_repair_how opts = { .sources = (const char *const *)a->argv,
					.nsources = (size_t)a->argc,
					.dry_run = cmd_has(a, DRY_RUN),
					.told = told,
					.progress = progress,
					.arg = &rp };
	struct fdry_repair_report r = { .back = 0 };
	int err;

	(void)s;
	if (cmd_has(a, JSON)) {
		json_open(&rp.j, NULL, '{');
		json_open(&rp.j, "events", '[');
	}
	cmd_progress_begin(&rp.progress, a, "verify", true);
	err = fdry_repair(a->store, &opts, &r);
	cmd_progress_end(&rp.progress);
	if (!err || cmd_has(a, JSON))
		report(&rp, &r);
	if (err)
		return cmd_fail(err);
	return r.quarantined || r.lost || r.refs_broken ? CMD_FOUND : CMD_OK;
}
