// SPDX-License-Identifier: Apache-2.0
/* Unit test: a thousand loads and unloads, of every kind, leave nothing behind. */
#include <dirent.h>
#include <malloc.h>

#include "tests/lib/image.h"

#define TIMES 1000
#define WARM 100 /* after these, all objects exist that are made once */
#define HEAP_MORE \
	16384 /* bytes: what the C library keeps for threads, those of the software driver among \
		 them; seen: 5,000 */

/* The resources of a process: the software driver's objects, threads, files, memory of malloc. */
struct held {
	long objects;
	unsigned int threads, files;
	size_t heap;
};

static unsigned int entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A thread that was joined may still be listed for a moment. */
static unsigned int threads(void)
{
	unsigned int n = entries("/proc/self/task"), now;
	int i;

	for (i = 0; i < 20; i++) {
		usleep(5000);
		now = entries("/proc/self/task");
		n = now < n ? now : n;
	}
	return n;
}

static struct held held(void)
{
	return (struct held){
		.objects = live_objects(),
		.threads = threads(),
		.files = entries("/proc/self/fd"),
		.heap = mallinfo2().uordblks,
	};
}

static void progress_ignore(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	(void)arg, (void)phase, (void)done, (void)total, (void)ms;
}

static const uint32_t ways[] = {
	0,
	FDRY_LOAD_BACKGROUND,
	FDRY_LOAD_BUILD | FDRY_LOAD_POISON,
	FDRY_LOAD_OWN_CONTEXT,
	FDRY_LOAD_CHECK_OVERLAP | FDRY_LOAD_VERIFY,
	FDRY_LOAD_OWN_CONTEXT | FDRY_LOAD_BACKGROUND,
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void load_once(struct fdry_store *s, unsigned int i)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = ways[i % WAYS],
				       .threads = i % 4,
				       .progress = i % 5 ? NULL : progress_ignore };
	struct fdry_image *img = NULL;

	if (i % 7 == 3)
		test_sim_fail("cuModuleLoadDataEx:1:2");
	if (i % 7 == 5)
		test_sim_fail("cuMemSetAccess:1");
	if (fdry_image_load(s, "img", &opts, &img))
		ck_assert(i % 7 == 3 || i % 7 == 5);
	else if (i % 3)
		image_check(img, 1 + i % 2, 3, 100);
	fdry_image_unload(img); /* also one that the background is still building */
	test_sim_fail(NULL);
}

struct loads {
	struct fdry_store *store;
	unsigned int from, to;
};

static void *loads_run(void *arg)
{
	const struct loads *l = arg;
	unsigned int i;

	for (i = l->from; i < l->to; i++)
		load_once(l->store, i);
	return NULL;
}

/* Load in a thread that ends before this returns: a thread keeps small freed blocks, which the C
 * library counts as in use. */
static void loads_do(struct fdry_store *s, unsigned int from, unsigned int to)
{
	struct loads l = { s, from, to };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, loads_run, &l), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(a_thousand_times)
{
	struct held before, after;
	struct fdry_store *s;

	test_child(seal_plain, NULL);
	s = load_store();
	test_sim();
	loads_do(s, 0, WARM);
	before = held();
	loads_do(s, WARM, TEST_SANITIZED ? WARM + 30 : TIMES);
	after = held();
	ck_assert_int_eq(after.objects, before.objects);
	ck_assert_uint_eq(after.files, before.files);
	ck_assert_uint_eq(after.threads, before.threads);
	/* Sanitizers have a heap, and a leak checker, of their own. */
	if (!TEST_SANITIZED)
		ck_assert_msg(after.heap < before.heap + HEAP_MORE, "%zu bytes more after %d loads",
			      after.heap - before.heap, TIMES - WARM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_leak");
	TCase *tc = tcase_create("leak");

	mallopt(M_ARENA_MAX, 1); /* memory of an arena itself is no leak */
	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 110);
	tcase_add_test(tc, a_thousand_times);
	suite_add_tcase(s, tc);
	return test_main(s);
}
