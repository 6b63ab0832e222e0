// SPDX-License-Identifier: Apache-2.0
/* Unit test of what a push or pull reports: the functions of its options, and messages. */
#include <stdio.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "registry/registry.h"
#include "tests/lib/test.h"

static struct fdry_registry_progress seen;
static char message[200];
static int messages;

static void watch(void *arg, const struct fdry_registry_progress *p)
{
	(void)arg;
	seen = *p;
}

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	ck_assert_int_eq(level, FDRY_LOG_INFO);
	snprintf(message, sizeof(message), "%s", text);
	messages++;
}

static void report(struct fdry_registry_meter *m, uint64_t bytes, double seconds)
{
	const struct fdry_registry_opts opts = { .sz = sizeof(opts), .ref = "model",
						 .watch = watch };
	const struct fdry_registry_done done = { .bytes = bytes, .bytes_total = 100000000,
						 .objects = 1, .objects_total = 4,
						 .bytes_moved = bytes };

	m->start_ms = fdry_now_ms() - 1e3 * seconds;
	ok(fdry_registry_meter_report(m, &opts, &done));
	ck_assert_uint_eq(seen.bytes, bytes);
}

START_TEST(messages_come_every_ten_seconds)
{
	struct fdry_registry_meter m = { .start_ms = 0 };

	fdry_log_set(hear, NULL, FDRY_LOG_INFO);
	report(&m, 1000000, 9);
	ck_assert_int_eq(messages, 0);
	report(&m, 20000000, 11);
	ck_assert_int_eq(messages, 1);
	ck_assert_ptr_nonnull(strstr(message, "20 of 100 MB of model; "));
	report(&m, 30000000, 20);
	ck_assert_int_eq(messages, 1);
	report(&m, 40000000, 22);
	ck_assert_int_eq(messages, 2);
	ck_assert(seen.left_s > 0);
	report(&m, 100000000, 23);
	ck_assert_int_eq(messages, 2);
	ck_assert(seen.left_s == 0);
	fdry_log_set(NULL, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_progress");
	TCase *tc = tcase_create("progress");

	tcase_add_test(tc, messages_come_every_ten_seconds);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
