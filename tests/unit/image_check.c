// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of content that is compared with its fingerprints: bytes that change in the store
 * after they were verified there, or on their way to the device.
 */
#include <fcntl.h>
#include <pthread.h>

#include "lib/log.h"
#include "tests/lib/flip.h"
#include "tests/lib/image_host.h"
#include "tests/lib/image_small.h"

static void dir_setup_memory(void)
{
	dir_setup_in("/dev/shm");
}

static void seal_small(void *with_pack)
{
	image_small_seal("img", with_pack);
}

/* The same content at other addresses, so that a process can load both images. */
static void seal_other(void *unused)
{
	(void)unused;
	work_base += 1ull << 35;
	image_small_seal("other", false);
}

static int load_try(const struct fdry_load_opts *opts)
{
	struct fdry_image *img = NULL;
	int err = fdry_image_load(load_store(), "img", opts, &img);

	fdry_image_unload(img);
	return err;
}

static struct fdry_load_report load_report(void)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), "img", NULL, &img));
	image_check(img, 1, 3, 100);
	ok(fdry_image_report(img, &report));
	fdry_image_unload(img);
	return report;
}

/* --- in the store --- */

/* All bits are among the cases of tests/long/flips.c. */
START_TEST(flipped_bits_are_found)
{
	struct flip_chunk chunk;
	uint64_t bit;

	test_child(seal_small, NULL);
	ck_assert_uint_gt(load_report().verified_bytes, 0);
	ck_assert_uint_eq(load_report().verified_bytes, 0);
	flip_find(load_store(), "img", "small", &chunk);
	for (bit = 0; bit < chunk.len * 8; bit += bit < SMALL * 8 ? 7 : 509) {
		flip_bit(&chunk, bit);
		flip_trust(&chunk);
		fails(CORRUPT, "is damaged in the store; bring it back with foundry-store repair",
		      load_try(NULL));
		if (bit % 70 == 0) /* the notes were cancelled: SHA-256 finds it now */
			fails(CORRUPT, "do not match", load_try(NULL));
		flip_bit(&chunk, bit);
		flip_trust(&chunk);
		if (bit % 70 == 0)
			ck_assert_uint_eq(load_report().verified_bytes, 0);
	}
	flip_release(&chunk);
}
END_TEST

START_TEST(a_pack_in_the_store_repairs_it)
{
	struct flip_chunk chunk;
	int i;

	test_child(seal_small, "with a pack");
	(void)load_report();
	for (i = 0; i < 20; i++) {
		flip_find(load_store(), "img", i % 2 ? "a" : "small", &chunk);
		flip_bit(&chunk, (uint64_t)i * 997 % (chunk.len * 8));
		if (i < 10)
			flip_trust(&chunk); /* otherwise SHA-256 would detect it */
		(void)load_report();
		flip_release(&chunk);
		check_sound(load_store());
	}
}
END_TEST

/* 32 tensors with the same chunk, and a pack of them. */
static void seal_same(void *unused)
{
	struct fdry_tensor t = { .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { 2 << 20 }, .stride = { 1 } };
	static uint8_t same[2u << 20];
	CUdeviceptr at;
	char name[10];
	struct work w;
	int i;

	(void)unused;
	work_make(&w);
	graph_add(&w, 1);
	noise(1, same, sizeof(same));
	for (i = 0; i < 32; i++) {
		cuda_ok(cuMemAlloc_v2, &at, sizeof(same));
		cuda_ok(cuMemcpyHtoD_v2, at, same, sizeof(same));
		snprintf(name, sizeof(name), "t%d", i);
		t.name = name;
		t.addr = at;
		ok(fdry_capture_tensor(w.cap, &t));
	}
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	image_pack_put(w.store);
	work_end(&w);
}

static char heard[400];

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(heard, sizeof(heard), "%s", text);
}

START_TEST(a_chunk_of_several_tensors_comes_back_once)
{
	struct flip_chunk chunk;

	test_child(seal_same, NULL);
	(void)load_report();
	flip_find(load_store(), "img", "t7", &chunk);
	flip_bit(&chunk, 99);
	flip_trust(&chunk);
	fdry_log_set(hear, NULL, FDRY_LOG_WARN);
	(void)load_report();
	fdry_log_set(NULL, NULL, 0);
	ck_assert_msg(strstr(heard, "; 1 object(s) were brought back"), "it says: %s", heard);
	flip_release(&chunk);
}
END_TEST

START_TEST(a_broken_pack_repairs_nothing)
{
	struct flip_chunk chunk;
	char name[340];

	test_child(seal_small, "with a pack");
	(void)load_report();
	snprintf(name, sizeof(name), "%s/packs/one", path);
	ck_assert(!truncate(name, 5000));
	flip_find(load_store(), "img", "small", &chunk);
	flip_bit(&chunk, 77);
	flip_trust(&chunk);
	fails(CORRUPT, "is damaged in the store", load_try(NULL));
	flip_release(&chunk);
}
END_TEST

/* Another store with the objects of the pack, which moves to @moved. */
static void other_store_make(const char *other, const char *moved)
{
	struct fdry_store *s;
	char name[340];
	int fd;

	snprintf(name, sizeof(name), "%s/packs/one", path);
	ck_assert(!rename(name, moved));
	fd = open(moved, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_open(other, FDRY_STORE_CREATE, &s));
	ok(fdry_store_import(s, fd, NULL, NULL));
	fdry_store_close(s);
	close(fd);
}

/* Another store, a pack elsewhere; neither of those that cannot be read is in the way. */
START_TEST(configured_sources_repair_it)
{
	char other[340], moved[340], fifo[340], list[1500];
	struct flip_chunk chunk;
	int i;

	test_child(seal_small, "with a pack");
	snprintf(other, sizeof(other), "%s/other", dir);
	snprintf(moved, sizeof(moved), "%s/moved", dir);
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir); /* nothing writes to it */
	ck_assert(!mkfifo(fifo, 0600));
	other_store_make(other, moved);
	(void)load_report();
	for (i = 0; i < 5; i++) {
		snprintf(list, sizeof(list), "%s::/nowhere:%s/stderr:%s:%s:",
			 i == 4 ? path : "", dir, fifo, i % 2 ? other : i == 4 ? "" : moved);
		ok(setenv("FOUNDRY_REPAIR", list, 1));
		flip_find(load_store(), "img", i % 2 ? "a" : "small", &chunk);
		flip_bit(&chunk, (uint64_t)i * 31);
		if (i < 2)
			flip_trust(&chunk); /* else SHA-256 finds it */
		if (i == 4) /* the store itself has nothing whole */
			fails(CORRUPT, "tensor 'small'", load_try(NULL));
		else
			(void)load_report();
		flip_release(&chunk);
		if (i < 4)
			check_sound(load_store());
	}
	ok(unsetenv("FOUNDRY_REPAIR"));
	fails(CORRUPT, "image 'img' (", load_try(NULL));
}
END_TEST

START_TEST(a_restore_compares)
{
	struct flip_chunk chunk;
	struct fdry_image *img = NULL;

	test_child(seal_small, NULL);
	(void)load_report();
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	flip_find(load_store(), "img", "small", &chunk);
	flip_bit(&chunk, 5);
	flip_trust(&chunk);
	fails(CORRUPT, "is damaged in the store", fdry_image_restore(img, NULL));
	fails(STATE, "only a part of the content was restored", fdry_image_launch(img, 1, NULL));
	flip_bit(&chunk, 5);
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
	flip_release(&chunk);
}
END_TEST

static void seal_host(void *unused)
{
	struct host_work h;

	(void)unused;
	host_make(&h, false);
	tensors_name(&h);
	ok(work_seal(&h.w, "img"));
	host_end(&h);
}

START_TEST(host_content_is_compared)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = NULL;
	struct flip_chunk chunk;

	test_child(seal_host, NULL);
	ok(load_try(NULL));
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_report(img, &report));
	ck_assert_uint_gt(report.checked_bytes, 0);
	fdry_image_unload(img);
	flip_find(load_store(), "img", "table", &chunk);
	flip_bit(&chunk, 100);
	flip_trust(&chunk);
	fails(CORRUPT, "image 'img' (", load_try(NULL));
	ck_assert(strstr(fdry_last_error(), "content in host memory, tensor 'table': chunk"));
	ck_assert(strstr(fdry_last_error(), "is damaged in the store"));
	flip_release(&chunk);
}
END_TEST

/* --- changes during the copy --- */

START_TEST(bytes_that_change_on_their_way)
{
	struct meddle m = { 0 };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .progress = meddle,
				       .progress_arg = &m };
	struct fdry_image *img = NULL;
	struct fdry_tensor t;

	test_child(seal_small, "with a pack");
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_tensor_find(img, "small", &t));
	fdry_image_unload(img);
	m.addr = t.addr + SMALL - 1;
	fails(CORRUPT, "is whole in the store, and other bytes arrived", load_try(&opts));
	ck_assert(m.done);
	m = (struct meddle){ .addr = t.addr + (3u << 20) - 1 };
	fails(CORRUPT, "are zero in the image", load_try(&opts));
	ck_assert(m.done);
	(void)load_report();
}
END_TEST

/* --- content of several groups, whose fingerprints are computed while others arrive --- */

#define LARGE ((size_t)80 << 20)
#define LARGE_TENSORS 5u

/* Five tensors of 16 MiB, and zeros in the third. */
static void seal_large(void *unused)
{
	struct fdry_tensor t = { .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { LARGE / LARGE_TENSORS }, .stride = { 1 } };
	uint8_t *bytes = malloc(LARGE);
	char name[] = "t0";
	CUdeviceptr large;
	struct work w;
	size_t i;

	(void)unused;
	ck_assert_ptr_nonnull(bytes);
	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &large, LARGE);
	noise(7, bytes, LARGE);
	memset(bytes + 2 * LARGE / LARGE_TENSORS + 4096, 0, (size_t)5 << 20);
	cuda_ok(cuMemcpyHtoD_v2, large, bytes, LARGE);
	for (i = 0; i < LARGE_TENSORS; i++) {
		name[1] = (char)('0' + i);
		t.name = name;
		t.addr = large + i * LARGE / LARGE_TENSORS;
		ok(fdry_capture_tensor(w.cap, &t));
	}
	ok(work_seal(&w, "img"));
	work_end(&w);
	free(bytes);
}

START_TEST(damage_in_any_group_is_found)
{
	struct fdry_load_opts serial = { .sz = sizeof(serial), .threads = 1 };
	struct flip_chunk chunk;
	struct fdry_image *img;
	unsigned long launches;
	char name[] = "t0";
	uint32_t i;

	test_child(seal_large, NULL);
	ok(load_try(NULL)); /* and hash it */
	test_sim_fail(NULL);
	launches = test_sim_calls("cuLaunchKernel");
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_uint_ge(test_sim_calls("cuLaunchKernel") - launches, 2);
	for (i = 0; i < LARGE_TENSORS; i += TEST_EACH(4)) { /* the first and the last group */
		name[1] = (char)('0' + i);
		flip_find(load_store(), "img", name, &chunk);
		flip_bit(&chunk, chunk.len * 8 - 1 - i);
		flip_trust(&chunk);
		fails(CORRUPT, "is damaged in the store", fdry_image_restore(img, NULL));
		flip_bit(&chunk, chunk.len * 8 - 1 - i);
		flip_trust(&chunk);
		ok(fdry_image_restore(img, NULL));
		flip_release(&chunk);
	}
	fdry_image_unload(img);
	flip_find(load_store(), "img", "t1", &chunk);
	flip_bit(&chunk, 9);
	flip_trust(&chunk);
	fails(CORRUPT, "is damaged in the store", load_try(&serial));
	flip_release(&chunk);
}
END_TEST

/* --- images that share a fingerprinter --- */

static struct fdry_store *pair_store; /* load_store() is for one thread */

static struct fdry_image *image_load(const char *ref, uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(pair_store, ref, &opts, &img));
	return img;
}

static void pair_seal(void)
{
	test_child(seal_small, NULL);
	test_child(seal_other, NULL);
	pair_store = load_store();
	test_sim();
}

/* Both images hold the chunk. */
static void damage_is_found(struct fdry_image *const img[2])
{
	struct flip_chunk chunk;
	int i;

	flip_find(load_store(), "img", "small", &chunk);
	for (i = 0; i < 2; i++) {
		flip_bit(&chunk, 5);
		flip_trust(&chunk);
		fails(CORRUPT, "is damaged in the store", fdry_image_restore(img[i], NULL));
		flip_bit(&chunk, 5);
		flip_trust(&chunk);
		ok(fdry_image_restore(img[i], NULL));
		image_check(img[i], 1, 3, 100);
	}
	flip_release(&chunk);
}

START_TEST(a_context_has_one_fingerprinter)
{
	struct fdry_image *img[2];
	unsigned long loads;
	long before;

	pair_seal();
	before = live_before();
	test_sim_fail(NULL);
	img[0] = image_load("img", 0);
	loads = test_sim_calls("cuModuleLoadDataEx");
	ck_assert_int_eq(test_sim_live("allocation"), 1);
	img[1] = image_load("other", 0);
	/* The image's own kernels, alone: their object has a variable. */
	ck_assert_uint_eq(test_sim_calls("cuModuleLoadDataEx") - loads, 1);
	ck_assert_uint_eq(test_sim_calls("cuMemAlloc_v2"), 1);
	damage_is_found(img);
	ck_assert_uint_eq(test_sim_calls("cuMemAlloc_v2"), 1);
	fdry_image_unload(img[0]);
	ok(fdry_image_restore(img[1], NULL));
	ck_assert_int_eq(test_sim_live("allocation"), 1);
	fdry_image_unload(img[1]);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

START_TEST(another_context_has_its_own)
{
	struct fdry_image *img[2];
	long before;

	pair_seal();
	before = live_before();
	img[0] = image_load("img", 0);
	img[1] = image_load("other", FDRY_LOAD_OWN_CONTEXT);
	ck_assert_int_eq(test_sim_live("allocation"), 2);
	damage_is_found(img);
	fdry_image_unload(img[1]);
	ck_assert_int_eq(test_sim_live("allocation"), 1);
	ok(fdry_image_restore(img[0], NULL));
	fdry_image_unload(img[0]);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

static void *loads_and_restores(void *ref)
{
	struct fdry_image *img;
	int i;

	for (i = 0; i < 60; i++) {
		img = image_load(ref, 0);
		ok(fdry_image_restore(img, NULL));
		ok(fdry_image_restore(img, NULL));
		fdry_image_unload(img);
	}
	return NULL;
}

START_TEST(two_threads_check_at_once)
{
	char refs[2][8] = { "img", "other" };
	pthread_t threads[2];
	long before;
	int i;

	pair_seal();
	before = live_before();
	for (i = 0; i < 2; i++)
		ck_assert(!pthread_create(&threads[i], NULL, loads_and_restores, refs[i]));
	for (i = 0; i < 2; i++)
		ck_assert(!pthread_join(threads[i], NULL));
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* Load "other" while the driver's call @n fails. Returns whether there was such a call. */
static bool load_failing(int n, struct fdry_image **ret)
{
	char spec[32];
	bool reached;

	*ret = NULL;
	snprintf(spec, sizeof(spec), "*:%d:%d", n, CUDA_ERROR_UNKNOWN);
	test_sim_fail(spec);
	if (fdry_image_load(load_store(), "other", NULL, ret))
		*ret = NULL;
	reached = test_sim_failed() != 0;
	test_sim_fail(NULL);
	return reached;
}

/* Every driver call of a load fails in turn: alone, and beside an image with the fingerprinter. */
START_TEST(a_load_that_fails_leaves_nothing)
{
	struct fdry_image *first = NULL, *img = NULL;
	long before;
	int n;

	pair_seal();
	before = live_before();
	if (_i) {
		first = image_load("img", 0);
		before = live_objects();
	}
	for (n = 1; load_failing(n, &img); n++) {
		/* If the load returned an image, the driver keeps the object that it failed to
		 * free. */
		fdry_image_unload(img);
		ck_assert_msg(live_objects() - before <= (img ? 1 : 0), "call %d left %ld", n,
			      live_objects() - before);
		before = live_objects();
		if (first)
			ok(fdry_image_restore(first, NULL));
	}
	ck_assert_int_gt(n, 40);
	ok(fdry_image_restore(img, NULL));
	fdry_image_unload(first);
	ok(fdry_image_restore(img, NULL));
	fdry_image_unload(img);
}
END_TEST

/* --- content that is not compared --- */

START_TEST(a_load_reports_compared_bytes)
{
	struct fdry_load_report report;

	test_child(seal_small, NULL);
	report = load_report();
	ck_assert_uint_ge(report.checked_bytes, (3u << 20) + 2 * BYTES);
	ck_assert(report.check_ms > 0 && report.check_ms < report.total_ms);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		flipped_bits_are_found, a_pack_in_the_store_repairs_it,
		a_broken_pack_repairs_nothing, a_chunk_of_several_tensors_comes_back_once,
		configured_sources_repair_it, a_restore_compares,
		host_content_is_compared, damage_in_any_group_is_found,
		bytes_that_change_on_their_way, a_load_reports_compared_bytes,
		a_context_has_one_fingerprinter, another_context_has_its_own,
		two_threads_check_at_once,
	};
	Suite *s = suite_create("check");
	TCase *tc = tcase_create("check");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup_memory, dir_teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, a_load_that_fails_leaves_nothing, 0, 2);
	suite_add_tcase(s, tc);
	return test_main(s);
}
