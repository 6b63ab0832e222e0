// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of seals and loads under bad conditions: a driver that is too old, a full disk,
 * another seal under the same name, many threads at once.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/lib/image.h"

/* --- a driver that is too old --- */

/* A capture refuses an old driver at its beginning, and not at the seal: a seal needs the layout of
 * parameters (12.4) and libraries of kernels (12.5). */
static const struct {
	const char *version, *says;
} old[] = {
	{ "12000",
	  "has CUDA 12.0, and Foundry captures with 12.5 and newer; install release 555" },
	{ "12040",
	  "has CUDA 12.4, and Foundry captures with 12.5 and newer; install release 555" },
};

START_TEST(captured_on_an_old_driver)
{
	struct fdry_capture *cap = NULL;
	long before;

	ok(setenv("FDRY_SIM_DRIVER_VERSION", old[_i].version, 1));
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	test_hook_load();
	ok(fdry_hook_install(NULL));
	before = test_sim_live("context");
	fails(NOFUNC, old[_i].says, fdry_capture_begin(NULL, &cap));
	ck_assert_ptr_null(cap);
	ck_assert_int_eq(test_sim_live("context"), before);
}
END_TEST

/* The oldest driver that is accepted. It loads an image that was made with it, and so do newer
 * drivers. */
START_TEST(sealed_on_the_oldest_driver)
{
	struct fdry_image *img;

	ok(setenv("FDRY_SIM_DRIVER_VERSION", "12050", 1));
	test_child(seal_plain, NULL);
	if (_i)
		ok(unsetenv("FDRY_SIM_DRIVER_VERSION"));
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* A load detects a function that the driver lacks when it needs it, and undoes its work. */
START_TEST(loaded_on_an_old_driver)
{
	struct fdry_image *img = NULL;

	ok(setenv("FDRY_SIM_DRIVER_VERSION", "12050", 1));
	test_child(seal_plain, NULL);
	ok(setenv("FDRY_SIM_DRIVER_VERSION", "12040", 1));
	fails(IDENTITY, "CUDA version of the driver: 12050 there, 12040 here",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_ptr_null(img);
}
END_TEST

/* --- no GPU --- */

START_TEST(captured_without_a_gpu)
{
	struct fdry_capture *cap = NULL;

	ok(setenv("FDRY_SIM_DEVICES", "0", 1));
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	test_hook_load();
	ok(fdry_hook_install(NULL));
	fails(NOGPU, "no CUDA device", fdry_capture_begin(NULL, &cap));
	ck_assert_ptr_null(cap);
}
END_TEST

/* --- a parameter that cannot be queried --- */

START_TEST(a_parameter_query_fails)
{
	struct fdry_oid oid;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	test_sim();
	test_sim_fail("cuFuncGetParamInfo:3");
	fails(DRIVER, "graph 1 'add': node 0: kernel: kernel vecadd: cuFuncGetParamInfo failed",
	      work_seal(&w, "img"));
	fails(NOENT, "no ref", fdry_ref_get(w.store, "img", &oid));
	test_sim_fail(NULL);
	ok(work_seal(&w, "img"));
	work_end(&w);
}
END_TEST

/* --- a disk that is full --- */

#define LARGE (24u << 20)

/* The file of the store may grow by half of what the content needs. */
static void disk_limit(bool full)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	struct stat st;
	char file[400];

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	ck_assert_int_eq(stat(file, &st), 0);
	if (full)
		limit.rlim_cur = (rlim_t)st.st_size + LARGE / 2;
	ok(setrlimit(RLIMIT_FSIZE, &limit));
}

static void seal_on_a_full_disk(void *arg)
{
	uint8_t *bytes = malloc(LARGE);
	struct fdry_oid oid;
	struct work w;
	CUdeviceptr p;

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "small"));
	cuda_ok(cuMemAlloc_v2, &p, LARGE);
	noise(1, bytes, LARGE);
	cuda_ok(cuMemcpyHtoD_v2, p, bytes, LARGE);
	disk_limit(true);
	ck_assert_int_eq(work_seal(&w, "large"), -FDRY_E_FULL);
	ck_assert_msg(strstr(fdry_last_error(), "the file size limit is reached; raise it") ||
		      strstr(fdry_last_error(), "the disk is full"), "%s", fdry_last_error());
	fails(NOENT, "no ref", fdry_ref_get(w.store, "large", &oid));
	ok(fdry_ref_get(w.store, "small", &oid));
	disk_limit(false);
	ok(work_seal(&w, "large"));
	work_end(&w);
	free(bytes);
}

static void loads_ok(const char *name)
{
	struct fdry_image *img;

	ok(fdry_image_load(load_store(), name, NULL, &img));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}

START_TEST(sealed_on_a_full_disk)
{
	test_child(seal_on_a_full_disk, NULL);
	loads_ok("small");
	loads_ok("large");
}
END_TEST

/* --- two seals under one name --- */

/* A process that waits at the gate with its own capture, whose b is @salt, then seals, and reports
 * the result. */
struct rival {
	int gate[2], result[2];
	float salt;
};

struct outcome {
	int err;
	char id[FDRY_ID_SIZE];
};

static void rival_seal(void *arg)
{
	const struct rival *r = arg;
	struct outcome o = { 0 };
	float v[N];
	struct work w;
	char c;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	vector_fill(v, r->salt);
	cuda_ok(cuMemcpyHtoD_v2, w.b, v, BYTES);
	ck_assert_int_eq(write(r->result[1], "r", 1), 1);
	ck_assert_int_eq(read(r->gate[0], &c, 1), 1);
	o.err = fdry_capture_seal(w.cap, w.store, "img", o.id, NULL);
	ck_assert_int_eq(write(r->result[1], &o, sizeof(o)), sizeof(o));
	work_end(&w);
}

static pid_t rival_start(struct rival *r)
{
	pid_t pid;
	char c;

	ck_assert(!pipe(r->gate) && !pipe(r->result));
	pid = fork();
	if (!pid) {
		rival_seal(r);
		_exit(0);
	}
	ck_assert_int_eq(read(r->result[0], &c, 1), 1);
	return pid;
}

START_TEST(two_processes_seal_under_one_name)
{
	struct rival r[2] = { { .salt = 50 }, { .salt = 60 } };
	struct outcome o[2];
	struct fdry_image *img;
	struct fdry_store *s;
	struct fdry_oid oid;
	char hex[FDRY_OID_HEX_SIZE];
	pid_t pid[2];
	int i, status, won = 0;

	s = store_make();
	for (i = 0; i < 2; i++)
		pid[i] = rival_start(&r[i]);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(write(r[i].gate[1], "g", 1), 1);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(read(r[i].result[0], &o[i], sizeof(o[i])), sizeof(o[i]));
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
		ck_assert_msg(!o[i].err || o[i].err == -FDRY_E_RACED, "%s",
			      fdry_error_name(o[i].err));
		won += !o[i].err;
	}
	ck_assert_int_ge(won, 1);
	ok(fdry_ref_get(s, "img", &oid));
	fdry_oid_hex(&oid, hex);
	ck_assert((!o[0].err && !strcmp(hex, o[0].id)) || (!o[1].err && !strcmp(hex, o[1].id)));
	fdry_store_close(s);
	for (i = 0; i < 2; i++) {
		if (o[i].err)
			continue;
		ok(fdry_image_load(load_store(), o[i].id, NULL, &img));
		image_check(img, 1, 3, r[i].salt);
		fdry_image_unload(img);
	}
}
END_TEST

struct sealing {
	struct work *w;
	int err;
	char id[FDRY_ID_SIZE];
	char why[300];
};

static void *seal_beside(void *arg)
{
	struct sealing *s = arg;

	s->err = fdry_capture_seal(s->w->cap, s->w->store, "img", s->id, NULL);
	snprintf(s->why, sizeof(s->why), "%s", fdry_last_error());
	return NULL;
}

START_TEST(two_threads_seal_one_capture)
{
	struct work w;
	struct sealing s[2] = { { .w = &w }, { .w = &w } };
	struct fdry_oid oid;
	char hex[FDRY_OID_HEX_SIZE];
	pthread_t thread[2];
	int i;

	work_make(&w);
	graph_add(&w, 1);
	for (i = 0; i < 2; i++)
		ck_assert(!pthread_create(&thread[i], NULL, seal_beside, &s[i]));
	for (i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		ck_assert_msg(!s[i].err, "%s", s[i].why);
	}
	ck_assert_str_eq(s[0].id, s[1].id);
	ok(fdry_ref_get(w.store, "img", &oid));
	ck_assert_str_eq(fdry_oid_hex(&oid, hex), s[0].id);
	work_end(&w);
}
END_TEST

/* --- several images, several threads --- */

#define IMAGES 3

static void seal_elsewhere(void *arg)
{
	int i = *(const int *)arg;
	char name[8];
	struct work w;

	work_base = TEST_CAPTURE_BASE + ((uint64_t)i << 34);
	work_make(&w);
	graph_add(&w, 1);
	graph_add(&w, 2);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	snprintf(name, sizeof(name), "img%d", i);
	ok(work_seal(&w, name));
	work_end(&w);
}

struct user {
	struct fdry_store *store;
	int image, rounds;
};

/* Loads, launches, unloads; a check that fails ends the test. */
static void *use_image(void *arg)
{
	const struct user *u = arg;
	struct fdry_image *img;
	char name[8];
	int i;

	snprintf(name, sizeof(name), "img%d", u->image);
	for (i = 0; i < u->rounds; i++) {
		ok(fdry_image_load(u->store, name, NULL, &img));
		image_check(img, 1 + (uint64_t)(i & 1), (float)i, 100);
		image_check(img, 2 - (uint64_t)(i & 1), (float)(i + u->image), 100);
		fdry_image_unload(img);
	}
	return NULL;
}

START_TEST(images_side_by_side)
{
	struct user users[IMAGES];
	pthread_t thread[IMAGES];
	long before;
	int i;

	for (i = 0; i < IMAGES; i++)
		test_child(seal_elsewhere, &i);
	(void)load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < IMAGES; i++) {
		users[i] = (struct user){ load_store(), i, 5 };
		ck_assert(!pthread_create(&thread[i], NULL, use_image, &users[i]));
	}
	for (i = 0; i < IMAGES; i++)
		pthread_join(thread[i], NULL);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* One image, launched by several threads at once: each launch is whole. */
static void *launch_much(void *arg)
{
	int i;

	for (i = 0; i < 20; i++)
		ok(fdry_image_launch(arg, 1 + (uint64_t)(i & 1), NULL));
	return NULL;
}

START_TEST(one_image_launched_by_several)
{
	struct fdry_image *img;
	pthread_t thread[IMAGES];
	int i;

	test_child(seal_plain, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	for (i = 0; i < IMAGES; i++)
		ck_assert(!pthread_create(&thread[i], NULL, launch_much, img));
	for (i = 0; i < IMAGES; i++)
		pthread_join(thread[i], NULL);
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_adverse");
	TCase *tc = tcase_create("adverse");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, captured_on_an_old_driver, 0, sizeof(old) / sizeof(old[0]));
	tcase_add_loop_test(tc, sealed_on_the_oldest_driver, 0, 2);
	tcase_add_test(tc, loaded_on_an_old_driver);
	tcase_add_test(tc, captured_without_a_gpu);
	tcase_add_test(tc, a_parameter_query_fails);
	tcase_add_test(tc, sealed_on_a_full_disk);
	tcase_add_test(tc, two_processes_seal_under_one_name);
	tcase_add_test(tc, two_threads_seal_one_capture);
	tcase_add_test(tc, images_side_by_side);
	tcase_add_test(tc, one_image_launched_by_several);
	suite_add_tcase(s, tc);
	return test_main(s);
}
