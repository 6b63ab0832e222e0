// SPDX-License-Identifier: Apache-2.0
/*
 * gc.c - removes objects that neither a ref nor a session reaches.
 *
 * An interrupt ends it after the current transaction. It then prints what was removed; the next
 * gc removes the rest. A second interrupt ends the process, which does no harm either.
 */
#include <signal.h>

#include "api/cmd/cmd.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int progress(void *arg, int phase, uint64_t done, uint64_t total)
{
	(void)phase;
	cmd_progress_to(arg, done, total);
	return interrupted;
}

static int collect(const struct cmd_args *a, struct fdry_store *s, bool dry_run,
		   struct fdry_gc_report *ret)
{
	struct sigaction catch = { .sa_handler = on_interrupt, .sa_flags = SA_RESETHAND }, before;
	struct cmd_progress p;
	struct fdry_gc_opts opts = { .sz = sizeof(opts), .flags = dry_run ? FDRY_GC_DRY_RUN : 0,
				     .progress = progress, .progress_arg = &p };
	int err;

	cmd_progress_begin(&p, a, "collect", false);
	sigaction(SIGINT, &catch, &before);
	err = fdry_store_gc(s, &opts, ret);
	sigaction(SIGINT, &before, NULL);
	cmd_progress_end(&p);
	return err;
}

static void report_json(const struct fdry_gc_report *r, bool dry_run)
{
	struct json j = { .f = stdout };
	unsigned int kind;

	json_open(&j, NULL, '{');
	json_bool(&j, "dry_run", dry_run);
	json_bool(&j, "stopped", r->stopped);
	json_number(&j, "live", r->live);
	json_number(&j, "dead", r->dead);
	json_number(&j, "dead_bytes", r->dead_bytes);
	json_number(&j, "dead_stored", r->dead_stored);
	json_open(&j, "kinds", '{');
	for (kind = FDRY_OBJECT_CHUNK; kind <= FDRY_OBJECT_MANIFEST; kind++) {
		json_open(&j, fdry_object_kind_name(kind), '{');
		json_number(&j, "dead", r->by_kind[kind].dead);
		json_number(&j, "stored", r->by_kind[kind].stored);
		json_close(&j, '}');
	}
	json_close(&j, '}');
	json_number(&j, "spared", r->spared);
	json_number(&j, "leases", r->leases);
	json_number(&j, "reclaimed", r->reclaimed);
	json_close(&j, '}');
}

/* Print "  1 manifest, 4 KiB; 3 chunks, 6 MiB"; nothing if nothing was removed. */
static void say_kinds(const struct cmd_args *a, const struct fdry_gc_report *r)
{
	const char *before = "  ";
	unsigned int kind;

	for (kind = FDRY_OBJECT_MANIFEST; kind >= FDRY_OBJECT_CHUNK; kind--) {
		if (!r->by_kind[kind].dead)
			continue;
		cmd_say(a, "%s%llu %s%s, %s", before, (unsigned long long)r->by_kind[kind].dead,
			fdry_object_kind_name(kind), cmd_plural(r->by_kind[kind].dead),
			cmd_size(r->by_kind[kind].stored).text);
		before = "; ";
	}
	if (r->dead)
		cmd_say(a, "\n");
}

static void say(const struct cmd_args *a, const struct fdry_gc_report *r)
{
	cmd_say(a, "%s %llu object%s, %s at rest; %llu stay%s\n",
		cmd_has(a, DRY_RUN) ? "would remove" : "removed", (unsigned long long)r->dead,
		cmd_plural(r->dead), cmd_size(r->dead_stored).text, (unsigned long long)r->live,
		r->live == 1 ? "s" : "");
	say_kinds(a, r);
	if (r->leases)
		cmd_say(a, "other sessions in progress: %llu\n", (unsigned long long)r->leases);
}

int cmd_gc(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	int err = cmd_asks(a) ? collect(a, s, true, &r) : 0;

	if (err)
		return cmd_fail(err);
	if (cmd_asks(a) && r.dead && !r.stopped &&
	    !cmd_confirm(a, "Remove %llu object%s that no ref reaches, %s at rest?",
			 (unsigned long long)r.dead, cmd_plural(r.dead),
			 cmd_size(r.dead_stored).text))
		return cmd_declined();
	if (!interrupted)
		err = collect(a, s, cmd_has(a, DRY_RUN), &r);
	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		report_json(&r, cmd_has(a, DRY_RUN));
	else
		say(a, &r);
	if (r.stopped)
		cmd_error("interrupted; run gc again to remove the rest");
	return r.stopped ? CMD_FAILED : CMD_OK;
}
