// SPDX-License-Identifier: Apache-2.0
/*
 * Unit test of a registry as a source of repairs: which objects it is asked for, servers that do
 * not answer, and host memory that runs out at each step. Sanitizers have their own allocator, so
 * under them no allocation fails.
 */
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "foundry/start.h"
#include "lib/clock.h"
#include "registry/registry.h"
#include "store/repair.h"
#include "tests/lib/nomem.h"
#include "tests/lib/server.h"
#include "tests/lib/store.h"

#define CHUNK 3000u

static struct fdry_store *s;
static struct fdry_oid chunks[3]; /* the server has the first two */
static uint8_t bytes[3][CHUNK];
static char server[40]; /* HOST:PORT */
/* Parts of the requests that get no answer, another one, and one that is longer than the blob. */
static const char *_Atomic silent, *_Atomic refused, *_Atomic longer;
static const char *_Atomic busy; /* the next such request is asked to come in a second */
static _Atomic bool empty;       /* it has no chunk */
static _Atomic unsigned int late_ms; /* the time that an answer takes */
static _Atomic bool late_once;       /* ... the next one alone */

/* --- a server of blobs --- */

static void answer(int fd, const char *request)
{
	bool more = longer && strstr(request, longer), is_busy = busy && strstr(request, busy);
	char out[CHUNK + 1 + 200] = "", hex[FDRY_OID_HEX_SIZE];
	int i, n = snprintf(out, sizeof(out), "HTTP/1.1 404 Not Found\r\nConnection: close\r\n"
			    "Content-Length: 0\r\n\r\n");

	if (is_busy)
		busy = NULL;
	else
		usleep(1000 * (late_once ? atomic_exchange(&late_ms, 0) : late_ms));
	if (strstr(request, "/token"))
		n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\nConnection: close\r\n"
			     "Content-Length: 13\r\n\r\n{\"token\":\"t\"}");
	else if (is_busy)
		n = snprintf(out, sizeof(out), "HTTP/1.1 503 Busy\r\nConnection: close\r\n"
			     "Content-Length: 0\r\nRetry-After: 1\r\n\r\n");
	else if (refused && strstr(request, refused) && !strstr(request, "Authorization: Bearer"))
		n = snprintf(out, sizeof(out), "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n"
			     "Content-Length: 0\r\nWWW-Authenticate: Bearer "
			     "realm=\"http://%s/token\"\r\n\r\n", server);
	for (i = 0; i < 2; i++) {
		if (strncmp(out, "HTTP/1.1 404", 12) || empty ||
		    !strstr(request, fdry_oid_hex(&chunks[i], hex)))
			continue;
		n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\nConnection: close\r\n"
			     "Content-Length: %u\r\n\r\n", CHUNK + more);
		memcpy(out + n, bytes[i], CHUNK);
		n += (int)(CHUNK + more);
	}
	if (write(fd, out, (size_t)n) != n)
		return; /* the client has left */
}

static void *serve(void *listener)
{
	char in[4096];
	ssize_t n;
	int fd;

	while ((fd = accept(*(int *)listener, NULL, NULL)) >= 0) {
		n = read(fd, in, sizeof(in) - 1);
		in[n > 0 ? n : 0] = '\0';
		if (silent && strstr(in, silent))
			continue; /* the descriptor stays open until the test ends */
		if (n > 0)
			answer(fd, in);
		close(fd);
	}
	return NULL;
}

static void registry_start(void)
{
	char name[100];

	snprintf(server, sizeof(server), "127.0.0.1:%d", server_start(serve));
	snprintf(name, sizeof(name), "oci+http://%s/images", server);
	ck_assert(!setenv("FOUNDRY_REGISTRY", name, 1));
}

/* --- a store with damaged objects --- */

static void setup(void)
{
	int i;

	dir_setup_in("/dev/shm");
	ck_assert(!setenv("HOME", dir, 1) && !setenv("no_proxy", "*", 1) &&
		  !setenv("FOUNDRY_REGISTRY_RETRIES", "0", 1));
	server_client_find();
	registry_start();
	s = store_make();
	seal(s, 7, 3, CHUNK, "one");
	for (i = 0; i < 3; i++) {
		noise(7 + (uint64_t)i, bytes[i], CHUNK);
		chunks[i] = oid_of(bytes[i], CHUNK);
	}
}

static void teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}

static bool is_whole(const struct fdry_oid *oid)
{
	struct fdry_reader *reader;
	struct fdry_buf got = { 0 };
	int err;

	ok(fdry_reader_begin(s, &reader));
	err = fdry_reader_copy(reader, oid, &got);
	fdry_reader_end(reader);
	fdry_buf_release(&got);
	ck_assert(!err || err == -FDRY_E_CORRUPT);
	return !err;
}

/* The first @n chunks. Nothing of the test itself allocates. */
static int repair_until(size_t n, const struct fdry_wait *stop, struct fdry_buf *why, bool *whole)
{
	struct fdry_source *registry;
	size_t back = 0;
	int err = fdry_registry_source_new(stop, &registry);

	*whole = false;
	if (err)
		return err;
	err = fdry_repair_objects(s, chunks, n, registry, why, &back);
	*whole = !err && back == n;
	fdry_source_close(registry);
	return err;
}

static int repair(size_t n, struct fdry_buf *why, bool *whole)
{
	return repair_until(n, NULL, why, whole);
}

static void repair_all(size_t n)
{
	struct fdry_buf why = { 0 };
	bool whole;

	ok(repair(n, &why, &whole));
	ck_assert(whole && !why.len);
}

static void repair_fails(size_t n, const char *want)
{
	struct fdry_buf why = { 0 };
	bool whole;

	ok(repair(n, &why, &whole));
	ck_assert(!whole && why.len);
	ck_assert_msg(strstr((char *)why.data, want), "%s", (char *)why.data);
	fdry_buf_release(&why);
}

/* --- tests --- */

START_TEST(damaged_objects_come_back)
{
	spoil_data(s, &chunks[0]);
	spoil_data(s, &chunks[1]);
	repair_all(2);
	ck_assert(is_whole(&chunks[0]) && is_whole(&chunks[1]));
	check_sound(s);
}
END_TEST

START_TEST(an_object_that_is_not_there_keeps_no_other_from_coming)
{
	int i;

	for (i = 0; i < 3; i++)
		spoil_data(s, &chunks[i]);
	repair_fails(3, "was asked, and does not have it");
	ck_assert(is_whole(&chunks[0]) && is_whole(&chunks[1]) && !is_whole(&chunks[2]));
}
END_TEST

START_TEST(an_object_that_is_longer_keeps_no_other_from_coming)
{
	char hex[FDRY_OID_HEX_SIZE];
	int i;

	for (i = 0; i < 2; i++)
		spoil_data(s, &chunks[i]);
	longer = fdry_oid_hex(&chunks[0], hex);
	repair_fails(2, "was asked, and has other bytes in its place");
	ck_assert(!is_whole(&chunks[0]) && is_whole(&chunks[1]));
}
END_TEST

START_TEST(an_object_without_a_record_is_not_asked_for)
{
	spoil_record(s, &chunks[0]);
	spoil_data(s, &chunks[1]);
	repair_fails(2, "as its record in the store is damaged");
	ck_assert(!is_whole(&chunks[0]) && is_whole(&chunks[1]));
}
END_TEST

START_TEST(without_the_variable_there_is_no_source)
{
	struct fdry_source *registry;

	ck_assert(!unsetenv("FOUNDRY_REGISTRY"));
	ok(fdry_registry_source_new(NULL, &registry));
	ck_assert_ptr_null(registry);
}
END_TEST

/* --- a program that stops --- */

static double begin_ms;

/* Everything that can come has come. */
static int is_second_over(void *arg)
{
	(void)arg;
	return fdry_now_ms() - begin_ms > 1000;
}

/* The longest wait is a minute without a byte, four times. */
static void check_stopped(int err)
{
	fails(CALLBACK, "the program has stopped the transfer", err);
	ck_assert(fdry_now_ms() - begin_ms < 10000);
}

static int pull(const char *name)
{
	struct fdry_registry_opts opts = { .sz = sizeof(opts), .stop = is_second_over };
	struct fdry_registry_report report = { .sz = sizeof(report) };
	char from[200];

	snprintf(from, sizeof(from), "oci+http://%s/%s", server, name);
	begin_ms = fdry_now_ms();
	return fdry_store_pull(s, from, &opts, &report);
}

/* What came before is stored. Objects come in their order, of these two the second one first. */
START_TEST(a_repair_stops)
{
	const struct fdry_wait stop = { .stop = is_second_over };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_buf why = { 0 };
	bool whole;

	spoil_data(s, &chunks[0]);
	spoil_data(s, &chunks[1]);
	silent = fdry_oid_hex(&chunks[0], hex);
	begin_ms = fdry_now_ms();
	check_stopped(repair_until(2, &stop, &why, &whole));
	ck_assert(!why.len && !is_whole(&chunks[0]) && is_whole(&chunks[1]));
}
END_TEST

START_TEST(a_pull_stops)
{
	silent = "/v2/";
	check_stopped(pull("images:tag"));
}
END_TEST

START_TEST(a_pin_that_fetches_stops)
{
	const struct fdry_pin_opts opts = { .sz = sizeof(opts), .stop = is_second_over };
	struct fdry_pin_report report = { .sz = sizeof(report) };

	silent = "/v2/";
	begin_ms = fdry_now_ms();
	ok(fdry_image_pin(s, "model", &opts, &report));
	ck_assert_int_eq(report.code, -FDRY_E_CALLBACK);
	ck_assert_str_eq(report.why, "the program has stopped the transfer");
	ck_assert(fdry_now_ms() - begin_ms < 10000);
}
END_TEST

START_TEST(a_start_that_fetches_stops)
{
	const char *const name = "model";
	struct fdry_start_opts opts = { .sz = sizeof(opts), .names = &name, .nnames = 1,
					.flags = FDRY_START_STRICT, .stop = is_second_over };
	struct fdry_start_report *report = NULL;

	silent = "/v2/";
	begin_ms = fdry_now_ms();
	check_stopped(fdry_load_or_capture(s, &opts, &report));
	ck_assert_ptr_null(report);
}
END_TEST

/* A file in the test's folder, whose path the variable gets. */
static void file_make(const char *variable, const char *name, const char *text)
{
	char made[sizeof(dir) + 40];
	int fd;

	snprintf(made, sizeof(made), "%s/%s", dir, name);
	fd = open(made, O_WRONLY | O_CREAT, 0700);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert(!close(fd) && (!variable || !setenv(variable, made, 1)));
}

START_TEST(a_pull_from_a_mirror_stops)
{
	char text[200];

	snprintf(text, sizeof(text), "{\"version\": 1, \"registries\": [{\"prefix\": \"%s\", "
		 "\"mirrors\": [{\"location\": \"oci+http://%s/mirror\"}]}]}", server, server);
	file_make("FOUNDRY_REGISTRY_MIRRORS", "mirrors", text);
	silent = "/v2/mirror/";
	check_stopped(pull("images@sha256:"
			   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
}
END_TEST

START_TEST(a_pull_that_waits_for_a_token_stops)
{
	refused = "/v2/";
	silent = "/token";
	check_stopped(pull("images:tag"));
}
END_TEST

START_TEST(a_pull_that_waits_for_a_credential_helper_stops)
{
	refused = "/v2/";
	file_make("REGISTRY_AUTH_FILE", "auth", "{\"credsStore\": \"silent\"}");
	file_make(NULL, "docker-credential-silent",
		  "#!/bin/sh\nPATH=/usr/bin:/bin exec sleep 60\n");
	ck_assert(!setenv("PATH", dir, 1));
	check_stopped(pull("images:tag"));
}
END_TEST

/* --- a registry that may be silent for a time --- */

#define SILENCE_MS 800

static int sleeps_once(void *asked)
{
	if (!*(bool *)asked)
		usleep(2 * SILENCE_MS * 1000);
	*(bool *)asked = true;
	return 0;
}

static void comes_back(fdry_stop_fn stop, void *arg)
{
	const struct fdry_wait wait = { .stop = stop, .arg = arg, .ms = SILENCE_MS };
	struct fdry_buf why = { 0 };
	bool whole;

	spoil_data(s, &chunks[0]);
	ok(repair_until(1, &wait, &why, &whole));
	ck_assert_msg(whole, "%s", why.len ? (char *)why.data : "");
}

START_TEST(answers_without_objects_are_no_silence)
{
	const struct fdry_wait wait = { .ms = SILENCE_MS };
	struct fdry_buf why = { 0 };
	bool whole;
	int i;

	for (i = 0; i < 3; i++)
		spoil_data(s, &chunks[i]);
	empty = true;
	late_ms = SILENCE_MS / 2;
	ok(repair_until(3, &wait, &why, &whole));
	ck_assert_msg(strstr((char *)why.data, "does not have it"), "%s", (char *)why.data);
	fdry_buf_release(&why);
}
END_TEST

START_TEST(tokens_are_no_silence)
{
	refused = "/v2/";
	late_ms = SILENCE_MS / 2;
	comes_back(NULL, NULL);
}
END_TEST

START_TEST(the_time_of_the_program_is_no_silence)
{
	bool asked = false;

	late_ms = 50;
	comes_back(sleeps_once, &asked);
	ck_assert(asked);
}
END_TEST

START_TEST(the_time_of_a_credential_helper_is_no_silence)
{
	refused = "/v2/";
	file_make("REGISTRY_AUTH_FILE", "auth", "{\"credsStore\": \"slow\"}");
	file_make(NULL, "docker-credential-slow",
		  "#!/bin/sh\nPATH=/usr/bin:/bin\nsleep 1\n"
		  "echo '{\"Username\": \"u\", \"Secret\": \"s\"}'\n");
	ck_assert(!setenv("PATH", dir, 1));
	comes_back(NULL, NULL);
}
END_TEST

/* Of these two objects the second one is asked for first. Its repetition begins later than the
 * silence may last, and the other object comes before that. */
START_TEST(an_object_for_later_ends_no_other_transfer)
{
	char hex[FDRY_OID_HEX_SIZE];
	const struct fdry_wait wait = { .ms = 1000 };
	struct fdry_buf why = { 0 };
	bool whole;

	spoil_data(s, &chunks[0]);
	spoil_data(s, &chunks[1]);
	ck_assert(!setenv("FOUNDRY_REGISTRY_RETRIES", "3", 1));
	busy = fdry_oid_hex(&chunks[1], hex);
	late_ms = 600;
	late_once = true;
	ok(repair_until(2, &wait, &why, &whole));
	ck_assert_msg(whole, "%s", why.len ? (char *)why.data : "");
}
END_TEST

/* The resolver of the client: a name server that does not answer. */
__attribute__((visibility("default")))
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	(void)node;
	(void)service;
	(void)hints;
	*ret = NULL;
	sleep(15);
	return EAI_AGAIN;
}

START_TEST(a_pull_that_waits_for_a_name_stops)
{
	snprintf(server, sizeof(server), "registry.invalid");
	check_stopped(pull("images:tag"));
}
END_TEST

/* A failure leaves each object damaged or whole, and another try repairs the rest. libcurl takes
 * some failures for one of the network. */
START_TEST(memory_runs_out)
{
	unsigned long n, made;
	struct fdry_buf why = { 0 };
	bool whole;
	int err;

	spoil_data(s, &chunks[0]);
	repair_all(1); /* opens the library */
	for (n = 1;; n++) {
		spoil_data(s, &chunks[0]);
		spoil_data(s, &chunks[1]);
		test_nomem(n);
		err = repair(2, &why, &whole);
		made = test_nomem(0);
		ck_assert_msg(err ? err == -FDRY_E_NOMEM :
				    whole || strstr((char *)why.data, "does not help"),
			      "allocation %lu: %s: %s", n, fdry_error_name(err),
			      fdry_last_error());
		ck_assert(!why.len == (err || whole));
		ck_assert((is_whole(&chunks[0]) && is_whole(&chunks[1])) || !whole);
		fdry_buf_release(&why);
		if (made < n)
			break;
	}
	ck_assert(!err && whole);
	ck_assert(TEST_SANITIZED || n > 20);
	check_sound(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_source");
	TCase *tc = tcase_create("source");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, damaged_objects_come_back);
	tcase_add_test(tc, an_object_that_is_not_there_keeps_no_other_from_coming);
	tcase_add_test(tc, an_object_that_is_longer_keeps_no_other_from_coming);
	tcase_add_test(tc, an_object_without_a_record_is_not_asked_for);
	tcase_add_test(tc, without_the_variable_there_is_no_source);
	tcase_add_test(tc, a_repair_stops);
	tcase_add_test(tc, a_pull_stops);
	tcase_add_test(tc, a_pin_that_fetches_stops);
	tcase_add_test(tc, a_start_that_fetches_stops);
	tcase_add_test(tc, a_pull_from_a_mirror_stops);
	tcase_add_test(tc, a_pull_that_waits_for_a_token_stops);
	tcase_add_test(tc, a_pull_that_waits_for_a_credential_helper_stops);
	tcase_add_test(tc, answers_without_objects_are_no_silence);
	tcase_add_test(tc, tokens_are_no_silence);
	tcase_add_test(tc, the_time_of_the_program_is_no_silence);
	tcase_add_test(tc, the_time_of_a_credential_helper_is_no_silence);
	tcase_add_test(tc, an_object_for_later_ends_no_other_transfer);
	tcase_add_test(tc, a_pull_that_waits_for_a_name_stops);
	tcase_add_test(tc, memory_runs_out);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
