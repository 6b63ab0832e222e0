// SPDX-License-Identifier: Apache-2.0
/* graph_damage.c - see graph_damage.h. */
#include "tests/lib/graph_damage.h"

void graph_damage_fails(const struct damage *d, int err)
{
	ck_assert_msg(err == -(int)d->code && strstr(fdry_last_error(), d->says),
		      "%s (%s), not '%s'", fdry_error_name(err), err ? fdry_last_error() : "opened",
		      d->says);
}

void graph_damage_try(const char *name, const struct damage *d)
{
	struct fdry_buf o = golden_object(name);
	struct fdry_graph_view v;
	size_t at = d->at;

	if (d->size & DIRECTORY)
		at += entry_of(&o, d->section);
	else if (d->section)
		at += section_of(&o, d->section);
	ck_assert_uint_le(at + (d->size & 0xff), o.len);
	memcpy(o.data + at, &d->value, d->size & 0xff);
	graph_damage_fails(d, fdry_graph_view_init(span_of(&o), &v));
	fdry_buf_release(&o);
}
