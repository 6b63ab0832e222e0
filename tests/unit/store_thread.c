// SPDX-License-Identifier: Apache-2.0
/* Unit tests of one store under several threads: handles, sessions, refs and collections at once.
 */
#include <pthread.h>

#include "tests/lib/clock.h"
#include "tests/lib/store.h"

#define THREADS 6

static struct fdry_store *shared;
static double until;

static void setup(void)
{
	dir_setup_in("/dev/shm");
	shared = store_make();
	until = now_s() + 2;
}

static void teardown(void)
{
	fdry_store_close(shared);
	dir_teardown();
}

static int seal_one(struct fdry_store *s, unsigned int seed, const char *ref)
{
	struct fdry_oid links[4], oid;
	uint8_t data[20000];
	struct fdry_writer *p;
	int i, err = fdry_writer_begin(s, &p);

	for (i = 0; i < 4 && !err; i++) {
		noise(seed + (unsigned int)i, data, sizeof(data));
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0,
					     &links[i]);
		if (err)
			fdry_writer_abort(p);
	}
	return err ? err : fdry_writer_commit(p, &seed, sizeof(seed), links, 4, ref, &oid, NULL);
}

static int load_one(struct fdry_store *s, const char *ref)
{
	struct fdry_oid image, *links = NULL;
	struct fdry_span span;
	struct fdry_reader *g;
	size_t n = 0, i;
	int err = fdry_reader_begin(s, &g);

	if (err)
		return err;
	err = fdry_store_resolve(s, ref, &image) ?: fdry_store_links(s, &image, &links, &n);
	for (i = 0; i < n && !err; i++) {
		err = fdry_reader_map(g, &links[i], &span) ?:
		      fdry_reader_verify(g, &links[i], span, i & 1, NULL);
	}
	fdry_reader_end(g);
	free(links);
	return err;
}

/* Is @err a result that concurrent operations can cause? */
static bool expected(int err)
{
	return !err || err == -FDRY_E_NOENT || err == -FDRY_E_RACED || err == -FDRY_E_LOCKED;
}

static void *work(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg + 1;
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s = shared;
	char ref[8];
	int err = 0;

	while (now_s() < until && expected(err)) {
		x = x * 1103515245u + 12345u;
		snprintf(ref, sizeof(ref), "r%u", x >> 20 & 3);
		if (!(x >> 24 & 7)) { /* a handle of one's own */
			err = fdry_store_open(path, 0, &s);
			if (err)
				break;
		}
		switch (x >> 16 & 7) {
		case 0: case 1: case 2:
			err = seal_one(s, x >> 18 & 31, ref);
			break;
		case 3:
			err = fdry_store_remove(s, ref);
			break;
		case 4:
			err = fdry_store_gc(s, NULL, &r);
			break;
		default:
			err = load_one(s, ref);
		}
		if (s != shared)
			fdry_store_close(s);
		s = shared;
	}
	if (!expected(err))
		fprintf(stderr, "thread %u: %s: %s\n", (unsigned int)(uintptr_t)arg,
			fdry_error_name(err), fdry_last_error());
	return (void *)(uintptr_t)!expected(err);
}

START_TEST(many_threads_at_once)
{
	pthread_t threads[THREADS];
	void *bad;
	int i, sum = 0;

	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i));
	for (i = 0; i < THREADS; i++) {
		ck_assert(!pthread_join(threads[i], &bad));
		sum += bad != NULL;
	}
	ck_assert_int_eq(sum, 0);
	check_sound(shared);
}
END_TEST

/* A session that one thread began may continue in another. */
static void *end_session(void *arg)
{
	struct fdry_reader *g = arg;
	struct fdry_oid oid;
	struct fdry_buf b = { 0 };
	int err = fdry_store_resolve(shared, "r", &oid) ?: fdry_reader_copy(g, &oid, &b);

	fdry_buf_release(&b);
	fdry_reader_end(g);
	return (void *)(uintptr_t)(err != 0);
}

START_TEST(a_session_moves_between_threads)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_reader *g;
	pthread_t thread;
	void *bad;

	seal(shared, 1, 2, 5000, "r");
	ok(fdry_reader_begin(shared, &g));
	ck_assert(!pthread_create(&thread, NULL, end_session, g));
	ck_assert(!pthread_join(thread, &bad));
	ck_assert_ptr_null(bad);
	ok(fdry_store_gc(shared, NULL, &r));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_thread");
	TCase *tc = tcase_create("thread");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, many_threads_at_once);
	tcase_add_test(tc, a_session_moves_between_threads);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
