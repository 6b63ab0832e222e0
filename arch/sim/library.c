// SPDX-License-Identifier: Apache-2.0
/*
 * library.c - libraries: device code without a context, loaded into each context that uses it.
 *
 * The first context gets the copy that was loaded to list the kernels. Every other context gets a
 * fresh copy with fresh variables, also one with the handle of a destroyed context. Without
 * CU_LIBRARY_BINARY_IS_PRESERVED the image is copied; with it, each new context reads the
 * caller's bytes again.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/code.h"

struct instance {
	struct instance *next;
	struct sim_module *module;
};

struct sim_library {
	struct sim_obj obj;
	struct sim_code *code; /* held: the copy that lists the kernels */
	bool code_used;        /* some context has it */
	struct sim_image image;
	struct sim_kern **kerns;
	size_t nkerns;
	struct instance *instances;
};

static void kerns_close(struct sim_library *lib)
{
	while (lib->nkerns) {
		lib->kerns[--lib->nkerns]->library = NULL;
		sim_obj_close(&lib->kerns[lib->nkerns]->obj);
	}
	free(lib->kerns);
}

static CUresult kern_new(struct sim_library *lib, size_t index)
{
	struct sim_kern *k = calloc(1, sizeof(*k));
	CUresult res;
	int dev;

	if (!k)
		return CUDA_ERROR_OUT_OF_MEMORY;
	k->library = lib;
	k->index = index;
	k->record = sim_code_kernel(lib->code, index);
	for (dev = 0; dev < SIM_DEVICES_MAX; dev++)
		k->attrs[dev] = sim_func_attrs_initial(k->record);
	res = sim_obj_open(&k->obj, SIM_KERNEL, NULL);
	if (res) {
		free(k);
		return res;
	}
	lib->kerns[lib->nkerns++] = k;
	return CUDA_SUCCESS;
}

static CUresult kerns_new(struct sim_library *lib)
{
	size_t i, n = sim_code_kernels(lib->code);

	lib->kerns = calloc(n + 1, sizeof(*lib->kerns));
	if (!lib->kerns)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < n; i++)
		SIM_TRY(kern_new(lib, i));
	return CUDA_SUCCESS;
}

static void library_release(struct sim_obj *obj)
{
	struct sim_library *lib = (struct sim_library *)obj;

	kerns_close(lib);
	sim_code_put(lib->code);
	sim_image_release(&lib->image);
	free(lib);
}

static CUresult image_keep(struct sim_library *lib, bool preserved)
{
	if (preserved || lib->image.owned)
		return CUDA_SUCCESS;
	lib->image.owned = malloc(lib->image.size);
	if (!lib->image.owned)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lib->image.data = memcpy(lib->image.owned, lib->image.data, lib->image.size);
	return CUDA_SUCCESS;
}

static CUresult library_load(CUlibrary *ret, const void *data, bool preserved)
{
	struct sim_library *lib = calloc(1, sizeof(*lib));
	CUresult res;

	if (!lib)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sim_image_find(data, &lib->image);
	if (!res)
		res = image_keep(lib, preserved);
	if (!res)
		res = sim_code_load(&lib->image, &lib->code);
	if (!res)
		res = kerns_new(lib);
	if (!res)
		res = sim_obj_open(&lib->obj, SIM_LIBRARY, library_release);
	if (res)
		library_release(&lib->obj);
	else
		*ret = SIM_HANDLE(CUlibrary, lib);
	return res;
}

/* CUDA_SUCCESS, and whether the caller preserves the image. */
static CUresult options_read(const CUlibraryOption *options, void *const *values,
			     unsigned int count, bool *preserved)
{
	unsigned int i;

	*preserved = false;
	if (count && !options)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
			*preserved = !values || values[i];
		else if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *ret, const void *data, CUjit_option *jit, void **jit_values,
			   unsigned int njit, CUlibraryOption *options, void **values,
			   unsigned int count)
{
	bool preserved;
	CUresult res;

	SIM_ENTER(cuLibraryLoadData);
	if (!ret || !data || (njit && (!jit || !jit_values)))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(options_read(options, values, count, &preserved));
	res = library_load(ret, data, preserved);
	if (res == CUDA_ERROR_INVALID_PTX)
		sim_jit_log(njit, jit, jit_values, SIM_PTX_REFUSED);
	return res;
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit,
			       void **jit_values, unsigned int njit, CUlibraryOption *options,
			       void **values, unsigned int count)
{
	bool preserved;
	CUresult res;
	void *data;

	SIM_ENTER(cuLibraryLoadFromFile);
	if (!ret || !path || (njit && (!jit || !jit_values)))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(options_read(options, values, count, &preserved));
	if (preserved)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_file_read(path, &data, NULL));
	res = library_load(ret, data, false);
	free(data);
	return res;
}

static CUresult library_find(CUlibrary handle, struct sim_library **ret)
{
	struct sim_library *lib = sim_find(handle, SIM_LIBRARY);

	if (!lib)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = lib;
	return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle)
{
	struct sim_library *lib;

	SIM_ENTER(cuLibraryUnload);
	SIM_TRY(library_find(handle, &lib));
	SIM_TRY(sim_device_wait());
	SIM_TRY(library_find(handle, &lib));
	while (lib->instances)
		sim_module_close(lib->instances->module);
	kerns_close(lib);
	lib->kerns = NULL;
	sim_obj_close(&lib->obj);
	return CUDA_SUCCESS;
}

void sim_library_forget(struct sim_library *lib, const struct sim_module *m)
{
	struct instance **link = &lib->instances, *in;

	while ((*link)->module != m)
		link = &(*link)->next;
	in = *link;
	*link = in->next;
	free(in);
}

static CUresult code_for_context(struct sim_library *lib, struct sim_code **ret)
{
	if (lib->code_used)
		return sim_code_load(&lib->image, ret);
	lib->code_used = true;
	*ret = sim_code_get(lib->code);
	return CUDA_SUCCESS;
}

/* The instance of @lib in @ctx, loaded at the first call. */
static CUresult library_module(struct sim_library *lib, struct sim_ctx *ctx,
			       struct sim_module **ret)
{
	struct instance *in;
	struct sim_code *code;
	CUresult res;

	for (in = lib->instances; in; in = in->next)
		if (in->module->ctx == ctx) {
			*ret = in->module;
			return CUDA_SUCCESS;
		}
	in = calloc(1, sizeof(*in));
	if (!in)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = code_for_context(lib, &code);
	if (!res) {
		res = sim_module_new(ctx, code, lib, &in->module);
		sim_code_put(code);
	}
	if (res) {
		free(in);
		return res;
	}
	in->next = lib->instances;
	lib->instances = in;
	*ret = in->module;
	return CUDA_SUCCESS;
}

static CUresult module_current(CUlibrary handle, struct sim_module **ret)
{
	struct sim_library *lib;
	struct sim_ctx *ctx;

	SIM_TRY(library_find(handle, &lib));
	SIM_TRY(sim_ctx_current(&ctx));
	return library_module(lib, ctx, ret);
}

CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary handle)
{
	struct sim_module *m;

	SIM_ENTER(cuLibraryGetModule);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_current(handle, &m));
	*ret = SIM_HANDLE(CUmodule, m);
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *addr, size_t *size, CUlibrary handle, const char *name)
{
	struct sim_module *m;

	SIM_ENTER(cuLibraryGetGlobal);
	if (!name || (!addr && !size))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(module_current(handle, &m));
	return sim_code_global(m->code, name, addr, size);
}

CUresult cuLibraryGetManaged(CUdeviceptr *addr, size_t *size, CUlibrary handle, const char *name)
{
	struct sim_library *lib;

	SIM_ENTER(cuLibraryGetManaged);
	if (!name || (!addr && !size))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(library_find(handle, &lib));
	return CUDA_ERROR_NOT_FOUND; /* objects of the software driver have no managed variables */
}

CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary handle, const char *name)
{
	struct sim_library *lib;
	size_t i;

	SIM_ENTER(cuLibraryGetKernel);
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(library_find(handle, &lib));
	for (i = 0; i < lib->nkerns; i++)
		if (!strcmp(lib->kerns[i]->record->name, name)) {
			*ret = SIM_HANDLE(CUkernel, lib->kerns[i]);
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *ret, CUlibrary handle)
{
	struct sim_library *lib;

	SIM_ENTER(cuLibraryGetKernelCount);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(library_find(handle, &lib));
	*ret = (unsigned int)lib->nkerns;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *ret, unsigned int capacity, CUlibrary handle)
{
	struct sim_library *lib;
	size_t i;

	SIM_ENTER(cuLibraryEnumerateKernels);
	if (!ret || !capacity)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(library_find(handle, &lib));
	for (i = 0; i < lib->nkerns && i < capacity; i++)
		ret[i] = SIM_HANDLE(CUkernel, lib->kerns[i]);
	return CUDA_SUCCESS;
}

static CUresult kern_find(CUkernel handle, struct sim_kern **ret)
{
	struct sim_kern *k = sim_find(handle, SIM_KERNEL);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = k;
	return CUDA_SUCCESS;
}

CUresult sim_func_find(CUfunction handle, struct sim_ctx *ctx, struct sim_func **ret,
		       CUkernel *kern_ret)
{
	struct sim_func *f = sim_find(handle, SIM_FUNC);
	struct sim_module *m;
	struct sim_kern *k;

	*kern_ret = NULL;
	if (f) {
		if (f->ctx != ctx)
			return CUDA_ERROR_INVALID_HANDLE;
		*ret = f;
		return CUDA_SUCCESS;
	}
	SIM_TRY(kern_find((CUkernel)handle, &k));
	SIM_TRY(library_module(k->library, ctx, &m));
	*ret = m->funcs[k->index];
	*kern_ret = (CUkernel)handle;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *ret, CUkernel handle)
{
	struct sim_ctx *ctx;
	struct sim_kern *k;
	struct sim_func *f;
	CUkernel kern;

	SIM_ENTER(cuKernelGetFunction);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(kern_find(handle, &k));
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_func_find((CUfunction)handle, ctx, &f, &kern));
	*ret = SIM_HANDLE(CUfunction, f);
	return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *ret, CUkernel handle)
{
	struct sim_kern *k;

	SIM_ENTER(cuKernelGetLibrary);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(kern_find(handle, &k));
	*ret = SIM_HANDLE(CUlibrary, k->library);
	return CUDA_SUCCESS;
}
