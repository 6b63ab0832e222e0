// SPDX-License-Identifier: Apache-2.0
/*
 * A thousand loads and unloads on a GPU: afterwards, free device memory and the process's own
 * memory must be the same. The image is the one that the example vecadd seals.
 */
#include "tests/lib/clock.h"
#include "tests/lib/vecadd.h"

#define TIMES 1000
#define WARM 60 /* after these, all objects exist that are made once */

/* Bytes of memory that the process has in use. */
static size_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long size, pages = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu %lu", &size, &pages), 2);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t device_free(void)
{
	size_t bytes = 0, total;

	ck_assert_int_eq(fdry_call(drv, cuMemGetInfo_v2, &bytes, &total), 0);
	return bytes;
}

/* Another context costs a tenth of a second: now and then is enough. */
static uint32_t flags_for(int i)
{
	static const uint32_t ways[] = { 0, FDRY_LOAD_BACKGROUND, FDRY_LOAD_BUILD,
					 FDRY_LOAD_CHECK_OVERLAP | FDRY_LOAD_POISON };

	return ways[i % 4] | (i % 30 == 7 ? FDRY_LOAD_OWN_CONTEXT : 0);
}

static void load_once(struct fdry_store *s, int i)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags_for(i) };
	struct fdry_image *img;
	struct fdry_tensor t;
	static float v[N];

	ok(fdry_image_load(s, "vecadd", &opts, &img));
	ok(fdry_image_tensor_find(img, "a", &t));
	memset(v, 0, sizeof(v));
	ok(fdry_image_write(img, "a", v, sizeof(v), NULL));
	if (i % 3)
		ok(fdry_image_launch(img, 1, NULL)); /* running when the image is unloaded */
	fdry_image_unload(img);
}

/* Other processes may use the device, too; they free their memory after a while. */
static size_t device_free_again(size_t before)
{
	size_t now = device_free();
	int seconds;

	for (seconds = 0; now < before && seconds < 40; seconds++) {
		if (!seconds)
			printf("%zu KiB less are free; waiting for other processes\n",
			       (before - now) >> 10);
		sleep(1);
		now = device_free();
	}
	return now;
}

START_TEST(a_thousand_times)
{
	size_t dev_before = 0, dev_after, mem_before = 0, mem_after;
	double start = now_us();
	struct fdry_store *s;
	int i;

	ok(fdry_store_open(vecadd_dir, 0, &s));
	for (i = 0; i < TIMES; i++) {
		if (i == WARM) {
			dev_before = device_free();
			mem_before = resident();
		}
		load_once(s, i);
		if (i % 100 == 99)
			printf("%d loads in %.1f s\n", i + 1, (now_us() - start) / 1e6);
	}
	dev_after = device_free_again(dev_before);
	mem_after = resident();
	fdry_store_close(s);
	printf("device memory free: %zu KiB before, %zu KiB after; resident: %zu KiB before, %zu "
	       "KiB after\n",
	       dev_before >> 10, dev_after >> 10, mem_before >> 10, mem_after >> 10);
	ck_assert_uint_ge(dev_after, dev_before);
	ck_assert_uint_lt(mem_after, mem_before + (8 << 20));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leak");
	TCase *tc = tcase_create("leak");

	setvbuf(stdout, NULL, _IOLBF, 0); /* a run that is cut shows where it was */
	if (!vecadd_make())
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_thousand_times);
	suite_add_tcase(s, tc);
	return vecadd_run(s);
}
