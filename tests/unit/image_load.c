// SPDX-License-Identifier: Apache-2.0
/* Unit tests of loading: loaded graphs give the captured results, and every bad image is
 * refused. */
#include <fcntl.h>
#include <sys/mman.h>

#include "image/manifest.h"
#include "tests/lib/image.h"

static struct fdry_image *load(struct fdry_store *s, const struct fdry_load_opts *opts)
{
	struct fdry_image *img = NULL;

	ok(fdry_image_load(s, "img", opts, &img));
	return img;
}

/* Facts come in the order of their keys. */
static void facts_check(const struct fdry_image *img)
{
	const char *key, *value, *last = "", *found;
	size_t i;

	for (i = 0; !fdry_image_fact_at(img, i, &key, &value); i++) {
		ck_assert_str_lt(last, key);
		ok(fdry_image_fact(img, key, &found));
		ck_assert_str_eq(found, value);
		last = key;
	}
	ck_assert_uint_gt(i, 3);
	ck_assert_str_eq(last, "model");
	fails(NOKEY, "was asked for", fdry_image_fact_at(img, i, &key, &value));
	fails(INVAL, "given no img", fdry_image_fact_at(NULL, 0, &key, &value));
	fails(INVAL, "given no key", fdry_image_fact_at(img, 0, NULL, &value));
	fails(INVAL, "given no value", fdry_image_fact_at(img, 0, &key, NULL));
}

START_TEST(numbers_come_back)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_POISON };
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_tensor t;
	char id[FDRY_ID_SIZE];
	const char *text;
	uint64_t key;
	uint32_t nodes;

	test_child(seal_plain, NULL);
	img = load(load_store(), &opts);
	ck_assert_uint_eq(fdry_image_graph_count(img), 2);
	ok(fdry_image_graph(img, 0, &key, &text, &nodes));
	ck_assert_uint_eq(key, 1);
	ck_assert_str_eq(text, "add");
	ck_assert_uint_eq(nodes, 1);
	fails(NOKEY, "number 2 was asked for", fdry_image_graph(img, 2, &key, NULL, NULL));
	ck_assert_uint_eq(fdry_image_tensor_count(img), 3);
	ok(fdry_image_tensor(img, 1, &t));
	ck_assert_str_eq(t.name, "b");
	ck_assert_uint_eq(t.use, FDRY_USE_CONST);
	ck_assert_int_eq(t.shape[0], N);
	fails(NOKEY, "no tensor named 'd'", fdry_image_tensor_find(img, "d", &t));
	ok(fdry_image_fact(img, "model", &text));
	ck_assert_str_eq(text, "adder");
	fails(NOKEY, "states no fact", fdry_image_fact(img, "modem", &text));
	facts_check(img);
	image_check(img, 1, 3, 100);
	image_check(img, 2, 4, 100);
	image_check(img, 1, 5, 100);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.graphs_built, 2);
	ck_assert_uint_gt(report.content_bytes, 0);
	fdry_image_id(img, id);
	ck_assert_uint_eq(strlen(id), 64);
	fdry_image_unload(img);
}
END_TEST

START_TEST(content_is_restored)
{
	float v[N], zeros[N] = { 0 };
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	img = load(load_store(), NULL);
	ok(fdry_image_write(img, "b", zeros, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	ck_assert(v[5] == vector_value(5, 7)); /* a as it was sealed, and nothing */
	ok(fdry_image_restore(img, NULL));
	ok(fdry_image_read(img, "b", v, BYTES, NULL));
	ck_assert(v[5] == vector_value(5, 100));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(nothing_is_left_behind)
{
	struct fdry_store *s;
	long before;
	int i;

	test_child(seal_plain, NULL);
	s = load_store();
	test_sim();
	before = live_before();
	test_sim_fail(NULL);
	for (i = 0; i < 20; i++) {
		struct fdry_image *img = load(s, NULL);

		image_check(img, 1, 3, 100);
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), before);
	}
	/* A context that has used many streams is slower for ever. */
	ck_assert_uint_eq(test_sim_calls("cuStreamCreate"), 0);
}
END_TEST

START_TEST(external_tensors)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_POISON };
	struct fdry_image *img;
	float v[N];

	test_child(seal_external, NULL);
	img = load(load_store(), &opts);
	fails(UNBOUND, "1 external tensor(s) have no content yet, 'b' first",
	      fdry_image_launch(img, 1, NULL));
	fails(STATE, "'a' is not external", fdry_image_filled(img, "a"));
	fails(RANGE, "has 4000 bytes, and 3996 were given",
	      fdry_image_write(img, "b", v, BYTES - 4, NULL));
	fails(UNBOUND, "'b' first", fdry_image_launch(img, 1, NULL));
	vector_fill(v, 55);
	ok(fdry_image_write(img, "b", v, BYTES, NULL));
	image_check(img, 1, 3, 55);
	fdry_image_unload(img);

	img = load(load_store(), NULL);
	ok(fdry_image_filled(img, NULL));
	ok(fdry_image_filled(img, "b"));
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(copied_from_device_memory)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUdeviceptr p;
	float v[N];

	test_child(seal_external, NULL);
	img = load(load_store(), NULL);
	drv = test_sim();
	ck_assert_int_eq(drv->cuMemAlloc_v2(&p, BYTES), CUDA_SUCCESS);
	vector_fill(v, 66);
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(p, v, BYTES), CUDA_SUCCESS);
	ok(fdry_image_copy(img, "b", p, BYTES, NULL));
	image_check(img, 1, 3, 66);
	fdry_image_unload(img);
}
END_TEST

/* --- order and threads --- */

START_TEST(threads_and_order_change_nothing)
{
	static const uint64_t order[] = { 2, 1 };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BUILD, .order = order,
				       .norder = (size_t)_i % 3, .threads = (uint32_t)_i };
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	img = load(load_store(), &opts);
	image_check(img, 1, 3, 100);
	image_check(img, 2, 5, 100);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.threads, _i ? (unsigned int)_i - 1 : 1);
	ck_assert_uint_gt(report.object_bytes, 500);
	ck_assert(report.objects_ms > 0 && report.objects_ms < report.total_ms);
	ck_assert(report.objects_cpu_ms > 0);
	ck_assert(report.first_ms > 0 && report.first_ms < report.all_ms);
	ck_assert(report.all_ms <= report.total_ms);
	fdry_image_unload(img);
}
END_TEST

#define MUCH (40u << 20)

/* Seal content that several threads prepare, and whose copies wait for the kernels. */
static void seal_much(void *arg)
{
	struct fdry_tensor t = { .name = "much", .dtype = FDRY_U32, .use = FDRY_USE_CONST,
				 .rank = 1, .shape = { MUCH / 4 },
				 .stride = { 1 } };
	uint32_t *v = malloc(MUCH), i;
	struct work w;

	(void)arg;
	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &t.addr, MUCH);
	for (i = 0; i < MUCH / 4; i++)
		v[i] = i * 2654435761u + 1;
	cuda_ok(cuMemcpyHtoD_v2, t.addr, v, MUCH);
	free(v);
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static void much_check(struct fdry_image *img)
{
	uint32_t *v = malloc(MUCH), i;

	ok(fdry_image_read(img, "much", v, MUCH, NULL));
	for (i = 0; i < MUCH / 4 && v[i] == i * 2654435761u + 1; i++)
		;
	ck_assert_uint_eq(i, MUCH / 4);
	free(v);
}

START_TEST(much_content)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_POISON };
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	long before;
	int i;

	test_child(seal_much, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < 4; i++) {
		opts.threads = (uint32_t)i;
		/* The first module is that of fingerprints. */
		test_sim_fail(i == 1 ? "cuModuleLoadDataEx:2" : NULL);
		if (i == 1) {
			fails(DRIVER, "kernel 0",
			      fdry_image_load(load_store(), "img", &opts, &img));
			ck_assert_int_eq(live_objects(), before);
			continue;
		}
		img = load(load_store(), &opts);
		ok(fdry_image_report(img, &report));
		ck_assert_uint_gt(report.content_bytes, MUCH);
		ck_assert_uint_eq(report.verified_bytes, i ? 0 : report.content_bytes);
		much_check(img);
		image_check(img, 1, 3, 100);
		ok(fdry_image_restore(img, NULL));
		much_check(img);
		fdry_image_unload(img);
	}
}
END_TEST

/* The report has the times of graphs that are built later after they are built. */
START_TEST(first_and_all)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	img = load(load_store(), NULL);
	ok(fdry_image_report(img, &report));
	ck_assert(report.first_ms == 0 && report.all_ms == 0);
	ok(fdry_image_build(img, 2));
	ok(fdry_image_report(img, &report));
	ck_assert(report.first_ms >= report.total_ms && report.all_ms == 0);
	ok(fdry_image_build(img, 1));
	ok(fdry_image_report(img, &report));
	ck_assert(report.all_ms > report.first_ms);
	fdry_image_unload(img);
}
END_TEST

START_TEST(orders_that_are_wrong)
{
	static const uint64_t unknown[] = { 2, 3 }, twice[] = { 1, 1 };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .order = unknown, .norder = 2 };
	struct fdry_image *img;

	test_child(seal_plain, NULL);
	fails(NOKEY, "order names graph 3", fdry_image_load(load_store(), "img", &opts, &img));
	opts.order = twice;
	fails(EXISTS, "graph 1 twice", fdry_image_load(load_store(), "img", &opts, &img));
	opts.order = NULL;
	fails(OPTS, "norder is 2, but order is NULL",
	      fdry_image_load(load_store(), "img", &opts, &img));
	opts.norder = 0;
	opts.reserved = 7;
	fails(OPTS, "reserved field of struct fdry_load_opts is 7",
	      fdry_image_load(load_store(), "img", &opts, &img));
}
END_TEST

/* --- loads that must be refused --- */

START_TEST(unknown_names)
{
	struct fdry_image *img;
	struct fdry_store *s;

	test_child(seal_plain, NULL);
	s = load_store();
	fails(NOENT, "no ref 'imh'", fdry_image_load(s, "imh", NULL, &img));
	fails(NOENT, "",
	      fdry_image_load(s, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			      NULL, &img));
	img = load(s, NULL);
	fails(NOKEY, "no graph with key 3", fdry_image_launch(img, 3, NULL));
	fails(NOKEY, "no graph with key 3", fdry_image_build(img, 3));
	fdry_image_unload(img);
}
END_TEST

START_TEST(wrong_facts)
{
	struct fdry_fact fact = { "model", "adder" };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .facts = &fact, .nfacts = 1 };
	struct fdry_image *img;
	struct fdry_store *s;

	test_child(seal_plain, NULL);
	s = load_store();
	img = load(s, &opts);
	fdry_image_unload(img);
	fact.value = "multiplier";
	fails(IDENTITY, "another 'model': 'adder' there, 'multiplier' here",
	      fdry_image_load(s, "img", &opts, &img));
	fact.key = "rank";
	fails(IDENTITY, "does not state the fact 'rank'", fdry_image_load(s, "img", &opts, &img));
	opts.flags = 1u << 20;
	fails(OPTS, "does not know the flags", fdry_image_load(s, "img", &opts, &img));
	opts.flags = 0;
	opts.device = 1;
	fails(NOGPU, "no device 1", fdry_image_load(s, "img", &opts, &img));
}
END_TEST

/* Other machines, simulated by the software driver's variables, and the load's messages. */
static const struct {
	const char *var, *value;
	int code;
	const char *says;
} machines[] = {
	{ "FDRY_SIM_CC", "8.0", FDRY_E_IDENTITY,
	  "another GPU architecture: sm_90 there, sm_80 here" },
	{ "FDRY_SIM_DRIVER_VERSION", "12040", FDRY_E_IDENTITY,
	  "another CUDA version of the driver: 13000 there, 12040 here" },
	{ "FDRY_SIM_DRIVER_VERSION", "11000", FDRY_E_IDENTITY, "CUDA version of the driver" },
	{ "FDRY_SIM_DEVICES", "0", FDRY_E_NOGPU, "no CUDA device" },
	{ "FDRY_SIM_MEMORY", "1M", FDRY_E_NODEVMEM,
	  "needs 2097152 bytes of device memory, and the device has 1048576 of 1048576 free" },
	{ "FOUNDRY_DRIVER", "/nowhere/libcuda.so.1", FDRY_E_NODRIVER, "no CUDA driver" },
};

START_TEST(other_machines)
{
	struct fdry_image *img;
	struct fdry_store *s;
	int err;

	test_child(seal_plain, NULL);
	s = load_store();
	ok(setenv(machines[_i].var, machines[_i].value, 1));
	err = fdry_image_load(s, "img", NULL, &img);
	ck_assert_msg(err == -machines[_i].code, "%s: %s", fdry_error_name(err), fdry_last_error());
	ck_assert_msg(strstr(fdry_last_error(), machines[_i].says), "'%s'", fdry_last_error());
}
END_TEST

/* The manifest was read, and the driver is not started yet: wait until memory is made. */
static void pages_wait(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	long *kb = arg;
	int i;

	(void)done, (void)total, (void)ms;
	for (i = 0; phase == FDRY_PHASE_MANIFEST && i < 10000; i++) {
		if (test_status("VmRSS") > *kb + (16 << 10)) {
			*kb = -1;
			return;
		}
		usleep(1000);
	}
}

/* Threads make memory for content before there is a driver. If that refuses the image, they end,
 * and their memory is freed. */
START_TEST(refused_when_memory_is_made)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .progress = pages_wait };
	long threads, before, kb;
	struct fdry_image *img;
	struct fdry_store *s;
	int i;

	test_child(seal_much, NULL);
	s = load_store();
	ok(setenv(machines[_i].var, machines[_i].value, 1));
	ck_assert_int_eq(fdry_image_load(s, "img", NULL, &img), -machines[_i].code);
	threads = test_status("Threads");
	before = test_status("VmRSS");
	opts.progress_arg = &kb;
	for (i = 0; i < 10; i++) {
		kb = test_status("VmRSS");
		ck_assert_int_eq(fdry_image_load(s, "img", &opts, &img), -machines[_i].code);
		ck_assert(strstr(fdry_last_error(), machines[_i].says));
		ck_assert_int_eq(kb, -1); /* it was made */
	}
	for (i = 0; i < 1000 && test_status("Threads") > threads; i++)
		usleep(1000);
	ck_assert_int_le(test_status("Threads"), threads);
	ck_assert_int_lt(test_status("VmRSS"), before + (64 << 10)); /* ten loads made 160 MiB */
}
END_TEST

START_TEST(addresses_in_use)
{
	struct fdry_image *img;
	struct fdry_store *s;

	test_child(seal_plain, NULL);
	s = load_store();
	ck_assert_ptr_ne(mmap((void *)TEST_CAPTURE_BASE, 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 MAP_FAILED);
	fails(TAKEN, "taken by anonymous", fdry_image_load(s, "img", NULL, &img));
	ok(munmap((void *)TEST_CAPTURE_BASE, 4096));
	img = load(s, NULL);
	fails(TAKEN, "taken", fdry_image_load(s, "img", NULL, &img));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* Flip one byte of the stored content: a pattern of the vector b, which no other page holds. */
static void store_damage(void)
{
	char file[400];
	float v[N];
	uint8_t *p;
	size_t i, len;
	int fd;
	struct stat st;

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	fd = open(file, O_RDWR);
	ok(fstat(fd, &st));
	len = (size_t)st.st_size;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	vector_fill(v, 100);
	for (i = 0; i + BYTES <= len && memcmp(p + i, v, BYTES); i++)
		;
	ck_assert_uint_le(i + BYTES, len);
	p[i + 2000] ^= 1;
	munmap(p, len);
	close(fd);
}

START_TEST(damaged_content)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_VERIFY };
	struct fdry_image *img;
	struct fdry_store *s;
	long before;

	test_child(seal_plain, NULL);
	store_damage();
	s = load_store();
	test_sim();
	before = live_before();
	ck_assert_int_eq(fdry_image_load(s, "img", &opts, &img), -FDRY_E_CORRUPT);
	ck_assert_int_eq(fdry_image_load(s, "img", NULL, &img), -FDRY_E_CORRUPT);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* Hashed objects are remembered until the next boot, unless the load verifies all objects. */
static void CUDA_CB takes_long(void *arg)
{
	(void)arg;
	usleep(100000);
}

/* The program works in a context of its own, and seals while that work runs: it sets b to 2.5. */
static void seal_from_another_context(void *unused)
{
	CUcontext own, popped;
	CUstream stream;
	struct work w;

	(void)unused;
	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	cuda_ok(cuCtxCreate_v4, &own, NULL, 0, 0);
	cuda_ok(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuLaunchHostFunc, stream, takes_long, NULL);
	cuda_ok(cuMemsetD32Async, w.b, 0x40200000, N, stream);
	ok(work_seal(&w, "img"));
	cuda_ok(cuCtxPopCurrent_v2, &popped);
	ck_assert_ptr_eq(popped, own);
	work_end(&w);
}

START_TEST(sealed_when_the_programs_work_is_done)
{
	struct fdry_image *img;
	float b[N];
	int i;

	test_child(seal_from_another_context, NULL);
	img = load(load_store(), NULL);
	ok(fdry_image_read(img, "b", b, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(b[i] == 2.5f, "b[%d] is %g", i, (double)b[i]);
	fdry_image_unload(img);
}
END_TEST

/* If a manifest contradicts its objects, a load detects that before callers get any of its data. */
START_TEST(nodes_that_are_not_there)
{
	struct fdry_image *img = NULL;
	struct fdry_buf bytes = { 0 };
	struct fdry_mf_graph *graph;
	struct fdry_manifest m;

	test_child(seal_plain, NULL);
	image_manifest_read(&bytes, &m);
	graph = image_manifest_at(&bytes, &m.graphs[1]);
	graph->nodes++;
	image_manifest_store(&bytes, &m, "bad");
	fails(BADIMAGE, "graph 2: it has 1 nodes, but 2 in the manifest",
	      fdry_image_load(load_store(), "bad", NULL, &img));
}
END_TEST

/* Nothing of its content is written back before all of it is found. */
START_TEST(restoring_what_was_collected_changes_nothing)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_image *img;
	float v[N], was[N];
	struct fdry_store *s;
	int i;

	test_child(seal_plain, NULL);
	s = load_store();
	img = load(s, NULL);
	for (i = 0; i < N; i++)
		v[i] = 7;
	ok(fdry_image_write(img, "b", v, sizeof(v), NULL));
	ok(fdry_store_remove(s, "img"));
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_gt(r.dead, 0);
	fails(NOENT, "was removed from the store", fdry_image_restore(img, NULL));
	ok(fdry_image_read(img, "b", was, sizeof(was), NULL));
	ck_assert(!memcmp(v, was, sizeof(v)));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(verified_once_or_always)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_VERIFY };
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	int i;

	test_child(seal_plain, NULL);
	for (i = 0; i < 3; i++) {
		img = load(load_store(), i == 2 ? &opts : NULL);
		ok(fdry_image_restore(img, NULL));
		ok(fdry_image_report(img, &report));
		ck_assert_uint_eq(report.content_bytes, 8192);
		ck_assert_uint_eq(report.verified_bytes, i == 1 ? 0 : 8192);
		fdry_image_unload(img);
	}
	store_damage(); /* this changes data.mdb, so earlier verifications are void */
	fails(CORRUPT, "content at 0x", fdry_image_load(load_store(), "img", NULL, &img));
	fails(CORRUPT, "content at 0x", fdry_image_load(load_store(), "img", &opts, &img));
}
END_TEST

START_TEST(described)
{
	struct fdry_store *s;
	char *text;

	test_child(seal_plain, NULL);
	s = load_store();
	ok(fdry_image_describe(s, "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "fact model = adder\n"));
	ck_assert_ptr_nonnull(strstr(text, "tensor b F32 const 0x"));
	ck_assert_ptr_nonnull(strstr(text, "graph 2 'add' 1 nodes"));
	ck_assert_ptr_nonnull(strstr(text, "vecadd (whole: "));
	free(text);
	fails(NOENT, "no ref", fdry_image_describe(s, "nobody", &text));
}
END_TEST

static void seal_several_kinds(void *arg)
{
	CUgraphEdgeData data = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
				 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };
	CUDA_KERNEL_NODE_PARAMS p = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				      .blockDimY = 1, .blockDimZ = 1 };
	CUgraphNode n[2];
	CUfunction f;
	CUgraph graph;
	struct work w;

	(void)arg;
	work_make(&w);
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	cuda_ok(cuMemsetD32Async, w.a, 1, 4, w.stream);
	launch_add(&w, w.a, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 7, "both", capture_stop(&w)));
	cuda_ok(cuModuleGetFunction, &f, w.module, "nothing");
	p.func = f;
	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuGraphAddKernelNode_v2, &n[0], graph, NULL, 0, &p);
	cuda_ok(cuGraphAddKernelNode_v2, &n[1], graph, NULL, 0, &p);
	cuda_ok(cuGraphAddDependencies_v2, graph, &n[0], &n[1], &data, 1);
	ok(fdry_capture_graph(w.cap, 8, NULL, graph));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(graphs_described)
{
	test_child(seal_several_kinds, NULL);
	described_as("graph 7 holds 2 kernel, 1 memset, 2 edges, 0 of them with data\n");
	described_as("graph 8 holds 2 kernel, 1 edges, 1 of them with data\n");
}
END_TEST

/* The same work in two processes has the same id. */
START_TEST(ids_are_equal)
{
	char *ids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	test_child(seal_plain, ids);
	test_child(seal_plain, ids + 128);
	ck_assert_uint_eq(strlen(ids), 64);
	ck_assert_str_eq(ids, ids + 128);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_load");
	TCase *tc = tcase_create("load");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, numbers_come_back);
	tcase_add_test(tc, content_is_restored);
	tcase_add_test(tc, nothing_is_left_behind);
	tcase_add_test(tc, external_tensors);
	tcase_add_test(tc, copied_from_device_memory);
	tcase_add_loop_test(tc, threads_and_order_change_nothing, 0, 4);
	tcase_add_test(tc, much_content);
	tcase_add_test(tc, first_and_all);
	tcase_add_test(tc, orders_that_are_wrong);
	tcase_add_test(tc, unknown_names);
	tcase_add_test(tc, wrong_facts);
	tcase_add_loop_test(tc, other_machines, 0, sizeof(machines) / sizeof(machines[0]));
	tcase_add_loop_test(tc, refused_when_memory_is_made, 0, 2);
	tcase_add_test(tc, addresses_in_use);
	tcase_add_test(tc, damaged_content);
	tcase_add_test(tc, nodes_that_are_not_there);
	tcase_add_test(tc, sealed_when_the_programs_work_is_done);
	tcase_add_test(tc, restoring_what_was_collected_changes_nothing);
	tcase_add_test(tc, verified_once_or_always);
	tcase_add_test(tc, described);
	tcase_add_test(tc, graphs_described);
	tcase_add_test(tc, ids_are_equal);
	suite_add_tcase(s, tc);
	return test_main(s);
}
