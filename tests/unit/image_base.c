// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the addresses of regions: bases by name, addresses that are in use, several images
 * in a process, and a hundred starts with random addresses from the operating system.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "tests/lib/image.h"

#define GIB (1ull << 30)

/* These values must never change; another program computed them from the rule in base.c. */
static const struct { const char *name; fdry_devptr base; } golden[] = {
	{ NULL, 0x4fda00000000 },
	{ "", 0x4fda00000000 },
	{ "a", 0x494990000000 },
	{ "qwen3-0.6b/decode@h200", 0x470cb0000000 },
	{ "prod/llama/rank0", 0x4d8d40000000 },
	{ "prod/llama/rank1", 0x230920000000 },
};

START_TEST(bases_are_frozen)
{
	size_t i;

	for (i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
		ck_assert_msg(fdry_base_for_name(golden[i].name) == golden[i].base, "%s: %#llx",
			      golden[i].name, fdry_base_for_name(golden[i].name));
}
END_TEST

/* Does [@base, @base + @size) avoid the addresses that the kernel and sanitizers use? */
static bool clear_of_others(fdry_devptr base, uint64_t size)
{
	return base >= 0x155555555000 && base + size <= 0x555555554000 &&
	       (base + size <= 0x2aaaaaaaa000 || base >= 0x3b0000000000);
}

static int base_cmp(const void *a, const void *b)
{
	fdry_devptr x = *(const fdry_devptr *)a, y = *(const fdry_devptr *)b;

	return (x > y) - (x < y);
}

START_TEST(bases_are_spread)
{
	enum { NAMES = 2000 };
	static fdry_devptr bases[NAMES];
	fdry_devptr none = fdry_base_for_name(NULL);
	int i, equal = 0, near = 0;
	char name[32];

	for (i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "model-%d/decode", i);
		bases[i] = fdry_base_for_name(name);
		ck_assert_uint_eq(bases[i] % (2 << 20), 0);
		ck_assert(clear_of_others(bases[i], 1024 * GIB));
		ck_assert(bases[i] >> 32 & 63);
		ck_assert(bases[i] >= none + 188 * GIB || bases[i] + 188 * GIB <= none);
	}
	qsort(bases, NAMES, sizeof(bases[0]), base_cmp);
	for (i = 1; i < NAMES; i++) {
		equal += bases[i] == bases[i - 1];
		near += bases[i] >> 38 == bases[i - 1] >> 38;
	}
	ck_assert_int_lt(equal, 80);         /* 43 of 2,000 among 46,336 are to be expected */
	ck_assert_int_lt(NAMES - near, 182); /* every slot is used */
	ck_assert_int_gt(NAMES - near, 175);
}
END_TEST

#if !TEST_SANITIZED_THREAD /* the thread sanitizer allows no memory there */

/* --- bases of captures --- */

static void capture_init(void)
{
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	test_hook_load();
	ok(fdry_hook_install(NULL));
	test_hook();
}

static CUdeviceptr first_address(const struct fdry_capture_opts *opts)
{
	struct fdry_capture *cap;
	CUdeviceptr p;

	ok(fdry_capture_begin(opts, &cap));
	cuda_ok(cuMemAlloc_v2, &p, 100);
	cuda_ok(cuMemFree_v2, p);
	fdry_capture_end(cap);
	return p;
}

START_TEST(capture_by_name)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .name = "some/model" };

	capture_init();
	ck_assert_uint_eq(first_address(NULL), fdry_base_for_name(NULL));
	ck_assert_uint_eq(first_address(&opts), fdry_base_for_name("some/model"));
	opts.base = TEST_CAPTURE_BASE;
	ck_assert_uint_eq(first_address(&opts), TEST_CAPTURE_BASE);
}
END_TEST

static void occupy(uint64_t addr)
{
	ck_assert_ptr_ne(mmap((void *)addr, 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 MAP_FAILED);
}

/* A mapping behind a base makes the region smaller, but not impossible; addresses are the same. */
START_TEST(less_capacity_behind_a_base)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .name = "some/model" };
	fdry_devptr base = fdry_base_for_name("some/model");
	struct fdry_capture *cap;
	char text[100];

	capture_init();
	occupy(base + 100 * GIB);
	opts.size = 128 * GIB;
	fails(TAKEN, "taken by anonymous", fdry_capture_begin(&opts, &cap));
	opts.size = 0;
	ck_assert_uint_eq(first_address(&opts), base);
	occupy(base + 50 * GIB);
	snprintf(text, sizeof(text), "taken by anonymous (%#llx-%#llx)", base + 50 * GIB,
		 base + 50 * GIB + 4096);
	fails(TAKEN, text, fdry_capture_begin(&opts, &cap));
}
END_TEST

/* A file is named by its path. */
START_TEST(the_obstacle_is_named)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .name = "some/model" };
	FILE *f = fopen("/proc/self/exe", "rb");
	struct fdry_capture *cap;
	char exe[400] = "";

	capture_init();
	ck_assert_int_gt(readlink("/proc/self/exe", exe, sizeof(exe) - 1), 0);
	ck_assert_ptr_ne(mmap((void *)fdry_base_for_name("some/model"), 4096, PROT_READ,
			      MAP_PRIVATE | MAP_FIXED_NOREPLACE, fileno(f), 0),
			 MAP_FAILED);
	fclose(f);
	fails(TAKEN, exe, fdry_capture_begin(&opts, &cap));
}
END_TEST

/* --- several images in a process --- */

static void seal_named(void *name)
{
	struct work w;

	work_base = fdry_base_for_name(name);
	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, name, NULL, NULL));
	work_end(&w);
}

static void *launch_often(void *img)
{
	int i;

	for (i = 0; i < 20; i++)
		image_check(img, 1, (float)i, 100);
	return NULL;
}

START_TEST(several_images)
{
	static char names[][8] = { "one", "two", "three", "four" };
	struct fdry_image *img[4], *again;
	pthread_t threads[4];
	char id[FDRY_ID_SIZE], text[100];
	int i;

	for (i = 0; i < 4; i++)
		test_child(seal_named, names[i]);
	for (i = 0; i < 4; i++)
		ok(fdry_image_load(load_store(), names[i], NULL, &img[i]));
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&threads[i], NULL, launch_often, img[i]));
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	fdry_image_id(img[2], id);
	snprintf(text, sizeof(text), "image %.12s of this process lies there: the addresses", id);
	fails(TAKEN, text, fdry_image_load(load_store(), "three", NULL, &again));
	fdry_image_unload(img[2]);
	ck_assert_int_eq(test_sim_live("reservation"), 4); /* its addresses stay reserved */
	ok(fdry_image_load(load_store(), "three", NULL, &img[2]));
	ck_assert_int_eq(test_sim_live("reservation"), 4);
	for (i = 0; i < 4; i++) {
		image_check(img[i], 1, 9, 100);
		fdry_image_unload(img[i]);
	}
}
END_TEST

/* Addresses that stay reserved for an image that was unloaded are no obstacle to a capture. */
START_TEST(a_capture_where_an_image_was)
{
	struct fdry_image *img;
	static struct work w;

	test_child(seal_plain, NULL);
	work_make(&w);
	fdry_capture_end(w.cap);
	cuda_ok(cuMemFree_v2, w.a);
	cuda_ok(cuMemFree_v2, w.b);
	cuda_ok(cuMemFree_v2, w.c);
	ok(fdry_image_load(w.store, "img", NULL, &img));
	fdry_image_unload(img);
	ok(fdry_capture_begin(&(struct fdry_capture_opts){ .sz = sizeof(struct fdry_capture_opts),
							   .base = work_base },
			      &w.cap));
	work_end(&w);
}
END_TEST

START_TEST(captures_are_named)
{
	struct fdry_image *img;
	static struct work w;

	test_child(seal_plain, NULL);
	work_make(&w);
	fails(TAKEN, "a capture of this process lies there",
	      fdry_image_load(w.store, "img", NULL, &img));
	work_end(&w);
}
END_TEST

/* --- starts --- */

#define STARTS 100

#define symbol_of(handle, name) ((__typeof__(&name))dlsym(handle, #name))

/* The whole of a process, without Check; see main(). */
static int start(const char *name)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .name = name };
	struct fdry_capture *cap;
	CUdeviceptr p = 0;
	CUcontext ctx;
	void *cu;

	setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1);
	setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1);
	if (fdry_hook_install(NULL) || fdry_capture_begin(&opts, &cap)) {
		fprintf(stderr, "'%s': %s\n", name, fdry_last_error());
		return 3;
	}
	cu = dlopen("libcuda.so.1", RTLD_NOW);
	if (symbol_of(cu, cuDevicePrimaryCtxRetain)(&ctx, 0) ||
	    symbol_of(cu, cuCtxSetCurrent)(ctx) || symbol_of(cu, cuMemAlloc_v2)(&p, 100))
		return 4;
	return p == fdry_base_for_name(name) ? 0 : 5;
}

/* Start this program again, every second time without a limit on the stack: libraries then have
 * other addresses. */
static void start_again(int i)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	char name[16] = "";
	pid_t pid = fork();
	int status;

	if (i % 4)
		snprintf(name, sizeof(name), "model-%d", i);
	if (!pid) {
		if (i % 2)
			(void)setrlimit(RLIMIT_STACK, &none);
		execl("/proc/self/exe", "image_base", "start", name, NULL);
		_exit(126);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "start %d '%s' ended with %#x", i,
		      name, status);
}

START_TEST(a_hundred_starts)
{
	int i;

	for (i = 0; i < STARTS; i++)
		start_again(i);
}
END_TEST

static void add_what_needs_room(TCase *tc)
{
	tcase_add_test(tc, capture_by_name);
	tcase_add_test(tc, less_capacity_behind_a_base);
	tcase_add_test(tc, the_obstacle_is_named);
	tcase_add_test(tc, several_images);
	tcase_add_test(tc, a_capture_where_an_image_was);
	tcase_add_test(tc, captures_are_named);
	tcase_add_test(tc, a_hundred_starts);
}

#else

static int start(const char *name)
{
	return !name;
}

static void add_what_needs_room(TCase *tc)
{
	(void)tc;
}

#endif

int main(int argc, char **argv)
{
	Suite *s;
	TCase *tc;

	if (argc == 3 && !strcmp(argv[1], "start"))
		return start(argv[2]);
	s = suite_create("image_base");
	tc = tcase_create("base");
	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, bases_are_frozen);
	tcase_add_test(tc, bases_are_spread);
	add_what_needs_room(tc);
	suite_add_tcase(s, tc);
	return test_main(s);
}
