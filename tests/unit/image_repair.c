// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose content is damaged in the store, and whose objects a registry has:
 * what other threads can do meanwhile, and registries that do not answer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "image/damage.h"
#include "lib/clock.h"
#include "tests/lib/flip.h"
#include "tests/lib/image_small.h"
#include "tests/lib/nomem.h"
#include "tests/lib/server.h"

#define CHUNK_MAX (4u << 20)

static pthread_t main_thread;
static int port; /* of the registry */
static struct flip_chunk chunk;
static uint8_t bytes[CHUNK_MAX]; /* of the chunk before its damage */
static char hex[FDRY_OID_HEX_SIZE]; /* its id */

/* --- a registry that has the chunk --- */

static _Atomic bool holds;      /* it answers nothing until this ends */
static _Atomic bool slow;       /* it sends the chunk in ten pieces, in three seconds */
static _Atomic bool busy;       /* it asks to come again in 20 seconds */
static _Atomic bool breaks;     /* it breaks the first request off after a second, and answers no
				   other one until this ends */
static _Atomic bool mirrored;   /* requests to its mirror get no answer until this ends */
static _Atomic unsigned int asked; /* requests so far */

/* Other chunks that it has. */
static struct {
	struct flip_chunk at;
	uint8_t *bytes;
	char hex[FDRY_OID_HEX_SIZE];
} more[8];
static uint32_t n_more;

static void chunk_send(int fd, const uint8_t *data, size_t len)
{
	size_t i, n, pieces = atomic_load(&slow) ? 10 : 1;
	char head[100];

	n = (size_t)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nConnection: close\r\n"
			     "Content-Length: %zu\r\n\r\n", len);
	if (send(fd, head, n, MSG_NOSIGNAL) != (ssize_t)n)
		return; /* the client has left */
	for (i = 0; i < pieces; i++) {
		size_t from = len * i / pieces, to = len * (i + 1) / pieces;

		if (send(fd, data + from, to - from, MSG_NOSIGNAL) < 0)
			return;
		usleep(pieces > 1 ? 300000 : 0);
	}
}

static void text_send(int fd, const char *status)
{
	char head[200];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nConnection: close\r\n"
			 "Content-Length: 0\r\nRetry-After: 20\r\n\r\n", status);

	if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
		return; /* the client has left */
}

static void *answer(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char in[4096];
	ssize_t n = read(fd, in, sizeof(in) - 1);
	uint32_t i;

	in[n > 0 ? n : 0] = '\0';
	if (!atomic_fetch_add(&asked, 1) && atomic_load(&breaks)) {
		sleep(1);
		goto out_close;
	}
	while (atomic_load(&holds) || atomic_load(&breaks) ||
	       (atomic_load(&mirrored) && strstr(in, "/v2/mirror/")))
		usleep(1000);
	if (atomic_load(&busy))
		text_send(fd, "503 Service Unavailable");
	else if (strstr(in, hex)) {
		chunk_send(fd, bytes, chunk.len);
	} else {
		for (i = 0; i < n_more && !strstr(in, more[i].hex); i++)
			;
		if (i < n_more)
			chunk_send(fd, more[i].bytes, more[i].at.len);
		else
			text_send(fd, "404 Not Found");
	}
out_close:
	close(fd);
	return NULL;
}

static void *serve(void *listener)
{
	pthread_t thread;
	int fd;

	while ((fd = accept(*(int *)listener, NULL, NULL)) >= 0)
		ck_assert(!pthread_create(&thread, NULL, answer, (void *)(intptr_t)fd) &&
			  !pthread_detach(thread));
	return NULL;
}

static void asked_wait(void)
{
	while (!atomic_load(&asked))
		usleep(1000);
}

/* --- an image with a damaged chunk --- */

static void seal_small(void *unused)
{
	(void)unused;
	image_small_seal("img", false);
}

static struct fdry_image *load(uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), "img", &opts, &img));
	return img;
}

static void setup(void)
{
	struct fdry_oid id;
	char name[100];

	main_thread = pthread_self();
	dir_setup_in("/dev/shm");
	ck_assert(!setenv("HOME", dir, 1) && !setenv("no_proxy", "*", 1));
	server_client_find();
	test_child(seal_small, NULL);
	fdry_image_unload(load(FDRY_LOAD_VERIFY));
	flip_find(load_store(), "img", "small", &chunk);
	ck_assert_uint_le(chunk.len, sizeof(bytes));
	ck_assert_int_eq(pread(chunk.data, bytes, chunk.len, chunk.at), (ssize_t)chunk.len);
	id = oid_of(bytes, chunk.len);
	fdry_oid_hex(&id, hex);
	port = server_start(serve);
	snprintf(name, sizeof(name), "oci+http://127.0.0.1:%d/images", port);
	ck_assert(!setenv("FOUNDRY_REGISTRY", name, 1));
}

static void teardown(void)
{
	flip_release(&chunk);
	dir_teardown();
}

/* As if memory or the disk had changed a bit: only fingerprints find it. A repair has stored the
 * chunk at another place. */
static void damage(void)
{
	flip_release(&chunk);
	flip_find(load_store(), "img", "small", &chunk);
	flip_bit(&chunk, 77);
	flip_trust(&chunk);
}

/* Put what is damaged into quarantine: @count objects are there without bytes. */
static void quarantine(uint32_t count)
{
	struct fdry_repair_report report = { .sz = sizeof(report) };
	char *registry = strdup(getenv("FOUNDRY_REGISTRY"));

	ck_assert(!unsetenv("FOUNDRY_REGISTRY"));
	ok(fdry_store_repair(path, NULL, 0, NULL, &report));
	ck_assert_uint_eq(report.quarantined, count);
	ck_assert(!setenv("FOUNDRY_REGISTRY", registry, 1));
	free(registry);
}

/* Damage all chunks of the image. The registry has them. */
static void all_damage(void)
{
	struct fdry_oid id;
	uint32_t i;

	for (; flip_nth(load_store(), "img", n_more, &more[n_more].at); n_more++) {
		struct flip_chunk *c = &more[n_more].at;

		more[n_more].bytes = malloc(c->len);
		ck_assert_int_eq(pread(c->data, more[n_more].bytes, c->len, c->at),
				 (ssize_t)c->len);
		id = oid_of(more[n_more].bytes, c->len);
		fdry_oid_hex(&id, more[n_more].hex);
	}
	ck_assert_uint_ge(n_more, 2);
	for (i = 0; i < n_more; i++)
		flip_bit(&more[i].at, 77);
}

/* The server's threads may still have the bytes. */
static void all_release(void)
{
	uint32_t i;

	for (i = 0; i < n_more; i++)
		flip_release(&more[i].at);
}

static void seconds_set(const char *seconds)
{
	ck_assert(!setenv("FOUNDRY_REGISTRY_TIMEOUT", seconds, 1));
}

/* --- calls of another thread --- */

struct call {
	struct fdry_image *img;
	bool restores; /* it launches otherwise */
	int err;
	char why[600];
	pthread_t thread;
};

static void *call_run(void *arg)
{
	struct call *c = arg;

	c->err = c->restores ? fdry_image_restore(c->img, NULL) :
			       fdry_image_launch(c->img, 1, NULL);
	snprintf(c->why, sizeof(c->why), "%s", c->err ? fdry_last_error() : "");
	return NULL;
}

static void call_begin(struct call *c)
{
	ck_assert(!pthread_create(&c->thread, NULL, call_run, c));
}

static void call_end(struct call *c)
{
	ck_assert(!pthread_join(c->thread, NULL));
}

static void call_ends_well(struct call *c)
{
	call_end(c);
	ck_assert_msg(!c->err, "%s", c->why);
}

/* --- whether to stop --- */

static int stop_main(void *arg)
{
	(void)arg;
	return pthread_equal(pthread_self(), main_thread) != 0;
}

static int stop_asked(void *arg)
{
	(void)arg;
	return atomic_load(&asked) != 0;
}

static int stop_uses(void *arg)
{
	struct fdry_image *img = arg;

	fails(STATE, "stop function", fdry_image_check_content(img));
	fails(STATE, "stop function", fdry_image_restore(img, NULL));
	fdry_image_unload(img);
	ck_assert(strstr(fdry_last_error(), "stop function"));
	return atomic_load(&asked) != 0;
}

/* --- a registry that is asked for long --- */

/* A restore looks for all bytes before it changes memory. */
START_TEST(memory_that_is_unchanged_is_used_during_a_restore)
{
	struct call c = { .img = load(0), .restores = true };

	flip_bit(&chunk, 77);
	quarantine(1);
	atomic_store(&holds, true);
	call_begin(&c);
	asked_wait();
	alarm(20);
	image_check(c.img, 1, 3, 100);
	alarm(0);
	atomic_store(&holds, false);
	call_ends_well(&c);
	image_check(c.img, 1, 3, 100);
	fdry_image_unload(c.img);
	check_sound(load_store());
}
END_TEST

/* Fingerprints are compared when content has been copied. */
START_TEST(memory_that_is_half_restored_is_not_used)
{
	struct call c = { .img = load(0), .restores = true };
	uint8_t v[SMALL];

	ok(fdry_image_stop_set(c.img, stop_main, NULL));
	damage();
	atomic_store(&holds, true);
	call_begin(&c);
	asked_wait();
	alarm(20);
	ok(fdry_image_build(c.img, 1));
	fails(CALLBACK, "the wait for another thread", fdry_image_launch(c.img, 1, NULL));
	fails(CALLBACK, "the wait for another thread",
	      fdry_image_read(c.img, "small", v, SMALL, NULL));
	fails(CALLBACK, "the wait for another thread", fdry_image_restore(c.img, NULL));
	alarm(0);
	atomic_store(&holds, false);
	call_ends_well(&c);
	image_check(c.img, 1, 3, 100);
	ok(fdry_image_read(c.img, "small", v, SMALL, NULL));
	ck_assert(!memcmp(v, bytes, SMALL));
	fdry_image_unload(c.img);
	check_sound(load_store());
}
END_TEST

START_TEST(content_that_is_not_compared_is_not_used)
{
	struct fdry_image *img;
	struct call c[2];
	int i;

	damage();
	img = load(FDRY_LOAD_CHECK_AT_LAUNCH);
	ok(fdry_image_stop_set(img, stop_main, NULL));
	atomic_store(&holds, true);
	for (i = 0; i < 2; i++) {
		c[i] = (struct call){ .img = img };
		call_begin(&c[i]);
	}
	asked_wait();
	alarm(20);
	ok(fdry_image_build(img, 1));
	fails(CALLBACK, "the wait for another thread", fdry_image_launch(img, 1, NULL));
	fails(CALLBACK, "the wait for another thread", fdry_image_check_content(img));
	alarm(0);
	atomic_store(&holds, false);
	for (i = 0; i < 2; i++)
		call_ends_well(&c[i]);
	ck_assert_uint_eq(atomic_load(&asked), 1);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	check_sound(load_store());
}
END_TEST

START_TEST(one_of_two_restores_asks)
{
	struct call c[2];
	int i;

	for (i = 0; i < 2; i++)
		c[i] = (struct call){ .img = i ? c[0].img : load(0), .restores = true };
	damage();
	atomic_store(&holds, true);
	for (i = 0; i < 2; i++)
		call_begin(&c[i]);
	asked_wait();
	usleep(100000); /* until the other one waits */
	atomic_store(&holds, false);
	for (i = 0; i < 2; i++)
		call_ends_well(&c[i]);
	ck_assert_uint_eq(atomic_load(&asked), 1);
	image_check(c[0].img, 1, 3, 100);
	fdry_image_unload(c[0].img);
}
END_TEST

START_TEST(a_stop_leaves_the_comparison_to_the_next_use)
{
	struct fdry_image *img;
	double begin = fdry_now_ms();

	damage();
	img = load(FDRY_LOAD_CHECK_AT_LAUNCH);
	ok(fdry_image_stop_set(img, stop_asked, NULL));
	atomic_store(&holds, true);
	fails(CALLBACK, "the program has stopped the transfer", fdry_image_launch(img, 1, NULL));
	fails(CALLBACK, "the program has stopped the transfer", fdry_image_check_content(img));
	ck_assert(fdry_now_ms() - begin < 15000);
	ok(fdry_image_stop_set(img, NULL, NULL));
	atomic_store(&holds, false);
	image_check(img, 1, 3, 100);
	/* A restore that is stopped may have copied a part. */
	damage();
	atomic_store(&asked, 0);
	atomic_store(&holds, true);
	ok(fdry_image_stop_set(img, stop_asked, NULL));
	fails(CALLBACK, "the program has stopped the transfer", fdry_image_restore(img, NULL));
	fails(STATE, "only a part", fdry_image_launch(img, 1, NULL));
	atomic_store(&holds, false);
	ok(fdry_image_stop_set(img, NULL, NULL));
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* Then the next use asks again, which it does not for damage. */
START_TEST(an_error_of_the_machine_is_not_told_as_damage)
{
	const struct fdry_wait wait = { 0 };
	struct fdry_store *store = load_store();
	struct fdry_buf damaged = { 0 };
	struct fdry_oid id;
	unsigned long n = 0, made, errors = 0;
	int err;

	damage();
	id = oid_of(bytes, chunk.len);
	ok(fdry_buf_put(&damaged, &id, sizeof(id)));
	ck_assert(!unsetenv("FOUNDRY_REGISTRY"));
	do {
		fails(CORRUPT, "a chunk is damaged",
		      fdry_fail(FDRY_E_CORRUPT, "a chunk is damaged"));
		test_nomem(++n);
		err = fdry_damage_repair(store, "img", &wait, &damaged);
		made = test_nomem(0);
		ck_assert(err == -FDRY_E_CORRUPT || err == -FDRY_E_NOMEM);
		ck_assert(strstr(fdry_last_error(), "a chunk is damaged"));
		errors += err == -FDRY_E_NOMEM;
	} while (n <= made);
	ck_assert(errors || TEST_SANITIZED);
	ck_assert_int_eq(err, -FDRY_E_CORRUPT);
	fdry_buf_release(&damaged);
}
END_TEST

START_TEST(the_function_that_stops_cannot_use_the_image)
{
	struct fdry_image *img;

	damage();
	img = load(FDRY_LOAD_CHECK_AT_LAUNCH);
	ok(fdry_image_stop_set(img, stop_uses, img));
	atomic_store(&holds, true);
	fails(CALLBACK, "the program has stopped the transfer", fdry_image_launch(img, 1, NULL));
	atomic_store(&holds, false);
	fails(INVAL, "given no img", fdry_image_stop_set(NULL, NULL, NULL));
	fdry_image_unload(img);
}
END_TEST

static void unloads(void *img)
{
	alarm(20);
	fails(FORKED, "fork", fdry_image_restore(img, NULL));
	fails(FORKED, "fork", fdry_image_launch(img, 1, NULL));
	fails(FORKED, "fork", fdry_image_stop_set(img, NULL, NULL));
	fdry_image_unload(img);
	_exit(0);
}

START_TEST(a_forked_child_waits_for_no_repair)
{
	struct call c[2];
	int i;

	damage();
	for (i = 0; i < 2; i++)
		c[i] = (struct call){ .img = i ? c[0].img : load(FDRY_LOAD_CHECK_AT_LAUNCH) };
	atomic_store(&holds, true);
	for (i = 0; i < 2; i++)
		call_begin(&c[i]);
	asked_wait();
	test_child(unloads, c[0].img);
	atomic_store(&holds, false);
	for (i = 0; i < 2; i++)
		call_ends_well(&c[i]);
	fdry_image_unload(c[0].img);
}
END_TEST

static unsigned int repairs;

static void repairs_count(void *arg, int level, const char *line)
{
	(void)arg, (void)level;
	repairs += strstr(line, "were brought back") != NULL;
}

/* One repair has brought back all chunks of @img, and asked for each once. */
static void came_at_once(struct fdry_image *img)
{
	fdry_log_set(NULL, NULL, 0);
	ck_assert_uint_eq(repairs, 1);
	ck_assert_uint_eq(atomic_load(&asked), n_more);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	all_release();
}

START_TEST(a_restore_asks_for_all_that_is_damaged_at_once)
{
	struct fdry_image *img = load(0);

	all_damage();
	quarantine(n_more);
	fdry_log_set(repairs_count, NULL, FDRY_LOG_WARN);
	ok(fdry_image_restore(img, NULL));
	came_at_once(img);
}
END_TEST

/* Without bytes, with other bytes that hashes find, and with other bytes that fingerprints find. */
START_TEST(a_load_asks_for_all_that_is_damaged_at_once)
{
	all_damage();
	if (!_i)
		quarantine(n_more);
	fdry_log_set(repairs_count, NULL, FDRY_LOG_WARN);
	came_at_once(load(_i == 1 ? FDRY_LOAD_VERIFY : 0));
}
END_TEST

/* --- how long it is asked --- */

/* All that wait get the error. Another restore asks again. */
START_TEST(a_registry_that_does_not_answer_has_failed)
{
	double begin = fdry_now_ms();
	struct fdry_image *img;
	struct call c[2];
	int i;

	seconds_set("1");
	damage();
	img = load(FDRY_LOAD_CHECK_AT_LAUNCH);
	atomic_store(&holds, true);
	for (i = 0; i < 2; i++) {
		c[i] = (struct call){ .img = img };
		call_begin(&c[i]);
	}
	for (i = 0; i < 2; i++) {
		call_end(&c[i]);
		ck_assert_int_eq(c[i].err, -FDRY_E_CORRUPT);
		ck_assert_msg(strstr(c[i].why, "is damaged in the store") &&
			      strstr(c[i].why, "does not help: "), "%s", c[i].why);
	}
	ck_assert(fdry_now_ms() - begin < 10000);
	fails(CORRUPT, "does not help: ", fdry_image_launch(img, 1, NULL));
	fails(CORRUPT, "does not help: ", fdry_image_restore(img, NULL));
	ck_assert(fdry_now_ms() - begin < 20000);
	atomic_store(&holds, false);
	fails(STATE, "only a part", fdry_image_launch(img, 1, NULL));
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* A wait that is longer than that is not begun. */
START_TEST(a_registry_that_is_busy_for_long_has_failed)
{
	double begin = fdry_now_ms();
	struct fdry_image *img = load(0);

	seconds_set("2");
	flip_bit(&chunk, 77);
	quarantine(1);
	atomic_store(&busy, true);
	fails(CORRUPT, "answered 503", fdry_image_restore(img, NULL));
	ck_assert(fdry_now_ms() - begin < 10000);
	image_check(img, 1, 3, 100); /* memory is unchanged */
	atomic_store(&busy, false);
	ok(fdry_image_restore(img, NULL));
	fdry_image_unload(img);
}
END_TEST

/* A second request begins no new time. */
START_TEST(a_registry_that_is_asked_again_has_failed)
{
	double begin = fdry_now_ms();
	struct fdry_image *img = load(0);

	seconds_set("2");
	damage();
	atomic_store(&breaks, true);
	fails(CORRUPT, "does not help: nothing of use came from the registry",
	      fdry_image_restore(img, NULL));
	ck_assert(strstr(fdry_last_error(), "for 2 s"));
	ck_assert(fdry_now_ms() - begin < 10000);
	atomic_store(&breaks, false);
	ok(fdry_image_restore(img, NULL));
	fdry_image_unload(img);
}
END_TEST

/* The registry gets its own time. */
START_TEST(a_mirror_that_does_not_answer_is_passed_over)
{
	struct fdry_image *img = load(0);
	char file[sizeof(dir) + 20];
	FILE *f;

	snprintf(file, sizeof(file), "%s/mirrors", dir);
	f = fopen(file, "we");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "{\"version\": 1, \"registries\": [{\"prefix\": \"127.0.0.1:%d\", \"mirrors\": "
		"[{\"location\": \"oci+http://127.0.0.1:%d/mirror\"}]}]}", port, port);
	ck_assert(!fclose(f) && !setenv("FOUNDRY_REGISTRY_MIRRORS", file, 1));
	seconds_set("2");
	damage();
	atomic_store(&mirrored, true);
	atomic_store(&slow, true);
	ok(fdry_image_restore(img, NULL));
	ck_assert_uint_eq(atomic_load(&asked), 2);
	atomic_store(&mirrored, false);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(a_registry_that_is_slow_has_not_failed)
{
	struct fdry_image *img = load(0);

	seconds_set("1");
	damage();
	atomic_store(&slow, true);
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		memory_that_is_unchanged_is_used_during_a_restore,
		memory_that_is_half_restored_is_not_used,
		content_that_is_not_compared_is_not_used,
		one_of_two_restores_asks,
		a_restore_asks_for_all_that_is_damaged_at_once,
		a_stop_leaves_the_comparison_to_the_next_use,
		an_error_of_the_machine_is_not_told_as_damage,
		the_function_that_stops_cannot_use_the_image,
		a_forked_child_waits_for_no_repair,
		a_registry_that_does_not_answer_has_failed,
		a_registry_that_is_busy_for_long_has_failed,
		a_registry_that_is_asked_again_has_failed,
		a_mirror_that_does_not_answer_is_passed_over,
		a_registry_that_is_slow_has_not_failed,
	};
	Suite *s = suite_create("repair");
	TCase *tc = tcase_create("repair");
	size_t i;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, a_load_asks_for_all_that_is_damaged_at_once, 0, 3);
	suite_add_tcase(s, tc);
	return test_main(s);
}
