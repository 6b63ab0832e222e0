// SPDX-License-Identifier: Apache-2.0
/* kernel_func.c - finds a kernel in a module, and reads its parameters; see kernel_cache.h. */
#include <stdlib.h>
#include <string.h>

#include "run/kernel_cache.h"

void fdry_kernels_func_free(struct fdry_kernels_func *f)
{
	free(f->name);
	free(f->params);
	free(f);
}

static int param_add(struct fdry_buf *params, size_t offset, size_t size)
{
	struct fdry_param p = { (uint16_t)offset, (uint16_t)size };

	if (offset > FDRY_KERNEL_PARAM_BYTES_MAX || size > FDRY_KERNEL_PARAM_BYTES_MAX)
		return fdry_fail(
			FDRY_E_BADCODE,
			"the driver reports a parameter of %zu bytes at %zu, beyond the %u "
			"bytes that a kernel can have",
			size, offset, FDRY_KERNEL_PARAM_BYTES_MAX);
	return fdry_buf_put(params, &p, sizeof(p));
}

/* The driver answers CUDA_ERROR_INVALID_VALUE after the last parameter. */
static int params_read(const struct fdry_kernels *k, struct fdry_kernels_func *f)
{
	struct fdry_buf params = { 0 };
	size_t offset, size;
	uint32_t i;
	CUresult res = CUDA_SUCCESS;
	int err = 0;

	for (i = 0; i <= FDRY_KERNEL_PARAMS_MAX; i++) {
		res = fdry_call_raw(k->drv, cuFuncGetParamInfo, f->func, i, &offset, &size);
		if (res)
			break;
		err = param_add(&params, offset, size);
		if (err)
			goto out_release;
	}
	if (!res)
		err = fdry_fail(FDRY_E_UNABLE,
				"the kernel '%s' has more than %u parameters, which this library "
				"does not launch; put them into a struct",
				f->name, FDRY_KERNEL_PARAMS_MAX);
	else if (res != CUDA_ERROR_INVALID_VALUE && res != FDRY_CUDA_MISSING)
		err = fdry_driver_result(k->drv, FDRY_DRV_cuFuncGetParamInfo, res);
	if (err)
		goto out_release;
	f->nparams = res == FDRY_CUDA_MISSING ? FDRY_KERNEL_PARAMS_UNKNOWN : i;
	f->params = (struct fdry_param *)params.data;
	return 0;
out_release:
	fdry_buf_release(&params);
	return err;
}

/* In the cache's context. */
static int func_read(struct fdry_kernels *k, const struct fdry_kernels_module *m, const char *entry,
		     struct fdry_kernels_func *f)
{
	int shared = 0, err;
	CUresult res = fdry_call_raw(k->drv, cuModuleGetFunction, &f->func, m->module, entry);

	if (res == CUDA_ERROR_NOT_FOUND)
		return fdry_fail(FDRY_E_NOENT,
				 "the code has no kernel '%s'; names are mangled unless they are "
				 "declared extern \"C\"",
				 entry);
	if (res)
		return fdry_driver_result(k->drv, FDRY_DRV_cuModuleGetFunction, res);
	err = fdry_call(k->drv, cuFuncGetAttribute, &shared,
			CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f->func);
	if (err)
		return err;
	atomic_init(&f->shared, shared > 0 ? (uint32_t)shared : 0);
	return params_read(k, f);
}

int fdry_kernels_func_new(struct fdry_kernels *k, const struct fdry_kernels_module *m,
			  const char *entry, struct fdry_kernels_func **ret)
{
	struct fdry_kernels_func *f = calloc(1, sizeof(*f));
	CUstreamCaptureMode mode;
	int err;

	if (!f)
		return fdry_nomem();
	f->name = strdup(entry);
	if (!f->name) {
		err = fdry_nomem();
		goto out_free;
	}
	err = fdry_driver_enter(k->drv, k->ctx, &mode);
	if (err)
		goto out_free;
	err = func_read(k, m, entry, f);
	fdry_driver_leave(k->drv, &mode);
	if (err)
		goto out_free;
	*ret = f;
	return 0;
out_free:
	fdry_kernels_func_free(f);
	return err;
}
