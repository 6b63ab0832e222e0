// SPDX-License-Identifier: Apache-2.0
/* graph_kernels.c - see graph_kernels.h. */
#include "tests/replace/graph_kernels.h"

static const struct fdry_param saxpy_params[] = { { 0, 8 }, { 8, 8 }, { 16, 4 }, { 20, 4 } };
static const struct fdry_param gap_params[] = { { 0, 1 }, { 8, 8 }, { 16, 2 } };

const struct fdry_kernel test_kernels[TEST_KERNELS] = {
	{ .name = "saxpy", .nparams = 4, .param_bytes = 24, .params = saxpy_params },
	{ .name = "nothing" },
	{ .name = "gap", .nparams = 3, .param_bytes = 18, .params = gap_params },
};
const struct fdry_kernel *test_kernel_table = test_kernels;
uint32_t test_kernel_count = TEST_KERNELS;

int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func,
			   uint32_t *index)
{
	uintptr_t i = func ? (uintptr_t)func : (uintptr_t)kern;

	(void)set;
	if (!i || i > test_kernel_count)
		return fdry_fail(FDRY_E_REFUSED, "its code was never seen");
	*index = (uint32_t)i - 1;
	return 0;
}

void fdry_kernel_set_allow_shared(struct fdry_kernel_set *set, uint32_t index, uint32_t bytes)
{
	(void)set;
	(void)index;
	(void)bytes;
}

int fdry_kernel_set_print(const struct fdry_kernel_set *set, uint32_t index, struct fdry_buf *ret)
{
	(void)set;
	return fdry_buf_put_u32(ret, index);
}

const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index)
{
	(void)set;
	return &test_kernel_table[index];
}

CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index)
{
	(void)bank;
	return (CUfunction)(uintptr_t)(index + 1);
}
