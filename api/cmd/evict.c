// SPDX-License-Identifier: Apache-2.0
/* evict.c - removes the images that were used longest ago, until the store fits into its limit or
 * into the size on the command line. */
#include "api/cmd/cmd.h"

#include <time.h>

struct evict {
	const struct cmd_args *a;
	struct json j;
};

static void evicted(void *arg, const char *ref, const char *id, uint64_t used)
{
	char day[32] = "never noted";
	struct evict *e = arg;
	bool dry_run = cmd_has(e->a, DRY_RUN);
	time_t t = (time_t)used;
	struct tm tm;

	if (used && localtime_r(&t, &tm))
		strftime(day, sizeof(day), "%Y-%m-%d %H:%M", &tm);
	cmd_say(e->a, "%s %s, which %s %s, last used %s\n", dry_run ? "would evict" : "evicted",
		ref, dry_run ? "is" : "was", id, day);
	if (!cmd_has(e->a, JSON))
		return;
	json_open(&e->j, NULL, '{');
	json_string(&e->j, "ref", ref);
	json_string(&e->j, "id", id);
	json_number(&e->j, "used", used);
	json_close(&e->j, '}');
}

static void report(struct evict *e, const struct fdry_evict_report *r)
{
	bool dry_run = cmd_has(e->a, DRY_RUN);

	cmd_say(e->a, "%s %llu image%s; %s in use, %s%s %s\n", dry_run ? "would evict" : "evicted",
		(unsigned long long)r->images, cmd_plural(r->images), cmd_size(r->before).text,
		dry_run ? "about " : "", cmd_size(r->after).text, dry_run ? "then" : "now");
	if (!cmd_has(e->a, JSON))
		return;
	json_close(&e->j, ']');
	json_bool(&e->j, "dry_run", dry_run);
	json_number(&e->j, "limit", r->limit);
	if (r->before) { /* else the store could not be read */
		json_number(&e->j, "before", r->before);
		json_number(&e->j, "after", r->after);
	}
	json_bool(&e->j, "collected", r->collected);
	json_close(&e->j, '}');
}

static void would_evict(void *names, const char *ref, const char *id, uint64_t used)
{
	(void)used;
	cmd_names_add(names, ref, id);
}

/* Ask, and name what would be removed. */
static int question(const struct cmd_args *a, struct fdry_store *s, uint64_t limit, bool *yes)
{
	struct cmd_names names = { .count = 0 };
	struct fdry_evict_opts o = { .sz = sizeof(o), .flags = FDRY_EVICT_DRY_RUN, .bytes = limit,
				     .evicted = would_evict, .evicted_arg = &names };
	struct fdry_evict_report r = { .sz = sizeof(r) };
	int err = fdry_store_evict(s, &o, &r) ?: cmd_names_end(&names);

	if (!err && names.count)
		*yes = cmd_confirm(a, "Evict %s, which makes about %s free?",
				   (const char *)names.text.data,
				   cmd_size(r.before > r.after ? r.before - r.after : 0).text);
	cmd_names_release(&names);
	return err;
}

int cmd_evict(const struct cmd_args *a, struct fdry_store *s)
{
	struct evict e = { .a = a, .j = { .f = stdout } };
	struct fdry_evict_opts o = { .sz = sizeof(o), .evicted = evicted, .evicted_arg = &e };
	struct fdry_evict_report r = { .sz = sizeof(r) };
	bool yes = true;
	int err = a->argc ? cmd_parse_size(a->argv[0], "the size", &o.bytes) :
			    fdry_store_limit(s, &o.bytes, NULL);

	if (err)
		return cmd_fail(err);
	if (!o.bytes)
		err = fdry_fail(FDRY_E_INVAL, a->argc ? "a store of 0 bytes holds nothing; name a "
							"larger size, or no size for the store's "
							"limit"
						      : "the store has no limit; name a size, or "
							"set a limit first");
	else if (cmd_asks(a))
		err = question(a, s, o.bytes, &yes);
	if (err)
		return cmd_fail(err);
	if (!yes)
		return cmd_declined();
	if (cmd_has(a, JSON)) {
		json_open(&e.j, NULL, '{');
		json_open(&e.j, "evicted", '[');
	}
	o.flags = cmd_has(a, DRY_RUN) ? FDRY_EVICT_DRY_RUN : 0;
	err = fdry_store_evict(s, &o, &r);
	if (!err || cmd_has(a, JSON))
		report(&e, &r);
	return err ? cmd_fail(err) : CMD_OK;
}
