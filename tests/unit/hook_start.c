// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of forks under the interposer: a child may start CUDA and capture if its parent had
 * only opened the driver. If the parent had started CUDA, every call in the child returns an error,
 * whatever locks other threads held at the fork.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define SIZE (1024 * MIB)
#define FORKS 20

/* A child that hangs is ended by its alarm. */
static void child_of(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		alarm(20);
		fn();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "the child ended with %#x", (unsigned int)status);
}

static void captures(void)
{
	CUdeviceptr p;
	CUcontext ctx;

	ck_assert_int_eq(hook->forked(), 0);
	cuda_ok(cuInit, 0);
	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda_ok(cuCtxSetCurrent, ctx);
	hook_region_begin(SIZE);
	ck_assert_msg(!hook->reached(), "%s", hook->last_error());
	cuda_ok(cuMemAlloc_v2, &p, 1000);
	ck_assert_uint_eq(p, TEST_BASE);
}

START_TEST(a_driver_that_is_only_open)
{
	int version = 0;

	test_hook_load();
	ck_assert_ptr_nonnull(hook->real_path());
	cuda_ok(cuDriverGetVersion, &version);
	ck_assert_int_eq(cuda(cuInit, 77), CUDA_ERROR_INVALID_VALUE);
	child_of(captures);
	child_of(captures);
	captures();
}
END_TEST

static void *cubin;
static CUmodule module;

static void is_forked(int err)
{
	ck_assert_int_eq(err, -FDRY_E_FORKED);
	ck_assert_ptr_nonnull(strstr(hook->last_error(), "forked after CUDA started"));
}

static void has_nothing(void)
{
	struct fdry_hook_live live;
	struct fdry_alloc *ledger;
	struct fdry_code code;
	CUdeviceptr p;
	uint64_t n;
	size_t count;
	CUmodule m;

	is_forked(hook->forked());
	is_forked(hook->region_begin(TEST_BASE + SIZE, SIZE));
	is_forked(hook->region_pause());
	is_forked(hook->region_resume());
	is_forked(hook->region_end());
	is_forked(hook->region_preallocate(MIB));
	is_forked(hook->region_free_preallocated());
	is_forked(hook->region_offset(&n));
	is_forked(hook->region_set_offset(0));
	is_forked(hook->region_ledger(&p, &n, &ledger, &count));
	is_forked(hook->code_find(NULL, module, &code));
	hook->live(&live);
	ck_assert_int_eq(hook->late(), 0);
	ck_assert_int_eq(cuda(cuInit, 0), CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &p, 64), CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(cuda(cuMemFree_v2, TEST_BASE), CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(cuda(cuModuleLoadData, &m, cubin), CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(cuda(cuStreamBeginCapture_v2, NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
}

static void grandchild_has_nothing(void)
{
	has_nothing();
	child_of(has_nothing);
}

START_TEST(inherited)
{
	size_t len;

	test_hook();
	cubin = test_sim_cubin("kernels", &len);
	cuda_ok(cuModuleLoadData, &module, cubin);
	hook_region_begin(SIZE);
	child_of(grandchild_has_nothing);
	ck_assert_int_eq(hook->region_end(), 0);
	child_of(has_nothing);
}
END_TEST

static bool stop;
static CUcontext context;

/* These threads hold every lock much of the time, but not Check's own, which children need.
 */
static void *busy(void *arg)
{
	__typeof__(&cuMemAlloc_v2) mem_alloc = dlsym(test_hook_handle, "cuMemAlloc_v2");
	__typeof__(&cuMemFree_v2) mem_free = dlsym(test_hook_handle, "cuMemFree_v2");
	__typeof__(&cuModuleLoadData) load = dlsym(test_hook_handle, "cuModuleLoadData");
	__typeof__(&cuCtxSetCurrent) set_current = dlsym(test_hook_handle, "cuCtxSetCurrent");
	CUdeviceptr p;
	CUmodule m;

	set_current(context);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (!mem_alloc(&p, 1000)) /* until the addresses are used up */
			mem_free(p);
		if (arg)
			continue;
		load(&m, cubin);
		usleep(500); /* each leaves a note */
	}
	return NULL;
}

START_TEST(while_threads_hold_locks)
{
	pthread_t t[3];
	size_t len;
	int i;

	test_hook();
	cubin = test_sim_cubin("kernels", &len);
	cuda_ok(cuCtxGetCurrent, &context);
	cuda_ok(cuModuleLoadData, &module, cubin);
	hook_region_begin(SIZE);
	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, busy, i ? &stop : NULL);
	for (i = 0; i < FORKS; i++)
		child_of(has_nothing);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_start");
	TCase *tc = tcase_create("start");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_driver_that_is_only_open);
	tcase_add_test(tc, inherited);
	if (!TEST_SANITIZED) /* malloc of sanitizers may be locked at the fork */
		tcase_add_test(tc, while_threads_hold_locks);
	suite_add_tcase(s, tc);
	return test_main(s);
}
