// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the environment variables: allowed values, messages for all others, and the folders
 * of caches. */
#include <stdlib.h>

#include "foundry.h"
#include "lib/config.h"
#include "arch/driver.h"
#include "lib/log.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static void set(const char *name, const char *value)
{
	ck_assert(value ? !setenv(name, value, 1) : !unsetenv(name));
}

static void clear(void)
{
	size_t i;

	for (i = 0; i < FDRY_CONFIG_COUNT; i++)
		unsetenv(fdry_config_vars[i].name);
}

START_TEST(numbers)
{
	static const struct {
		const char *text;
		bool units, good;
		uint64_t n;
	} cases[] = {
		{ "0", false, true, 0 },
		{ "12", false, true, 12 },
		{ "007", false, true, 7 },
		{ "18446744073709551615", false, true, UINT64_MAX },
		{ "18446744073709551616", false, false, 0 },
		{ "99999999999999999999", false, false, 0 },
		{ "", false, false, 0 },
		{ "-1", false, false, 0 },
		{ "+1", false, false, 0 },
		{ " 1", false, false, 0 },
		{ "1 ", false, false, 0 },
		{ "0x10", false, false, 0 },
		{ "1K", false, false, 0 },
		{ "1K", true, true, 1024 },
		{ "3M", true, true, 3 << 20 },
		{ "1G", true, true, 1 << 30 },
		{ "2T", true, true, 2ull << 40 },
		{ "1k", true, false, 0 },
		{ "1KB", true, false, 0 },
		{ "K", true, false, 0 },
		{ "16777215T", true, true, 16777215ull << 40 },
		{ "16777216T", true, false, 0 },
	};
	uint64_t n;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		n = 77;
		ck_assert_msg(fdry_parse_number(cases[i].text, cases[i].units, &n) == cases[i].good,
			      "'%s'", cases[i].text);
		ck_assert_uint_eq(n, cases[i].good ? cases[i].n : 77);
	}
}
END_TEST

START_TEST(flags_and_choices)
{
	uint64_t n = 77;

	clear();
	ck_assert_int_eq(fdry_config_number(FDRY_CONFIG_STORE_ANY_FS, &n), 0);
	ck_assert_uint_eq(n, 0);
	set("FOUNDRY_STORE_ANY_FS", "1");
	ck_assert_int_eq(fdry_config_number(FDRY_CONFIG_STORE_ANY_FS, &n), 0);
	ck_assert_uint_eq(n, 1);
	set("FOUNDRY_STORE_ANY_FS", "yes");
	fails(ENV, "FOUNDRY_STORE_ANY_FS is 'yes'; set it to 0 or 1, or unset it",
	      fdry_config_number(FDRY_CONFIG_STORE_ANY_FS, &n));
	n = 77; /* an empty word means the default, without a message */
	ck_assert_int_eq(fdry_config_number(FDRY_CONFIG_LOG, &n), 0);
	ck_assert_uint_eq(n, 77);
	ck_assert(!fdry_config_try(FDRY_CONFIG_LOG, &n));
	set("FOUNDRY_LOG", "warn");
	ck_assert(fdry_config_try(FDRY_CONFIG_LOG, &n));
	ck_assert_uint_eq(n, FDRY_LOG_WARN);
	set("FOUNDRY_LOG", "debug");
	ck_assert_int_eq(fdry_config_number(FDRY_CONFIG_LOG, &n), 0);
	ck_assert_uint_eq(n, FDRY_LOG_DEBUG);
	set("FOUNDRY_LOG", "");
	ck_assert_int_eq(fdry_config_check(FDRY_CONFIG_LOG), 0);
	for (n = 0; n < 4; n++) {
		set("FOUNDRY_LOG", ((const char *[]){ "or", "warn,", "debu", "error, warn" })[n]);
		fails(ENV, "set it to error, warn, info or debug",
		      fdry_config_check(FDRY_CONFIG_LOG));
	}
	clear();
}
END_TEST

/* The first use of a driver or a store reports an invalid level, since the log itself cannot
 * fail. */
START_TEST(a_wrong_level_is_said)
{
	const struct fdry_driver *drv = NULL;
	struct fdry_store *s = NULL;

	clear();
	set("FOUNDRY_LOG", "loud");
	fails(ENV, "FOUNDRY_LOG is 'loud'",
	      fdry_driver_open(test_built("foundry/sim/libcuda.so.1"), &drv));
	fails(ENV, "FOUNDRY_LOG is 'loud'", fdry_store_open("nowhere", 0, &s));
	ck_assert_ptr_null(drv);
	ck_assert_ptr_null(s);
	clear();
}
END_TEST

START_TEST(paths)
{
	const char *p = "untouched";

	clear();
	ck_assert_int_eq(fdry_config_path(FDRY_CONFIG_DRIVER, &p), 0);
	ck_assert_ptr_null(p);
	set("FOUNDRY_DRIVER", "/a/libcuda.so.1");
	ck_assert_int_eq(fdry_config_path(FDRY_CONFIG_DRIVER, &p), 0);
	ck_assert_str_eq(p, "/a/libcuda.so.1");
	set("FOUNDRY_DRIVER", "");
	ck_assert_int_eq(fdry_config_path(FDRY_CONFIG_DRIVER, &p), 0);
	ck_assert_ptr_null(p);
	set("FOUNDRY_STORE", "");
	p = "untouched";
	fails(ENV, "FOUNDRY_STORE is set but empty", fdry_config_path(FDRY_CONFIG_STORE, &p));
	ck_assert_str_eq(p, "untouched");
	clear();
}
END_TEST

/* The three variables' values; NULL: unset. want NULL: FDRY_E_NOHOME; "": FDRY_E_ENV */
static const struct {
	const char *own, *cache, *home, *want;
} places[] = {
	{ "/own", "/c", "/h", "/own" },
	{ "own/relative", "/c", "/h", "own/relative" },
	{ "", "/c", "/h", "" },
	{ "", NULL, NULL, "" },
	{ NULL, "/c", "/h", "/c/foundry/thing" },
	{ NULL, "/c", NULL, "/c/foundry/thing" },
	{ NULL, "c", "/h", "/h/.cache/foundry/thing" },
	{ NULL, "./c", "/h", "/h/.cache/foundry/thing" },
	{ NULL, "", "/h", "/h/.cache/foundry/thing" },
	{ NULL, NULL, "/h", "/h/.cache/foundry/thing" },
	{ NULL, NULL, "", NULL },
	{ NULL, "c", NULL, NULL },
	{ NULL, NULL, NULL, NULL },
};

START_TEST(places_of_caches)
{
	struct fdry_buf b = { 0 };

	clear();
	set("TMPDIR", "/tmp");
	set("FOUNDRY_STORE", places[_i].own);
	set("XDG_CACHE_HOME", places[_i].cache);
	set("HOME", places[_i].home);
	if (!places[_i].want) {
		fails(NOHOME,
		      "no place for the thing is known; set FOUNDRY_STORE, XDG_CACHE_HOME or HOME",
		      fdry_config_cache(FDRY_CONFIG_STORE, "thing", &b));
		ck_assert_ptr_null(b.data);
	} else if (!*places[_i].want) {
		fails(ENV, "FOUNDRY_STORE is set but empty",
		      fdry_config_cache(FDRY_CONFIG_STORE, "thing", &b));
	} else {
		ck_assert_int_eq(fdry_config_cache(FDRY_CONFIG_STORE, "thing", &b), 0);
		ck_assert_str_eq((char *)b.data, places[_i].want);
	}
	fdry_buf_release(&b);
}
END_TEST

/* Each line of the list is whole: its default is allowed, and so are the ends of its range. */
START_TEST(the_list_agrees_with_itself)
{
	const struct fdry_config_var *v = &fdry_config_vars[_i];
	struct fdry_variable pub;
	char word[64];
	const char *to;

	clear();
	ck_assert_int_eq(fdry_variable_at((size_t)_i, &pub), 0);
	ck_assert_str_eq(pub.name, v->name);
	ck_assert_str_eq(pub.type, v->type_name);
	ck_assert(*pub.meaning && *pub.allowed);
	ck_assert_int_eq(fdry_variable_check(v->name), 0);
	set(v->name, v->fallback);
	if (v->type < FDRY_CONFIG_FILE)
		ck_assert_msg(!fdry_variable_check(v->name), "%s", fdry_last_error());
	if (v->type < FDRY_CONFIG_FILE) {
		set(v->name, "~ never ~");
		fails(ENV, v->name, fdry_variable_check(v->name));
		fails(ENV, v->allowed, fdry_variable_check(NULL));
	}
	to = strstr(v->allowed, " to ");
	if (v->type == FDRY_CONFIG_NUMBER || v->type == FDRY_CONFIG_SIZE) {
		ck_assert_ptr_nonnull(to);
		set(v->name, to + 4);
		ck_assert_msg(!fdry_variable_check(v->name), "%s", fdry_last_error());
		snprintf(word, sizeof(word), "%s9", to + 4);
		set(v->name, word);
		fails(ENV, v->name, fdry_variable_check(v->name));
	}
	clear();
}
END_TEST

START_TEST(the_public_list)
{
	struct fdry_variable v = { "untouched", 0, 0, 0, 0 };

	fails(RANGE, "count from 0", fdry_variable_at(FDRY_CONFIG_COUNT, &v));
	ck_assert_str_eq(v.name, "untouched");
	fails(INVAL, "NULL", fdry_variable_at(0, NULL));
	fails(INVAL, "'FOUNDRY_STOER' is not a variable", fdry_variable_check("FOUNDRY_STOER"));
	clear();
	ck_assert_int_eq(fdry_variable_check(NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_config");
	TCase *tc = tcase_create("config");

	tcase_add_test(tc, numbers);
	tcase_add_test(tc, flags_and_choices);
	tcase_add_test(tc, a_wrong_level_is_said);
	tcase_add_test(tc, paths);
	tcase_add_loop_test(tc, places_of_caches, 0, sizeof(places) / sizeof(places[0]));
	tcase_add_loop_test(tc, the_list_agrees_with_itself, 0, FDRY_CONFIG_COUNT);
	tcase_add_test(tc, the_public_list);
	suite_add_tcase(s, tc);
	return test_main(s);
}
