// SPDX-License-Identifier: Apache-2.0
/*
 * functions.c - checks the functions that kernels call through pointers.
 *
 * Tables of a module hold their addresses, and a load of the image has other ones there. So the
 * code at each address must be that of the function, and no argument, variable or content may hold
 * such an address (graph/kernel_functions.c).
 */
#include "image/seal/seal.h"
#include "lib/safe_read.h"

static bool prints_get(void *arg, const struct fdry_fingerprint_range *ranges, size_t n,
		       struct fdry_fingerprint *ret)
{
	return fdry_sealed_fingerprints(((struct fdry_seal *)arg)->cap, ranges, n, ret);
}

/* Code lies at addresses that the driver has reserved in the process, so the host cannot read
 * there, and that it reports as no memory of the program. */
static bool may_be_code(struct fdry_seal *s, struct fdry_safe_read *host, CUdeviceptr addr)
{
	unsigned int type;
	char byte;

	return fdry_seal_mapped(s, addr) && addr - s->layout.base >= s->layout.size &&
	       fdry_safe_read(host, addr, &byte, 1) &&
	       fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &type,
			     CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) == CUDA_ERROR_INVALID_VALUE;
}

/* A kernel that reads other addresses could fault, which would end the context. */
static int address_check(struct fdry_seal *s, struct fdry_safe_read *host,
			 const struct fdry_fingerprint_range *code)
{
	CUdeviceptr addr = code->addr;

	if (code->len && may_be_code(s, host, addr) &&
	    may_be_code(s, host, addr + code->len - 1))
		return 0;
	return fdry_fail(FDRY_E_REFUSED,
			 "a table of functions has 0x%llx for %.200s, which is no address of code; "
			 "do not change tables of functions",
			 addr, fdry_kernel_set_function(s->kernels, addr));
}

int fdry_seal_functions(struct fdry_seal *s)
{
	uint32_t i, n = fdry_kernel_set_function_count(s->kernels);
	struct fdry_fingerprint_range code;
	struct fdry_safe_read host;
	int err = n ? fdry_safe_read_init(&host) : 0;

	if (err || !n)
		return err;
	for (i = 0; i < n && !err; i++) {
		code = fdry_kernel_set_function_at(s->kernels, i);
		err = address_check(s, &host, &code);
	}
	fdry_safe_read_release(&host);
	return err ?: fdry_kernel_set_functions_check(s->kernels, prints_get, s);
}

bool fdry_seal_functions_in_args(const struct fdry_seal *s)
{
	const struct fdry_wordset *words = &s->cap->memo.words;
	uint32_t i, n = fdry_kernel_set_function_count(s->kernels);

	for (i = 0; i < n; i++)
		if (fdry_wordset_find(words, fdry_kernel_set_function_at(s->kernels, i).addr))
			return true;
	return false;
}
