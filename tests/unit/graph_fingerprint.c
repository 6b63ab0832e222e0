// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the fingerprint kernel: its values, its code for each device, calls that fail. */
#include "graph/elf.h"
#include "graph/module.h"
#include "tests/lib/fingerprint_rules.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

static void setup(void)
{
	drv = test_sim();
}

START_TEST(each_device_has_code)
{
	static const struct {
		unsigned int cc;
		bool ptx;
	} devices[] = { { 75, true },  { 80, false },  { 86, false },  { 87, false },
			{ 89, false }, { 90, false },  { 100, false }, { 103, false },
			{ 110, true }, { 120, false }, { 121, false }, { 130, true } };
	struct fdry_driver nvidia = *drv;
	struct fdry_span code;
	size_t i;
	bool ptx;

	nvidia.software = false;
	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		code = fdry_fingerprint_code(&nvidia, devices[i].cc, &ptx);
		ck_assert_uint_gt(code.len, 1000);
		ck_assert_int_eq(ptx, devices[i].ptx);
		if (ptx)
			ck_assert_ptr_nonnull(memmem(code.data, code.len, "\n.version ", 10));
		else
			ok(fdry_module_check(&nvidia, code));
	}
	code = fdry_fingerprint_code(&nvidia, 70, &ptx);
	ck_assert_uint_eq(code.len, 0);
	ck_assert(!ptx);
}
END_TEST

/* If any call fails, the value is right or an error is returned, and no object is left. */
START_TEST(calls_that_fail)
{
	struct fdry_fingerprint_range r;
	struct fdry_fingerprint v, want;
	unsigned int nr, failed = 0;
	struct fingerprint_fixture b;
	char spec[32];
	long before;
	int err;

	fingerprint_fixture_begin(&b);
	r = (struct fdry_fingerprint_range){ b.memory, 3 * FDRY_FINGERPRINT_BLOCK + 1 };
	want = fdry_fingerprint_of(b.bytes, r.len);
	fdry_fingerprinter_free(b.f);
	before = test_sim_live(NULL);
	for (nr = 1; nr < 40; nr++) {
		snprintf(spec, sizeof(spec), "*:%u", nr);
		test_sim_fail(spec);
		err = fingerprinter_new(drv, 0, &b.f);
		if (err) {
			b.f = NULL;
		} else {
			err = fdry_fingerprinter_start(b.f, b.stream, &r, 1) ?:
			      fdry_fingerprinter_wait(b.f, &v);
			if (!err)
				ck_assert(fdry_fingerprint_eq(v, want));
		}
		failed += err != 0;
		test_sim_fail(NULL);
		if (b.f) {
			ok(fdry_fingerprinter_start(b.f, b.stream, &r, 1));
			ok(fdry_fingerprinter_wait(b.f, &v));
			ck_assert(fdry_fingerprint_eq(v, want));
		}
		fdry_fingerprinter_free(b.f);
		ck_assert_int_eq(test_sim_live(NULL), before);
	}
	ck_assert_uint_ge(failed, 7);
	b.f = NULL;
	fingerprint_fixture_end(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_fingerprint");
	TCase *tc = tcase_create("fingerprint");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	fingerprint_rules_add(tc);
	tcase_add_test(tc, each_device_has_code);
	tcase_add_test(tc, calls_that_fail);
	suite_add_tcase(s, tc);
	return test_main(s);
}
