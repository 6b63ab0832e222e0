// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of content that is compared with its fingerprints: bytes that change in the store
 * after they were verified there, or on their way to the device.
 */
#include <fcntl.h>

#include "tests/lib/flip.h"
#include "tests/lib/image_host.h"

#define SMALL 64u /* bytes of a tensor */

static void dir_setup_memory(void)
{
	dir_setup_in("/dev/shm");
}

/* --- an image with a small tensor, and a pack of it --- */

static void pack_put(struct fdry_store *s)
{
	char name[340];
	const char *const img = "img";
	int fd;

	snprintf(name, sizeof(name), "%s/packs", path);
	ck_assert(!mkdir(name, 0700));
	snprintf(name, sizeof(name), "%s/packs/one", path);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_export(s, &img, 1, fd, NULL, NULL));
	ck_assert(!close(fd));
}

static void seal_small(void *with_pack)
{
	struct fdry_tensor t = { .name = "small", .dtype = FDRY_U8, .use = FDRY_USE_CONST,
				 .rank = 1, .shape = { SMALL }, .stride = { 1 } };
	uint8_t bytes[SMALL];
	CUdeviceptr small;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &small, 3u << 20);
	cuda_ok(cuMemsetD8_v2, small, 0, 3u << 20);
	noise(1, bytes, sizeof(bytes));
	cuda_ok(cuMemcpyHtoD_v2, small, bytes, sizeof(bytes));
	t.addr = small;
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	if (with_pack)
		pack_put(w.store);
	work_end(&w);
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
			flip_trust(&chunk); /* else SHA-256 finds it */
		(void)load_report();
		flip_release(&chunk);
		check_sound(load_store());
	}
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
	fails(STATE, "restored in part only", fdry_image_launch(img, 1, NULL));
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
	fails(CORRUPT, "is damaged in the store", load_try(NULL));
	flip_release(&chunk);
}
END_TEST

/* --- on the way --- */

struct meddle {
	uint64_t addr;
	bool done;
};

/* Content has been copied, and is compared next. */
static void byte_change(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	const struct fdry_driver *drv = test_sim();
	struct meddle *m = arg;
	uint8_t byte = 0;

	(void)ms;
	if (phase != FDRY_PHASE_CONTENT || done != total || m->done)
		return;
	m->done = true;
	ck_assert_int_eq(drv->cuMemcpyDtoH_v2(&byte, m->addr, 1), CUDA_SUCCESS);
	byte ^= 0x10;
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(m->addr, &byte, 1), CUDA_SUCCESS);
}

START_TEST(bytes_that_change_on_their_way)
{
	struct meddle m = { 0 };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .progress = byte_change,
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

/* --- what is left out --- */

START_TEST(what_was_compared_is_reported)
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
		a_broken_pack_repairs_nothing, a_restore_compares, host_content_is_compared,
		bytes_that_change_on_their_way, what_was_compared_is_reported,
	};
	Suite *s = suite_create("check");
	TCase *tc = tcase_create("check");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup_memory, dir_teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return test_main(s);
}
