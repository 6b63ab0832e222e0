// SPDX-License-Identifier: Apache-2.0
/* Unit tests of devices by number: capabilities, the compiled-code cache, warm-up, clean-up,
 * cooperative launches. */
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "foundry/run.h"
#include "lib/telemetry.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static char home[64];

static void setup(void)
{
	snprintf(home, sizeof(home), "/tmp/foundry-device-XXXXXX");
	ck_assert(mkdtemp(home));
	setenv("HOME", home, 1);
	setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("FOUNDRY_JIT_CACHE");
	unsetenv("CUDA_CACHE_DISABLE");
	unsetenv("CUDA_CACHE_PATH");
	unsetenv("CUDA_CACHE_MAXSIZE");
}

static void teardown(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf '%s'", home);
	ck_assert(!system(command));
}

static struct fdry_device *acquire(int ordinal)
{
	struct fdry_device *dev = NULL;

	ok(fdry_device_get(ordinal, &dev));
	return dev;
}

/* --- acquiring --- */

START_TEST(capabilities_once)
{
	struct fdry_device_caps c = { .sz = sizeof(c) },
				old = { .sz = offsetof(struct fdry_device_caps, ordinal) };
	struct fdry_device *dev, *again;
	unsigned long asked;

	setenv("FDRY_SIM_CC", "8.6", 1);
	setenv("FDRY_SIM_MEMORY", "3G", 1);
	setenv("FDRY_SIM_DEVICES", "2", 1);
	dev = acquire(1);
	asked = test_sim_calls("cuDeviceGetAttribute");
	ck_assert_uint_gt(asked, 20);
	again = acquire(1);
	ck_assert_ptr_eq(dev, again);
	ck_assert_uint_eq(test_sim_calls("cuDeviceGetAttribute"), asked);
	ok(fdry_device_caps(dev, &c));
	ck_assert_int_eq(c.cc_major, 8);
	ck_assert_int_eq(c.cc_minor, 6);
	ck_assert_uint_eq(c.memory, 3ull << 30);
	ck_assert_int_eq(c.ordinal, 1);
	ck_assert_int_eq(c.driver, 13000);
	ck_assert_int_eq(c.warp_size, 32);
	ck_assert_int_gt(c.multiprocessors, 0);
	ck_assert_int_eq(c.block_threads, 1024);
	ck_assert_int_eq(c.cooperative_launch, 1);
	ck_assert_int_eq(c.cluster_launch, 0);
	ck_assert_uint_gt(strlen(c.name), 0);
	ok(fdry_device_caps(dev, &old)); /* a caller of an older header */
	ck_assert_uint_eq(old.memory, 3ull << 30);
	ck_assert_int_eq(old.ordinal, 0);
	fails(OPTS, "", fdry_device_caps(dev, &(struct fdry_device_caps){ .sz = 0 }));
	fails(INVAL, "NULL", fdry_device_caps(NULL, &c));
	fdry_device_put(dev);
	ck_assert_int_eq(test_sim_live("context"), 1);
	fdry_device_put(again);
	ck_assert_int_eq(test_sim_live("context"), 0);
	fdry_device_put(NULL);
}
END_TEST

START_TEST(numbers_that_are_none)
{
	struct fdry_device *dev = NULL;

	fails(NOGPU, "there is no device 1; this process sees 1", fdry_device_get(1, &dev));
	fails(NOGPU, "there is no device -1", fdry_device_get(-1, &dev));
	fails(INVAL, "NULL", fdry_device_get(0, NULL));
	ck_assert_ptr_null(dev);
}
END_TEST

START_TEST(no_driver_and_no_gpu)
{
	struct fdry_device *dev = NULL;

	setenv("FOUNDRY_DRIVER", "/nowhere/libcuda.so.1", 1);
	fails(NODRIVER, "set FOUNDRY_DRIVER", fdry_device_get(0, &dev));
	/* This library exists, but is no driver. */
	ck_assert_int_eq(setenv("FOUNDRY_DRIVER", test_built("libfoundry.so.0.2"), 1), 0);
	fails(NODRIVER, "cannot be used: it is not a CUDA driver", fdry_device_get(0, &dev));
	setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1);
	setenv("FDRY_SIM_DEVICES", "0", 1);
	fails(NOGPU, "", fdry_device_get(0, &dev));
	ck_assert_ptr_null(dev);
}
END_TEST

START_TEST(each_call_fails)
{
	struct fdry_device *dev = NULL;
	char spec[32];
	int n, failed = 0;

	(void)test_sim_open();
	for (n = 1; n < 60; n++) {
		snprintf(spec, sizeof(spec), "*:%d:999", n);
		test_sim_fail(spec);
		if (fdry_device_get(0, &dev)) {
			failed++;
			ck_assert_int_eq(test_sim_live("context"), 0);
		} else {
			test_sim_fail(NULL);
			fdry_device_put(dev);
		}
		test_sim_fail(NULL);
	}
	ck_assert_int_gt(failed, 30);
}
END_TEST

START_TEST(wrong_limits)
{
	struct fdry_transient_stats st = { .sz = sizeof(st) };
	struct fdry_device *dev = NULL;

	setenv("FOUNDRY_POOL_DEVICE", "lots", 1);
	fails(ENV, "FOUNDRY_POOL_DEVICE is 'lots'; set it to a number of bytes",
	      fdry_device_get(0, &dev));
	setenv("FOUNDRY_POOL_DEVICE", "1M", 1);
	setenv("FOUNDRY_POOL_KEPT", "-1", 1);
	fails(ENV, "FOUNDRY_POOL_KEPT is '-1'; set it to a whole number from 0 to 65536",
	      fdry_device_get(0, &dev));
	setenv("FOUNDRY_POOL_KEPT", "0", 1);
	dev = acquire(0);
	ok(fdry_transient_stats(dev, FDRY_TRANSIENT_DEVICE, &st));
	ck_assert_uint_eq(st.limit, 1 << 20);
	fdry_device_put(dev);
}
END_TEST

static void *acquire_release(void *arg)
{
	struct fdry_device *dev;
	int i;

	(void)arg;
	for (i = 0; i < 50; i++) {
		dev = acquire(0);
		ok(fdry_device_warm_up(dev));
		ok(fdry_device_clean_up(dev));
		fdry_device_put(dev);
	}
	return NULL;
}

START_TEST(threads_that_acquire)
{
	pthread_t t[4];
	int i;

	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&t[i], NULL, acquire_release, NULL));
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_join(t[i], NULL));
	ck_assert_int_eq(test_sim_live("context"), 0);
}
END_TEST

START_TEST(not_in_a_forked_child)
{
	struct fdry_device *dev = acquire(0);
	uint64_t addr;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (fdry_device_warm_up(dev) != -FDRY_E_FORKED ||
		    fdry_device_clean_up(dev) != -FDRY_E_FORKED ||
		    fdry_transient_get(dev, FDRY_TRANSIENT_DEVICE, 1, NULL, &addr) !=
			    -FDRY_E_FORKED)
			_exit(1);
		fdry_device_put(dev);
		_exit(!strstr(fdry_last_error(), "before fork()"));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fdry_device_put(dev);
}
END_TEST

/* --- the driver's cache of compiled code --- */

START_TEST(the_cache_is_set_up)
{
	char path[128];
	struct stat st;

	fdry_device_put(acquire(0));
	snprintf(path, sizeof(path), "%s/.cache/foundry/jit", home);
	ck_assert_str_eq(getenv("CUDA_CACHE_PATH"), path);
	ck_assert_str_eq(getenv("CUDA_CACHE_MAXSIZE"), "4294967296");
	ck_assert_ptr_null(getenv("CUDA_CACHE_DISABLE"));
	ck_assert(!stat(path, &st) && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700);
}
END_TEST

START_TEST(its_own_variable)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/own/jit", home);
	setenv("FOUNDRY_JIT_CACHE", path, 1);
	fdry_device_put(acquire(0));
	ck_assert_str_eq(getenv("CUDA_CACHE_PATH"), path);
	ck_assert(!access(path, W_OK));
}
END_TEST

START_TEST(operators_are_not_overridden)
{
	static const struct {
		const char *name, *value;
	} set[] = {
		{ "CUDA_CACHE_PATH", "/theirs" },
		{ "CUDA_CACHE_DISABLE", "1" },
		{ "CUDA_CACHE_MAXSIZE", "1000" },
	};
	const char *path;

	setenv(set[_i].name, set[_i].value, 1);
	if (_i < 2)
		unsetenv("HOME"); /* no place is needed */
	fdry_device_put(acquire(0));
	ck_assert_str_eq(getenv(set[_i].name), set[_i].value);
	path = getenv("CUDA_CACHE_PATH");
	ck_assert(_i == 1 ? !path : path != NULL);
}
END_TEST

START_TEST(no_place_for_it)
{
	struct fdry_device *dev = NULL;

	unsetenv("HOME");
	fails(NOHOME,
	      "no place for the jit is known; set FOUNDRY_JIT_CACHE, XDG_CACHE_HOME or HOME",
	      fdry_device_get(0, &dev));
	setenv("FOUNDRY_JIT_CACHE", "", 1);
	fails(ENV, "FOUNDRY_JIT_CACHE is set but empty", fdry_device_get(0, &dev));
	ck_assert_ptr_null(getenv("CUDA_CACHE_PATH"));
	ck_assert_ptr_null(dev);
	unsetenv("FOUNDRY_JIT_CACHE"); /* put right, it works */
	setenv("XDG_CACHE_HOME", home, 1);
	fdry_device_put(acquire(0));
}
END_TEST

/* --- warm-up --- */

static void *bound(void *arg)
{
	struct fdry_device *dev = arg;
	CUcontext ctx = NULL;

	ck_assert_int_eq(test_sim_open()->cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	ck_assert_ptr_null(ctx);
	ok(fdry_device_warm_up(dev));
	ck_assert_int_eq(test_sim_open()->cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	return ctx;
}

START_TEST(warm_up_binds_the_thread)
{
	struct fdry_device *dev = acquire(0);
	pthread_t t;
	void *ctx = NULL;

	ck_assert(!pthread_create(&t, NULL, bound, dev));
	ck_assert(!pthread_join(t, &ctx));
	ck_assert_ptr_nonnull(ctx);
	test_sim_fail("cuMemGetInfo_v2:1:700");
	fails(DRIVER, "restart the process", fdry_device_warm_up(dev));
	test_sim_fail(NULL);
	fdry_device_put(dev);
}
END_TEST

/* --- cooperative launches --- */

static struct {
	struct fdry_device *dev;
	CUmodule module;
	CUfunction step;
	CUdeviceptr x;
} co;

static void kernel_load(void)
{
	const struct fdry_driver *drv = test_sim_open();
	size_t len;
	void *cubin = test_sim_cubin("kernels", &len);

	co.dev = acquire(0);
	ok(fdry_device_warm_up(co.dev));
	ck_assert_int_eq(drv->cuModuleLoadDataEx(&co.module, cubin, 0, NULL, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuModuleGetFunction(&co.step, co.module, "step"), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuMemAlloc_v2(&co.x, 64), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuMemsetD8Async(co.x, 0, 64, NULL), CUDA_SUCCESS);
	free(cubin);
}

static uint64_t step_result(void)
{
	uint64_t x = 0;

	ck_assert_int_eq(test_sim_open()->cuMemcpyDtoH_v2(&x, co.x, sizeof(x)), CUDA_SUCCESS);
	return x;
}

START_TEST(launched_cooperatively)
{
	uint64_t salt = 5;
	uint32_t spins = 0;
	void *params[] = { &co.x, &salt, &spins };
	struct fdry_device_launch_opts l = {
		.sz = sizeof(l), .grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .params = params
	};
	struct fdry_device_caps c = { .sz = sizeof(c) };
	uint64_t values[FDRY_METRICS];

	kernel_load();
	ok(fdry_device_caps(co.dev, &c));
	fails(INVAL, "no function", fdry_device_launch_cooperative(co.dev, &l));
	l.function = co.step;
	ok(fdry_device_launch_cooperative(co.dev, &l));
	ck_assert_uint_eq(step_result(), 5);
	ck_assert_uint_eq(test_sim_calls("cuLaunchCooperativeKernel"), 1);
	fdry_telemetry_read(values);
	ck_assert_uint_eq(values[FDRY_METRIC_LAUNCHES_COOPERATIVE], 1);
	l.grid[0] = 1000000;
	fails(UNABLE, "a cooperative launch of 1000000 blocks does not fit",
	      fdry_device_launch_cooperative(co.dev, &l));
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "fit at a time"));
	l.grid[0] = 0;
	fails(INVAL, "none of these may be 0", fdry_device_launch_cooperative(co.dev, &l));
	l.grid[0] = l.grid[1] = l.grid[2] = UINT32_MAX;
	fails(INVAL, "larger than any device allows", fdry_device_launch_cooperative(co.dev, &l));
	l.sz--;
	fails(OPTS, "then set sz", fdry_device_launch_cooperative(co.dev, &l));
	fails(INVAL, "NULL", fdry_device_launch_cooperative(co.dev, NULL));
	ck_assert_uint_eq(step_result(), 5);
	fdry_device_put(co.dev);
}
END_TEST

START_TEST(refused_with_both_facts)
{
	struct fdry_device_launch_opts l = {
		.sz = sizeof(l), .grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .function = (void *)1
	};

	setenv("FDRY_SIM_CC", "5.2", 1);
	co.dev = acquire(0);
	fails(UNABLE, "compute capability 5.2, cooperative launch 0",
	      fdry_device_launch_cooperative(co.dev, &l));
	fdry_device_put(co.dev);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_device");
	TCase *tc = tcase_create("device");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, capabilities_once);
	tcase_add_test(tc, numbers_that_are_none);
	tcase_add_test(tc, no_driver_and_no_gpu);
	tcase_add_test(tc, each_call_fails);
	tcase_add_test(tc, wrong_limits);
	tcase_add_test(tc, threads_that_acquire);
	tcase_add_test(tc, not_in_a_forked_child);
	tcase_add_test(tc, the_cache_is_set_up);
	tcase_add_test(tc, its_own_variable);
	tcase_add_loop_test(tc, operators_are_not_overridden, 0, 3);
	tcase_add_test(tc, no_place_for_it);
	tcase_add_test(tc, warm_up_binds_the_thread);
	tcase_add_test(tc, launched_cooperatively);
	tcase_add_test(tc, refused_with_both_facts);
	suite_add_tcase(s, tc);
	return test_main(s);
}
