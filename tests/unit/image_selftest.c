// SPDX-License-Identifier: Apache-2.0
/* Unit tests of self-tests: seals replay their graphs and put everything back; loads compare. */
#include "image/manifest.h"
#include "store/store.h"
#include "tests/lib/image_host.h"
#include "tests/lib/image_kinds.h"

#define SEED 77

/* The program's state beside a, b and c of its work. */
struct program {
	struct work w;
	CUdeviceptr s, count, scratch, unstable;
};

static struct fdry_tensor whole(const char *name, CUdeviceptr addr, uint32_t use)
{
	return (struct fdry_tensor){ .name = name, .addr = addr, .dtype = FDRY_I32, .use = use,
				     .rank = 1, .shape = { 1 }, .stride = { 1 } };
}

static void launch_scale(struct program *p)
{
	float factor = 2;
	int n = N;
	void *args[] = { &p->s, &factor, &n };

	cuda_ok(cuLaunchKernel, p->w.scale, (N + 63) / 64, 1, 1, 64, 1, 1, 0, p->w.stream, args,
		NULL);
}

static void launch_count(struct program *p)
{
	void *args[] = { &p->count };

	cuda_ok(cuLaunchKernel, p->w.count, 1, 1, 1, 64, 1, 1, 0, p->w.stream, args, NULL);
}

/* Graph 1: c = a + b, where b is an external constant. Graph 2: the state s doubles, and a module
 * variable is counted. Graph 3 reads memory that nothing has written. */
static void program_make(struct program *p)
{
	struct fdry_tensor t;
	float v[N];

	work_make(&p->w);
	cuda_ok(cuMemAlloc_v2, &p->s, BYTES);
	cuda_ok(cuMemAlloc_v2, &p->count, 4);
	cuda_ok(cuMemAlloc_v2, &p->unstable, BYTES);
	vector_fill(v, 3);
	cuda_ok(cuMemcpyHtoD_v2, p->s, v, BYTES);
	graph_add(&p->w, 1);
	capture_start(&p->w);
	launch_scale(p);
	launch_count(p);
	ok(fdry_capture_graph(p->w.cap, 2, "state", capture_stop(&p->w)));
	capture_start(&p->w);
	cuda_ok(cuMemAlloc_v2, &p->scratch, BYTES);
	launch_add(&p->w, p->scratch, p->w.a, p->unstable);
	ok(fdry_capture_graph(p->w.cap, 3, "unstable", capture_stop(&p->w)));
	tensor_add(&p->w, "a", p->w.a, FDRY_USE_INPUT, 0);
	tensor_add(&p->w, "b", p->w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	tensor_add(&p->w, "c", p->w.c, FDRY_USE_OUTPUT, 0);
	tensor_add(&p->w, "s", p->s, FDRY_USE_STATE, 0);
	tensor_add(&p->w, "u", p->unstable, FDRY_USE_OUTPUT, 0);
	t = whole("n", p->count, FDRY_USE_OUTPUT);
	ok(fdry_capture_tensor(p->w.cap, &t));
}

static void seal_tested(void *id)
{
	struct program p;

	program_make(&p);
	ok(fdry_capture_selftest(p.w.cap, SEED));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "img", id, NULL));
	work_end(&p.w);
}

/* --- seals --- */

/* A seal without a self-test makes the same image before and after one with it: content, external
 * memory, scratch, state and the module variable are as they were. */
static void seal_between(void *arg)
{
	char id[4][FDRY_ID_SIZE];
	struct program p;
	float v[N], b[N];
	int n;

	(void)arg;
	program_make(&p);
	cuda_ok(cuMemcpyDtoH_v2, b, p.w.b, BYTES);
	ok(fdry_capture_seal(p.w.cap, p.w.store, "one", id[0], NULL));
	ok(fdry_capture_selftest(p.w.cap, SEED));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "two", id[1], NULL));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "three", id[2], NULL));
	ok(fdry_capture_selftest(p.w.cap, 0));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "four", id[3], NULL));
	ck_assert_str_ne(id[0], id[1]);
	ck_assert_str_eq(id[1], id[2]);
	ck_assert_str_eq(id[0], id[3]);
	cuda_ok(cuMemcpyDtoH_v2, v, p.w.b, BYTES);
	ck_assert_mem_eq(v, b, BYTES);
	launch_count(&p);
	cuda_ok(cuStreamSynchronize, p.w.stream);
	cuda_ok(cuMemcpyDtoH_v2, &n, p.count, 4);
	ck_assert_int_eq(n, 42);
	work_end(&p.w);
}

START_TEST(a_seal_puts_everything_back)
{
	test_child(seal_between, NULL);
}
END_TEST

/* Each call of the driver that fails leaves memory as it was. */
static void seal_failing(void *arg)
{
	static const char *const calls[] = {
		"cuGraphInstantiateWithFlags:1", "cuGraphLaunch:1", "cuGraphLaunch:3",
		"cuGraphLaunch:6", "cuGraphGetNodes:1", "cuStreamCreate:1",
	};
	char before[FDRY_ID_SIZE], after[FDRY_ID_SIZE];
	struct program p;
	size_t i;

	(void)arg;
	program_make(&p);
	ok(fdry_capture_seal(p.w.cap, p.w.store, "img", before, NULL));
	ok(fdry_capture_graph_fixed(p.w.cap, 1, 1));
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		ok(fdry_capture_selftest(p.w.cap, SEED));
		test_sim_fail(calls[i]);
		ck_assert_msg(fdry_capture_seal(p.w.cap, p.w.store, "img", NULL, NULL) < 0, "%s",
			      calls[i]);
		ck_assert_uint_eq(test_sim_failed(), 1);
		test_sim_fail(NULL);
		ok(fdry_capture_selftest(p.w.cap, 0));
		ok(fdry_capture_seal(p.w.cap, p.w.store, "img", after, NULL));
		ck_assert_str_eq(before, after);
	}
	work_end(&p.w);
}

START_TEST(errors_are_undone)
{
	test_child(seal_failing, NULL);
}
END_TEST

/* External tensors leave scratch that neither begins nor ends at a multiple of 4. */
static void seal_odd(void *arg)
{
	char before[FDRY_ID_SIZE], after[FDRY_ID_SIZE];
	struct fdry_tensor t = { .dtype = FDRY_U8, .use = FDRY_USE_INPUT, .rank = 1,
				 .flags = FDRY_TENSOR_EXTERNAL, .shape = { 5 }, .stride = { 1 } };
	CUdeviceptr odd;
	struct program p;

	(void)arg;
	program_make(&p);
	capture_start(&p.w);
	cuda_ok(cuMemAlloc_v2, &odd, 4096);
	launch_add(&p.w, odd + 1024, p.w.a, p.w.b);
	ok(fdry_capture_graph(p.w.cap, 4, "odd", capture_stop(&p.w)));
	t.name = "first";
	t.addr = odd + 1;
	ok(fdry_capture_tensor(p.w.cap, &t));
	t.name = "second";
	t.addr = odd + 9;
	ok(fdry_capture_tensor(p.w.cap, &t));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "img", before, NULL));
	ok(fdry_capture_selftest(p.w.cap, SEED));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "img", NULL, NULL));
	ok(fdry_capture_selftest(p.w.cap, 0));
	ok(fdry_capture_seal(p.w.cap, p.w.store, "img", after, NULL));
	ck_assert_str_eq(before, after);
	work_end(&p.w);
}

START_TEST(scratch_at_odd_addresses)
{
	test_child(seal_odd, NULL);
}
END_TEST

static void seal_refused(void *arg)
{
	struct host_work h;

	(void)arg;
	host_make(&h, false);
	ok(fdry_capture_selftest(h.w.cap, SEED));
	graph_add(&h.w, 9);
	tensor_add(&h.w, "in", (CUdeviceptr)(uintptr_t)h.in, FDRY_USE_INPUT, FDRY_TENSOR_HOST);
	tensor_add(&h.w, "plain", (CUdeviceptr)(uintptr_t)h.plain, FDRY_USE_CONST,
		   FDRY_TENSOR_HOST);
	tensor_add(&h.w, "out", (CUdeviceptr)(uintptr_t)h.out, FDRY_USE_INPUT, FDRY_TENSOR_HOST);
	tensor_add(&h.w, "state", (CUdeviceptr)(uintptr_t)h.state, FDRY_USE_INPUT,
		   FDRY_TENSOR_HOST);
	tensor_add(&h.w, "table", (CUdeviceptr)(uintptr_t)h.table, FDRY_USE_INPUT,
		   FDRY_TENSOR_HOST);
	fails(STATE, "nothing to compare; name an output", work_seal(&h.w, "img"));
	host_end(&h);
	work_base += 1ull << 40;
}

static void seal_external_host(void *arg)
{
	struct host_work h;

	(void)arg;
	host_make(&h, false);
	tensors_name(&h);
	tensor_add(&h.w, "more", (CUdeviceptr)(uintptr_t)h.plain, FDRY_USE_CONST,
		   FDRY_TENSOR_HOST | FDRY_TENSOR_EXTERNAL);
	ok(fdry_capture_selftest(h.w.cap, SEED));
	fails(REFUSED, "cannot fill tensor 'more', which is external, in host memory and no input",
	      work_seal(&h.w, "img"));
	host_end(&h);
}

START_TEST(graphs_that_cannot_be_tested_are_refused)
{
	test_child(seal_refused, NULL);
	test_child(seal_external_host, NULL);
	fails(INVAL, "", fdry_capture_selftest(NULL, 1));
}
END_TEST

/* Pinned memory in copies of graphs: outputs are compared, and the program's bytes come back. */
static void seal_host(void *id)
{
	float before[N], after[N];
	struct host_work h;

	host_make(&h, false);
	tensors_name(&h);
	memcpy(before, h.out, BYTES);
	memcpy(after, h.state, BYTES);
	ok(fdry_capture_selftest(h.w.cap, SEED));
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	ck_assert_mem_eq(before, h.out, BYTES);
	ck_assert_mem_eq(after, h.state, BYTES);
	host_end(&h);
}

START_TEST(host_memory_is_tested)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	test_child(seal_host, NULL);
	img = load_image("img", NULL);
	ok(fdry_image_selftest(img, NULL, NULL, &r));
	ck_assert_uint_gt(r.outputs, 0);
	ck_assert_uint_eq(r.differ, 0);
	fdry_image_unload(img);
}
END_TEST

/* --- loads --- */

START_TEST(an_image_passes_its_test)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;
	float v[N];
	int i, n;

	test_child(seal_tested, NULL);
	img = load_image("img", NULL);
	for (i = 0; i < 3; i++) {
		ok(fdry_image_selftest(img, NULL, NULL, &r));
		ck_assert_uint_eq(r.graphs, 3);
		ck_assert_uint_eq(r.left_out, 0);
		ck_assert_uint_eq(r.unstable, 1); /* u after graph 3 */
		ck_assert_uint_eq(r.outputs, 3 * 4 - 1);
		ck_assert_uint_eq(r.differ, 0);
		fails(UNBOUND, "'b'", fdry_image_launch(img, 1, NULL));
		vector_fill(v, 100);
		ok(fdry_image_write(img, "b", v, BYTES, NULL));
		image_check(img, 1, 5, 100);
		ok(fdry_image_launch(img, 2, NULL));
		ok(fdry_image_read(img, "n", &n, 4, NULL));
		ck_assert_int_eq(n, 42);
		ok(fdry_image_read(img, "s", v, BYTES, NULL));
		ck_assert(v[0] == 6);
	}
	fdry_image_unload(img);
}
END_TEST

/* Store image "img" as "other", with another result of entry @entry in its self-test. */
static void image_change(size_t entry)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_mf_selftest *e;
	struct fdry_manifest m;

	image_manifest_read(&bytes, &m);
	ck_assert_uint_gt(m.n_selftests, entry);
	e = image_manifest_at(&bytes, &m.selftests[entry]);
	e->print.a ^= 1;
	image_manifest_store(&bytes, &m, "other");
}

static void note(void *arg, const char *text)
{
	strcpy(arg, text);
}

START_TEST(a_difference_is_named)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;
	char text[512];

	test_child(seal_tested, NULL);
	image_change(0);
	img = load_image("other", NULL);
	fails(CORRUPT, "graph 1 'add' writes other bytes to output 'c' than at the seal (1 of 11 "
		       "results differ)",
	      fdry_image_selftest(img, note, text, &r));
	ck_assert_str_eq(text, "graph 1 'add' writes other bytes to output 'c' than at the seal");
	ck_assert_uint_eq(r.differ, 1);
	fails(CORRUPT, "", fdry_image_selftest(img, NULL, NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(an_image_without_a_test_is_refused)
{
	struct fdry_selftest_report wrong = { .sz = 1 };
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	img = load_image("img", NULL);
	fails(STATE, "the image has no self-test", fdry_image_selftest(img, NULL, NULL, NULL));
	fails(OPTS, "", fdry_image_selftest(img, NULL, NULL, &wrong));
	fails(INVAL, "", fdry_image_selftest(NULL, NULL, NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

/* If a launch fails, content is as sealed, and external tensors must be filled again. */
START_TEST(a_failed_test_is_undone)
{
	struct fdry_image *img;
	float v[N];

	test_child(seal_tested, NULL);
	img = load_image("img", NULL);
	test_sim_fail("cuGraphLaunch:3");
	fails(DRIVER, "", fdry_image_selftest(img, NULL, NULL, NULL));
	test_sim_fail(NULL);
	fails(UNBOUND, "'b'", fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "s", v, BYTES, NULL));
	ck_assert(v[0] == 3);
	ok(fdry_image_selftest(img, NULL, NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

/* --- kinds of nodes --- */

static const char *const reasons[KINDS] = {
	[KIND_HOST] = "a host node, which calls a function of the program",
	[KIND_EVENT] = "an event, which orders other work of the program",
	[KIND_CONDITION] = "a conditional node, and the driver allows one executable of its graph",
	[KIND_WAIT] = "a memory operation that waits for a value",
	[KIND_HOST_CHILD] = "a host node, which calls a function of the program",
};

static char warnings[4096];

static void warning(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	strcat(strcat(warnings, text), "\n");
}

static void seal_kinds(void *arg)
{
	struct work w;
	char line[200];
	unsigned int i;

	(void)arg;
	image_kinds_make(&w);
	ok(fdry_capture_selftest(w.cap, SEED));
	fdry_log_set(warning, NULL, FDRY_LOG_WARN);
	ok(work_seal(&w, "img"));
	for (i = 0; i < KINDS; i++) {
		snprintf(line, sizeof(line),
			 "the self-test leaves out graph %u 'kind': it has %s\n", KIND_KEY + i,
			 reasons[i] ? reasons[i] : "");
		ck_assert_msg(!strstr(warnings, line) == !reasons[i], "%s%s", line, warnings);
	}
	ck_assert_int_eq(image_kind_calls, 0);
	work_end(&w);
}

/* Each kind is replayed, or left out for a stated reason. */
START_TEST(kinds_of_nodes)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_host_function f = image_kind_function();
	struct fdry_load_opts opts = { .sz = sizeof(opts), .functions = &f,
				       .nfunctions = 1 };
	struct fdry_image *img;
	uint32_t c[N];

	test_child(seal_kinds, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	ok(fdry_image_selftest(img, NULL, NULL, &r));
	ck_assert_uint_eq(r.graphs, KIND_PARENT + 1);
	ck_assert_uint_eq(r.left_out, KINDS - KIND_PARENT - 1);
	ck_assert_uint_eq(r.outputs, KIND_PARENT + 1);
	ck_assert_uint_eq(r.differ + r.unstable, 0);
	ck_assert_int_eq(image_kind_calls, 0);
	ok(fdry_image_launch(img, KIND_KEY + KIND_WRITE, NULL));
	ok(fdry_image_read(img, "c", c, sizeof(c), NULL));
	ck_assert_uint_eq(c[0], 9);
	fdry_image_unload(img);
}
END_TEST

/* --- manifests --- */

#define BASE 0x500000000000ull
#define put(buf, ...) ok(fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))
#define seeded(value, ...) \
	put(w->selftests, ((struct fdry_mf_selftest){ .seed = (value), __VA_ARGS__ }))
#define result(...) seeded(7, __VA_ARGS__)
#define tensor(i) (((struct fdry_mf_tensor *)(void *)w->tensors.data)[i])
#define DAMAGE(name, body) static void name(struct fdry_manifest_writer *w) { body; }

/* Two graphs, and two outputs of 4 bytes. */
static void manifest_fill(struct fdry_manifest_writer *w)
{
	struct fdry_mf_tensor t = { .dtype = FDRY_F32, .use = FDRY_USE_OUTPUT, .addr = BASE };

	w->base = BASE;
	w->end = BASE + 4096;
	put(w->segments, ((struct fdry_mf_segment){ BASE, 4096, 0, 0 }));
	put(w->graphs, ((struct fdry_mf_graph){ .key = 1 }));
	put(w->graphs, ((struct fdry_mf_graph){ .key = 2 }));
	ok(fdry_manifest_add_str(w, "a", &t.name));
	put(w->tensors, t);
	ok(fdry_manifest_add_str(w, "b", &t.name));
	put(w->tensors, t);
}

DAMAGE(no_graph, result(.graph = 2))
DAMAGE(no_tensor, result(.tensor = 2))
DAMAGE(far_tensor, result(.tensor = UINT32_MAX / 2))
DAMAGE(an_input, result(.tensor = 0); tensor(0).use = FDRY_USE_INPUT)
DAMAGE(both_flags, result(.flags = 3))
DAMAGE(reserved, result(.reserved = 1))
DAMAGE(no_seed, seeded(0, .tensor = 0))
DAMAGE(two_seeds, result(.tensor = 0); seeded(8, .tensor = 1))
DAMAGE(twice, result(.tensor = 0); result(.tensor = 0))
DAMAGE(order, result(.tensor = 1); result(.tensor = 0))
DAMAGE(graph_order, result(.graph = 1); result(.graph = 0))
DAMAGE(unstable_print, result(.flags = 1, .print = { 1, 0 }))
DAMAGE(left_out_tensor, result(.flags = 2, .tensor = 0))
DAMAGE(left_out_print, result(.flags = 2, .tensor = UINT32_MAX, .print = { 0, 1 }))

static const struct {
	unsigned int entry;
	void (*damage)(struct fdry_manifest_writer *w);
} damages[] = {
	{ 0, no_graph }, { 0, no_tensor }, { 0, far_tensor }, { 0, an_input }, { 0, both_flags },
	{ 0, reserved }, { 0, no_seed }, { 1, two_seeds }, { 1, twice }, { 1, order },
	{ 1, graph_order }, { 0, unstable_print }, { 0, left_out_tensor }, { 0, left_out_print },
};

START_TEST(every_field_is_checked)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	char says[64];

	manifest_fill(&w);
	damages[_i].damage(&w);
	snprintf(says, sizeof(says), "result %u of the self-test has no", damages[_i].entry);
	fails(BADIMAGE, says, fdry_manifest_encode(&w, &b));
	ck_assert_ptr_null(b.data);
	fdry_manifest_writer_release(&w);
}
END_TEST

START_TEST(results_are_read)
{
	struct fdry_manifest_writer all = { 0 }, *w = &all;
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;

	manifest_fill(w);
	result(.graph = 0, .tensor = 0, .print = { 1, 2 });
	result(.graph = 0, .tensor = 1, .flags = 1);
	result(.graph = 1, .tensor = UINT32_MAX, .flags = 2);
	ok(fdry_manifest_encode(w, &b));
	ok(fdry_manifest_init((struct fdry_span){ b.data, b.len }, &m));
	ck_assert_uint_eq(m.n_selftests, 3);
	ck_assert_uint_eq(m.selftests[0].print.b, 2);
	fdry_buf_release(&b);
	fdry_manifest_writer_release(w);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_seal_puts_everything_back, errors_are_undone, scratch_at_odd_addresses,
		graphs_that_cannot_be_tested_are_refused,
		host_memory_is_tested, an_image_passes_its_test, a_difference_is_named,
		an_image_without_a_test_is_refused, a_failed_test_is_undone, kinds_of_nodes,
		results_are_read,
	};
	Suite *s = suite_create("selftest");
	TCase *tc = tcase_create("selftest");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, every_field_is_checked, 0, sizeof(damages) / sizeof(damages[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
