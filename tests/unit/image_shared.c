// SPDX-License-Identifier: Apache-2.0
/* Unit tests: images of one process share loaded kernels and graph objects, and still give exact
 * results. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "image/image.h"
#include "tests/lib/image_place.h"

#define IMAGES 4
#define THREADS 4

enum {
	COUNT = 1
}; /* key of the graph whose kernel counts in a variable of its module; that of step i is 10 + i */

/* Capture one step of x[i] -= rate * grad[i], by code without variables. Extra blocks distinguish
 * the graphs. */
static void graph_step(struct work *w, CUfunction sgd, uint64_t key)
{
	int n = N;
	void *args[] = { &w->a, &w->b, &w->c, &n };

	capture_start(w);
	cuda_ok(cuLaunchKernel, sgd, (N + 63) / 64 + (unsigned int)key, 1, 1, 64, 1, 1, 0,
		w->stream, args, NULL);
	ok(fdry_capture_graph(w->cap, key, "step", capture_stop(w)));
}

static void graph_count(struct work *w, CUdeviceptr out)
{
	void *args[] = { &out };

	capture_start(w);
	cuda_ok(cuLaunchKernel, w->count, 1, 1, 1, 1, 1, 1, 0, w->stream, args, NULL);
	ok(fdry_capture_graph(w->cap, COUNT, "count", capture_stop(w)));
}

/* img1 to img4, sealed one after the other: each has the graphs of those before it, and a step
 * more. */
static void seal_in_turn(void *unused)
{
	CUfunction sgd;
	CUmodule module;
	struct work w;
	float rate = 0.5f;
	CUdeviceptr zeros;
	size_t len;
	void *code;
	char ref[8];
	int i;

	(void)unused;
	work_make(&w);
	code = test_sim_cubin("train", &len);
	cuda_ok(cuModuleLoadData, &module, code);
	cuda_ok(cuModuleGetFunction, &sgd, module, "sgd");
	cuda_ok(cuMemcpyHtoD_v2, w.c, &rate, sizeof(rate));
	tensor_add(&w, "x", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "grad", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "rate", w.c, FDRY_USE_CONST, 0);
	cuda_ok(cuMemAlloc_v2, &zeros, 3u << 20);
	cuda_ok(cuMemsetD8_v2, zeros, 0, 3u << 20);
	cuda_ok(cuMemcpyHtoD_v2, zeros + (2u << 20), &rate, sizeof(rate));
	tensor_add(&w, "zeros", zeros, FDRY_USE_CONST, 0);
	graph_count(&w, w.a);
	for (i = 1; i <= IMAGES; i++) {
		graph_step(&w, sgd, 10 + (uint64_t)i);
		snprintf(ref, sizeof(ref), "img%d", i);
		ok(work_seal(&w, ref));
	}
	free(code);
	work_end(&w);
}

static struct fdry_image *load_flags(const struct work *w, int i, uint32_t flags)
{
	struct fdry_load_opts opts = into(w);
	struct fdry_image *img;
	char ref[8];

	opts.flags = flags;
	snprintf(ref, sizeof(ref), "img%d", i);
	ok(fdry_image_load(w->store, ref, &opts, &img));
	return img;
}

static struct fdry_image *load(const struct work *w, int i)
{
	return load_flags(w, i, 0);
}

/* x - rate * grad, whatever x was. */
static void step_check(struct fdry_image *img, uint64_t key)
{
	float v[N];
	int i;

	vector_fill(v, 3);
	ok(fdry_image_write(img, "x", v, BYTES, NULL));
	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "x", v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, 3) - 0.5f * vector_value(i, 100),
			      "x[%d] is %g", i, (double)v[i]);
}

static int count_of(struct fdry_image *img)
{
	float v[N];
	int found;

	ok(fdry_image_launch(img, COUNT, NULL));
	ok(fdry_image_read(img, "x", v, BYTES, NULL));
	memcpy(&found, v, sizeof(found));
	return found;
}

static struct fdry_load_report report_of(struct fdry_image *img)
{
	struct fdry_load_report r = { .sz = sizeof(r) };

	ok(fdry_image_report(img, &r));
	return r;
}

static CUfunction function_of(const struct fdry_image *img, const char *name)
{
	uint32_t i;

	for (i = 0; i < img->m.n_kernels; i++)
		if (!strcmp(img->kernels[i].name, name))
			return fdry_kernel_bank_get(img->bank, i);
	ck_abort_msg("no kernel %s", name);
	return NULL;
}

/* Begin a process that has only the region of the capturing one. */
static void process_begin(struct work *w)
{
	test_child(seal_in_turn, NULL);
	into_begin(w, 0, 0);
}

START_TEST(each_object_is_loaded_once)
{
	static struct work w;
	struct fdry_image *img[IMAGES];
	unsigned long loads, unloads;
	int i;

	process_begin(&w);
	loads = test_sim_calls("cuModuleLoadDataEx");
	for (i = 0; i < IMAGES; i++)
		img[i] = load(&w, i + 1);
	/* All share the code of the step and of fingerprints; each loads that of the counter. */
	ck_assert_uint_eq(test_sim_calls("cuModuleLoadDataEx") - loads, 2 + IMAGES);
	for (i = 1; i < IMAGES; i++) {
		ck_assert_ptr_eq(function_of(img[i], "sgd"), function_of(img[0], "sgd"));
		ck_assert_ptr_ne(function_of(img[i], "count"), function_of(img[0], "count"));
		ck_assert_ptr_eq(img[i]->execs[1].graph, img[0]->execs[1].graph);
	}
	unloads = test_sim_calls("cuModuleUnload");
	for (i = 0; i < IMAGES; i++) {
		step_check(img[IMAGES - 1], 10 + IMAGES);
		if (i < IMAGES - 1)
			fdry_image_unload(img[i]);
	}
	ck_assert_uint_eq(test_sim_calls("cuModuleUnload") - unloads, IMAGES - 1);
	fdry_image_unload(img[IMAGES - 1]);
	ck_assert_uint_eq(test_sim_calls("cuModuleUnload") - unloads, 2 + IMAGES);
	work_end(&w);
}
END_TEST

/* Each image begins with the variable as it was compiled, whatever graphs of others did to theirs.
 */
START_TEST(variables_are_each_images_own)
{
	static struct work w;
	struct fdry_image *first, *second;

	process_begin(&w);
	first = load(&w, 1);
	ck_assert_int_eq(count_of(first), 42);
	ck_assert_int_eq(count_of(first), 43);
	second = load(&w, 2);
	ck_assert_int_eq(count_of(second), 42);
	ck_assert_int_eq(count_of(first), 44);
	fdry_image_unload(first);
	ck_assert_int_eq(count_of(second), 43);
	fdry_image_unload(second);
	work_end(&w);
}
END_TEST

/* The second image has one more graph, and the process keeps the objects of the first image. */
START_TEST(known_objects_are_not_read)
{
	static struct work w;
	struct fdry_image *first, *second, *third;
	struct fdry_memory all = { TEST_CAPTURE_BASE, 1ull << 34 };
	struct fdry_load_opts opts;
	uint64_t whole;
	size_t variables;

	process_begin(&w);
	first = load(&w, 1);
	ck_assert_uint_gt(report_of(first).content_bytes, 0);
	opts = into(&w);
	opts.keep = &all;
	opts.nkeep = 1;
	ok(fdry_image_load(w.store, "img2", &opts, &second));
	ck_assert_uint_eq(report_of(second).content_bytes, 0);
	free(test_sim_cubin("kernels", &variables));
	ck_assert_uint_eq(report_of(second).object_bytes,
			  second->execs[2].graph->bytes.len + variables);
	whole = report_of(first).object_bytes + second->execs[2].graph->bytes.len;
	third = load_flags(&w, 2, FDRY_LOAD_VERIFY);
	ck_assert_uint_eq(report_of(third).object_bytes, whole);
	ck_assert_uint_gt(report_of(third).content_bytes, 0);
	step_check(second, 12);
	step_check(third, 11);
	fdry_image_unload(first);
	fdry_image_unload(third);
	step_check(second, 11);
	fdry_image_unload(second);
	work_end(&w);
}
END_TEST

static void tensor_set(struct fdry_image *img, const char *name, float salt)
{
	float v[N];

	vector_fill(v, salt);
	ok(fdry_image_write(img, name, v, BYTES, NULL));
}

/* The later images use the content of the first one in its place. */
START_TEST(content_that_is_there_is_not_copied)
{
	static struct work w;
	struct fdry_image *img[IMAGES];
	struct fdry_load_report first, next;
	float v[N];
	int i;

	process_begin(&w);
	img[0] = load(&w, 1);
	first = report_of(img[0]);
	img[1] = load(&w, 2);
	next = report_of(img[1]);
	ck_assert_uint_eq(next.content_bytes, 0);
	ck_assert_uint_eq(next.checked_bytes, first.checked_bytes);
	tensor_set(img[1], "grad", 7);
	img[2] = load(&w, 3);
	next = report_of(img[2]);
	ck_assert_uint_gt(next.content_bytes, 0);
	ck_assert_uint_lt(next.content_bytes, first.content_bytes);
	tensor_set(img[2], "zeros", 7);
	img[3] = load(&w, 4);
	ck_assert_uint_eq(report_of(img[3]).content_bytes, 0);
	ok(fdry_image_read(img[3], "zeros", v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert(v[i] == 0);
	for (i = 0; i < IMAGES; i++)
		step_check(img[i], 11 + (uint64_t)i);
	for (i = 0; i < IMAGES; i++)
		fdry_image_unload(img[i]);
	work_end(&w);
}
END_TEST

/* A kernel must not read memory to which a program may have taken away the device's access. */
START_TEST(mapped_memory_is_not_searched)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	static struct work w;
	struct fdry_image *first, *second;
	CUdeviceptr p = 0;

	process_begin(&w);
	first = load(&w, 1);
	cuda_ok(cuMemAddressReserve, &p, 2u << 20, 0, 0, 0);
	cuda_ok(cuMemCreate, &h, 2u << 20, &prop, 0);
	cuda_ok(cuMemMap, p, 2u << 20, 0, h, 0);
	cuda_ok(cuMemSetAccess, p, 2u << 20, &access, 1);
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	cuda_ok(cuMemSetAccess, p, 2u << 20, &access, 1);
	second = load(&w, 2);
	ck_assert_uint_eq(report_of(second).content_bytes, report_of(first).content_bytes);
	step_check(second, 12);
	fdry_image_unload(first);
	fdry_image_unload(second);
	cuda_ok(cuMemUnmap, p, 2u << 20);
	cuda_ok(cuMemRelease, h);
	cuda_ok(cuMemAddressFree, p, 2u << 20);
	work_end(&w);
}
END_TEST

/* Another context has its own modules, so the skipped object is read after all.
 */
START_TEST(another_context_loads_its_own)
{
	static struct work w;
	struct fdry_image *first, *own;

	process_begin(&w);
	first = load(&w, 1);
	own = load_flags(&w, 2, FDRY_LOAD_OWN_CONTEXT);
	ck_assert_ptr_ne(function_of(own, "sgd"), function_of(first, "sgd"));
	step_check(own, 12);
	fdry_image_unload(first);
	step_check(own, 11);
	fdry_image_unload(own);
	work_end(&w);
}
END_TEST

/* Each driver call of a load fails once beside an image that shares its modules and graphs. */
START_TEST(a_load_that_fails_leaves_others_as_they_are)
{
	static struct work w;
	struct fdry_image *first, *second = NULL;
	struct fdry_load_opts opts;
	char spec[32];
	int n;

	process_begin(&w);
	first = load(&w, 1);
	opts = into(&w);
	for (n = 1; !second; n++) {
		snprintf(spec, sizeof(spec), "*:%d:%d", n, CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		if (fdry_image_load(w.store, "img2", &opts, &second))
			second = NULL;
		test_sim_fail(NULL);
		step_check(first, 11);
	}
	ck_assert_int_gt(n, 5);
	step_check(second, 12);
	fdry_image_unload(first);
	step_check(second, 12);
	fdry_image_unload(second);
	work_end(&w);
}
END_TEST

struct loader {
	pthread_t thread;
	struct work *w;
	int image;
};

static void *loads(void *arg)
{
	struct loader *l = arg;
	struct fdry_image *img;
	int i;

	for (i = 0; i < 20; i++) {
		img = load(l->w, l->image);
		ok(fdry_image_build(img, 10 + (uint64_t)l->image));
		fdry_image_unload(img);
	}
	return NULL;
}

START_TEST(threads_share)
{
	static struct work w;
	struct loader l[THREADS];
	struct fdry_image *img;
	int i;

	process_begin(&w);
	for (i = 0; i < THREADS; i++) {
		l[i] = (struct loader){ .w = &w, .image = 1 + i % IMAGES };
		ck_assert(!pthread_create(&l[i].thread, NULL, loads, &l[i]));
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(l[i].thread, NULL);
	img = load(&w, IMAGES);
	step_check(img, 11);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

static void hold_built(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	atomic_int *held = arg;

	(void)total, (void)ms;
	if (phase != FDRY_PHASE_GRAPHS || done != 1)
		return;
	atomic_store(held, 1);
	while (atomic_load(held) == 1)
		usleep(100);
}

/* While the first image's builder is busy, that of the second waits, unless a thread waits for
 * it. */
START_TEST(images_are_built_in_turn)
{
	static struct work w;
	struct fdry_image *img[IMAGES];
	struct fdry_load_opts opts;
	atomic_int held = 0;
	int i;

	process_begin(&w);
	opts = into(&w);
	opts.flags = FDRY_LOAD_BACKGROUND;
	opts.progress = hold_built;
	opts.progress_arg = &held;
	ok(fdry_image_load(w.store, "img1", &opts, &img[0]));
	for (i = 0; i < 20000 && !atomic_load(&held); i++)
		usleep(500);
	for (i = 1; i < IMAGES; i++)
		img[i] = load_flags(&w, i + 1, FDRY_LOAD_BACKGROUND);
	usleep(50000);
	for (i = 1; i < IMAGES; i++)
		ck_assert_uint_eq(report_of(img[i]).graphs_built, 0);
	ok(fdry_image_wait(img[2]));
	ck_assert_uint_eq(report_of(img[2]).graphs_built, 4);
	ok(fdry_image_build_stop(img[3]));
	ck_assert_uint_eq(report_of(img[1]).graphs_built + report_of(img[3]).graphs_built, 0);
	atomic_store(&held, 2);
	for (i = 0; i < 20000 && report_of(img[1]).graphs_built < 3; i++)
		usleep(500);
	ck_assert_uint_eq(report_of(img[1]).graphs_built, 3);
	ck_assert_uint_eq(report_of(img[3]).graphs_built, 0);
	for (i = 0; i < IMAGES; i++)
		fdry_image_unload(img[i]);
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_shared");
	TCase *tc = tcase_create("shared");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, each_object_is_loaded_once);
	tcase_add_test(tc, variables_are_each_images_own);
	tcase_add_test(tc, known_objects_are_not_read);
	tcase_add_test(tc, content_that_is_there_is_not_copied);
	tcase_add_test(tc, mapped_memory_is_not_searched);
	tcase_add_test(tc, another_context_loads_its_own);
	tcase_add_test(tc, a_load_that_fails_leaves_others_as_they_are);
	tcase_add_test(tc, threads_share);
	tcase_add_test(tc, images_are_built_in_turn);
	suite_add_tcase(s, tc);
	return test_main(s);
}
