// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the fingerprint kernel on a device for which the library has PTX alone: one process
 * compiles it, and others find it in the store.
 */
#include "image/compiled.h"
#include "image/manifest.h"
#include "tests/lib/image.h"
#include "tests/replace/fingerprint_ptx.h"

#define COMPILED "cuLinkComplete"

/* The ref of the kernel, or "". */
static char kernel_ref[FDRY_REF_NAME_MAX + 1];
static int kernels;

static int ref_note(void *arg, const struct fdry_ref *ref)
{
	(void)arg;
	if (!strncmp(ref->name, FDRY_COMPILED_REF, strlen(FDRY_COMPILED_REF))) {
		snprintf(kernel_ref, sizeof(kernel_ref), "%s", ref->name);
		kernels++;
	}
	return 0;
}

static int kernels_count(void)
{
	kernels = 0;
	ok(fdry_ref_each(load_store(), ref_note, NULL));
	return kernels;
}

/* Load the image; its fingerprints are compared. @compiles: how often the driver compiles. */
static void load_counted(struct fdry_store *store, unsigned long compiles)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	unsigned long before = test_sim_calls(COMPILED);
	struct fdry_image *img = NULL;

	ok(fdry_image_load(store, "img", NULL, &img));
	ok(fdry_image_report(img, &report));
	ck_assert_uint_gt(report.checked_bytes, 0);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	ck_assert_uint_eq(test_sim_calls(COMPILED) - before, compiles);
}

static void first(void *arg)
{
	(void)arg;
	load_counted(load_store(), 1);
	ck_assert_int_eq(kernels_count(), 1);
	load_counted(load_store(), 0); /* its context has no fingerprinter any more */
}

static void later(void *arg)
{
	(void)arg;
	load_counted(load_store(), 0);
	ck_assert_int_eq(kernels_count(), 1);
}

START_TEST(one_process_compiles)
{
	test_child(seal_plain, NULL);
	test_child(first, NULL);
	test_child(later, NULL);
}
END_TEST

static void read_only(void *arg)
{
	struct fdry_store *store;

	(void)arg;
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &store));
	load_counted(store, 1);
	load_counted(store, 1);
	ck_assert_int_eq(kernels_count(), 0);
	fdry_store_close(store);
}

START_TEST(a_store_that_cannot_be_written)
{
	test_child(seal_plain, NULL);
	test_child(read_only, NULL);
}
END_TEST

/* Code of the right key that is no code. */
static void spoil(void *arg)
{
	struct fdry_buf text = { 0 };
	struct fdry_manifest m;
	struct fdry_compiled c = { .nfacts = 0 };
	struct fdry_fact facts[16];
	struct fdry_reader *r;
	struct fdry_oid oid;
	uint32_t i;

	(void)arg;
	ck_assert_int_eq(kernels_count(), 1);
	ok(fdry_reader_begin(load_store(), &r));
	ok(fdry_reader_resolve(r, kernel_ref, &oid));
	ok(fdry_reader_copy(r, &oid, &text));
	fdry_reader_end(r);
	ok(fdry_manifest_init((struct fdry_span){ text.data, text.len }, &m));
	for (i = 0; i < m.n_facts; i++)
		facts[i] = (struct fdry_fact){ fdry_manifest_str(&m, m.facts[i].key),
					       fdry_manifest_str(&m, m.facts[i].value) };
	c.facts = facts;
	c.nfacts = m.n_facts;
	snprintf(c.content, sizeof(c.content), "%s", kernel_ref + strlen(FDRY_COMPILED_REF));
	ok(fdry_compiled_key(facts, c.nfacts, &c.key));
	ok(fdry_compiled_put(load_store(), &c, (struct fdry_span){ (const void *)"none", 4 }));
	ck_assert_int_eq(kernels_count(), 1);
	fdry_buf_release(&text);
}

START_TEST(code_of_no_use_is_replaced)
{
	test_child(seal_plain, NULL);
	test_child(first, NULL);
	test_child(spoil, NULL);
	test_child(first, NULL);
	test_child(later, NULL);
}
END_TEST

/* Memory that belongs to no image has no store either, so each call compiles. */
START_TEST(without_a_store)
{
	const struct fdry_driver *drv = test_sim();
	static const uint8_t zeros[64];
	uint64_t found[1][2] = { { 0 } };
	struct fdry_fingerprint want = fdry_fingerprint_of(zeros, sizeof(zeros));
	struct fdry_memory range = { .bytes = sizeof(zeros) };
	CUcontext ctx;

	ok(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	ok(fdry_call(drv, cuCtxSetCurrent, ctx));
	ok(fdry_call(drv, cuMemAlloc_v2, &range.addr, sizeof(zeros)));
	ok(fdry_call(drv, cuMemcpyHtoD_v2, range.addr, zeros, sizeof(zeros)));
	ok(fdry_memory_fingerprint(0, NULL, &range, 1, found));
	ck_assert(found[0][0] == want.a && found[0][1] == want.b);
	ck_assert_uint_eq(test_sim_calls(COMPILED), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fingerprint_kernel");
	TCase *tc = tcase_create("fingerprint_kernel");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, one_process_compiles);
	tcase_add_test(tc, a_store_that_cannot_be_written);
	tcase_add_test(tc, code_of_no_use_is_replaced);
	tcase_add_test(tc, without_a_store);
	suite_add_tcase(s, tc);
	return test_main(s);
}
