// SPDX-License-Identifier: Apache-2.0
/*
 * The order of work on streams of the software driver. A host function that waits for a gate holds
 * up a stream, so no test depends on speed.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static const struct fdry_driver *drv;
static CUresult (*launch_host)(CUstream, CUhostFn, void *);
static CUresult (*stream_query)(CUstream);
static CUresult (*elapsed)(float *, CUevent, CUevent);
static CUfunction step;
static sem_t gate;

static void setup(void)
{
	size_t len;
	void *cubin;
	CUmodule mod;

	drv = test_sim();
	*(void **)&launch_host = test_sim_symbol("cuLaunchHostFunc");
	*(void **)&stream_query = test_sim_symbol("cuStreamQuery");
	*(void **)&elapsed = test_sim_symbol("cuEventElapsedTime_v2");
	cubin = test_sim_cubin("kernels", &len);
	ok(drv->cuModuleLoadDataEx(&mod, cubin, 0, NULL, NULL));
	ok(drv->cuModuleGetFunction(&step, mod, "step"));
	free(cubin);
	sem_init(&gate, 0, 0);
}

static void wait_for_gate(void *arg)
{
	(void)arg;
	while (sem_wait(&gate))
		;
}

/* Later work of the stream waits until the gate is opened. */
static void close_gate(CUstream s)
{
	ok(launch_host(s, wait_for_gate, NULL));
}

static void open_gate(void)
{
	sem_post(&gate);
}

static CUstream stream(unsigned int flags)
{
	CUstream s;

	ok(drv->cuStreamCreate(&s, flags));
	return s;
}

static CUdeviceptr cell(uint64_t value)
{
	CUdeviceptr p;

	ok(drv->cuMemAlloc_v2(&p, 8));
	ok(drv->cuMemcpyHtoD_v2(p, &value, 8));
	return p;
}

/* x becomes x * a + salt: the order of steps shows in the result. */
static void do_step(CUstream s, CUdeviceptr x, uint64_t salt)
{
	uint32_t spins = 0;
	void *params[] = { &x, &salt, &spins };

	ok(drv->cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static uint64_t after(uint64_t x, uint64_t salt)
{
	return x * 6364136223846793005u + salt;
}

/* Without touching any stream: device memory is host memory. */
static uint64_t peek(CUdeviceptr p)
{
	return __atomic_load_n((uint64_t *)(uintptr_t)p, __ATOMIC_ACQUIRE);
}

START_TEST(a_stream_is_in_order)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	uint64_t want = 1;
	int i;

	close_gate(s);
	for (i = 0; i < 200; i++) {
		do_step(s, x, (uint64_t)i);
		want = after(want, (uint64_t)i);
	}
	is(CUDA_ERROR_NOT_READY, stream_query(s));
	ck_assert_uint_eq(peek(x), 1);
	open_gate();
	ok(drv->cuStreamSynchronize(s));
	ok(stream_query(s));
	ck_assert_uint_eq(peek(x), want);
}
END_TEST

START_TEST(events_order_streams)
{
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	CUevent e;

	ok(drv->cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	ok(drv->cuEventQuery(e));
	ok(drv->cuStreamWaitEvent(b, e, 0));
	close_gate(a);
	do_step(a, x, 1);
	ok(drv->cuEventRecord(e, a));
	is(CUDA_ERROR_NOT_READY, drv->cuEventQuery(e));
	ok(drv->cuStreamWaitEvent(b, e, 0));
	do_step(b, x, 2);
	ok(drv->cuEventRecord(e, b)); /* a later record does not change the wait of b */
	ok(drv->cuEventDestroy_v2(e));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuEventQuery(e));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuStreamWaitEvent(b, e, 0));
	ck_assert_uint_eq(peek(x), 1);
	open_gate();
	ok(drv->cuStreamSynchronize(b));
	ck_assert_uint_eq(peek(x), after(after(1, 1), 2));
}
END_TEST

START_TEST(event_synchronize_waits)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	CUevent e, never, untimed;
	float ms = -1;

	ok(drv->cuEventCreate(&e, 0));
	ok(drv->cuEventCreate(&never, 0));
	ok(drv->cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	ok(drv->cuEventRecord(e, s));
	ok(drv->cuEventSynchronize(e));
	is(CUDA_ERROR_INVALID_HANDLE, elapsed(&ms, e, never));
	ok(drv->cuEventRecord(untimed, s));
	is(CUDA_ERROR_INVALID_HANDLE, elapsed(&ms, e, untimed));
	close_gate(s);
	do_step(s, x, 5);
	ok(drv->cuEventRecord(never, s));
	is(CUDA_ERROR_NOT_READY, elapsed(&ms, e, never));
	open_gate();
	ok(drv->cuEventSynchronize(never));
	ck_assert_uint_eq(peek(x), after(1, 5));
	ok(elapsed(&ms, e, never));
	ck_assert(ms >= 0);
}
END_TEST

START_TEST(legacy_waits_for_blocking_streams)
{
	CUstream a = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1), y = cell(1);

	close_gate(a);
	do_step(a, x, 1);
	do_step(NULL, x, 2);
	do_step(other, y, 3);
	ok(drv->cuStreamSynchronize(other)); /* is held up by neither */
	ck_assert_uint_eq(peek(y), after(1, 3));
	ck_assert_uint_eq(peek(x), 1);
	is(CUDA_ERROR_NOT_READY, stream_query(NULL));
	open_gate();
	ok(drv->cuStreamSynchronize(NULL));
	ck_assert_uint_eq(peek(x), after(after(1, 1), 2));
}
END_TEST

START_TEST(legacy_does_not_wait_for_the_others)
{
	CUstream other = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);

	close_gate(other);
	do_step(NULL, x, 1);
	ok(drv->cuStreamSynchronize(NULL));
	ck_assert_uint_eq(peek(x), after(1, 1));
	is(CUDA_ERROR_NOT_READY, stream_query(other));
	open_gate();
}
END_TEST

START_TEST(blocking_streams_wait_for_legacy)
{
	CUstream a = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1), y = cell(1);

	close_gate(NULL);
	do_step(NULL, x, 1);
	do_step(a, x, 2);
	do_step(other, y, 3);
	ok(drv->cuStreamSynchronize(other));
	is(CUDA_ERROR_NOT_READY, stream_query(a));
	open_gate();
	ok(drv->cuStreamSynchronize(a));
	ck_assert_uint_eq(peek(x), after(after(1, 1), 2));
}
END_TEST

/* A synchronous copy runs in the legacy stream, so it sees earlier work of blocking streams. */
START_TEST(synchronous_copies_are_in_order)
{
	CUstream a = stream(CU_STREAM_DEFAULT);
	CUdeviceptr x = cell(1);
	uint64_t got = 0, want = 1;
	int i;

	for (i = 0; i < 50; i++) {
		do_step(a, x, (uint64_t)i);
		want = after(want, (uint64_t)i);
		ok(drv->cuMemcpyDtoH_v2(&got, x, 8));
		ck_assert_uint_eq(got, want);
	}
}
END_TEST

START_TEST(when_a_source_is_read)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(0), y = cell(0);
	uint64_t pageable = 11, *pinned;

	ok(drv->cuMemAllocHost_v2((void **)&pinned, 8));
	*pinned = 21;
	close_gate(s);
	ok(drv->cuMemcpyHtoDAsync_v2(x, &pageable, 8, s));
	ok(drv->cuMemcpyHtoDAsync_v2(y, pinned, 8, s));
	pageable = 12;
	*pinned = 22;
	open_gate();
	ok(drv->cuStreamSynchronize(s));
	ck_assert_uint_eq(peek(x), 11); /* at the call */
	ck_assert_uint_eq(peek(y), 22); /* when the stream reached it */
}
END_TEST

static void *open_later(void *arg)
{
	(void)arg;
	open_gate();
	return NULL;
}

START_TEST(copy_to_pageable_memory_waits)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	uint64_t got = 0;
	pthread_t thread;

	close_gate(s);
	do_step(s, x, 9);
	ck_assert_int_eq(pthread_create(&thread, NULL, open_later, NULL), 0);
	ok(drv->cuMemcpyDtoHAsync_v2(&got, x, 8, s));
	ck_assert_uint_eq(got, after(1, 9));
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_destroyed_stream_runs_to_its_end)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	CUcontext ctx;

	close_gate(s);
	do_step(s, x, 4);
	ok(drv->cuStreamDestroy_v2(s));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuStreamSynchronize(s));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuStreamDestroy_v2(s));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuStreamGetCtx(s, &ctx));
	open_gate();
	ok(drv->cuCtxSynchronize());
	ck_assert_uint_eq(peek(x), after(1, 4));
	ck_assert_int_eq(test_sim_live("stream"), 0);
}
END_TEST

START_TEST(properties_of_a_stream)
{
	CUresult (*create)(CUstream *, unsigned int, int), (*priority)(CUstream, int *);
	CUresult (*flags)(CUstream, unsigned int *);
	CUstream s, t = stream(CU_STREAM_NON_BLOCKING);
	unsigned int f;
	CUcontext ctx, current;
	int p;

	*(void **)&create = test_sim_symbol("cuStreamCreateWithPriority");
	*(void **)&priority = test_sim_symbol("cuStreamGetPriority");
	*(void **)&flags = test_sim_symbol("cuStreamGetFlags");
	ok(create(&s, CU_STREAM_DEFAULT, -3));
	ok(priority(s, &p));
	ck_assert_int_eq(p, -3);
	ok(create(&s, CU_STREAM_DEFAULT, -100));
	ok(priority(s, &p));
	ck_assert_int_eq(p, -5);
	ok(flags(t, &f));
	ck_assert_uint_eq(f, CU_STREAM_NON_BLOCKING);
	ok(drv->cuStreamGetCtx(t, &ctx));
	ok(drv->cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(ctx, current);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuStreamCreate(&s, 2));
}
END_TEST

static void *own_default_stream(void *arg)
{
	unsigned long long (*ids)[2] = arg;
	CUresult (*id)(CUstream, unsigned long long *);
	CUcontext ctx;

	*(void **)&id = test_sim_symbol("cuStreamGetId");
	if (drv->cuDevicePrimaryCtxRetain(&ctx, 0) || drv->cuCtxSetCurrent(ctx) ||
	    id(CU_STREAM_PER_THREAD, &(*ids)[0]) || id(CU_STREAM_LEGACY, &(*ids)[1]))
		(*ids)[0] = 0;
	return NULL;
}

START_TEST(each_thread_has_a_default_stream)
{
	unsigned long long mine[2], theirs[2];
	pthread_t thread;

	own_default_stream(mine);
	ck_assert_int_eq(pthread_create(&thread, NULL, own_default_stream, theirs), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_ne(mine[0], 0);
	ck_assert_uint_ne(theirs[0], 0);
	ck_assert_uint_ne(mine[0], theirs[0]);
	ck_assert_uint_ne(mine[0], mine[1]);
	ck_assert_uint_eq(mine[1], theirs[1]);
}
END_TEST

/* Test random waits among streams; a simple model computes each cell's final value. */
#define STREAMS 6
#define OPS 600

START_TEST(any_order_that_events_make)
{
	unsigned int seed = (unsigned int)_i + 1, a, b;
	CUstream s[STREAMS];
	CUdeviceptr x[STREAMS];
	uint64_t want[STREAMS];
	CUevent e;
	int i;

	ok(drv->cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	for (i = 0; i < STREAMS; i++) {
		s[i] = i ? stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT) : NULL;
		x[i] = cell(want[i] = (uint64_t)i);
	}
	for (i = 0; i < OPS; i++) {
		a = (unsigned int)rand_r(&seed) % STREAMS;
		b = (unsigned int)rand_r(&seed) % STREAMS;
		do_step(s[a], x[a], (uint64_t)i);
		want[a] = after(want[a], (uint64_t)i);
		if (a == b)
			continue;
		/* b writes a's cell and a writes b's cell, each after waiting for the other */
		ok(drv->cuEventRecord(e, s[a]));
		ok(drv->cuStreamWaitEvent(s[b], e, 0));
		do_step(s[b], x[a], 7);
		want[a] = after(want[a], 7);
		ok(drv->cuEventRecord(e, s[b]));
		ok(drv->cuStreamWaitEvent(s[a], e, 0));
	}
	ok(drv->cuCtxSynchronize());
	for (i = 0; i < STREAMS; i++)
		ck_assert_uint_eq(peek(x[i]), want[i]);
}
END_TEST

static void *worker(void *arg)
{
	int i;
	uint64_t want = 1, got = 0;
	CUdeviceptr x;
	CUstream s;
	CUcontext ctx;

	if (drv->cuDevicePrimaryCtxRetain(&ctx, 0) || drv->cuCtxSetCurrent(ctx) ||
	    drv->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) || drv->cuMemAlloc_v2(&x, 8) ||
	    drv->cuMemcpyHtoD_v2(x, &want, 8))
		return NULL;
	for (i = 0; i < 100; i++) {
		do_step(s, x, (uint64_t)i);
		want = after(want, (uint64_t)i);
		if (i % 10 == 0 && (drv->cuMemcpyDtoHAsync_v2(&got, x, 8, s) || got != want))
			return NULL;
	}
	if (drv->cuStreamSynchronize(s) || peek(x) != want || drv->cuMemFree_v2(x) ||
	    drv->cuStreamDestroy_v2(s) || drv->cuDevicePrimaryCtxRelease_v2(0))
		return NULL;
	return arg;
}

START_TEST(many_threads)
{
	static char good;
	pthread_t threads[8];
	void *ret;
	int i;

	for (i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, &good), 0);
	for (i = 0; i < 8; i++) {
		pthread_join(threads[i], &ret);
		ck_assert_ptr_eq(ret, &good);
	}
}
END_TEST

/* An error in one operation is every later call's error; nothing hangs. */
START_TEST(a_broken_context_lets_go)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr x = cell(1);
	CUevent e;
	int i;

	ok(drv->cuEventCreate(&e, 0));
	close_gate(s);
	do_step(s, 8, 1);
	for (i = 0; i < 10; i++)
		do_step(s, x, 1);
	ok(drv->cuEventRecord(e, s));
	open_gate();
	is(CUDA_ERROR_ILLEGAL_ADDRESS, drv->cuStreamSynchronize(s));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, drv->cuEventSynchronize(e));
	ck_assert_uint_eq(peek(x), 1);
}
END_TEST

static void call_the_driver(void *arg)
{
	*(CUresult *)arg = drv->cuCtxSynchronize();
}

START_TEST(a_host_function_may_not_call_back)
{
	CUresult res = CUDA_SUCCESS;

	ok(launch_host(NULL, call_the_driver, &res));
	ok(drv->cuStreamSynchronize(NULL));
	ck_assert_int_eq(res, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

/* Only code that a stream runs is guarded: a fault in the program's own code still ends it. */
START_TEST(other_faults_stay_faults)
{
	int *volatile nowhere = (int *)(uintptr_t)8;

	do_step(NULL, cell(1), 1);
	ok(drv->cuStreamSynchronize(NULL));
	*nowhere = 1;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim_stream");
	TCase *tc = tcase_create("order");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_stream_is_in_order);
	tcase_add_test(tc, events_order_streams);
	tcase_add_test(tc, event_synchronize_waits);
	tcase_add_test(tc, legacy_waits_for_blocking_streams);
	tcase_add_test(tc, legacy_does_not_wait_for_the_others);
	tcase_add_test(tc, blocking_streams_wait_for_legacy);
	tcase_add_test(tc, synchronous_copies_are_in_order);
	tcase_add_test(tc, when_a_source_is_read);
	tcase_add_test(tc, copy_to_pageable_memory_waits);
	tcase_add_test(tc, a_destroyed_stream_runs_to_its_end);
	tcase_add_test(tc, properties_of_a_stream);
	tcase_add_test(tc, each_thread_has_a_default_stream);
	tcase_add_loop_test(tc, any_order_that_events_make, 0, 8);
	tcase_add_test(tc, many_threads);
	tcase_add_test(tc, a_broken_context_lets_go);
	tcase_add_test(tc, a_host_function_may_not_call_back);
	if (!TEST_SANITIZED)
		tcase_add_test_raise_signal(tc, other_faults_stay_faults, SIGSEGV);
	suite_add_tcase(s, tc);
	return test_main(s);
}
