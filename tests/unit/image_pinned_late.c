// SPDX-License-Identifier: Apache-2.0
/*
 * Unit test of a seal that finds pinned memory last: content points to a module variable that no
 * kernel reaches by a relocation, and the variable's value points to pinned memory.
 *
 * In the software driver's objects, kernels reach all variables. So the test replaces the function
 * that reads those (see GNUmakefile), and only those that something points to are left.
 */
#include "graph/kernel_set.h"
#include "image/manifest.h"
#include "tests/lib/image.h"
#include "tests/lib/image_host.h"

int __wrap_fdry_set_host_variables_read(struct fdry_kernel_set *set,
					const struct fdry_set_entry *e);

int __wrap_fdry_set_host_variables_read(struct fdry_kernel_set *set,
					const struct fdry_set_entry *e)
{
	(void)set, (void)e;
	return 0;
}

static void seal_late(void *unused)
{
	CUdeviceptr out, cells, var, arg;
	uint64_t first, second;
	CUmodule module;
	CUfunction f;
	struct work w;
	size_t len;
	void *code = test_sim_cubin("variables", &len), *args[] = { &out, &arg };

	(void)unused;
	work_flags = FDRY_CAPTURE_PINNED;
	work_make(&w);
	cuda_ok(cuModuleLoadData, &module, code);
	cuda_ok(cuMemAlloc_v2, &out, 64);
	cuda_ok(cuMemAlloc_v2, &cells, 1 << 20);
	cuda_ok(cuMemsetD8_v2, cells, 0x11, 1 << 20);
	cuda_ok(cuModuleGetGlobal_v2, &var, &len, module, "pointer");
	second = (uintptr_t)pinned(4096);
	memset((void *)(uintptr_t)second, 0x5a, 4096);
	first = (uintptr_t)pinned(4096);
	memcpy((void *)(uintptr_t)first, &second, sizeof(second));
	cuda_ok(cuMemcpyHtoD_v2, var, &first, sizeof(first));
	cuda_ok(cuMemcpyHtoD_v2, cells + 4096, &var, sizeof(var));
	arg = cells + 4096;
	cuda_ok(cuModuleGetFunction, &f, module, "deref");
	capture_start(&w);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, w.stream, args, NULL);
	ok(fdry_capture_graph(w.cap, 1, "deref", capture_stop(&w)));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(pinned_memory_behind_a_variable)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;

	test_child(seal_late, NULL);
	(void)load_store();
	image_manifest_read(&bytes, &m);
	ck_assert_uint_eq(m.n_variables, 1);
	ck_assert_uint_eq(m.n_pinned, 2);
	ck_assert_uint_eq(m.n_pinned_chunks, 2);
	fdry_buf_release(&bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_pinned_late");
	TCase *tc = tcase_create("late");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, pinned_memory_behind_a_variable);
	suite_add_tcase(s, tc);
	return test_main(s);
}
