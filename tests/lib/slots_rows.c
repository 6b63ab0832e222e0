// SPDX-License-Identifier: Apache-2.0
/* slots_rows.c - see slots_rows.h. */
#include "tests/lib/slots_rows.h"

#include <stdio.h>

#include "tests/lib/slots_fixture.h"

/* R1: many graphs by key; installing replaces; invalidate one, invalidate all. */
START_TEST(r1_slots_by_key)
{
	int m;

	for (m = 0; m < 64; m++)
		sf_slot_make(sf.t, (uint64_t)m, m, (uint64_t)m + 1);
	for (m = 0; m < 64; m++)
		ck_assert(sf_replay(sf.t, (uint64_t)m));
	for (m = 0; m < 64; m++)
		ck_assert_uint_eq(sf_number(m), (uint64_t)m + 1);
	sf_slot_make(sf.t, 8, 100, 3);
	ck_assert(sf_replay(sf.t, 8));
	ck_assert_uint_eq(sf_number(100), 3);
	ck_assert_uint_eq(sf_number(8), 9);
	ok(fdry_slots_invalidate(sf.t, 9));
	ck_assert(!fdry_slots_has(sf.t, 9) && fdry_slots_has(sf.t, 10));
	ok(fdry_slots_invalidate_all(sf.t));
	for (m = 0; m < 64; m++)
		ck_assert(!fdry_slots_has(sf.t, (uint64_t)m));
}
END_TEST

/* R2: a missing graph is no error; the caller continues without it. */
START_TEST(r2_fall_back)
{
	int i;

	for (i = 0; i < 4; i++) {
		if (sf_replay(sf.t, 16))
			continue;
		sf_step_launch(sf.stream, 0, 7, 0); /* as the graph would do */
		if (i == 1)
			sf_slot_make(sf.t, 16, 0, 7);
	}
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 7, 4));
}
END_TEST

/* R3: ending a capture and instantiating are two calls; the caller chooses the flags. */
START_TEST(r3_two_calls)
{
	CUgraph g = NULL;

	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 0, 3, 0);
	cu(cuStreamEndCapture, sf.stream, &g);
	ck_assert_ptr_nonnull(g);
	ok(fdry_slots_install_graph(sf.t, 1, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
				    0));
	ok(fdry_slots_install_graph(sf.t, 2, g, 0, FDRY_SLOTS_OWN_GRAPH));
	ck_assert(sf_replay(sf.t, 1) && sf_replay(sf.t, 2));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 2));
}
END_TEST

/* R4: graphs are uploaded before the first launch, or before each one; a replay waits for the
 * launch to end if the policy asks for that. */
START_TEST(r4_upload_and_sync)
{
	struct fdry_slots *both = sf_table_with(FDRY_SLOTS_UPLOAD_ALWAYS, FDRY_SLOTS_SYNC_ALWAYS);

	ok(fdry_slots_install(both, 1, NULL, sf_exec_make(0, 3, sf.backend->spins),
			      FDRY_SLOTS_OWN_EXEC));
	ck_assert(sf_replay(both, 1));
	ck_assert_uint_eq(sf_number_now(0), sf_stepped(0, 3, sf.backend->spins + 1));
	fdry_slots_free(both);
}
END_TEST

static void r5_call(void *arg, const struct fdry_slots_call *call)
{
	*(uint64_t *)arg = *(uint64_t *)arg * 1000 + call->nr;
}

/* R5: upload, launch and wait are timed; each 64th call is reported. */
START_TEST(r5_profile)
{
	uint64_t reported = 0;
	struct fdry_slots_profile_opts opts = {
		.sz = sizeof(opts), .every = 64, .fn = r5_call, .arg = &reported
	};
	struct fdry_slots_stats times = { .sz = sizeof(times) };
	struct fdry_slots *both = sf_table_with(FDRY_SLOTS_UPLOAD_ALWAYS, FDRY_SLOTS_SYNC_ALWAYS);
	int i;

	sf_slot_make(both, 1, 0, 3);
	ok(fdry_slots_profile(both, &opts));
	for (i = 0; i < 130; i++)
		ck_assert(sf_replay(both, 1));
	ok(fdry_slots_stats(both, &times));
	ck_assert_uint_eq(reported, 64128);
	ck_assert(sf_phase_is(&times.upload, 130) && sf_phase_is(&times.launch, 130) &&
		  sf_phase_is(&times.sync, 130));
	printf("note: upload %llu ns, launch %llu, synchronise %llu, all %llu (p50); all p99 "
	       "%llu\n",
	       (unsigned long long)times.upload.p50_ns, (unsigned long long)times.launch.p50_ns,
	       (unsigned long long)times.sync.p50_ns, (unsigned long long)times.total.p50_ns,
	       (unsigned long long)times.total.p99_ns);
	fdry_slots_free(both);
}
END_TEST

#define DECODE_STEPS 100
#define DECODE_KEYS 3 /* the number of batch shapes, which alternate */

/* The state of each step has pinned memory of its own, so that no step overwrites what a copy still
 * reads. */
struct decode_state {
	uint32_t token;
	int32_t position, length;
};

static void decode_slot(uint64_t key, CUdeviceptr state, CUdeviceptr out)
{
	CUdeviceptr position = state + 4, length = state + 8;
	void *args[] = { &state, &position, &length, &out };

	sf_capture_start(sf.stream);
	cu(cuLaunchKernel, sf.decode, 1, 1, 1, 1, 1, 1, 0, sf.stream, args, NULL);
	ok(fdry_slots_capture_end(sf.t, key, sf.stream, 0));
}

/* R6 and the seed's loop: state in device memory is updated on the stream, then a graph is replayed
 * by key, 100 times. */
START_TEST(r6_replay_loop)
{
	uint64_t want[DECODE_KEYS] = { 0 };
	struct decode_state *state;
	int i, k;

	cu(cuMemHostAlloc, (void **)&state, DECODE_STEPS * sizeof(*state), 0);
	for (k = 0; k < DECODE_KEYS; k++)
		decode_slot((uint64_t)k, sf_at(0), sf_at(10 + k));
	for (i = 0; i < DECODE_STEPS; i++) {
		k = i * i % DECODE_KEYS;
		state[i] = (struct decode_state){ 1000u + 17u * (uint32_t)i, i, i + 1 };
		cu(cuMemcpyHtoDAsync_v2, sf_at(0), &state[i], sizeof(*state), sf.stream);
		ck_assert(sf_replay(sf.t, (uint64_t)k));
		want[k] = want[k] * 31 + state[i].token + 7 * (uint64_t)i +
			  1000003 * (uint64_t)(i + 1);
	}
	for (k = 0; k < DECODE_KEYS; k++)
		ck_assert_uint_eq(sf_number(10 + k), want[k]);
	cu(cuMemFreeHost, state);
}
END_TEST

/* R7: running launches end before a slot's graph is destroyed: for one slot, for all, and with the
 * table. */
START_TEST(r7_destroyed_after_its_launches)
{
	struct fdry_slots *t = sf_table_with(0, 0);
	int i;

	for (i = 0; i < 4; i++)
		ok(fdry_slots_install(t, (uint64_t)i, NULL,
				      sf_exec_make(i, 3, sf.backend->spins / 2),
				      FDRY_SLOTS_OWN_EXEC));
	ck_assert(sf_replay(t, 0));
	sf_slot_make(t, 0, 5, 1);
	ck_assert_uint_eq(sf_number_now(0), sf_stepped(0, 3, sf.backend->spins / 2 + 1));
	ck_assert(sf_replay(t, 1));
	ok(fdry_slots_invalidate(t, 1));
	ck_assert_uint_eq(sf_number_now(1), sf_stepped(0, 3, sf.backend->spins / 2 + 1));
	ck_assert(sf_replay(t, 2));
	ok(fdry_slots_invalidate_all(t));
	ck_assert_uint_eq(sf_number_now(2), sf_stepped(0, 3, sf.backend->spins / 2 + 1));
	ok(fdry_slots_install(t, 3, NULL, sf_exec_make(3, 3, sf.backend->spins / 2),
			      FDRY_SLOTS_OWN_EXEC));
	ck_assert(sf_replay(t, 3));
	fdry_slots_free(t);
	ck_assert_uint_eq(sf_number_now(3), sf_stepped(0, 3, sf.backend->spins / 2 + 1));
}
END_TEST

/* R8: an end without a begin and a missing graph are errors. A graph that fails to instantiate
 * leaves no object, and does not change the slot. */
START_TEST(r8_errors)
{
	CUgraph empty;

	fails(STATE, "begin a capture first", fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	fails(INVAL, "no graph", fdry_slots_install_graph(sf.t, 1, NULL, 0, 0));
	fails(INVAL, "no exec", fdry_slots_install(sf.t, 1, NULL, NULL, 0));
	sf_slot_make(sf.t, 1, 0, 3);
	cu(cuGraphCreate, &empty, 0);
	fails(DRIVER, "cuGraphInstantiate",
	      fdry_slots_install_graph(sf.t, 1, empty, 1ull << 40, 0));
	cu(cuGraphDestroy, empty);
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), 3);
}
END_TEST

void slots_rows_add(TCase *tc)
{
	tcase_add_test(tc, r1_slots_by_key);
	tcase_add_test(tc, r2_fall_back);
	tcase_add_test(tc, r3_two_calls);
	tcase_add_test(tc, r4_upload_and_sync);
	tcase_add_test(tc, r5_profile);
	tcase_add_test(tc, r6_replay_loop);
	tcase_add_test(tc, r7_destroyed_after_its_launches);
	tcase_add_test(tc, r8_errors);
}
