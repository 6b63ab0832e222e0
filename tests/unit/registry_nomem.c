// SPDX-License-Identifier: Apache-2.0
/*
 * Unit test of requests of the registry's client when host memory runs out: that is the error, and
 * not the network. Sanitizers have their own allocator, so under them no allocation fails.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "registry/client/http.h"
#include "tests/lib/nomem.h"
#include "tests/lib/server.h"
#include "tests/lib/test.h"

#define TOKEN "{\"token\":\"t\"}"
#define URL "https://h/v2/a/blobs/uploads/"

/* --- a server of tokens --- */

static char challenge[128];

/* One answer to each connection. */
static void *serve(void *listener)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n"
				     "Content-Length: 13\r\n\r\n" TOKEN;
	char in[4096];
	ssize_t n = 0;
	int fd;

	_Static_assert(sizeof(TOKEN) == 14, "Content-Length");
	while ((fd = accept(*(int *)listener, NULL, NULL)) >= 0) {
		if (read(fd, in, sizeof(in)) > 0)
			n = write(fd, answer, sizeof(answer) - 1);
		close(fd);
	}
	(void)n;
	return NULL;
}

static void setup(void)
{
	setenv("HOME", "/none", 1);
	setenv("no_proxy", "*", 1);
	snprintf(challenge, sizeof(challenge),
		 "Bearer realm=\"http://127.0.0.1:%d/token\",scope=\"repository:a:pull\"",
		 server_start(serve));
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void session_open(struct fdry_http *h)
{
	struct fdry_registry_name name;

	ok(fdry_registry_name_parse("oci+http://h/a:1", &name));
	ok(fdry_http_open(h, &name, &(struct fdry_http_opts){ .plain = true, .requests = 1 }));
}

/* --- tests --- */

/* Run @call with the @n-th allocation failing. Returns whether there is none. */
static bool nth(int (*call)(struct fdry_http *h), unsigned long n)
{
	struct fdry_http h;
	unsigned long made;
	bool syntax;
	int err;

	session_open(&h);
	test_nomem(n);
	err = call(&h);
	made = test_nomem(0);
	/* libjansson reports some failures as an error in the document. */
	syntax = err == -FDRY_E_BADIMAGE && strstr(fdry_last_error(), " in line 1");
	ck_assert_msg(!err || err == -FDRY_E_NOMEM || syntax, "allocation %lu: %s: %s", n,
		      fdry_error_name(err), fdry_last_error());
	fdry_http_close(&h);
	return made < n;
}

static void all(int (*call)(struct fdry_http *h))
{
	unsigned long n;

	for (n = 1; !nth(call, n); n++)
		;
	ck_assert(TEST_SANITIZED || n > 4);
}

static int follow(struct fdry_http *h)
{
	struct fdry_http_req r = { .status = 202, .url = strdup(URL), .location = strdup(URL "1") };
	int err = r.url && r.location ? fdry_http_follow(h, &r) : -FDRY_E_NOMEM;

	fdry_http_req_release(&r);
	return err;
}

START_TEST(an_address_is_followed)
{
	all(follow);
}
END_TEST

static int token(struct fdry_http *h)
{
	return fdry_auth_answer(h, challenge);
}

START_TEST(a_token_is_requested)
{
	all(token);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_nomem");
	TCase *tc = tcase_create("nomem");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, an_address_is_followed);
	tcase_add_test(tc, a_token_is_requested);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
