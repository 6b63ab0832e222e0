// SPDX-License-Identifier: Apache-2.0
/* slots_rules.c - see slots_rules.h. */
#include "tests/lib/slots_rules.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tests/lib/slots_fixture.h"

/* --- keys --- */

START_TEST(keys_and_none)
{
	uint64_t keys[3];
	size_t n = 9;
	int i;

	ck_assert(!sf_replay(sf.t, 1));
	sf_slot_make(sf.t, 1, 0, 3);
	sf_slot_make(sf.t, 1ull << 63, 1, 5);
	sf_slot_make(sf.t, 0, 2, 7);
	for (i = 0; i < 5; i++)
		ck_assert(sf_replay(sf.t, 1) && sf_replay(sf.t, 1ull << 63) && sf_replay(sf.t, 0) &&
			  !sf_replay(sf.t, 2));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 5));
	ck_assert_uint_eq(sf_number(1), sf_stepped(0, 5, 5));
	ck_assert_uint_eq(sf_number(2), sf_stepped(0, 7, 5));
	ok(fdry_slots_keys(sf.t, NULL, 0, &n));
	ck_assert_uint_eq(n, 3);
	ok(fdry_slots_keys(sf.t, keys, 3, &n));
	ck_assert_uint_eq(keys[0] ^ keys[1] ^ keys[2], (1ull << 63) ^ 1);
	ck_assert(fdry_slots_has(sf.t, 0) && !fdry_slots_has(sf.t, 2));
}
END_TEST

/* A replay after the call launches the new graph, and no launch of the old one is running. */
START_TEST(replaced)
{
	uint64_t old;

	ok(fdry_slots_install(sf.t, 4, NULL, sf_exec_make(0, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	ck_assert(sf_replay(sf.t, 4));
	sf_slot_make(sf.t, 4, 1, 5);
	old = sf_number_now(0);
	ck_assert_uint_eq(old, sf_stepped(0, 3, sf.backend->spins + 1));
	ck_assert(sf_replay(sf.t, 4) && sf_replay(sf.t, 4));
	ck_assert_uint_eq(sf_number(1), sf_stepped(0, 5, 2));
	ck_assert_uint_eq(sf_number(0), old);
}
END_TEST

/* A graph that the table owns is in one slot alone, and is destroyed once. */
START_TEST(a_graph_is_owned_by_one_slot)
{
	CUgraphExec x = sf_exec_make(0, 3, 0), y = sf_exec_make(1, 5, 0), z = sf_exec_make(2, 7, 0);
	CUgraph g = sf_graph_make(3, 9, 0);

	ok(fdry_slots_install(sf.t, 1, NULL, x, FDRY_SLOTS_OWN_EXEC));
	fails(INVAL, "is in slot 1 already",
	      fdry_slots_install(sf.t, 1, NULL, x, FDRY_SLOTS_OWN_EXEC));
	fails(INVAL, "is in slot 1 already", fdry_slots_install(sf.t, 1, NULL, x, 0));
	fails(INVAL, "is in slot 1 already", fdry_slots_install(sf.t, 2, NULL, x, 0));
	ok(fdry_slots_install(sf.t, 3, NULL, y, 0));
	/* ownership passes to the table */
	ok(fdry_slots_install(sf.t, 3, NULL, y, FDRY_SLOTS_OWN_EXEC));
	ok(fdry_slots_install(sf.t, 4, NULL, z, 0));
	ok(fdry_slots_install(sf.t, 5, NULL, z, 0)); /* the caller owns it */
	fails(INVAL, "is in slot", fdry_slots_install(sf.t, 4, NULL, z, FDRY_SLOTS_OWN_EXEC));
	ok(fdry_slots_install_graph(sf.t, 6, g, 0, FDRY_SLOTS_OWN_GRAPH));
	fails(INVAL, "is in slot 6 already",
	      fdry_slots_install_graph(sf.t, 6, g, 0, FDRY_SLOTS_OWN_GRAPH));
	fails(INVAL, "is in slot 6 already",
	      fdry_slots_install_graph(sf.t, 7, g, 0, FDRY_SLOTS_OWN_GRAPH));
	ok(fdry_slots_install_graph(sf.t, 7, g, 0, 0));
	ck_assert(sf_replay(sf.t, 1) && sf_replay(sf.t, 3) && sf_replay(sf.t, 4) &&
		  sf_replay(sf.t, 5) && sf_replay(sf.t, 6) && sf_replay(sf.t, 7));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 1));
	ck_assert_uint_eq(sf_number(1), sf_stepped(0, 5, 1));
	ck_assert_uint_eq(sf_number(2), sf_stepped(0, 7, 2));
	ck_assert_uint_eq(sf_number(3), sf_stepped(0, 9, 2));
	ok(fdry_slots_invalidate_all(sf.t));
	cu(cuGraphExecDestroy, z);
}
END_TEST

START_TEST(invalidated)
{
	int i;

	for (i = 0; i < 40; i++)
		sf_slot_make(sf.t, (uint64_t)i << 32, i, (uint64_t)i + 1);
	ok(fdry_slots_install(sf.t, 7, NULL, sf_exec_make(100, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	ok(fdry_slots_invalidate(sf.t, 3ull << 32));
	ok(fdry_slots_invalidate(sf.t, 3ull << 32));
	ok(fdry_slots_invalidate(sf.t, 12345));
	for (i = 0; i < 40; i++)
		ck_assert_int_eq(sf_replay(sf.t, (uint64_t)i << 32), i != 3);
	ck_assert_uint_eq(sf_number(39), sf_stepped(0, 40, 1));
	ck_assert(sf_replay(sf.t, 7));
	ok(fdry_slots_invalidate_all(sf.t));
	ck_assert_uint_eq(sf_number_now(100), sf_stepped(0, 3, sf.backend->spins + 1));
	for (i = 0; i < 40; i++)
		ck_assert(!sf_replay(sf.t, (uint64_t)i << 32));
	ck_assert_int_eq(sf.backend->live("exec"), 0);
	sf_slot_make(sf.t, 0, 0, 9);
	ck_assert(sf_replay(sf.t, 0));
	ck_assert_uint_eq(sf_number(0), sf_stepped(1, 9, 1));
}
END_TEST

static void empty(int all)
{
	ok(all ? fdry_slots_invalidate_all(sf.t) : fdry_slots_invalidate(sf.t, 4));
}

static void *empty_beside(void *all)
{
	sf_context_use();
	empty(*(int *)all);
	return NULL;
}

/* If two threads clear the same slots, both calls return after the launches have ended. */
START_TEST(emptied_by_two)
{
	pthread_t thread;
	int all = _i & 1;

	ok(fdry_slots_install(sf.t, 4, NULL, sf_exec_make(0, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	ck_assert(sf_replay(sf.t, 4));
	ck_assert(!pthread_create(&thread, NULL, empty_beside, &all));
	while (fdry_slots_has(sf.t, 4))
		sched_yield();
	empty(_i >> 1);
	ck_assert_uint_eq(sf_number_now(0), sf_stepped(0, 3, sf.backend->spins + 1));
	ck_assert(!pthread_join(thread, NULL));
}
END_TEST

/* Freeing waits for running launches on streams of all kinds, also on a destroyed one. */
START_TEST(freed_in_flight)
{
	CUstream s[3] = { sf_stream_make(), NULL, CU_STREAM_PER_THREAD };
	int launched;

	ok(fdry_slots_install(sf.t, 1, NULL, sf_exec_make(0, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	ok(fdry_slots_replay(sf.t, 1, s[_i], &launched));
	if (s[_i] && s[_i] != CU_STREAM_PER_THREAD)
		cu(cuStreamDestroy_v2, s[_i]);
	fdry_slots_free(sf.t);
	ck_assert_uint_eq(sf_number_now(0), sf_stepped(0, 3, sf.backend->spins + 1));
	ok(fdry_slots_new(NULL, &sf.t));
	if (_i)
		cu(cuStreamDestroy_v2, s[0]);
}
END_TEST

/* --- owners --- */

START_TEST(ownership)
{
	CUgraph g = sf_graph_make(0, 3, 0);
	CUgraphExec x;

	cu(cuGraphInstantiateWithFlags, &x, g, 0);
	ok(fdry_slots_install(sf.t, 1, g, x, 0));
	ck_assert(sf_replay(sf.t, 1));
	ok(fdry_slots_invalidate(sf.t, 1));
	cu(cuGraphLaunch, x, sf.stream); /* the caller still owns both */
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 2));
	ok(fdry_slots_install(sf.t, 1, g, x, FDRY_SLOTS_OWN_EXEC));
	ok(fdry_slots_install_graph(sf.t, 1, g, 0, 0));
	ck_assert(sf_replay(sf.t, 1));
	ok(fdry_slots_install_graph(sf.t, 2, g, 0, FDRY_SLOTS_OWN_GRAPH));
	fails(INVAL, "flags", fdry_slots_install(sf.t, 1, NULL, x, FDRY_SLOTS_OWN_GRAPH));
	fails(INVAL, "flags", fdry_slots_install(sf.t, 1, NULL, x, 4));
	fails(INVAL, "flags", fdry_slots_install_graph(sf.t, 1, g, 0, FDRY_SLOTS_OWN_EXEC));
	fails(INVAL, "exec", fdry_slots_install(sf.t, 1, g, NULL, 0));
	fails(INVAL, "graph", fdry_slots_install_graph(sf.t, 1, NULL, 0, 0));
	fails(INVAL, "t", fdry_slots_replay(NULL, 1, NULL, NULL));
	fails(INVAL, "launched", fdry_slots_replay(sf.t, 1, NULL, NULL));
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 4));
}
END_TEST

/* --- captures --- */

START_TEST(capture_ended_into_a_slot)
{
	fails(STATE, "is not capturing", fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 0, 3, 0);
	ok(fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	ck_assert_uint_eq(sf_number(0), 0);
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 1));
	/* Flags that no driver knows leave no object, and do not change the stream or the slot. */
	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 1, 3, 0);
	fails(DRIVER, "slot 1", fdry_slots_capture_end(sf.t, 1, sf.stream, 1ull << 40));
	fails(STATE, "is not capturing", fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 2));
}
END_TEST

/* A capture stays valid, and earlier launches on its stream are waited for. */
START_TEST(streams_that_capture)
{
	CUstream s = sf_stream_make();
	CUgraph g = NULL;
	int launched = 5;

	sf_slot_make(sf.t, 1, 0, 3);
	sf_slot_make(sf.t, 3, 4, 5);
	ck_assert(sf_replay(sf.t, 1) && sf_replay(sf.t, 3));
	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 1, 3, 0);
	ok(fdry_slots_invalidate(sf.t, 1));
	sf_slot_make(sf.t, 1, 0, 3);
	ok(fdry_slots_replay(sf.t, 1, s, &launched));
	ck_assert_int_eq(launched, 1);
	sf_slot_make(sf.t, 1, 2, 5);
	sf_slot_make(sf.t, 2, 3, 5);
	fails(STATE, "the stream is capturing", fdry_slots_replay(sf.t, 2, sf.stream, &launched));
	/* The same holds for a slot that was launched there before. */
	fails(STATE, "the stream is capturing", fdry_slots_replay(sf.t, 3, sf.stream, &launched));
	cu(cuStreamEndCapture, sf.stream, &g);
	ck_assert_ptr_nonnull(g);
	cu(cuGraphDestroy, g);
	ck_assert(sf_replay(sf.t, 1) && sf_replay(sf.t, 2) && sf_replay(sf.t, 3));
	cu(cuStreamSynchronize, s);
	ck_assert_uint_eq(sf_number(4), sf_stepped(0, 5, 2));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 2));
	ck_assert_uint_eq(sf_number(2), sf_stepped(0, 5, 1));
	cu(cuStreamDestroy_v2, s);
}
END_TEST

/* --- policies and times --- */

START_TEST(policies)
{
	struct fdry_slots *t = sf_table_with(1 + (_i & 1), 1 + (_i >> 1));
	int launched, i;

	ok(fdry_slots_install(t, 1, NULL, sf_exec_make(0, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	sf_slot_make(t, 2, 1, 5);
	ok(fdry_slots_replay(t, 1, sf.stream, &launched));
	if (_i >> 1)
		ck_assert_uint_eq(sf_number_now(0), sf_stepped(0, 3, sf.backend->spins + 1));
	for (i = 0; i < 50; i++)
		ck_assert(sf_replay(t, 2));
	ck_assert_uint_eq(sf_number(1), sf_stepped(0, 5, 50));
	fdry_slots_free(t);
}
END_TEST

static void count_call(void *arg, const struct fdry_slots_call *call)
{
	uint64_t *seen = arg;

	seen[0]++;
	seen[1] = call->nr;
	seen[2] += call->key == 1 &&
		   call->total_ns >= call->upload_ns + call->launch_ns + call->sync_ns &&
		   call->launch_ns && call->upload_ns && call->sync_ns;
	fails(STATE, "a replay is calling it", fdry_slots_invalidate(sf.t, 1));
	fails(STATE, "a replay is calling it", fdry_slots_profile(sf.t, NULL));
}

START_TEST(profiled)
{
	uint64_t seen[3] = { 0 };
	struct fdry_slots_profile_opts opts = {
		.sz = sizeof(opts), .every = 10, .fn = count_call, .arg = seen
	};
	struct fdry_slots_stats times = { .sz = sizeof(times) };
	struct fdry_slots *t = sf_table_with(FDRY_SLOTS_UPLOAD_ALWAYS, FDRY_SLOTS_SYNC_ALWAYS);
	int i;

	sf_slot_make(t, 1, 0, 3);
	fails(STATE, "not timed", fdry_slots_stats(t, &times));
	fails(STATE, "not timed", fdry_slots_stats_reset(t));
	ok(fdry_slots_profile(t, &opts));
	for (i = 0; i < 105; i++)
		ck_assert(sf_replay(t, 1) && !sf_replay(t, 2));
	ck_assert_uint_eq(seen[0], 10);
	ck_assert_uint_eq(seen[1], 100);
	ck_assert_uint_eq(seen[2], 10);
	ok(fdry_slots_stats(t, &times));
	ck_assert(sf_phase_is(&times.upload, 105) && sf_phase_is(&times.launch, 105));
	ck_assert(sf_phase_is(&times.sync, 105) && sf_phase_is(&times.total, 105));
	ck_assert_uint_ge(times.total.total_ns,
			  times.upload.total_ns + times.launch.total_ns + times.sync.total_ns);
	ok(fdry_slots_stats_reset(t));
	ok(fdry_slots_stats(t, &times));
	ck_assert_uint_eq(times.total.calls + times.total.max_ns + times.total.total_ns +
				  times.total.p99_ns,
			  0);
	ck_assert(sf_replay(t, 1));
	ok(fdry_slots_stats(t, &times));
	ck_assert(sf_phase_is(&times.total, 1));
	ok(fdry_slots_profile(t, NULL));
	ck_assert(sf_replay(t, 1));
	ck_assert_uint_eq(seen[0], 10);
	fdry_slots_free(t);
}
END_TEST

/* --- many threads --- */

#define THREADS 6
#define KEYS 3
#define ROUNDS 300 /* numbers that graphs of the storm step on: one for each graph ever installed */
#define STEPS 10000000

static atomic_bool storm_over;
static atomic_ulong storm_launched, storm_missed;

static void *storm_replays(void *arg)
{
	unsigned int r = (unsigned int)(uintptr_t)arg * 2654435761u + 1, n = 0;
	CUstream s;
	int launched;

	sf_context_use();
	s = sf_stream_make();
	while (!atomic_load(&storm_over)) {
		r = r * 1664525 + 1013904223;
		ok(fdry_slots_replay(sf.t, (r >> 16) % KEYS, s, &launched));
		atomic_fetch_add(launched ? &storm_launched : &storm_missed, 1);
		if (++n % 16 == 0)
			cu(cuStreamSynchronize, s);
	}
	cu(cuStreamSynchronize, s);
	cu(cuStreamDestroy_v2, s);
	return NULL;
}

/* Return how often a graph that steps by 1 was launched. */
static unsigned long times_stepped(uint64_t v)
{
	unsigned long n = 0;
	uint64_t x = 0;

	for (; x != v && n < STEPS; n++)
		x = x * STEP + 1;
	ck_assert_msg(x == v, "a number is not one that launches one after another give");
	return n;
}

/* Each graph has a number of its own. After the graph leaves its slot, that number does not
 * change. */
static void storm_install(uint64_t *settled)
{
	int i, now[KEYS];

	for (i = 0; i < KEYS; i++)
		now[i] = -1;
	for (i = 0; i < ROUNDS; i++) {
		int k = i % KEYS;

		if (i % 7 == 3)
			ok(fdry_slots_invalidate(sf.t, (uint64_t)k));
		else if (i % 31 == 30)
			ok(fdry_slots_invalidate_all(sf.t));
		sf_slot_make(sf.t, (uint64_t)k, i, 1);
		if (now[k] >= 0)
			settled[now[k]] = sf_number_now(now[k]);
		now[k] = i;
	}
}

START_TEST(storm)
{
	static uint64_t settled[ROUNDS];
	unsigned long sum = 0;
	pthread_t threads[THREADS];
	int i;

	memset(settled, 0xFF, sizeof(settled));
	atomic_store(&storm_over, false);
	atomic_store(&storm_launched, 0);
	atomic_store(&storm_missed, 0);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, storm_replays, (void *)(uintptr_t)i), 0);
	storm_install(settled);
	atomic_store(&storm_over, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < ROUNDS; i++) {
		uint64_t v = sf_number(i);

		ck_assert_msg(settled[i] == UINT64_MAX || settled[i] == v,
			      "graph %d was launched after it was replaced", i);
		sum += times_stepped(v);
	}
	ck_assert_uint_eq(sum, atomic_load(&storm_launched));
	ck_assert_uint_gt(sum, 0);
	printf("note: %lu replays by %d threads while %d graphs were installed, %lu found none\n",
	       sum, THREADS, ROUNDS, atomic_load(&storm_missed));
}
END_TEST

void slots_storm_add(TCase *tc)
{
	tcase_add_test(tc, storm);
}

void slots_rules_add(TCase *tc)
{
	tcase_add_test(tc, keys_and_none);
	tcase_add_test(tc, replaced);
	tcase_add_test(tc, a_graph_is_owned_by_one_slot);
	tcase_add_test(tc, invalidated);
	tcase_add_loop_test(tc, emptied_by_two, 0, 4);
	tcase_add_loop_test(tc, freed_in_flight, 0, 3);
	tcase_add_test(tc, ownership);
	tcase_add_test(tc, capture_ended_into_a_slot);
	tcase_add_test(tc, streams_that_capture);
	tcase_add_loop_test(tc, policies, 0, 4);
	tcase_add_test(tc, profiled);
	tcase_add_test(tc, storm);
}
