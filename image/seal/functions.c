// SPDX-License-Identifier: Apache-2.0
/*
 * functions.c - checks the functions that kernels call through pointers.
 *
 * Tables of a module hold their addresses, and a load of the image has other ones there. So the
 * code at each address must be that of the function, and no argument, variable or content may hold
 * such an address (graph/kernel_functions.c).
 */
#include "image/seal/seal.h"

static bool prints_get(void *arg, const struct fdry_fingerprint_range *ranges, size_t n,
		       struct fdry_fingerprint *ret)
{
	return fdry_sealed_fingerprints(((struct fdry_seal *)arg)->cap, ranges, n, ret);
}

/* Code lies in memory that the driver has mapped and that it reports as no memory of the program. A
 * kernel that reads other addresses could fault. */
static int address_check(struct fdry_seal *s, CUdeviceptr addr)
{
	unsigned int type;

	if (fdry_seal_mapped(s, addr) && addr - s->layout.base >= s->layout.size &&
	    fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &type,
			  CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) == CUDA_ERROR_INVALID_VALUE)
		return 0;
	return fdry_fail(FDRY_E_REFUSED,
			 "a table of functions has 0x%llx for %.200s, which is no address of code; "
			 "do not change tables of functions",
			 addr, fdry_kernel_set_function(s->kernels, addr));
}

int fdry_seal_functions(struct fdry_seal *s)
{
	uint32_t i, n = fdry_kernel_set_function_count(s->kernels);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = address_check(s, fdry_kernel_set_function_at(s->kernels, i));
	return err ?: fdry_kernel_set_functions_check(s->kernels, prints_get, s);
}

bool fdry_seal_functions_in_args(const struct fdry_seal *s)
{
	const struct fdry_wordset *words = &s->cap->memo.words;
	uint32_t i, n = fdry_kernel_set_function_count(s->kernels);

	for (i = 0; i < n; i++)
		if (fdry_wordset_find(words, fdry_kernel_set_function_at(s->kernels, i)))
			return true;
	return false;
}
