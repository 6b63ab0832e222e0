// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of load_or_capture: when it loads and when it captures, its reports and messages, and
 * that a failed start leaves nothing behind.
 */
#include <signal.h>
#include <sys/mman.h>

#include "tests/lib/image.h"

/* A workload: its graph, its result and its actions, shared by the processes of a test. */
struct job {
	int runs;     /* of the function */
	int ret;      /* the function's result */
	bool outside; /* its graph uses memory that an image does not hold */
	int sleep_ms;
	int asleep;   /* it has read that */
};

static struct job *job;
static struct work w; /* of this process */
static CUgraph graph;

static void setup(void)
{
	dir_setup();
	job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(job, MAP_FAILED);
	work_base = TEST_CAPTURE_BASE;
}

static void vector_alloc(CUdeviceptr *p, float salt)
{
	float v[N];

	vector_fill(v, salt);
	cuda_ok(cuMemAlloc_v2, p, BYTES);
	cuda_ok(cuMemcpyHtoD_v2, *p, v, BYTES);
}

/* Capture c = a + b, as a program's function for load_or_capture() does. */
static int capture_fn(void *arg, struct fdry_capture *cap)
{
	int sleep_ms;
	size_t len;

	ck_assert_ptr_eq(arg, job);
	__atomic_add_fetch(&job->runs, 1, __ATOMIC_SEQ_CST);
	test_hook();
	w.cap = cap;
	cuda_ok(cuStreamCreate, &w.stream, CU_STREAM_NON_BLOCKING);
	if (job->outside)
		ok(fdry_capture_pause(cap));
	vector_alloc(&w.a, 7);
	if (job->outside)
		ok(fdry_capture_resume(cap));
	vector_alloc(&w.b, 100);
	vector_alloc(&w.c, 0);
	free(w.cubin); /* of an attempt before */
	w.cubin = test_sim_cubin("kernels", &len);
	cuda_ok(cuModuleLoadData, &w.module, w.cubin);
	cuda_ok(cuModuleGetFunction, &w.vecadd, w.module, "vecadd");
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	graph = capture_stop(&w);
	ok(fdry_capture_graph(cap, 1, "add", graph));
	if (!job->outside) {
		tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
		tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	}
	sleep_ms = job->sleep_ms;
	__atomic_store_n(&job->asleep, 1, __ATOMIC_SEQ_CST);
	usleep((useconds_t)sleep_ms * 1000);
	return job->ret;
}

static const char *const img_name[] = { "img" };
static struct fdry_fact model = { "model", "adder" };

static struct fdry_store *store_at_hand(void)
{
	struct fdry_store *s;

	ok(setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	return s;
}

/* The options that tests change. */
static struct fdry_load_opts load_opts = { .sz = sizeof(load_opts), .facts = &model, .nfacts = 1 };
static struct fdry_capture_opts capture_opts = { .sz = sizeof(capture_opts),
						 .base = TEST_CAPTURE_BASE, .size = 1ull << 34 };
static struct fdry_start_opts opts = { .sz = sizeof(opts), .names = img_name, .nnames = 1,
				       .load = &load_opts, .capture = &capture_opts,
				       .fn = capture_fn };

static int start_try(struct fdry_store *s, struct fdry_start_report **ret)
{
	opts.arg = job;
	return fdry_load_or_capture(s, &opts, ret);
}

static struct fdry_start_report *start(struct fdry_store *s)
{
	struct fdry_start_report *r = NULL;

	ok(start_try(s, &r));
	return r;
}

/* The captured graph works in the process that captured it. */
static void graph_check(void)
{
	CUgraphExec exec;
	float c[N];

	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	cuda_ok(cuGraphLaunch, exec, w.stream);
	cuda_ok(cuStreamSynchronize, w.stream);
	cuda_ok(cuMemcpyDtoH_v2, c, w.c, BYTES);
	ck_assert(c[5] == vector_value(5, 7) + vector_value(5, 100));
}

static void start_and_capture(void *unused)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = start(s);

	(void)unused;
	ck_assert_int_eq(r->captured, 1);
	ck_assert_ptr_null(r->image);
	ck_assert_ptr_null(r->capture);
	ck_assert_int_eq(r->seal_code, 0);
	ck_assert_uint_eq(strlen(r->id), 64);
	ck_assert_str_eq(r->name, "img");
	graph_check();
	fdry_start_report_free(r);
	fdry_store_close(s);
}

static void start_and_load(void *unused)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = start(s);

	(void)unused;
	ck_assert_int_eq(r->captured, 0);
	image_check(r->image, 1, 3, 100);
	fdry_image_unload(r->image);
	fdry_start_report_free(r);
	fdry_store_close(s);
}

START_TEST(captured_once_then_loaded)
{
	struct fdry_store *s;
	struct fdry_start_report *r;

	test_child(start_and_capture, NULL);
	ck_assert_int_eq(job->runs, 1);
	test_child(start_and_load, NULL);
	s = store_at_hand();
	r = start(s);
	ck_assert_int_eq(job->runs, 1);
	ck_assert_int_eq(r->captured, 0);
	ck_assert_uint_eq(r->nunused, 0);
	ck_assert_str_eq(r->name, "img");
	ck_assert(!strncmp(r->text, "loaded 'img' (image ", 20));
	image_check(r->image, 1, 3, 100);
	fdry_image_unload(r->image);
	fdry_start_report_free(r);
	fdry_start_report_free(NULL);
	fdry_store_close(s);
}
END_TEST

START_TEST(says_what_was_not_there)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = start(s);

	ck_assert_uint_eq(r->nunused, 1);
	ck_assert_str_eq(r->unused[0].name, "img");
	ck_assert_str_eq(r->unused[0].id, "");
	ck_assert_int_eq(r->unused[0].code, -FDRY_E_NOENT);
	ck_assert_str_eq(r->unused[0].field, "");
	ck_assert_ptr_nonnull(strstr(r->unused[0].why, "no ref 'img'"));
	ck_assert_ptr_nonnull(strstr(r->text, "captured 'img' in "));
	ck_assert_ptr_nonnull(strstr(r->text, "\nsealed as image "));
	ck_assert_ptr_nonnull(strstr(r->text, "\nnot used: 'img': "));
	ck_assert(!(r->wait_ms > 0));
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

/* One of two candidates is for another revision: both are reported, and a third is sealed. */
START_TEST(says_which_field_differs)
{
	static const char *const names[] = { "nobody", "img" };
	struct fdry_store *s;
	struct fdry_start_report *r;
	char id[FDRY_ID_SIZE];
	struct fdry_oid oid;

	test_child(start_and_capture, NULL);
	s = store_at_hand();
	ok(fdry_ref_get(s, "img", &oid));
	model.value = "multiplier";
	opts.names = names;
	opts.nnames = 2;
	opts.ref = "new";
	r = start(s);
	ck_assert_int_eq(job->runs, 2);
	ck_assert_str_eq(r->name, "new");
	ck_assert_uint_eq(r->nunused, 2);
	ck_assert_int_eq(r->unused[0].code, -FDRY_E_NOENT);
	ck_assert_int_eq(r->unused[1].code, -FDRY_E_IDENTITY);
	ck_assert_str_eq(r->unused[1].id, fdry_oid_hex(&oid, id));
	ck_assert_str_eq(r->unused[1].field, "model");
	ck_assert_str_eq(r->unused[1].wanted, "multiplier");
	ck_assert_str_eq(r->unused[1].found, "adder");
	ck_assert_ptr_nonnull(strstr(r->text, "another 'model': 'adder' there, 'multiplier' here"));
	fdry_start_report_free(r);
	ok(fdry_ref_get(s, "new", &oid));
	fdry_store_close(s);
}
END_TEST

static void start_other_revision(void *unused)
{
	(void)unused;
	model.value = "multiplier";
	start_and_capture(NULL);
}

/* A later start with the new fact loads the image that an earlier one sealed in place of the old
 * one. */
START_TEST(facts_are_stated)
{
	struct fdry_store *s;
	struct fdry_start_report *r;
	const char *value;

	test_child(start_and_capture, NULL);
	test_child(start_other_revision, NULL);
	ck_assert_int_eq(job->runs, 2);
	model.value = "multiplier";
	s = store_at_hand();
	r = start(s);
	ck_assert_int_eq(job->runs, 2);
	ok(fdry_image_fact(r->image, "model", &value));
	ck_assert_str_eq(value, "multiplier");
	fdry_image_unload(r->image);
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

/* Another machine: the field is the library's own. */
START_TEST(other_machine)
{
	struct fdry_store *s;
	struct fdry_start_report *r;

	test_child(start_and_capture, NULL);
	ok(setenv("FDRY_SIM_CC", "8.0", 1));
	s = store_at_hand();
	r = start(s);
	ck_assert_int_eq(r->captured, 1);
	ck_assert_str_eq(r->unused[0].field, "fdry.gpu.arch");
	ck_assert_str_eq(r->unused[0].wanted, "sm_80");
	ck_assert_str_eq(r->unused[0].found, "sm_90");
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

START_TEST(strict)
{
	static const char *const names[] = { "nobody", "img", "none" };
	struct fdry_start_report *r = NULL;
	struct fdry_store *s;

	test_child(start_and_capture, NULL);
	s = store_at_hand();
	opts.flags = FDRY_START_STRICT;
	opts.fn = NULL;
	r = start(s);
	ck_assert_int_eq(r->captured, 0);
	fdry_image_unload(r->image);
	fdry_start_report_free(r);
	r = NULL;
	model.value = "multiplier";
	fails(IDENTITY, "another 'model': 'adder' there, 'multiplier' here", start_try(s, &r));
	opts.names = names;
	opts.nnames = 3;
	fails(IDENTITY,
	      "none of 3 images can be used: 'nobody': image 'nobody': ", start_try(s, &r));
	fails(IDENTITY, "; 'img': the image has another 'model'", start_try(s, &r));
	opts.nnames = 1;
	fails(NOENT, "no ref 'nobody'", start_try(s, &r));
	ck_assert_int_eq(job->runs, 1);
	ck_assert_ptr_null(r);
	ck_assert_ptr_null(dlopen(test_built("foundry/hook/libcuda.so.1"), RTLD_NOW | RTLD_NOLOAD));
	fdry_store_close(s);
}
END_TEST

/* --- the interposer --- */

START_TEST(too_late)
{
	struct fdry_start_report *r = NULL;
	struct fdry_store *s;
	void *cuda;

	s = store_at_hand();
	cuda = dlopen(test_built("foundry/sim/libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL);
	ck_assert_ptr_nonnull(cuda);
	fails(LATE, "'img' cannot be loaded (image 'img': ", start_try(s, &r));
	fails(LATE, "loaded before the interposer", start_try(s, &r));
	ck_assert_int_eq(job->runs, 0);
	fdry_store_close(s);
}
END_TEST

static void load_late(void *unused)
{
	(void)unused;
	ck_assert_ptr_nonnull(
		dlopen(test_built("foundry/sim/libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL));
	start_and_load(NULL);
}

START_TEST(too_late_to_capture_is_not_too_late_to_load)
{
	test_child(start_and_capture, NULL);
	test_child(load_late, NULL);
	ck_assert_int_eq(job->runs, 1);
}
END_TEST

START_TEST(no_interposer)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = NULL;

	ok(setenv("FOUNDRY_HOOK", "/nowhere/libcuda.so.1", 1));
	fails(NOHOOK, "/nowhere/libcuda.so.1", start_try(s, &r));
	ck_assert_int_eq(job->runs, 0);
	fdry_store_close(s);
}
END_TEST

/* --- failures --- */

static int count_object(void *arg, const struct fdry_object_info *info)
{
	(void)info;
	++*(int *)arg;
	return 0;
}

START_TEST(a_failed_capture_leaves_nothing)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = NULL;
	int objects = 0;

	job->ret = 42;
	fails(CALLBACK, "the function that was to capture 'img' returned 42", start_try(s, &r));
	/* The function's allocations are still at the base. */
	fails(TAKEN, "the addresses", start_try(s, &r));
	capture_opts.base += 1ull << 34;
	job->ret = -FDRY_E_NODEVMEM;
	fails(NODEVMEM, "the function that was to capture 'img': ", start_try(s, &r));
	ck_assert_ptr_null(r);
	ok(fdry_store_each(s, count_object, &objects));
	ck_assert_int_eq(objects, 0);
	/* No start is running any more: another start captures. */
	job->ret = 0;
	capture_opts.base += 1ull << 34;
	r = start(s);
	ck_assert_int_eq(r->captured, 1);
	ck_assert_int_eq(job->runs, 3);
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

START_TEST(a_failed_seal_is_reported)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r;
	struct fdry_oid oid;
	CUdeviceptr p;

	job->outside = true;
	r = start(s);
	ck_assert_int_eq(r->captured, 1);
	ck_assert_int_eq(r->seal_code, -FDRY_E_REFUSED);
	ck_assert_str_eq(r->id, "");
	ck_assert_ptr_nonnull(strstr(r->seal_why, "vecadd"));
	ck_assert_ptr_nonnull(strstr(r->text, "not sealed: FDRY_E_REFUSED: graph 1"));
	ck_assert_ptr_nonnull(r->capture);
	graph_check();
	fails(NOENT, "", fdry_ref_get(s, "img", &oid));
	/* It is paused: memory is native. */
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	ck_assert(p < TEST_CAPTURE_BASE || p >= TEST_CAPTURE_BASE + (1ull << 34));
	fails(REFUSED, "graph 1", fdry_capture_seal(r->capture, s, "img", NULL, NULL));
	fdry_capture_end(r->capture);
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

START_TEST(a_store_that_cannot_be_written)
{
	struct fdry_start_report *r;
	struct fdry_store *s = store_at_hand();

	fdry_store_close(s);
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &s));
	r = start(s);
	ck_assert_int_eq(r->captured, 1);
	ck_assert_int_eq(r->seal_code, -FDRY_E_PERM);
	graph_check();
	fdry_capture_end(r->capture);
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

/* A failure of the driver would also affect a capture. */
START_TEST(driver_failures_are_errors)
{
	struct fdry_start_report *r = NULL;
	struct fdry_store *s;

	test_child(start_and_capture, NULL);
	s = store_at_hand();
	load_opts.device = 3;
	capture_opts.device = 3;
	fails(NOGPU, "no device 3", start_try(s, &r));
	load_opts.device = capture_opts.device = 0;
	test_sim_fail("cuStreamCreate:1:999");
	fails(DRIVER, "cuStreamCreate", start_try(s, &r));
	ck_assert_int_eq(job->runs, 1);
	r = start(s);
	ck_assert_int_eq(r->captured, 0);
	fdry_image_unload(r->image);
	fdry_start_report_free(r);
	fdry_store_close(s);
}
END_TEST

static int answer_only(void *arg, struct fdry_capture *cap)
{
	(void)arg, (void)cap;
	return 1;
}

/* Every driver call of a start that loads, and of one that begins to capture, fails in turn:
 * nothing is left. */
START_TEST(every_driver_call_failing)
{
	struct fdry_start_report *r = NULL;
	struct fdry_store *s;
	char spec[32];
	long before;
	int n, err;

	if (_i)
		test_child(start_and_capture, NULL);
	s = store_at_hand();
	opts.fn = answer_only;
	capture_opts.size = 1 << 28;
	ok(fdry_hook_install(NULL));
	test_sim();
	(void)live_before();
	if (!_i) /* streams that the interposer shares stay with the context */
		fails(CALLBACK, "returned 1", start_try(s, &r));
	before = live_objects();
	for (n = 1; n < 1000; n++) {
		snprintf(spec, sizeof(spec), "*:%d:999", n);
		capture_opts.base += capture_opts.size; /* memory that cannot be freed stays in
							   use */
		test_sim_fail(spec);
		err = start_try(s, &r);
		if (!test_sim_failed())
			break;
		test_sim_fail(NULL);
		if (!err) {
			fdry_image_unload(r->image);
			fdry_start_report_free(r);
		}
		/* The failed call may have freed something, which the driver then keeps. */
		ck_assert_msg(live_objects() <= before + (!err || err == -FDRY_E_CALLBACK),
			      "call %d left %ld behind: %s", n, live_objects() - before,
			      fdry_last_error());
		before = live_objects();
	}
	test_sim_fail(NULL);
	ck_assert_int_gt(n, 5);
	ck_assert_int_eq(err, _i ? 0 : -FDRY_E_CALLBACK);
	if (_i) {
		image_check(r->image, 1, 3, 100);
		fdry_image_unload(r->image);
		fdry_start_report_free(r);
	}
	fdry_store_close(s);
}
END_TEST

START_TEST(wrong_arguments)
{
	static const char *const none[] = { NULL };
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = NULL;

	fails(INVAL, "store", start_try(NULL, &r));
	fails(INVAL, "opts", fdry_load_or_capture(s, NULL, &r));
	fails(INVAL, "ret", start_try(s, NULL));
	opts.nnames = 0;
	fails(OPTS, "no names", start_try(s, &r));
	opts.nnames = 1;
	opts.names = none;
	fails(OPTS, "name 0", start_try(s, &r));
	opts.names = img_name;
	opts.fn = NULL;
	fails(OPTS, "no function that captures", start_try(s, &r));
	opts.fn = capture_fn;
	opts.flags = 1u << 9;
	fails(OPTS, "flags 0x200", start_try(s, &r));
	opts.flags = 0;
	opts.ref = "not//a/ref";
	fails(NAME, "", start_try(s, &r));
	opts.ref = NULL;
	capture_opts.device = 1;
	fails(OPTS, "loaded on device 0, and captured on device 1", start_try(s, &r));
	capture_opts.device = 0;
	model.key = "bad key";
	fails(NAME, "fact", start_try(s, &r));
	model.key = NULL;
	fails(INVAL, "fact 0", start_try(s, &r));
	load_opts.facts = NULL;
	fails(OPTS, "1 facts at NULL", start_try(s, &r));
	ck_assert_int_eq(job->runs, 0);
	ck_assert_ptr_null(r);
	fdry_store_close(s);
}
END_TEST

/* --- several processes --- */

#define PROCESSES 4

static void start_either(void)
{
	struct fdry_store *s = store_at_hand();
	struct fdry_start_report *r = start(s);

	if (r->image)
		image_check(r->image, 1, 3, 100);
	else
		graph_check();
	if (job->sleep_ms && r->image)
		ck_assert_ptr_nonnull(strstr(r->text, "waited "));
	fdry_image_unload(r->image);
	fdry_capture_end(r->capture);
	fdry_start_report_free(r);
}

static void start_many(void)
{
	int i, status;

	for (i = 0; i < PROCESSES; i++)
		if (!fork()) {
			start_either();
			_exit(0);
		}
	while (wait(&status) > 0)
		ck_assert_int_eq(status, 0);
}

START_TEST(one_captures_the_others_wait)
{
	job->sleep_ms = 300;
	start_many();
	ck_assert_int_eq(job->runs, 1);
}
END_TEST

START_TEST(none_waits)
{
	job->sleep_ms = 300;
	opts.flags = FDRY_START_NOWAIT;
	start_many();
	ck_assert_int_eq(job->runs, PROCESSES);
}
END_TEST

/* Ranks: equal names, other facts. */
START_TEST(other_facts_do_not_wait)
{
	static const char *const ranks[] = { "0", "1" };
	int i, status;

	job->sleep_ms = 500;
	model.key = "rank";
	for (i = 0; i < 2; i++)
		if (!fork()) {
			model.value = ranks[i];
			opts.ref = i ? "img/1" : "img/0";
			start_either();
			_exit(0);
		}
	while (wait(&status) > 0)
		ck_assert_int_eq(status, 0);
	ck_assert_int_eq(job->runs, 2);
}
END_TEST

/* A process that hangs while it captures, and one that dies. */
START_TEST(a_wait_that_takes_too_long)
{
	struct fdry_start_report *r;
	struct fdry_store *s;
	pid_t pid;

	fdry_store_close(store_at_hand());
	job->sleep_ms = 60000;
	pid = fork();
	if (!pid) {
		start_either();
		_exit(0);
	}
	while (!__atomic_load_n(&job->asleep, __ATOMIC_SEQ_CST))
		usleep(1000);
	if (_i)
		ck_assert(!kill(pid, SIGKILL));
	job->sleep_ms = 0;
	opts.wait_ms = _i ? 0 : 100;
	s = store_at_hand();
	r = start(s);
	ck_assert_int_eq(r->captured, 1);
	ck_assert_int_eq(r->seal_code, 0);
	if (!_i)
		ck_assert(r->wait_ms >= 100);
	ck_assert_int_eq(job->runs, 2);
	fdry_start_report_free(r);
	fdry_store_close(s);
	(void)kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(a_wait_that_the_program_ends)
{
	struct fdry_start_report *r = NULL;
	struct fdry_store *s;
	int naps = 0;
	pid_t pid;

	fdry_store_close(store_at_hand());
	job->sleep_ms = 60000;
	pid = fork();
	if (!pid) {
		start_either();
		_exit(0);
	}
	while (!__atomic_load_n(&job->asleep, __ATOMIC_SEQ_CST))
		usleep(1000);
	opts.stop = test_third_nap;
	opts.stop_arg = &naps;
	s = store_at_hand();
	fails(CALLBACK, "has ended the wait", fdry_load_or_capture(s, &opts, &r));
	ck_assert_int_eq(naps, 3);
	ck_assert_ptr_null(r);
	ck_assert_int_eq(job->runs, 1);
	fdry_store_close(s);
	(void)kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

static int stop_when_captured(void *arg)
{
	return ((struct job *)arg)->runs > 0;
}

/* In Python, the handler of a signal may have raised in the place of the function. */
START_TEST(a_program_that_stops_as_it_captures)
{
	struct fdry_start_report *r = NULL;
	struct fdry_store *s = store_at_hand();

	opts.stop = stop_when_captured;
	opts.stop_arg = job;
	fails(CALLBACK, "has ended the start", start_try(s, &r));
	ck_assert_int_eq(job->runs, 1);
	ck_assert_ptr_null(r);
	opts.stop = NULL;
	opts.flags = FDRY_START_STRICT;
	fails(NOENT, "no ref 'img'", start_try(s, &r));
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("api_start");
	TCase *tc = tcase_create("start");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, captured_once_then_loaded);
	tcase_add_test(tc, says_what_was_not_there);
	tcase_add_test(tc, a_program_that_stops_as_it_captures);
	tcase_add_test(tc, says_which_field_differs);
	tcase_add_test(tc, facts_are_stated);
	tcase_add_test(tc, other_machine);
	tcase_add_test(tc, strict);
	tcase_add_test(tc, too_late);
	tcase_add_test(tc, too_late_to_capture_is_not_too_late_to_load);
	tcase_add_test(tc, no_interposer);
	tcase_add_test(tc, a_failed_capture_leaves_nothing);
	tcase_add_test(tc, a_failed_seal_is_reported);
	tcase_add_test(tc, a_store_that_cannot_be_written);
	tcase_add_test(tc, driver_failures_are_errors);
	tcase_add_loop_test(tc, every_driver_call_failing, 0, 2);
	tcase_add_test(tc, wrong_arguments);
	tcase_add_test(tc, one_captures_the_others_wait);
	tcase_add_test(tc, none_waits);
	tcase_add_test(tc, other_facts_do_not_wait);
	tcase_add_loop_test(tc, a_wait_that_takes_too_long, 0, 2);
	tcase_add_test(tc, a_wait_that_the_program_ends);
	suite_add_tcase(s, tc);
	return test_main(s);
}
