// SPDX-License-Identifier: Apache-2.0
/* Unit tests of numbers in device memory that are updated on a stream, and of decode states. */
#include "lib/telemetry.h"
#include "tests/lib/run.h"

/* Whether updates are copies, as on a device without memory operations. */
static bool by_copy;

static void device_writes(bool has)
{
	test_sim_fail(has ? NULL : "cuDeviceGetAttribute:1");
}

static struct fdry_scalars *scalars_new(uint32_t count, const uint32_t *dtypes,
					const union fdry_scalars_value *values)
{
	struct fdry_scalars_opts o = {
		.sz = sizeof(o), .count = count, .dtypes = dtypes, .values = values
	};
	struct fdry_scalars *s = NULL;

	device_writes(!by_copy);
	ok(fdry_scalars_new(&o, &s));
	device_writes(true);
	return s;
}

static uint64_t cell(struct fdry_scalars *s, uint32_t i)
{
	fdry_devptr p;

	ok(fdry_scalars_addr(s, i, &p));
	ck_assert_uint_eq(p % 8, 0);
	return word(p);
}

static uint64_t counted(enum fdry_metric_id id)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[id];
}

static const uint32_t kinds[] = { FDRY_U8, FDRY_BF16, FDRY_F32, FDRY_I64 };

START_TEST(values_of_every_size)
{
	const union fdry_scalars_value first[] = {
		{ .u8 = 250 }, { .u16 = 0x3f80 }, { .f32 = 1.5f }, { .i64 = -5 }
	};
	/* Other bytes of the union are not copied. */
	const union fdry_scalars_value dirty[] = { { .u64 = ~0ull << 8 | 3 },
						   { .u64 = ~0ull << 16 | 4 },
						   { .u64 = ~0ull << 32 | 5 } };
	union fdry_scalars_value got;
	struct fdry_scalars *s;
	uint64_t copies, bytes;
	uint32_t dtype;
	CUstream stream;

	by_copy = _i;
	run_open();
	stream = stream_new();
	s = scalars_new(4, kinds, first);
	ck_assert_uint_eq(fdry_scalars_count(s), 4);
	ok(fdry_scalars_dtype(s, 1, &dtype));
	ck_assert_uint_eq(dtype, FDRY_BF16);
	ck_assert_uint_eq(cell(s, 0), 250);
	ck_assert_uint_eq(cell(s, 1), 0x3f80);
	ck_assert_uint_eq(cell(s, 2), 0x3fc00000);
	ck_assert_uint_eq(cell(s, 3), (uint64_t)-5);
	ok(fdry_scalars_update(s, 0, 3, dirty, stream));
	cu(cuStreamSynchronize, stream);
	ck_assert_uint_eq(cell(s, 0), 3);
	ck_assert_uint_eq(cell(s, 1), 4);
	ck_assert_uint_eq(cell(s, 2), 5);
	ck_assert_uint_eq(cell(s, 3), (uint64_t)-5);
	got.u64 = 7;
	copies = counted(FDRY_METRIC_COPIES_FROM);
	bytes = counted(FDRY_METRIC_COPIED_FROM);
	ok(fdry_scalars_read(s, 3, &got, stream));
	ck_assert_uint_eq(counted(FDRY_METRIC_COPIES_FROM), copies + 1);
	ck_assert_uint_eq(counted(FDRY_METRIC_COPIED_FROM), bytes + 8);
	ck_assert_int_eq(got.i64, -5);
	ok(fdry_scalars_read(s, 1, &got, NULL));
	ck_assert_uint_eq(got.u64, 4);
	fdry_scalars_free(s);
	s = scalars_new(2, kinds, NULL);
	ck_assert_uint_eq(cell(s, 0) | cell(s, 1), 0);
	fdry_scalars_free(s);
	cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

/* Updates are memory operations on every stream if the device has them, and the memory is the
 * library's. */
START_TEST(one_call_for_all)
{
	enum { ON_LEGACY, ON_THREAD, ON_BLOCKING, ON_NON_BLOCKING, LACKS_WRITES, OWN_MEMORY };
	struct fdry_scalars_opts o = { .sz = sizeof(o), .count = 4, .dtypes = kinds };
	union fdry_scalars_value v[] = { { .u8 = 3 }, { .u16 = 4 }, { .u32 = 5 }, { .u64 = 6 } };
	CUstream stream = _i == ON_THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	bool own_stream = _i == ON_BLOCKING || _i == ON_NON_BLOCKING;
	struct fdry_scalars *s = NULL;
	unsigned long writes, copies;
	uint32_t i;

	run_open();
	if (own_stream)
		cu(cuStreamCreate, &stream,
		   _i == ON_BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
	o.addr = _i == OWN_MEMORY ? mem(32) : 0;
	device_writes(_i != LACKS_WRITES);
	ok(fdry_scalars_new(&o, &s));
	ck_assert_uint_eq(test_sim_failed(), _i == LACKS_WRITES);
	device_writes(true);
	writes = test_sim_calls("cuStreamBatchMemOp_v2");
	copies = test_sim_calls("cuMemcpyHtoDAsync_v2");
	ok(fdry_scalars_update(s, 0, 4, v, stream));
	ck_assert_uint_eq(test_sim_calls("cuStreamBatchMemOp_v2"), writes + (_i < LACKS_WRITES));
	ck_assert_uint_eq(test_sim_calls("cuMemcpyHtoDAsync_v2"), copies + (_i >= LACKS_WRITES));
	cu(cuStreamSynchronize, stream);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(cell(s, i), i + 3);
	fdry_scalars_free(s);
	if (o.addr)
		mem_free(o.addr);
	if (own_stream)
		cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

/* One more than memory operations write at once. */
START_TEST(many_values)
{
	enum { MANY = 33 };
	union fdry_scalars_value v[MANY];
	uint32_t dtypes[MANY], i, n;
	struct fdry_scalars *s;

	by_copy = _i;
	run_open();
	for (i = 0; i < MANY; i++) {
		dtypes[i] = FDRY_U16;
		v[i].u64 = ~0ull;
	}
	s = scalars_new(MANY, dtypes, v);
	for (n = MANY - 1; n <= MANY; n++) {
		for (i = 0; i < MANY; i++)
			v[i].u16 = (uint16_t)(n * 100 + i);
		ok(fdry_scalars_update(s, MANY - n, n, v, NULL));
		cu(cuStreamSynchronize, NULL);
		ck_assert_uint_eq(cell(s, 0), n == MANY ? n * 100 : UINT16_MAX);
		for (i = 0; i < n; i++)
			ck_assert_uint_eq(cell(s, MANY - n + i), n * 100 + i);
	}
	fdry_scalars_free(s);
	run_close();
}
END_TEST

/* Updates are far faster than their readers: every reader sees its own value. */
START_TEST(updates_outrun_launches)
{
	static const uint32_t u32 = FDRY_U32;
	uint32_t got[500], i, spins = 20000;
	CUdeviceptr log, slow, to;
	struct fdry_scalars *s;
	fdry_devptr addr, again;
	CUstream stream;
	uint64_t salt = 1, one = 1;

	by_copy = _i;
	run_open();
	stream = stream_new();
	log = mem(sizeof(got));
	slow = mem(8);
	s = scalars_new(1, &u32, NULL);
	ok(fdry_scalars_addr(s, 0, &addr));
	for (i = 0; i < 500; i++) {
		union fdry_scalars_value v = { .u32 = i * 3 + 1 };

		ok(fdry_scalars_update(s, 0, 1, &v, stream));
		memset(&v, 0xEE, sizeof(v)); /* not needed any more */
		to = log + i * 4;
		launch("step", stream, &slow, &salt, &spins);
		launch("copy", stream, &addr, &to, &one);
	}
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, got, log, sizeof(got));
	for (i = 0; i < 500; i++)
		ck_assert_uint_eq(got[i], i * 3 + 1);
	ok(fdry_scalars_addr(s, 0, &again));
	ck_assert_uint_eq(addr, again);
	fdry_scalars_free(s);
	mem_free(log);
	mem_free(slow);
	cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

/* An update call does not wait for earlier work on the stream. */
START_TEST(updates_do_not_wait)
{
	static const uint32_t u32 = FDRY_U32;
	union fdry_scalars_value v = { .u32 = 77 };
	struct fdry_scalars *s;
	CUdeviceptr slow;
	CUstream stream;
	CUevent behind;

	by_copy = _i;
	run_open();
	stream = stream_new();
	slow = mem(8);
	s = scalars_new(1, &u32, NULL);
	cu(cuEventCreate, &behind, CU_EVENT_DISABLE_TIMING);
	step(stream, slow, 1, 300000000);
	cu(cuEventRecord, behind, stream);
	ok(fdry_scalars_update(s, 0, 1, &v, stream));
	ck_assert_int_eq(drv->cuEventQuery(behind), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(cell(s, 0), 0); /* the stream has not reached it */
	fdry_scalars_free(s);             /* waits for it */
	cu(cuStreamSynchronize, stream);
	cu(cuEventDestroy_v2, behind);
	mem_free(slow);
	cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

START_TEST(captures_refuse_updates)
{
	static const uint32_t u32 = FDRY_U32;
	union fdry_scalars_value v = { .u32 = 77 };
	struct fdry_cudagraph *g;
	struct fdry_scalars *s;
	CUstream stream, gone;

	by_copy = _i;
	run_open();
	s = scalars_new(1, &u32, NULL);
	g = cudagraph_new();
	ok(fdry_cudagraph_begin(g, NULL));
	ok(fdry_cudagraph_stream(g, &stream));
	fails(STATE, "the stream captures, and an update cannot be part of",
	      fdry_scalars_update(s, 0, 1, &v, stream));
	fails(STATE, "the stream captures", fdry_scalars_read(s, 0, &v, stream));
	ok(fdry_scalars_update(s, 0, 1, &v, NULL)); /* on another stream, it works */
	ok(fdry_cudagraph_end(g));                  /* nothing was spoilt */
	gone = stream_new();
	cu(cuStreamDestroy_v2, gone);
	fails(INVAL, "alive", fdry_scalars_update(s, 0, 1, &v, gone));
	fdry_cudagraph_free(g);
	fdry_scalars_free(s);
	run_close();
}
END_TEST

START_TEST(scalars_are_checked)
{
	static const uint32_t wide = FDRY_C128, odd = 99;
	struct fdry_scalars_opts o = { .sz = sizeof(o), .count = 1, .dtypes = &wide };
	union fdry_scalars_value v = { 0 };
	struct fdry_scalars *s = NULL;
	fdry_devptr p;

	run_open();
	fails(INVAL, "16 bytes", fdry_scalars_new(&o, &s));
	o.dtypes = &odd;
	fails(INVAL, "type 99", fdry_scalars_new(&o, &s));
	o.dtypes = NULL;
	fails(INVAL, "without types", fdry_scalars_new(&o, &s));
	o.dtypes = kinds;
	o.count = FDRY_SCALARS_MAX + 1;
	fails(INVAL, "513 scalars", fdry_scalars_new(&o, &s));
	o.count = 0;
	fails(INVAL, "0 scalars", fdry_scalars_new(&o, &s));
	o.count = 4;
	o.addr = 12;
	fails(INVAL, "multiple of 8", fdry_scalars_new(&o, &s));
	o.addr = 0;
	o.flags = 6;
	fails(OPTS, "no flags 0x6", fdry_scalars_new(&o, &s));
	o.flags = 0;
	o.device = 3;
	fails(NOGPU, "no device 3", fdry_scalars_new(&o, &s));
	ck_assert_ptr_null(s);
	o.device = 0;
	ok(fdry_scalars_new(&o, &s));
	fails(RANGE, "there are 4", fdry_scalars_update(s, 3, 2, &v, NULL));
	fails(RANGE, "there are 4", fdry_scalars_update(s, 0, 0, &v, NULL));
	fails(RANGE, "there are 4", fdry_scalars_update(s, 4, 1, &v, NULL));
	fails(RANGE, "no scalar 4", fdry_scalars_addr(s, 4, &p));
	fails(RANGE, "no scalar 4", fdry_scalars_read(s, 4, &v, NULL));
	fails(INVAL, "values", fdry_scalars_update(s, 0, 1, NULL, NULL));
	fails(INVAL, "no scalars", fdry_scalars_update(NULL, 0, 1, &v, NULL));
	ck_assert_uint_eq(fdry_scalars_count(NULL), 0);
	fdry_scalars_free(s);
	fdry_scalars_free(NULL);
	run_close();
}
END_TEST

START_TEST(memory_of_the_caller)
{
	struct fdry_scalars_opts o = { .sz = sizeof(o), .count = 4, .dtypes = kinds };
	union fdry_scalars_value v = { .u8 = 9 };
	struct fdry_scalars *s = NULL;
	fdry_devptr p;

	run_open();
	o.addr = mem(64);
	cu(cuMemcpyHtoD_v2, o.addr + 8, &(uint64_t){ 5 }, 8);
	ok(fdry_scalars_new(&o, &s));
	ok(fdry_scalars_addr(s, 1, &p));
	ck_assert_uint_eq(p, o.addr + 8);
	ck_assert_uint_eq(cell(s, 1), 5); /* as it was */
	ok(fdry_scalars_update(s, 0, 1, &v, NULL));
	fdry_scalars_free(s);
	ck_assert_uint_eq(word(o.addr), 9); /* and stays */
	mem_free(o.addr);
	run_close();
}
END_TEST

START_TEST(every_failing_call_is_undone)
{
	struct fdry_scalars_opts o = { .sz = sizeof(o), .count = 4, .dtypes = kinds };
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	struct fdry_scalars *s = NULL;
	char spec[16];
	int i, err;
	long live;

	run_open();
	ok(fdry_scalars_new(&o, &s)); /* a shared stream is there from now on */
	fdry_scalars_free(s);
	live = test_sim_live(NULL);
	for (i = 1; i < 300; i++) {
		s = NULL;
		snprintf(spec, sizeof(spec), "*:%d", i);
		test_sim_fail(spec);
		err = fdry_scalars_new(&o, &s);
		if (!test_sim_failed())
			break;
		test_sim_fail(NULL);
		cu(cuThreadExchangeStreamCaptureMode,
		   &mode); /* if the call that restores it failed */
		mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
		ck_assert_msg(!err == !!s, "call %d", i);
		fdry_scalars_free(s);
		ck_assert_msg(test_sim_live(NULL) == live, "call %d left something", i);
	}
	ck_assert_int_gt(i, 70);
	ok(err);
	/* A failed update uses no slot and changes nothing; after a lost event record, the update
	 * waits. */
	test_sim_fail("cuStreamBatchMemOp_v2:1");
	ok(fdry_scalars_update(s, 0, 1, &(union fdry_scalars_value){ .u8 = 3 }, NULL));
	ck_assert_uint_eq(test_sim_failed(), 1);
	ck_assert_uint_eq(cell(s, 0), 3); /* copied, as all later ones are */
	test_sim_fail("cuMemcpyHtoDAsync_v2:1");
	ck_assert_int_eq(fdry_scalars_update(s, 0, 1, &(union fdry_scalars_value){ .u8 = 1 }, NULL),
			 -FDRY_E_DRIVER);
	test_sim_fail("cuEventRecord:1");
	ok(fdry_scalars_update(s, 0, 1, &(union fdry_scalars_value){ .u8 = 2 }, NULL));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert_uint_eq(cell(s, 0), 2);
	fdry_scalars_free(s);
	run_close();
}
END_TEST

struct updater {
	pthread_t thread;
	struct fdry_scalars *s;
	uint32_t i;
	CUstream stream;
	int bad;
};

static void *update_often(void *arg)
{
	struct updater *u = arg;
	union fdry_scalars_value v;
	int i;

	for (i = 1; i <= 300; i++) {
		v.u64 = (uint64_t)i;
		u->bad += fdry_scalars_update(u->s, u->i, 1, &v, u->stream) != 0;
	}
	return NULL;
}

START_TEST(many_threads_update)
{
	static const uint32_t dtypes[] = { FDRY_U64, FDRY_U64, FDRY_U64 };
	struct updater u[3];
	struct fdry_scalars *s;
	int i;

	by_copy = _i;
	run_open();
	s = scalars_new(3, dtypes, NULL);
	for (i = 0; i < 3; i++) {
		u[i] = (struct updater){ .s = s, .i = (uint32_t)i, .stream = stream_new() };
		ck_assert_int_eq(pthread_create(&u[i].thread, NULL, update_often, &u[i]), 0);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(u[i].thread, NULL);
		ck_assert_int_eq(u[i].bad, 0);
		cu(cuStreamSynchronize, u[i].stream);
		ck_assert_uint_eq(cell(s, (uint32_t)i), 300);
		cu(cuStreamDestroy_v2, u[i].stream);
	}
	fdry_scalars_free(s);
	run_close();
}
END_TEST

/* --- decode state --- */

#define STEPS 100

struct decoding {
	struct fdry_decode_state *d;
	CUdeviceptr log;
};

static int decode_fn(void *arg, CUstream stream)
{
	struct decoding *w = arg;
	struct fdry_decode_state_args a;
	int n = STEPS;
	int err = fdry_decode_state_args(w->d, &a);

	if (!err)
		launch("decode_step", stream, &a, &w->log, &n);
	return err;
}

START_TEST(one_graph_does_every_step)
{
	struct fdry_cudagraph_run_opts o = { .sz = sizeof(o), .fn = decode_fn, .warmups = 1 };
	struct decoding w;
	struct fdry_cudagraph *g;
	uint64_t log[STEPS];
	CUstream stream;
	uint32_t i;

	run_open();
	stream = stream_new();
	ok(fdry_decode_state_new(NULL, &w.d));
	w.log = mem(sizeof(log));
	ok(fdry_decode_state_use(w.d, FDRY_DECODE_STATE_DEVICE));
	g = cudagraph_new();
	o.arg = &w;
	ok(fdry_cudagraph_run(g, &o));
	for (i = 0; i < STEPS; i++) {
		ok(fdry_decode_state_set(w.d, 1000 + i * 7, i, stream));
		ok(fdry_cudagraph_launch(g, stream));
	}
	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, log, w.log, sizeof(log));
	for (i = 0; i < STEPS; i++)
		ck_assert_uint_eq(log[i], (uint64_t)(1000 + i * 7) << 32 | (i + 1));
	fdry_cudagraph_free(g);
	fdry_decode_state_free(w.d);
	mem_free(w.log);
	cu(cuStreamDestroy_v2, stream);
	run_close();
}
END_TEST

START_TEST(arguments_keep_their_step)
{
	struct fdry_decode_state_args a;
	struct decoding w;
	struct fdry_decode_state *none = NULL;
	uint64_t log[STEPS];
	uint32_t i;

	run_open();
	ok(fdry_decode_state_new(NULL, &w.d));
	w.log = mem(sizeof(log));
	ok(fdry_decode_state_args(w.d, &a));
	ck_assert(a.token == 0 && a.position == 0 && a.length == 1 &&
		  a.source == FDRY_DECODE_STATE_ARGS);
	ck_assert_uint_eq((uint32_t)word(a.length_addr), 1);
	for (i = 0; i < STEPS; i++) { /* eager code, which reads them from arguments */
		ok(fdry_decode_state_set(w.d, i + 5, i, NULL));
		ok(decode_fn(&w, NULL));
	}
	cu(cuCtxSynchronize);
	cu(cuMemcpyDtoH_v2, log, w.log, sizeof(log));
	for (i = 0; i < STEPS; i++)
		ck_assert_uint_eq(log[i], (uint64_t)(i + 5) << 32 | (i + 1));
	ok(fdry_decode_state_args(w.d, &a));
	ck_assert_int_eq(a.position, STEPS - 1);
	/* device memory has the same value */
	ck_assert_uint_eq((uint32_t)word(a.token_addr), STEPS + 4);
	ck_assert_uint_eq((uint32_t)word(a.position_addr), STEPS - 1);
	fails(RANGE, "too far", fdry_decode_state_set(w.d, 0, INT32_MAX, NULL));
	fails(INVAL, "is not a source", fdry_decode_state_use(w.d, 2));
	fails(INVAL, "(NULL)", fdry_decode_state_set(NULL, 0, 0, NULL));
	fdry_decode_state_free(w.d);
	fdry_decode_state_free(NULL);
	test_sim_fail("cuMemHostAlloc:1");
	ck_assert_int_eq(fdry_decode_state_new(NULL, &none), -FDRY_E_DRIVER);
	ck_assert_ptr_null(none);
	test_sim_fail(NULL);
	mem_free(w.log);
	run_close();
}
END_TEST

static void nothing_there(void)
{
	struct fdry_scalars_opts o = { .sz = sizeof(o), .count = 4, .dtypes = kinds };
	struct fdry_scalars *s = NULL;
	struct fdry_decode_state *d = NULL;

	ck_assert(!setenv("FOUNDRY_DRIVER", "/nonexistent/libcuda.so.1", 1));
	fails(NODRIVER, "no CUDA driver", fdry_scalars_new(&o, &s));
	fails(NODRIVER, "no CUDA driver", fdry_decode_state_new(NULL, &d));
	ck_assert(!s && !d);
}

START_TEST(without_a_gpu)
{
	in_child(nothing_there);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_scalar");
	TCase *tc = tcase_create("run_scalar");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, values_of_every_size, 0, 2);
	tcase_add_loop_test(tc, one_call_for_all, 0, 6);
	tcase_add_loop_test(tc, many_values, 0, 2);
	tcase_add_loop_test(tc, updates_outrun_launches, 0, 2);
	tcase_add_loop_test(tc, updates_do_not_wait, 0, 2);
	tcase_add_loop_test(tc, captures_refuse_updates, 0, 2);
	tcase_add_loop_test(tc, many_threads_update, 0, 2);
	tcase_add_test(tc, scalars_are_checked);
	tcase_add_test(tc, memory_of_the_caller);
	tcase_add_test(tc, every_failing_call_is_undone);
	tcase_add_test(tc, one_graph_does_every_step);
	tcase_add_test(tc, arguments_keep_their_step);
	tcase_add_test(tc, without_a_gpu);
	suite_add_tcase(s, tc);
	return test_main(s);
}
