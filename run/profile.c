// SPDX-License-Identifier: Apache-2.0
/* profile.c - counts times in histograms; see profile.h. */
#include "run/profile.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "lib/log.h"

#define FINE 4 /* bits: 16 buckets for each doubling */
#define PLACES ((64 - FINE + 1) << FINE)

struct histogram {
	_Atomic uint64_t total, max;
	_Atomic uint64_t count[PLACES];
};

enum phase { UPLOAD, LAUNCH, SYNC, TOTAL, PHASES };

struct fdry_profile {
	uint64_t every;
	fdry_slots_fn fn;
	void *arg;
	_Atomic uint64_t calls;
	struct histogram phases[PHASES];
};

uint64_t fdry_profile_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The bucket of a time. Each number below 16 has a bucket of its own. For others, the highest bit
 * and the four bits after it determine the bucket. */
static unsigned int place_of(uint64_t ns)
{
	unsigned int octave;

	if (ns < 1u << FINE)
		return (unsigned int)ns;
	octave = 63 - (unsigned int)__builtin_clzll(ns);
	return ((octave - FINE + 1) << FINE) +
	       (unsigned int)(ns >> (octave - FINE) & ((1u << FINE) - 1));
}

/* The largest number of a bucket. */
static uint64_t place_end(unsigned int place)
{
	unsigned int octave = place >> FINE;
	uint64_t fine = place & ((1u << FINE) - 1);

	return octave ? (((fine | 1u << FINE) + 1) << (octave - 1)) - 1 : fine;
}

static void histogram_add(struct histogram *h, uint64_t ns)
{
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->count[place_of(ns)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->total, ns, memory_order_relaxed);
	while (ns > max && !atomic_compare_exchange_weak_explicit(
				   &h->max, &max, ns, memory_order_relaxed, memory_order_relaxed))
		;
}

/* The smallest time that @percent of the calls did not exceed, from a copy of the counts. */
static uint64_t percentile(const uint64_t *count, uint64_t calls, unsigned int percent)
{
	uint64_t want = (calls * percent + 99) / 100, seen = 0;
	unsigned int i;

	for (i = 0; i < PLACES; i++) {
		seen += count[i];
		if (seen >= want)
			return place_end(i);
	}
	return 0;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void histogram_read(struct histogram *h, struct fdry_slots_phase *ret)
{
	uint64_t count[PLACES], max;
	unsigned int i;

	*ret = (struct fdry_slots_phase){ 0 };
	for (i = 0; i < PLACES; i++) {
		count[i] = atomic_load_explicit(&h->count[i], memory_order_relaxed);
		ret->calls += count[i];
	}
	if (!ret->calls)
		return;
	max = atomic_load_explicit(&h->max, memory_order_relaxed);
	ret->total_ns = atomic_load_explicit(&h->total, memory_order_relaxed);
	ret->max_ns = max;
	ret->p50_ns = at_most(percentile(count, ret->calls, 50), max);
	ret->p90_ns = at_most(percentile(count, ret->calls, 90), max);
	ret->p99_ns = at_most(percentile(count, ret->calls, 99), max);
}

int fdry_profile_new(const struct fdry_slots_profile_opts *opts, struct fdry_profile **ret)
{
	struct fdry_profile *p = calloc(1, sizeof(*p));

	if (!p)
		return fdry_nomem();
	p->every = opts->every;
	p->fn = opts->fn;
	p->arg = opts->arg;
	*ret = p;
	return 0;
}

void fdry_profile_free(struct fdry_profile *p)
{
	free(p);
}

static void call_log(const struct fdry_slots_call *c)
{
	fdry_info("slots: call %llu, key %llu: upload %.1f us, launch %.1f us, synchronise %.1f "
		  "us, total %.1f us",
		  (unsigned long long)c->nr, (unsigned long long)c->key, (double)c->upload_ns / 1e3,
		  (double)c->launch_ns / 1e3, (double)c->sync_ns / 1e3, (double)c->total_ns / 1e3);
}

void fdry_profile_add(struct fdry_profile *p, struct fdry_slots_call *call)
{
	const uint64_t ns[PHASES] = { call->upload_ns, call->launch_ns, call->sync_ns,
				      call->total_ns };
	int i;

	for (i = 0; i < PHASES; i++)
		if (ns[i])
			histogram_add(&p->phases[i], ns[i]);
	call->nr = atomic_fetch_add_explicit(&p->calls, 1, memory_order_relaxed) + 1;
	if (!p->every || call->nr % p->every)
		return;
	call_log(call);
	if (p->fn)
		p->fn(p->arg, call);
}

void fdry_profile_read(struct fdry_profile *p, struct fdry_slots_stats *ret)
{
	struct fdry_slots_phase *const to[PHASES] = { &ret->upload, &ret->launch, &ret->sync,
						      &ret->total };
	int i;

	for (i = 0; i < PHASES; i++)
		histogram_read(&p->phases[i], to[i]);
}

void fdry_profile_reset(struct fdry_profile *p, struct fdry_slots_stats *unused)
{
	unsigned int i, k;

	(void)unused;
	atomic_store_explicit(&p->calls, 0, memory_order_relaxed);
	for (i = 0; i < PHASES; i++) {
		atomic_store_explicit(&p->phases[i].total, 0, memory_order_relaxed);
		atomic_store_explicit(&p->phases[i].max, 0, memory_order_relaxed);
		for (k = 0; k < PLACES; k++)
			atomic_store_explicit(&p->phases[i].count[k], 0, memory_order_relaxed);
	}
}
