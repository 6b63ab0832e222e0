// SPDX-License-Identifier: Apache-2.0
/* registry.c - prints what push and pull have moved; see registry.h. */
#include "api/cmd/registry.h"

void cmd_registry_watch(void *progress, const struct fdry_registry_progress *p)
{
	struct cmd_progress *to = progress;
	int n = snprintf(to->more, sizeof(to->more), ", object %llu of %llu",
			 (unsigned long long)p->objects, (unsigned long long)p->objects_total);

	if (p->bytes_per_s > 0 && p->left_s >= 0)
		snprintf(to->more + n, sizeof(to->more) - (size_t)n, ", %s/s, %.0f s left",
			 cmd_size((uint64_t)p->bytes_per_s).text, p->left_s);
	cmd_progress_to(to, p->bytes, p->bytes_total);
}

void cmd_registry_say(const struct cmd_args *a, const char *verb,
		      const struct fdry_registry_report *r)
{
	cmd_say(a, "%s %llu of %llu object%s, %s of %s, as sha256:%s\n", verb,
		(unsigned long long)r->objects_moved, (unsigned long long)r->objects,
		cmd_plural(r->objects), cmd_size(r->bytes_moved).text, cmd_size(r->bytes).text,
		r->id);
}

void cmd_registry_json(struct json *j, const struct fdry_registry_report *r)
{
	json_string(j, "digest", r->id);
	json_number(j, "objects", r->objects);
	json_number(j, "objects_moved", r->objects_moved);
	json_number(j, "objects_mounted", r->objects_mounted);
	json_number(j, "bytes", r->bytes);
	json_number(j, "bytes_moved", r->bytes_moved);
	json_number(j, "requests", r->requests);
	json_number(j, "retries", r->retries);
}
