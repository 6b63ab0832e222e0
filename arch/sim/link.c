// SPDX-License-Identifier: Apache-2.0
/*
 * link.c - the driver's linker, which returns the one object that it gets.
 *
 * A program "compiles" PTX that holds its object (ptx.c). Any other PTX is refused, with a message
 * in the error log if the caller passed one. Two objects cannot be linked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/sim/code.h"

struct linker {
	struct sim_obj obj;
	unsigned int count;
	CUjit_option *options;
	void **values; /* the caller's, which must stay until the link is over */
	void *data;    /* owned: the object */
	size_t size;
};

void sim_jit_log(unsigned int count, const CUjit_option *options, void *const *values,
		 const char *text)
{
	char *log = NULL;
	size_t size = 0;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
			log = values[i];
		else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			size = (uint32_t)(uintptr_t)values[i];
	if (!log || !size)
		return;
	snprintf(log, size, "%s", text);
}

static void linker_release(struct sim_obj *obj)
{
	struct linker *l = (struct linker *)obj;

	free(l->options);
	free(l->values);
	free(l->data);
	free(l);
}

static CUresult options_keep(struct linker *l, unsigned int count, const CUjit_option *options,
			     void *const *values)
{
	if (!count)
		return CUDA_SUCCESS;
	l->options = calloc(count, sizeof(*options));
	l->values = calloc(count, sizeof(*values));
	if (!l->options || !l->values)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(l->options, options, count * sizeof(*options));
	memcpy(l->values, values, count * sizeof(*values));
	l->count = count;
	return CUDA_SUCCESS;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *ret)
{
	struct linker *l;
	struct sim_ctx *ctx;
	CUresult res;

	SIM_ENTER(cuLinkCreate_v2);
	if (!ret || (count && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = options_keep(l, count, options, values);
	if (!res)
		res = sim_obj_open(&l->obj, SIM_LINK, linker_release);
	if (res)
		linker_release(&l->obj);
	else
		*ret = SIM_HANDLE(CUlinkState, l);
	return res;
}

/* PTX need not end in a NUL here: the caller passes its length. */
static CUresult input_ptx(const void *data, size_t size, struct sim_image *ret)
{
	char *text = strndup(data, size);
	CUresult res = text ? sim_ptx_image(text, ret) : CUDA_ERROR_OUT_OF_MEMORY;

	free(text);
	return res;
}

static CUresult input_find(CUjitInputType type, const void *data, size_t size,
			   struct sim_image *ret)
{
	if (type == CU_JIT_INPUT_PTX)
		return input_ptx(data, size, ret);
	if (type == CU_JIT_INPUT_FATBINARY)
		return sim_image_find(data, ret);
	return sim_image_elf(data, size, ret);
}

static CUresult linker_take(struct linker *l, const struct sim_image *image)
{
	if (l->data)
		return CUDA_ERROR_NOT_SUPPORTED;
	l->data = malloc(image->size);
	if (!l->data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(l->data, image->data, image->size);
	l->size = image->size;
	return CUDA_SUCCESS;
}

static CUresult linker_add(struct linker *l, CUjitInputType type, const void *data, size_t size)
{
	struct sim_image image;
	CUresult res = input_find(type, data, size, &image);

	if (res == CUDA_ERROR_INVALID_PTX)
		sim_jit_log(l->count, l->options, l->values, SIM_PTX_REFUSED);
	if (res)
		return res;
	res = linker_take(l, &image);
	sim_image_release(&image);
	return res;
}

static CUresult linker_find(CUlinkState handle, struct linker **ret)
{
	struct linker *l = sim_find(handle, SIM_LINK);

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = l;
	return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t size,
			  const char *name, unsigned int count, CUjit_option *options,
			  void **values)
{
	struct linker *l;

	(void)name;
	SIM_ENTER(cuLinkAddData_v2);
	if (!data || !size || (count && (!options || !values)) ||
	    (unsigned int)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(linker_find(handle, &l));
	return linker_add(l, type, data, size);
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path,
			  unsigned int count, CUjit_option *options, void **values)
{
	struct linker *l;
	CUresult res;
	void *data;
	size_t size;

	SIM_ENTER(cuLinkAddFile_v2);
	if (!path || (count && (!options || !values)) ||
	    (unsigned int)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(linker_find(handle, &l));
	SIM_TRY(sim_file_read(path, &data, &size));
	res = linker_add(l, type, data, size);
	free(data);
	return res;
}

/* The result belongs to the link and is freed with it. */
CUresult cuLinkComplete(CUlinkState handle, void **data, size_t *size)
{
	struct linker *l;

	SIM_ENTER(cuLinkComplete);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(linker_find(handle, &l));
	if (!l->data)
		return CUDA_ERROR_INVALID_VALUE;
	*data = l->data;
	if (size)
		*size = l->size;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle)
{
	struct linker *l;

	SIM_ENTER(cuLinkDestroy);
	SIM_TRY(linker_find(handle, &l));
	sim_obj_close(&l->obj);
	return CUDA_SUCCESS;
}
