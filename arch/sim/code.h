/* SPDX-License-Identifier: Apache-2.0 */
/* code.h - device code: recognising and loading it; modules, libraries and functions. */
#ifndef FDRY_ARCH_SIM_CODE_H
#define FDRY_ARCH_SIM_CODE_H

#include "arch/sim/sim.h"

/* image.c */

/* An object of the software driver: a shared object, inside the caller's bytes. */
struct sim_image {
	const unsigned char *data;
	size_t size;
	void *owned; /* the bytes, if they are not the caller's */
};

/* Find the object in @data: an object, a fatbin or its wrapper, or text (ptx.c). NO_BINARY_FOR_GPU
 * if there is only code for other devices, INVALID_PTX for text without an object, INVALID_IMAGE
 * for anything else.
 */
CUresult sim_image_find(const void *data, struct sim_image *ret);
void sim_image_release(struct sim_image *image);
/* Find the object if @data is an object of at most @most bytes. */
CUresult sim_image_elf(const unsigned char *data, size_t most, struct sim_image *ret);

/* A module variable, from the object's symbols. */
struct sim_symbol {
	const char *name; /* in the image */
	uint64_t value, size;
};
/* The variables of an object, one by one from *@at = 0; false after the last. */
bool sim_image_variable(const struct sim_image *image, size_t *at, struct sim_symbol *ret);

/* Read a whole file into memory, followed by zeros; FILE_NOT_FOUND. free() it. @size_ret may be
 * NULL. */
CUresult sim_file_read(const char *path, void **ret, size_t *size_ret);

/* ptx.c: find the object in the comments of PTX. @ret owns the bytes. */
CUresult sim_ptx_image(const char *text, struct sim_image *ret);

/* code.c */

struct sim_var {
	char *name;
	CUdeviceptr addr;
	size_t size;
};

/* One loaded copy of an object, with variables of its own. */
struct sim_code {
	int refs;
	void *handle; /* of dlopen() */
	const struct sim_module_record *record;
	struct sim_var *vars;
	size_t nvars;
};

CUresult sim_code_load(const struct sim_image *image, struct sim_code **ret);
struct sim_code *sim_code_get(struct sim_code *code);
void sim_code_put(struct sim_code *code); /* NULL is fine */
size_t sim_code_kernels(const struct sim_code *code);
static inline const struct sim_kernel_record *sim_code_kernel(const struct sim_code *code, size_t i)
{
	return code->record->kernels[i];
}
/* Return the address and the size of variable @name. @addr and @size may be NULL. */
CUresult sim_code_global(const struct sim_code *code, const char *name, CUdeviceptr *addr,
			 size_t *size);

/* The size of a kernel's parameter buffer. */
size_t sim_record_bytes(const struct sim_kernel_record *record);
/* Memory for the parameter buffer with its first @size bytes, then zeros; never NULL for lack of
 * bytes. */
void *sim_args_new(const struct sim_kernel_record *record, const void *args, size_t size);

/* module.c */

struct sim_module {
	struct sim_obj obj;
	struct sim_module *next; /* of the context */
	struct sim_ctx *ctx;
	struct sim_code *code; /* held */
	struct sim_library *library; /* the library that it belongs to, or NULL */
	struct sim_func **funcs; /* one a kernel, in the object's order; held */
	size_t nfuncs;
};

/* A module of @code (a reference is taken) in @ctx. */
CUresult sim_module_new(struct sim_ctx *ctx, struct sim_code *code, struct sim_library *library,
			struct sim_module **ret);
/* Invalidate the module's handle, its functions' handles and its variables. Operations that hold a
 * function still run. */
void sim_module_close(struct sim_module *m);

/* library.c */

struct sim_kern {
	struct sim_obj obj;
	struct sim_library *library; /* NULL once unloaded */
	size_t index;                /* in the object's order */
	const struct sim_kernel_record *record;
	struct sim_func_attrs attrs[SIM_DEVICES_MAX];
};

void sim_library_forget(struct sim_library *lib, const struct sim_module *m);

/* function.c */

/* The attributes of a kernel before any is set. */
struct sim_func_attrs sim_func_attrs_initial(const struct sim_kernel_record *record);
/* The number of its blocks that fit one SM. */
unsigned int sim_occupancy(const struct sim_kernel_record *record, size_t threads, size_t shared);

/* link.c */

#define SIM_PTX_REFUSED \
	"the software driver cannot compile PTX; pass it PTX with an object of its own inside " \
	"(arch/sim/ptx.c)"
/* Write @text to the error log that the JIT options name, if they name one. */
void sim_jit_log(unsigned int count, const CUjit_option *options, void *const *values,
		 const char *text);

#endif
