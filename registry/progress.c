// SPDX-License-Identifier: Apache-2.0
/* progress.c - reports what a push or pull has done, at which rate; see registry.h. */
#include "lib/clock.h"
#include "lib/log.h"
#include "registry/registry.h"

#define STEP_MS 200  /* between two measurements of the rate */
#define NEWEST 0.3   /* the share of the newest measurement */
#define SAY_MS 10000 /* between two messages */

/* The rate counts only bytes that moved: objects that the other side had take no time. */
static void rate_measure(struct fdry_registry_meter *m, const struct fdry_registry_progress *p)
{
	double ms = p->elapsed_ms - m->last_ms, rate;

	if (ms < STEP_MS)
		return;
	rate = (double)(p->bytes_moved - m->last_moved) / ms * 1e3;
	m->rate = m->last_ms > 0 ? NEWEST * rate + (1 - NEWEST) * m->rate : rate;
	m->last_ms = p->elapsed_ms;
	m->last_moved = p->bytes_moved;
}

static struct fdry_registry_progress measure(struct fdry_registry_meter *m,
					     const struct fdry_registry_done *done)
{
	struct fdry_registry_progress p = {
		.sz = sizeof(p), .bytes = done->bytes, .bytes_total = done->bytes_total,
		.objects = done->objects, .objects_total = done->objects_total,
		.bytes_moved = done->bytes_moved, .left_s = -1,
	};

	if (m->start_ms <= 0)
		m->start_ms = fdry_now_ms();
	p.elapsed_ms = fdry_now_ms() - m->start_ms;
	rate_measure(m, &p);
	p.bytes_per_s = m->rate;
	if (p.bytes == p.bytes_total)
		p.left_s = 0;
	else if (m->rate > 0)
		p.left_s = (double)(p.bytes_total - p.bytes) / m->rate;
	return p;
}

static void say(struct fdry_registry_meter *m, const char *ref,
		const struct fdry_registry_progress *p)
{
	if (p->elapsed_ms - m->said_ms < SAY_MS)
		return;
	m->said_ms = p->elapsed_ms;
	fdry_info("registry: both sides have %.0f of %.0f MB of %s; %.0f MB/s",
		  (double)p->bytes / 1e6, (double)p->bytes_total / 1e6, ref ? ref : "the images",
		  p->bytes_per_s / 1e6);
}

int fdry_registry_meter_report(struct fdry_registry_meter *m, const struct fdry_registry_opts *opts,
			       const struct fdry_registry_done *done)
{
	const struct fdry_registry_progress p = measure(m, done);

	say(m, opts->ref, &p);
	if (opts->progress)
		opts->progress(opts->progress_arg, p.bytes, p.bytes_total);
	if (opts->watch)
		opts->watch(opts->watch_arg, &p);
	if (opts->stop && opts->stop(opts->stop_arg))
		return fdry_fail(FDRY_E_CALLBACK, "the program has stopped the transfer");
	return 0;
}
