// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the table in Documentation/design/identity.rst: which facts about a GPU and its
 * driver must be equal for a load. Two machines that differ in one fact are compared. */
#include <stdio.h>
#include <string.h>

#include "image/identity.h"
#include "tests/lib/test.h"

/* The facts of an H200, by ascending key. */
static const char *const h200[FDRY_IDENTITY_FACTS][2] = {
	{ "fdry.gpu.arch", "sm_90" },
	{ "fdry.gpu.driver", "nvidia" },
	{ "fdry.gpu.driver_version", "13000" },
	{ "fdry.gpu.memory", "150121545728" },
	{ "fdry.gpu.name", "NVIDIA H200" },
	{ "fdry.gpu.sms", "132" },
	{ "fdry.toolkit", "13000" },
};

/* Compare an image of an H200 with an H200 whose fact @key is @value. */
static int compare(const char *key, const char *value, struct fdry_mismatch *ret)
{
	struct fdry_manifest_writer w = { .base = 1ull << 40, .end = 1ull << 40 };
	struct fdry_identity here = { 0 };
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	int i, err, found = 0;

	for (i = 0; i < FDRY_IDENTITY_FACTS; i++) {
		ok(fdry_manifest_add_fact(&w, h200[i][0], h200[i][1]));
		here.fact[i].key = h200[i][0];
		found += !strcmp(h200[i][0], key);
		snprintf(here.fact[i].value, sizeof(here.fact[i].value), "%s",
			 strcmp(h200[i][0], key) ? h200[i][1] : value);
	}
	ck_assert_int_eq(found, 1);
	ok(fdry_manifest_encode(&w, &bytes));
	ok(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	err = fdry_identity_compare(&m, &here, NULL, 0, ret);
	fdry_manifest_writer_release(&w);
	fdry_buf_release(&bytes);
	return err;
}

#define refused(key, value, text) do { \
	struct fdry_mismatch mm_ = { .field = "" }; \
	fails(IDENTITY, text, compare(key, value, &mm_)); \
	ck_assert_str_eq(mm_.field, key); \
	ck_assert_str_eq(mm_.wanted, value); \
} while (0)
#define accepted(key, value) ok(compare(key, value, NULL))

START_TEST(other_architectures_are_refused)
{
	refused("fdry.gpu.arch", "sm_80", "another GPU architecture: sm_90 there, sm_80 here");
	refused("fdry.gpu.arch", "sm_100", "another GPU architecture: sm_90 there, sm_100 here");
}
END_TEST

START_TEST(another_kind_of_driver_is_refused)
{
	refused("fdry.gpu.driver", "software",
		"another kind of driver: nvidia there, software here");
}
END_TEST

START_TEST(newer_drivers_are_accepted)
{
	accepted("fdry.gpu.driver_version", "13000");
	accepted("fdry.gpu.driver_version", "13010");
	accepted("fdry.gpu.driver_version", "100000");
}
END_TEST

START_TEST(older_drivers_are_refused)
{
	refused("fdry.gpu.driver_version", "12090",
		"another CUDA version of the driver: 13000 there, 12090 here");
	refused("fdry.gpu.driver_version", "9000", "13000 there, 9000 here");
}
END_TEST

START_TEST(another_number_of_sms_is_refused)
{
	refused("fdry.gpu.sms", "114", "another number of SMs: 132 there, 114 here");
	refused("fdry.gpu.sms", "144", "another number of SMs: 132 there, 144 here");
}
END_TEST

START_TEST(another_name_is_accepted)
{
	accepted("fdry.gpu.name", "NVIDIA H100 80GB HBM3");
}
END_TEST

/* The load itself fails if the memory does not suffice: other_machines of image_load.c. */
START_TEST(less_memory_is_accepted_if_it_suffices)
{
	accepted("fdry.gpu.memory", "85017493504");
}
END_TEST

START_TEST(the_toolkit_is_not_compared)
{
	accepted("fdry.toolkit", "12080");
	accepted("fdry.toolkit", "13020");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		other_architectures_are_refused, another_kind_of_driver_is_refused,
		newer_drivers_are_accepted, older_drivers_are_refused,
		another_number_of_sms_is_refused, another_name_is_accepted,
		less_memory_is_accepted_if_it_suffices, the_toolkit_is_not_compared,
	};
	Suite *s = suite_create("identity");
	TCase *tc = tcase_create("identity");
	size_t i;

	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return test_main(s);
}
