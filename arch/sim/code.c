// SPDX-License-Identifier: Apache-2.0
/*
 * code.c - loads an object of the software driver: a file in memory for the dynamic linker.
 *
 * Each load is a file of its own, so each has variables of its own. The linker returns a loaded
 * object again for the same path, and numbers of file descriptors are reused. So every load
 * spells the path in another way.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/file.h"
#include "arch/sim/code.h"

#define PATH_SIZE 256

/* "/proc/self/fd/" with a number written in it: "./" is a 0, ".//" is a 1. */
static void path_spell(char *path, int fd)
{
	static unsigned long serial;
	unsigned long n = ++serial;
	int len = snprintf(path, PATH_SIZE, "/proc/self/fd/");

	for (; n; n /= 2)
		len += snprintf(path + len, PATH_SIZE - (size_t)len, n % 2 ? ".//" : "./");
	snprintf(path + len, PATH_SIZE - (size_t)len, "%d", fd);
}

static CUresult object_open(const struct sim_image *image, void **ret)
{
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;
	char path[PATH_SIZE];
	int fd = fdry_memfd("foundry-kernels");

	if (fd < 0)
		return res;
	if (!fdry_write(fd, image->data, image->size)) {
		path_spell(path, fd);
		*ret = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		res = *ret ? CUDA_SUCCESS : CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
	}
	close(fd);
	return res;
}

static bool record_ok(const struct sim_module_record *r)
{
	return r && r->magic == SIM_MAGIC && r->abi == SIM_ABI && r->kernels <= r->kernels_end;
}

static void vars_free(struct sim_code *code)
{
	while (code->nvars)
		free(code->vars[--code->nvars].name);
	free(code->vars);
}

static bool var_add(struct sim_code *code, const struct sim_symbol *s, uintptr_t base)
{
	struct sim_var *v = reallocarray(code->vars, code->nvars + 1, sizeof(*v));

	if (!v)
		return false;
	code->vars = v;
	v += code->nvars;
	v->name = strdup(s->name);
	v->addr = base + s->value;
	v->size = s->size;
	code->nvars += v->name != NULL;
	return v->name != NULL;
}

static CUresult vars_find(struct sim_code *code, const struct sim_image *image)
{
	struct link_map *map;
	struct sim_symbol s;
	size_t at = 0;

	if (dlinfo(code->handle, RTLD_DI_LINKMAP, &map))
		return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
	while (sim_image_variable(image, &at, &s))
		if (!var_add(code, &s, map->l_addr))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult sim_code_load(const struct sim_image *image, struct sim_code **ret)
{
	struct sim_code *code = calloc(1, sizeof(*code));
	CUresult res;

	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code->refs = 1;
	res = object_open(image, &code->handle);
	if (res)
		goto out_free;
	code->record = dlsym(code->handle, SIM_MODULE_SYMBOL);
	res = record_ok(code->record) ? vars_find(code, image) : CUDA_ERROR_INVALID_IMAGE;
	if (res)
		goto out_put;
	*ret = code;
	return CUDA_SUCCESS;

out_free:
	free(code);
	return res;
out_put:
	sim_code_put(code);
	return res;
}

struct sim_code *sim_code_get(struct sim_code *code)
{
	code->refs++;
	return code;
}

void sim_code_put(struct sim_code *code)
{
	if (!code || --code->refs)
		return;
	vars_free(code);
	dlclose(code->handle);
	free(code);
}

size_t sim_code_kernels(const struct sim_code *code)
{
	return (size_t)(code->record->kernels_end - code->record->kernels);
}

CUresult sim_code_global(const struct sim_code *code, const char *name, CUdeviceptr *addr,
			 size_t *size)
{
	size_t i;

	for (i = 0; i < code->nvars; i++)
		if (!strcmp(code->vars[i].name, name)) {
			if (addr)
				*addr = code->vars[i].addr;
			if (size)
				*size = code->vars[i].size;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

size_t sim_record_bytes(const struct sim_kernel_record *record)
{
	const struct sim_param_record *last;

	if (!record->nparams)
		return 0;
	last = &record->params[record->nparams - 1];
	return (size_t)last->offset + last->size;
}

void *sim_args_new(const struct sim_kernel_record *record, const void *args, size_t size)
{
	size_t bytes = sim_record_bytes(record), most = size > bytes ? size : bytes;
	void *p;

	if (posix_memalign(&p, 16, most + 1))
		return NULL;
	memset(p, 0, most);
	return size ? memcpy(p, args, size) : p;
}
