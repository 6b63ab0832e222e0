// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the requirements of a load, which are computed without a driver: the load then
 * allocates exactly that.
 */
#include "tests/lib/image.h"

#define MIB (1ull << 20)

static struct fdry_requirements *needs_of(const char *name)
{
	struct fdry_requirements *n = NULL;

	ok(fdry_image_requirements(load_store(), name, NULL, &n));
	return n;
}

START_TEST(asked_without_a_driver)
{
	struct fdry_requirements *n;

	test_child(seal_external, NULL);
	load_store();
	ok(setenv("FOUNDRY_DRIVER", "/nowhere/libcuda.so.1", 1));
	ok(fdry_image_requirements(load_store(), "img", NULL, &n));
	ck_assert_uint_eq(n->base, TEST_CAPTURE_BASE);
	ck_assert_uint_eq(n->address_bytes, 2 * MIB);
	ck_assert_uint_eq(n->mapped_bytes, 2 * MIB);
	/* There are three vectors of 4,096 bytes. Only a is not zero in the kept memory: c
	 * was never written. */
	ck_assert_uint_eq(n->content_bytes, 3 * 4096 - BYTES);
	ck_assert_uint_eq(n->external_bytes, BYTES);
	ck_assert_uint_eq(n->scratch_bytes, 0);
	ck_assert_uint_eq(n->copied_bytes, 4096);
	ck_assert_uint_eq(n->graphs, 2);
	ck_assert_uint_eq(n->nodes, 2);
	ck_assert_uint_eq(n->exec_bytes, 2 * 3072);
	ck_assert_uint_eq(n->kernels, 1);
	ck_assert_uint_gt(n->kernel_bytes, 1000);
	ck_assert_uint_eq(n->nexternals, 1);
	ck_assert_str_eq(n->externals[0].name, "b");
	ck_assert_uint_eq(n->externals[0].addr, TEST_CAPTURE_BASE + 4096);
	ck_assert_uint_eq(n->externals[0].bytes, BYTES);
	free(n);
}
END_TEST

/* The facts of an image as text, one in a line. */
static void fact_print(void *arg, const struct fdry_fact *fact)
{
	char *text = arg;
	size_t len = strlen(text);

	ck_assert_int_lt(snprintf(text + len, 1000 - len, "%s=%s\n", fact->key, fact->value),
			 (int)(1000 - len));
}

START_TEST(facts_without_a_driver)
{
	char text[1000] = "";

	test_child(seal_plain, NULL);
	ok(setenv("FOUNDRY_DRIVER", "/nowhere/libcuda.so.1", 1));
	ok(fdry_image_facts(load_store(), "img", fact_print, text));
	ck_assert_msg(!strncmp(text, "fdry.gpu.arch=", 14), "%s", text);
	ck_assert_msg(strstr(text, "\nmodel=adder\n") != NULL, "%s", text);
	fails(NOENT, "no ref 'imh'", fdry_image_facts(load_store(), "imh", fact_print, text));
	fails(INVAL, "store", fdry_image_facts(NULL, "img", fact_print, text));
	fails(INVAL, "name", fdry_image_facts(load_store(), NULL, fact_print, text));
	fails(INVAL, "fn", fdry_image_facts(load_store(), "img", NULL, text));
}
END_TEST

START_TEST(wrong_requests)
{
	struct fdry_load_opts opts = { .sz = 3 };
	struct fdry_requirements *n = (struct fdry_requirements *)&opts;

	test_child(seal_plain, NULL);
	fails(NOENT, "no ref 'imh'", fdry_image_requirements(load_store(), "imh", NULL, &n));
	fails(OPTS, "3 bytes", fdry_image_requirements(load_store(), "img", &opts, &n));
	fails(INVAL, "store", fdry_image_requirements(NULL, "img", NULL, &n));
	fails(INVAL, "name", fdry_image_requirements(load_store(), NULL, NULL, &n));
	fails(INVAL, "ret", fdry_image_requirements(load_store(), "img", NULL, NULL));
	ck_assert_ptr_eq(n, &opts);
}
END_TEST

/* Memory apart: a small hole is mapped along, a large one is not. */
static void seal_spread(void *unused)
{
	static const uint64_t holes[] = { 62 * MIB, 66 * MIB };
	struct work w;
	CUdeviceptr p;
	uint64_t at;
	size_t i;

	(void)unused;
	work_make(&w);
	graph_add(&w, 1);
	for (i = 0; i < 2; i++) {
		ok(fdry_capture_offset(w.cap, &at));
		at = (at + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		ok(fdry_capture_set_offset(w.cap, at + holes[i]));
		cuda_ok(cuMemAlloc_v2, &p, 2 * MIB);
	}
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(holes)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_requirements *n;

	test_child(seal_spread, NULL);
	n = needs_of("img");
	ck_assert_uint_eq(n->address_bytes, (2 + 62 + 2 + 66 + 2) * MIB);
	ck_assert_uint_eq(n->mapped_bytes, (2 + 62 + 2 + 2) * MIB);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.mapped_bytes, n->mapped_bytes);
	ck_assert_uint_eq(report.content_bytes, n->copied_bytes);
	fdry_image_unload(img);
	free(n);
}
END_TEST

/* Other work has allocated memory since: the load reports the shortage before it maps anything. */
START_TEST(memory_that_shrank)
{
	const struct fdry_driver *drv;
	struct fdry_image *img = NULL;
	CUdeviceptr p;
	char text[200];
	size_t free_bytes, total;
	long before;

	test_child(seal_plain, NULL);
	load_store();
	drv = test_sim();
	ck_assert_int_eq(drv->cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuMemAlloc_v2(&p, free_bytes - MIB), CUDA_SUCCESS);
	before = live_before();
	snprintf(text, sizeof(text),
		 "needs %llu bytes of device memory, and the device has %llu of %zu free", 2 * MIB,
		 MIB, total);
	fails(NODEVMEM, text, fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_int_eq(live_objects(), before);
	ck_assert_int_eq(drv->cuMemFree_v2(p), CUDA_SUCCESS);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(described)
{
	test_child(seal_external, NULL);
	described_as("needs 2097152 bytes of device memory at 0x");
	described_as("needs b filled, 4000 bytes\n");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_requirements");
	TCase *tc = tcase_create("needs");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, asked_without_a_driver);
	tcase_add_test(tc, facts_without_a_driver);
	tcase_add_test(tc, wrong_requests);
	tcase_add_test(tc, holes);
	tcase_add_test(tc, memory_that_shrank);
	tcase_add_test(tc, described);
	suite_add_tcase(s, tc);
	return test_main(s);
}
