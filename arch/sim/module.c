// SPDX-License-Identifier: Apache-2.0
/*
 * module.c - modules: device code in one context, and its functions.
 *
 * A function holds its code. So an operation in a queue or a graph runs even if its module is
 * unloaded before; only the handle is invalid then.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/code.h"

static void func_release(struct sim_obj *obj)
{
	struct sim_func *f = (struct sim_func *)obj;

	sim_code_put(f->code);
	free(f);
}

static CUresult func_new(struct sim_module *m, const struct sim_kernel_record *record,
			 struct sim_func **ret)
{
	struct sim_func *f = calloc(1, sizeof(*f));
	CUresult res;

	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->module = m;
	f->ctx = m->ctx;
	f->record = record;
	f->attrs = sim_func_attrs_initial(record);
	res = sim_obj_open(&f->obj, SIM_FUNC, func_release);
	if (res) {
		free(f);
		return res;
	}
	f->code = sim_code_get(m->code);
	*ret = f;
	return CUDA_SUCCESS;
}

static CUresult funcs_new(struct sim_module *m)
{
	size_t n = sim_code_kernels(m->code);

	m->funcs = calloc(n + 1, sizeof(*m->funcs));
	if (!m->funcs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (; m->nfuncs < n; m->nfuncs++)
		SIM_TRY(func_new(m, sim_code_kernel(m->code, m->nfuncs), &m->funcs[m->nfuncs]));
	return CUDA_SUCCESS;
}

static void funcs_close(struct sim_module *m)
{
	while (m->nfuncs) {
		m->funcs[--m->nfuncs]->module = NULL;
		sim_obj_close(&m->funcs[m->nfuncs]->obj);
	}
	free(m->funcs);
	m->funcs = NULL;
}

/* Remove the first @n variables from the ranges that the driver knows. */
static void vars_remove(struct sim_module *m, size_t n)
{
	while (n)
		sim_range_remove(m->code->vars[--n].addr);
}

static CUresult vars_enter(struct sim_module *m)
{
	CUresult res;
	size_t i;

	for (i = 0; i < m->code->nvars; i++) {
		struct sim_range r = { .start = m->code->vars[i].addr,
				       .size = m->code->vars[i].size,
				       .kind = SIM_MEM_MODULE,
				       .dev = m->ctx->dev,
				       .ctx = m->ctx->handle,
				       .read = true,
				       .write = true };

		res = sim_range_add(&r);
		if (res) {
			vars_remove(m, i);
			return res;
		}
	}
	return CUDA_SUCCESS;
}

static void module_release(struct sim_obj *obj)
{
	struct sim_module *m = (struct sim_module *)obj;

	sim_code_put(m->code);
	free(m);
}

CUresult sim_module_new(struct sim_ctx *ctx, struct sim_code *code, struct sim_library *library,
			struct sim_module **ret)
{
	struct sim_module *m = calloc(1, sizeof(*m));
	CUresult res;

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->ctx = ctx;
	m->code = sim_code_get(code);
	m->library = library;
	res = funcs_new(m);
	if (res)
		goto out_funcs;
	res = vars_enter(m);
	if (res)
		goto out_funcs;
	res = sim_obj_open(&m->obj, SIM_MODULE, module_release);
	if (res)
		goto out_vars;
	m->next = ctx->modules;
	ctx->modules = m;
	*ret = m;
	return CUDA_SUCCESS;

out_vars:
	vars_remove(m, m->code->nvars);
out_funcs:
	funcs_close(m);
	module_release(&m->obj);
	return res;
}

void sim_module_close(struct sim_module *m)
{
	struct sim_module **link;

	for (link = &m->ctx->modules; *link != m; link = &(*link)->next)
		;
	*link = m->next;
	if (m->library)
		sim_library_forget(m->library, m);
	funcs_close(m);
	vars_remove(m, m->code->nvars);
	sim_obj_close(&m->obj);
}

void sim_modules_release(struct sim_ctx *ctx)
{
	while (ctx->modules)
		sim_module_close(ctx->modules);
}

static struct sim_func *module_func(const struct sim_module *m, const char *name)
{
	size_t i;

	for (i = 0; i < m->nfuncs; i++)
		if (!strcmp(m->funcs[i]->record->name, name))
			return m->funcs[i];
	return NULL;
}

static CUresult module_load(CUmodule *ret, const void *data)
{
	struct sim_image image;
	struct sim_module *m;
	struct sim_code *code;
	struct sim_ctx *ctx;
	CUresult res;

	if (!ret || !data)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	SIM_TRY(sim_image_find(data, &image));
	res = sim_code_load(&image, &code);
	sim_image_release(&image);
	if (res)
		return res;
	res = sim_module_new(ctx, code, NULL, &m);
	sim_code_put(code);
	if (!res)
		*ret = SIM_HANDLE(CUmodule, m);
	return res;
}

CUresult cuModuleLoadData(CUmodule *ret, const void *data)
{
	SIM_ENTER(cuModuleLoadData);
	return module_load(ret, data);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *data)
{
	SIM_ENTER(cuModuleLoadFatBinary);
	return module_load(ret, data);
}

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *data, unsigned int count,
			    CUjit_option *options, void **values)
{
	CUresult res;

	SIM_ENTER(cuModuleLoadDataEx);
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	res = module_load(ret, data);
	if (res == CUDA_ERROR_INVALID_PTX)
		sim_jit_log(count, options, values, SIM_PTX_REFUSED);
	return res;
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	CUresult res;
	void *data;

	SIM_ENTER(cuModuleLoad);
	if (!ret || !path)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_file_read(path, &data, NULL));
	res = module_load(ret, data);
	free(data);
	return res;
}

static CUresult module_find(CUmodule handle, struct sim_module **ret)
{
	struct sim_module *m = sim_find(handle, SIM_MODULE);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->ctx->error)
		return m->ctx->error;
	*ret = m;
	return CUDA_SUCCESS;
}

/* A library's instance is unloaded with its library. */
CUresult cuModuleUnload(CUmodule handle)
{
	struct sim_module *m;

	SIM_ENTER(cuModuleUnload);
	SIM_TRY(module_find(handle, &m));
	if (m->library)
		return CUDA_ERROR_NOT_PERMITTED;
	SIM_TRY(sim_ctx_wait(m->ctx));
	SIM_TRY(module_find(handle, &m));
	sim_module_close(m);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule handle, const char *name)
{
	struct sim_module *m;
	struct sim_func *f;

	SIM_ENTER(cuModuleGetFunction);
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_find(handle, &m));
	f = module_func(m, name);
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	*ret = SIM_HANDLE(CUfunction, f);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *ret, CUmodule handle)
{
	struct sim_module *m;

	SIM_ENTER(cuModuleGetFunctionCount);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_find(handle, &m));
	*ret = (unsigned int)m->nfuncs;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *ret, unsigned int capacity, CUmodule handle)
{
	struct sim_module *m;
	size_t i;

	SIM_ENTER(cuModuleEnumerateFunctions);
	if (!ret || !capacity)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_find(handle, &m));
	for (i = 0; i < m->nfuncs && i < capacity; i++)
		ret[i] = SIM_HANDLE(CUfunction, m->funcs[i]);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *addr, size_t *size, CUmodule handle, const char *name)
{
	struct sim_module *m;

	SIM_ENTER(cuModuleGetGlobal_v2);
	if (!name || (!addr && !size))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_find(handle, &m));
	return sim_code_global(m->code, name, addr, size);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	SIM_ENTER(cuModuleGetLoadingMode);
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
