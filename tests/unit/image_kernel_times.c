// SPDX-License-Identifier: Apache-2.0
/* Unit tests of times: each kernel is measured, nothing remains of the replays, and graphs that
 * cannot be measured are named with the reason. */
#include "tests/lib/image_kinds.h"

#define SLOW 400 /* as many blocks as the quick kernel has threads */

/* The program's state beside a, b and c of its work. */
struct program {
	struct work w;
	CUdeviceptr s, count;
};

static void launch_scale(const struct program *p, unsigned int blocks)
{
	float factor = 2;
	int n = N;
	void *args[] = { (void *)&p->s, &factor, &n };

	cuda_ok(cuLaunchKernel, p->w.scale, blocks, 1, 1, 64, 1, 1, 0, p->w.stream, args, NULL);
}

static void launch_count(const struct program *p)
{
	void *args[] = { (void *)&p->count };

	cuda_ok(cuLaunchKernel, p->w.count, 1, 1, 1, 64, 1, 1, 0, p->w.stream, args, NULL);
}

/* Graph 1: c = a + b, where b is an external constant. Graph 2: a slow kernel, a copy, a quick one
 * that counts in a module variable, and the slow one again. */
static void seal_timed(void *arg)
{
	struct fdry_tensor n = { .name = "n", .dtype = FDRY_I32, .use = FDRY_USE_OUTPUT, .rank = 1,
				 .shape = { 1 }, .stride = { 1 } };
	struct program p;
	float v[N];

	(void)arg;
	work_make(&p.w);
	cuda_ok(cuMemAlloc_v2, &p.s, BYTES);
	cuda_ok(cuMemAlloc_v2, &p.count, 4);
	vector_fill(v, 3);
	cuda_ok(cuMemcpyHtoD_v2, p.s, v, BYTES);
	graph_add(&p.w, 1);
	capture_start(&p.w);
	launch_scale(&p, SLOW);
	cuda_ok(cuMemcpyDtoDAsync_v2, p.w.c, p.s, BYTES, p.w.stream);
	launch_count(&p);
	launch_scale(&p, SLOW);
	ok(fdry_capture_graph(p.w.cap, 2, "state", capture_stop(&p.w)));
	tensor_add(&p.w, "a", p.w.a, FDRY_USE_INPUT, 0);
	tensor_add(&p.w, "b", p.w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	tensor_add(&p.w, "c", p.w.c, FDRY_USE_OUTPUT, 0);
	tensor_add(&p.w, "s", p.s, FDRY_USE_STATE, 0);
	n.addr = p.count;
	ok(fdry_capture_tensor(p.w.cap, &n));
	ok(work_seal(&p.w, "img"));
	work_end(&p.w);
}

/* A copy of what the function got. */
struct got {
	unsigned int n;
	struct {
		struct fdry_graph_times times;
		struct fdry_kernel_time kernels[4];
	} graphs[16];
};

static void note(void *arg, const struct fdry_graph_times *times)
{
	struct got *got = arg;
	size_t i;

	ck_assert_uint_lt(got->n, 16);
	ck_assert_uint_le(times->nkernels, 4);
	got->graphs[got->n].times = *times;
	for (i = 0; i < times->nkernels; i++)
		got->graphs[got->n].kernels[i] = times->kernels[i];
	got->n++;
}

static void kernel_check(const struct fdry_kernel_time *k, uint32_t node, const char *name)
{
	ck_assert_uint_eq(k->node, node);
	ck_assert_str_eq(k->name, name);
	ck_assert(k->ms > 0);
}

static void state_check(const struct got *got, unsigned int i)
{
	const struct fdry_kernel_time *k = got->graphs[i].kernels;
	const struct fdry_graph_times *t = &got->graphs[i].times;

	ck_assert_uint_eq(t->key, 2);
	ck_assert_str_eq(t->name, "state");
	ck_assert_ptr_null(t->left_out);
	ck_assert_uint_eq(t->nkernels, 3);
	kernel_check(&k[0], 0, "scale");
	kernel_check(&k[1], 2, "count");
	kernel_check(&k[2], 3, "scale");
	ck_assert_uint_eq(k[0].kernel, k[2].kernel);
	ck_assert(k[0].ms > k[1].ms && k[2].ms > k[1].ms);
	ck_assert(t->empty_ms > 0 && t->empty_ms < k[0].ms);
	ck_assert(t->alone_ms > k[0].ms + k[1].ms);
	ck_assert(t->launch_ms > k[0].ms);
}

/* Content and the module variable are as sealed, and external tensors must be filled again. */
static void unchanged_check(struct fdry_image *img)
{
	float v[N];
	int n;

	fails(UNBOUND, "'b'", fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "s", v, BYTES, NULL));
	ck_assert(v[0] == 3);
	vector_fill(v, 100);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	image_check(img, 1, 5, 100);
	ok(fdry_image_launch(img, 2, NULL));
	ok(fdry_image_read(img, "n", &n, 4, NULL));
	ck_assert_int_eq(n, 42);
}

START_TEST(kernels_are_measured)
{
	static const uint32_t flags[] = { 0, FDRY_LOAD_OWN_CONTEXT, FDRY_LOAD_BACKGROUND,
					  FDRY_LOAD_CHECK_OVERLAP, FDRY_LOAD_CHECK_AT_LAUNCH };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags[_i] };
	struct got got = { 0 };
	struct fdry_image *img;

	test_child(seal_timed, NULL);
	img = load_image("img", &opts);
	ok(fdry_image_kernel_times(img, NULL, 0, note, &got));
	ck_assert_uint_eq(got.n, 2);
	ck_assert_uint_eq(got.graphs[0].times.key, 1);
	ck_assert_uint_eq(got.graphs[0].times.nkernels, 1);
	kernel_check(&got.graphs[0].kernels[0], 0, "vecadd");
	state_check(&got, 1);
	unchanged_check(img);
	fdry_image_unload(img);
}
END_TEST

START_TEST(the_caller_selects_graphs)
{
	static const uint64_t keys[] = { 2, 1, 2 };
	struct got got = { 0 };
	struct fdry_image *img;

	test_child(seal_timed, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_kernel_times(img, keys, 3, note, &got));
	ck_assert_uint_eq(got.n, 3);
	state_check(&got, 0);
	ck_assert_uint_eq(got.graphs[1].times.key, 1);
	state_check(&got, 2);
	unchanged_check(img);
	ok(fdry_image_kernel_times(img, keys, 0, note, &got));
	ck_assert_uint_eq(got.n, 3);
	fdry_image_unload(img);
}
END_TEST

/* Values that a program has filled stay while its graphs are measured. */
static void b_check(void *arg, const struct fdry_graph_times *times)
{
	float a[N], b[N], c[N];

	(void)times;
	ok(fdry_image_read(arg, "a", a, BYTES, NULL));
	ok(fdry_image_read(arg, "b", b, BYTES, NULL));
	ok(fdry_image_read(arg, "c", c, BYTES, NULL));
	ck_assert(b[1] == vector_value(1, 100));
	ck_assert(c[1] == a[1] + b[1]);
}

START_TEST(filled_tensors_keep_their_values)
{
	static const uint64_t key = 1;
	struct fdry_image *img;
	float v[N];

	test_child(seal_timed, NULL);
	img = load_image("img", NULL);
	vector_fill(v, 100);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	ok(fdry_image_kernel_times(img, &key, 1, b_check, img));
	unchanged_check(img);
	fdry_image_unload(img);
}
END_TEST

START_TEST(wrong_arguments)
{
	static const uint64_t keys[] = { 1, 3 };
	struct got got = { 0 };
	struct fdry_image *img;
	float v[N];

	test_child(seal_timed, NULL);
	img = load_image("img", NULL);
	vector_fill(v, 100);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	fails(NOKEY, "no graph with key 3", fdry_image_kernel_times(img, keys, 2, note, &got));
	fails(INVAL, "", fdry_image_kernel_times(NULL, NULL, 0, note, &got));
	fails(INVAL, "", fdry_image_kernel_times(img, NULL, 0, NULL, NULL));
	ck_assert_uint_eq(got.n, 0);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	fdry_image_unload(img);
}
END_TEST

/* Each call of the driver that fails: the error names the graph, nothing leaks, and content is as
 * sealed. */
START_TEST(failures_are_undone)
{
	static const char *const calls[] = {
		"cuEventCreate:1", "cuEventCreate:2", "cuEventCreate:3", "cuEventCreate:6",
		"cuGraphCreate:2", "cuGraphAddEventRecordNode:1", "cuGraphAddEventRecordNode:3",
		"cuGraphAddDependencies_v2:1", "cuGraphInstantiateWithFlags:1",
		"cuGraphInstantiateWithFlags:2", "cuGraphLaunch:1", "cuGraphLaunch:2",
		"cuGraphLaunch:3", "cuGraphLaunch:20", "cuEventRecord:1", "cuEventRecord:2",
		"cuEventElapsedTime:1", "cuEventElapsedTime:2", "cuEventElapsedTime:4",
	};
	struct got got = { 0 };
	struct fdry_image *img;
	long before;
	size_t i;

	test_child(seal_timed, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_kernel_times(img, NULL, 0, note, &got));
	before = live_objects();
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		test_sim_fail(calls[i]);
		ck_assert_msg(fdry_image_kernel_times(img, NULL, 0, note, &got) == -FDRY_E_DRIVER,
			      "%s", calls[i]);
		ck_assert_uint_eq(test_sim_failed(), 1);
		test_sim_fail(NULL);
		ck_assert_int_eq(live_objects(), before);
		got.n = 0;
	}
	test_sim_fail("cuEventElapsedTime:4");
	fails(DRIVER, "times of graph 1", fdry_image_kernel_times(img, NULL, 0, note, &got));
	test_sim_fail(NULL);
	unchanged_check(img);
	got.n = 0;
	ok(fdry_image_kernel_times(img, NULL, 0, note, &got));
	state_check(&got, 1);
	fdry_image_unload(img);
}
END_TEST

/* --- kinds of nodes --- */

static const char *const reasons[KINDS] = {
	[KIND_HOST] = "it has a host node, which calls a function of the program",
	[KIND_EVENT] = "it has an event, which may be awaited before it is recorded",
	[KIND_CONDITION] = "it has a conditional node, whose nodes run any number of times",
	[KIND_WAIT] = "it has a memory operation that waits for a value",
	[KIND_HOST_CHILD] = "it has a host node, which calls a function of the program",
};

static void seal_kinds(void *arg)
{
	struct work w;

	(void)arg;
	image_kinds_make(&w);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(kinds_of_nodes)
{
	struct fdry_host_function f = image_kind_function();
	struct fdry_load_opts opts = { .sz = sizeof(opts), .functions = &f, .nfunctions = 1 };
	struct got got = { 0 };
	struct fdry_image *img;
	unsigned int i;

	test_child(seal_kinds, NULL);
	img = load_image("img", &opts);
	ok(fdry_image_kernel_times(img, NULL, 0, note, &got));
	ck_assert_uint_eq(got.n, KINDS);
	for (i = 0; i < KINDS; i++) {
		ck_assert_uint_eq(got.graphs[i].times.key, KIND_KEY + i);
		if (reasons[i])
			ck_assert_str_eq(got.graphs[i].times.left_out, reasons[i]);
		else
			ck_assert_ptr_null(got.graphs[i].times.left_out);
		ck_assert((got.graphs[i].times.alone_ms > 0) == !reasons[i]);
		ck_assert((got.graphs[i].times.launch_ms > 0) == !reasons[i]);
	}
	ck_assert_int_eq(image_kind_calls, 0);
	fdry_image_unload(img);
}
END_TEST

/* --- random numbers --- */

/* The state that the kernel "draw" of tests/sim/kernels.c receives. */
struct draw_state {
	CUdeviceptr seed, offset;
	uint32_t within;
	char captured;
	char gap[3];
};

static void seal_draws(void *arg)
{
	static struct work w;
	struct draw_state state = { .captured = 1 };
	struct fdry_rng_use use = { .generator = "g", .increment = 4 };
	CUdeviceptr out;
	CUfunction draw;
	int n = 16;
	void *args[] = { &out, &state, &n };

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &state.seed, 8);
	cuda_ok(cuMemAlloc_v2, &state.offset, 8);
	cuda_ok(cuMemAlloc_v2, &out, 16 * 8);
	cuda_ok(cuMemsetD8Async, state.seed, 0x77, 8, w.stream);
	cuda_ok(cuMemsetD8Async, state.offset, 0x77, 8, w.stream);
	cuda_ok(cuStreamSynchronize, w.stream);
	cuda_ok(cuModuleGetFunction, &draw, w.module, "draw");
	capture_start(&w);
	cuda_ok(cuLaunchKernel, draw, 1, 1, 1, 16, 1, 1, 0, w.stream, args, NULL);
	ok(fdry_capture_graph(w.cap, 1, "draw", capture_stop(&w)));
	ok(fdry_capture_rng(w.cap, 1));
	use.seed = state.seed;
	use.offset = state.offset;
	ok(fdry_capture_rng_use(w.cap, 1, &use));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(generators_get_their_states_back)
{
	struct fdry_rng_state state;
	struct got got = { 0 };
	struct fdry_image *img;

	test_child(seal_draws, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_rng_seed(img, "g", 9));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_kernel_times(img, NULL, 0, note, &got));
	kernel_check(&got.graphs[0].kernels[0], 0, "draw");
	ok(fdry_image_rng_state(img, "g", &state));
	ck_assert_uint_eq(state.seed, 9);
	ck_assert_uint_eq(state.offset, 4);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		the_caller_selects_graphs, filled_tensors_keep_their_values, wrong_arguments,
		failures_are_undone, kinds_of_nodes, generators_get_their_states_back,
	};
	Suite *s = suite_create("kernel_times");
	TCase *tc = tcase_create("kernel_times");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, kernels_are_measured, 0, 5);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return test_main(s);
}
