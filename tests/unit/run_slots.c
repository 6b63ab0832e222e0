// SPDX-License-Identifier: Apache-2.0
/* Unit tests of slot tables: those of slots_rules.h, failing drivers, images' graphs, forks, the
 * environment. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/profile.h"
#include "lib/telemetry.h"
#include "tests/lib/sim.h"
#include "tests/lib/slots_fixture.h"
#include "tests/lib/slots_rules.h"

/* --- failing drivers --- */

#define CALLS_MAX 200

static long all_live(void)
{
	return test_sim_live(NULL);
}

/* Use all functions of a table. Returns the first error. If the table was made, it is left in
 * @t. */
static int everything(struct fdry_slots **t)
{
	struct fdry_slots_opts opts = { .sz = sizeof(opts), .upload = FDRY_SLOTS_UPLOAD_ALWAYS,
					.sync = FDRY_SLOTS_SYNC_ALWAYS };
	CUgraph graph;
	int launched, err = fdry_slots_new(&opts, t);

	if (err)
		return err;
	/* One of the driver's own calls may fail: then there is nothing to put into a slot. */
	if (sf.drv->cuGraphCreate(&graph, 0))
		return 0;
	err = fdry_slots_install_graph(*t, 1, graph, 0, FDRY_SLOTS_OWN_GRAPH);
	if (err) {
		ck_assert(!fdry_slots_has(*t, 1));
		if (sf.drv->cuGraphDestroy(graph))
			ck_abort_msg("the graph is not the caller's any more");
		return err;
	}
	err = fdry_slots_replay(*t, 1, sf.stream, &launched);
	return err ? err : fdry_slots_invalidate(*t, 1);
}

START_TEST(every_call_failing)
{
	static const int errors[] = { CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY };
	struct fdry_slots *t;
	char spec[32];
	long before;
	int n, err, failures = 0;
	CUstream shared;

	ok(fdry_stream_shared(sf.drv, FDRY_STREAM_GRAPHS, &shared));
	before = all_live();
	sf.kept = true;
	for (n = 1; n < CALLS_MAX; n++) {
		t = NULL;
		snprintf(spec, sizeof(spec), "*:%d:%d", n, errors[_i]);
		test_sim_fail(spec);
		err = everything(&t);
		if (!test_sim_failed())
			break;
		test_sim_fail(NULL);
		fdry_slots_free(t);
		failures += err != 0;
		if (err)
			ck_assert_uint_gt(strlen(fdry_last_error()), 10);
		/* The driver keeps an object that it failed to free. */
		ck_assert_msg(all_live() - before <= (err ? 0 : 1), "call %d (%s) left %ld behind",
			      n, fdry_last_error(), all_live() - before);
		before = all_live();
	}
	test_sim_fail(NULL);
	fdry_slots_free(t);
	ck_assert_int_eq(err, 0);
	ck_assert_int_lt(n, CALLS_MAX);
	ck_assert_int_gt(n, 30);
	ck_assert_int_gt(failures, 15);
}
END_TEST

/* If the replacement of the slot's graph fails, the graph stays. */
START_TEST(upload_failing)
{
	static const char *const calls[] = { "cuGraphUpload:1", "cuGraphInstantiateWithFlags:1",
					     "cuStreamSynchronize:1" };
	CUgraph g;

	sf_slot_make(sf.t, 1, 0, 3);
	g = sf_graph_make(1, 5, 0);
	test_sim_fail(calls[_i]);
	fails(DRIVER, "slot 1", fdry_slots_install_graph(sf.t, 1, g, 0, FDRY_SLOTS_OWN_GRAPH));
	ck_assert_int_eq(test_sim_live("exec"), 1);
	cu(cuGraphDestroy, g);
	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 1, 5, 0);
	test_sim_fail(calls[_i]);
	fails(DRIVER, "slot 1", fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	test_sim_fail(NULL);
	ck_assert_int_eq(test_sim_live("exec"), 1);
	ck_assert_int_eq(test_sim_live("graph"), 1);
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 1));
}
END_TEST

START_TEST(launch_failing)
{
	int launched = 5;

	sf_slot_make(sf.t, 1, 0, 3);
	test_sim_fail("cuGraphLaunch:1");
	fails(DRIVER, "slot 1: cuGraphLaunch", fdry_slots_replay(sf.t, 1, sf.stream, &launched));
	test_sim_fail(NULL);
	ck_assert_int_eq(launched, 5);
	ck_assert(sf_replay(sf.t, 1));
}
END_TEST

/* If the driver fails to report a capture, the capture still ends: the stream is usable again. */
START_TEST(capture_that_cannot_be_asked_about)
{
	sf_capture_start(sf.stream);
	sf_step_launch(sf.stream, 0, 3, 0);
	test_sim_fail("cuStreamIsCapturing:1");
	ok(fdry_slots_capture_end(sf.t, 1, sf.stream, 0));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 1));
}
END_TEST

/* --- which calls a policy makes --- */

START_TEST(calls_of_policies)
{
	static const struct {
		const char *upload, *sync;
		unsigned int uploads, syncs;
	} ways[] = {
		{ NULL, NULL, 0, 0 }, { "first", "0", 0, 0 },  { "always", "1", 3, 3 },
		{ "", "", 0, 0 },     { "always", "0", 3, 0 },
	};
	struct fdry_slots *t;
	int i;

	if (ways[_i].upload) {
		setenv("FOUNDRY_SLOTS_UPLOAD", ways[_i].upload, 1);
		setenv("FOUNDRY_SLOTS_SYNC", ways[_i].sync, 1);
	}
	ok(fdry_slots_new(NULL, &t));
	test_sim_fail(NULL);
	sf_slot_make(t, 1, 0, 3);
	ck_assert_uint_eq(test_sim_calls("cuGraphUpload"), 1);
	test_sim_fail(NULL);
	for (i = 0; i < 3; i++)
		ck_assert(sf_replay(t, 1));
	ck_assert_uint_eq(test_sim_calls("cuGraphUpload"), ways[_i].uploads);
	ck_assert_uint_eq(test_sim_calls("cuStreamSynchronize"), ways[_i].syncs);
	ck_assert_uint_eq(test_sim_calls("cuGraphLaunch"), 3);
	fdry_slots_free(t);
	/* The options are stronger than the environment. */
	t = sf_table_with(FDRY_SLOTS_UPLOAD_FIRST, FDRY_SLOTS_SYNC_NEVER);
	sf_slot_make(t, 1, 0, 3);
	test_sim_fail(NULL);
	ck_assert(sf_replay(t, 1));
	ck_assert_uint_eq(test_sim_calls("cuGraphUpload") + test_sim_calls("cuStreamSynchronize"),
			  0);
	fdry_slots_free(t);
}
END_TEST

START_TEST(wrong_environment)
{
	static const char *const wrong[][3] = {
		{ "FOUNDRY_SLOTS_UPLOAD", "Always", "first" }, { "FOUNDRY_SLOTS_SYNC", "yes", "0" },
		{ "FOUNDRY_SLOTS_PROFILE", "often", "0" }, { "FOUNDRY_SLOTS_PROFILE", "-1", "0" },
	};
	struct fdry_slots *t = NULL;

	setenv(wrong[_i][0], wrong[_i][1], 1);
	fails(ENV, wrong[_i][0], fdry_slots_new(NULL, &t));
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), wrong[_i][2]));
	ck_assert_ptr_null(t);
}
END_TEST

START_TEST(wrong_options)
{
	struct fdry_slots_opts opts = { .sz = sizeof(opts), .device = 1 };
	struct fdry_slots *t = NULL;

	fails(NOGPU, "no device 1", fdry_slots_new(&opts, &t));
	opts.device = -1;
	fails(NOGPU, "no device -1", fdry_slots_new(&opts, &t));
	opts.device = 0;
	opts.upload = 3;
	fails(OPTS, "upload 3", fdry_slots_new(&opts, &t));
	opts.upload = 0;
	opts.sz = 3;
	fails(OPTS, "3 bytes", fdry_slots_new(&opts, &t));
	opts.sz = sizeof(opts);
	opts.driver = "/nowhere/libcuda.so.1";
	fails(NODRIVER, "/nowhere", fdry_slots_new(&opts, &t));
	fails(INVAL, "ret", fdry_slots_new(NULL, NULL));
	ck_assert_ptr_null(t);
	fdry_slots_free(NULL);
}
END_TEST

/* --- logging --- */

static void log_keep(void *arg, int level, const char *text)
{
	ck_assert_int_eq(level, FDRY_LOG_INFO);
	snprintf(arg, 256, "%s", text);
	fails(STATE, "a replay is calling it", fdry_slots_invalidate_all(sf.t));
}

START_TEST(logged)
{
	struct fdry_slots_stats times = { .sz = sizeof(times) };
	char line[256] = "";
	struct fdry_slots *t;
	int i;

	fdry_log_set(log_keep, line, FDRY_LOG_INFO);
	setenv("FOUNDRY_SLOTS_PROFILE", "4", 1);
	ok(fdry_slots_new(NULL, &t));
	sf_slot_make(t, 77, 0, 3);
	for (i = 0; i < 3; i++)
		ck_assert(sf_replay(t, 77));
	ck_assert_str_eq(line, "");
	ck_assert(sf_replay(t, 77));
	ck_assert_msg(!strncmp(line, "slots: call 4, key 77: upload 0.0 us, launch ", 45), "%s",
		      line);
	ok(fdry_slots_stats(t, &times));
	ck_assert(sf_phase_is(&times.total, 4) && sf_phase_is(&times.launch, 4));
	ck_assert_uint_eq(times.upload.calls + times.sync.calls, 0);
	fdry_log_set(NULL, NULL, 0);
	fdry_slots_free(t);
}
END_TEST

/* Known numbers: each percentile is the true one, or up to a sixteenth more, and never more than
 * the largest. */
static void is_about(uint64_t got, uint64_t want)
{
	ck_assert_msg(want <= got && got <= want + want / 16, "%llu, and not about %llu",
		      (unsigned long long)got, (unsigned long long)want);
}

static void calls_add(struct fdry_profile *p, uint64_t from, uint64_t to, uint64_t scale)
{
	struct fdry_slots_call call = { 0 };

	for (; from <= to; from++) {
		call.total_ns = from;
		call.launch_ns = from * scale;
		fdry_profile_add(p, &call);
	}
}

START_TEST(percentiles)
{
	struct fdry_slots_profile_opts opts = { .sz = sizeof(opts) };
	struct fdry_slots_stats t = { .sz = sizeof(t) };
	struct fdry_profile *p;

	ok(fdry_profile_new(&opts, &p));
	calls_add(p, 1, 10000, 100000000000);
	fdry_profile_read(p, &t);
	is_about(t.total.p50_ns, 5000);
	is_about(t.total.p90_ns, 9000);
	is_about(t.total.p99_ns, 9900);
	ck_assert_uint_eq(t.total.max_ns, 10000);
	ck_assert_uint_eq(t.total.total_ns, 50005000);
	is_about(t.launch.p50_ns, 500000000000000);
	is_about(t.launch.p99_ns, 990000000000000);
	ck_assert_uint_eq(t.upload.calls + t.sync.calls, 0);
	fdry_profile_reset(p, NULL);
	calls_add(p, 1, 15, 1);
	fdry_profile_read(p, &t);
	ck_assert_uint_eq(t.total.p50_ns, 8); /* small numbers are exact */
	ck_assert_uint_eq(t.total.p90_ns, 14);
	ck_assert_uint_eq(t.total.p99_ns, 15);
	fdry_profile_reset(p, NULL);
	calls_add(p, UINT64_MAX - 1, UINT64_MAX - 1, 1);
	fdry_profile_read(p, &t);
	ck_assert_uint_eq(t.total.p50_ns, UINT64_MAX - 1);
	fdry_profile_free(p);
}
END_TEST

/* --- counters --- */

static uint64_t counted(enum fdry_metric_id id)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[id];
}

START_TEST(launches_and_waits_count)
{
	struct fdry_slots *t = sf_table_with(FDRY_SLOTS_UPLOAD_FIRST, FDRY_SLOTS_SYNC_ALWAYS);
	uint64_t launches = counted(FDRY_METRIC_LAUNCHES_CAPTURED),
		 syncs = counted(FDRY_METRIC_SYNCS);
	int i;

	sf_slot_make(t, 1, 0, 3);
	ck_assert_uint_eq(counted(FDRY_METRIC_SYNCS), syncs + 1); /* for the upload */
	for (i = 0; i < 3; i++)
		ck_assert(sf_replay(t, 1) && !sf_replay(t, 2));
	ck_assert_uint_eq(counted(FDRY_METRIC_LAUNCHES_CAPTURED), launches + 3);
	ck_assert_uint_eq(counted(FDRY_METRIC_SYNCS), syncs + 4);
	ok(fdry_slots_invalidate(t, 1));
	ck_assert_uint_eq(counted(FDRY_METRIC_SYNCS), syncs + 5);
	fdry_slots_free(t);
}
END_TEST

/* --- contexts --- */

/* With no context or another one current, the call uses the table's context and restores the
 * thread's. */
START_TEST(any_context)
{
	CUcontext other, now;
	int launched;

	sf_slot_make(sf.t, 1, 0, 3);
	cu(cuCtxCreate_v4, &other, NULL, 0, 0);
	ok(fdry_slots_replay(sf.t, 1, sf.stream, &launched));
	cu(cuCtxGetCurrent, &now);
	ck_assert_ptr_eq(now, other);
	cu(cuCtxDestroy_v2, other);
	cu(cuCtxSetCurrent, NULL);
	ok(fdry_slots_replay(sf.t, 1, sf.stream, &launched));
	ok(fdry_slots_replay(sf.t, 1, NULL, &launched));
	cu(cuCtxGetCurrent, &now);
	ck_assert_ptr_null(now);
	sf_context_use();
	cu(cuCtxSynchronize);
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 3));
}
END_TEST

START_TEST(context_of_ones_own)
{
	struct fdry_slots_opts opts = { .sz = sizeof(opts) };
	struct fdry_slots *t;
	CUstream s;
	CUgraph g;
	int launched;

	cu(cuCtxCreate_v4, &opts.ctx, NULL, 0, 0);
	ok(fdry_slots_new(&opts, &t));
	s = sf_stream_make();
	cu(cuGraphCreate, &g, 0);
	ok(fdry_slots_install_graph(t, 1, g, 0, FDRY_SLOTS_OWN_GRAPH));
	ok(fdry_slots_replay(t, 1, s, &launched));
	ck_assert_int_eq(launched, 1);
	fdry_slots_free(t);
	cu(cuStreamDestroy_v2, s);
	cu(cuCtxDestroy_v2, opts.ctx);
	sf_context_use();
}
END_TEST

/* --- forks --- */

static int forked_child(void)
{
	int launched;

	fails(FORKED, "before fork", fdry_slots_replay(sf.t, 1, sf.stream, &launched));
	fails(FORKED, "before fork", fdry_slots_invalidate_all(sf.t));
	ck_assert(!fdry_slots_has(sf.t, 1));
	fdry_slots_free(sf.t); /* touches nothing of the parent's */
	return 0;
}

START_TEST(forked)
{
	pid_t pid;
	int status;

	sf_slot_make(sf.t, 1, 0, 3);
	pid = fork();
	if (!pid)
		_exit(forked_child());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(sf_replay(sf.t, 1));
	ck_assert_uint_eq(sf_number(0), sf_stepped(0, 3, 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slots");
	TCase *tc = tcase_create("slots");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, slots_fixture_open, slots_fixture_close);
	slots_rules_add(tc);
	tcase_add_loop_test(tc, every_call_failing, 0, 2);
	tcase_add_loop_test(tc, upload_failing, 0, 3);
	tcase_add_test(tc, launch_failing);
	tcase_add_test(tc, capture_that_cannot_be_asked_about);
	tcase_add_loop_test(tc, calls_of_policies, 0, 5);
	tcase_add_loop_test(tc, wrong_environment, 0, 4);
	tcase_add_test(tc, wrong_options);
	tcase_add_test(tc, logged);
	tcase_add_test(tc, percentiles);
	tcase_add_test(tc, launches_and_waits_count);
	tcase_add_test(tc, any_context);
	tcase_add_test(tc, context_of_ones_own);
	tcase_add_test(tc, forked);
	suite_add_tcase(s, tc);
	return test_main(s);
}
