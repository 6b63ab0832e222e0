// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzz target: the input is read as a cubin. The parts that its kernels reach are found, and each
 * kernel is sliced alone, then all together. A slice that differs from its cubin is a bug of the
 * library, for any input. Code that passes module.h's check must be an ELF.
 */
#include <stdlib.h>

#include "graph/module.h"
#include "graph/slice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void slice(const struct fdry_cubin *c, const uint32_t *kernels, uint32_t n)
{
	struct fdry_buf b = { 0 };
	struct fdry_code_reach r;

	if (fdry_code_reach_init(c, kernels, n, &r))
		return;
	if (fdry_slice(&r, &b) == -FDRY_E_BUG)
		abort();
	fdry_buf_release(&b);
	fdry_code_reach_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const struct fdry_driver drv = { .software = len & 1 };
	struct fdry_span bytes = { data, len };
	struct fdry_cubin *c;
	uint32_t k[8], i;

	if (!fdry_module_check(&drv, bytes) && !fdry_elf_machine(bytes))
		abort();

	if (fdry_cubin_new(bytes, &c))
		return 0;
	for (i = 0; i < c->nkernels && i < 8; i++) {
		k[i] = i;
		slice(c, &i, 1);
	}
	slice(c, k, i);
	fdry_cubin_free(c);
	return 0;
}
