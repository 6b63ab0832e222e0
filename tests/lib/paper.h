/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paper.h - a fake driver for tests of kernels and their variables: it "loads" the golden cubins
 * into plain memory, runs nothing, and can fail any call.
 *
 * Everything here ends the test on failure. One fake driver exists at a time, from paper_begin() to
 * paper_end().
 */
#ifndef FDRY_TESTS_LIB_PAPER_H
#define FDRY_TESTS_LIB_PAPER_H

#include "tests/lib/golden.h"

#include "graph/cubin.h"
#include "graph/kernel.h"

#define KERNELS_MAX 40
#define VARIABLES_MAX 40
#define LOADS_MAX 64

struct load;

struct paper_kernel {
	struct load *l;
	const struct fdry_cubin_kernel *k;
	int attrs[FDRY_FUNC_ATTR_COUNT];        /* of the function ... */
	int kernel_attrs[FDRY_FUNC_ATTR_COUNT]; /* ... and of the kernel */
};

/* One load of a cubin: a CUlibrary and a CUmodule at once. */
struct load {
	struct fdry_span bytes; /* a copy */
	struct fdry_cubin *c;
	struct paper_kernel kernels[KERNELS_MAX];
	uint8_t *memory[VARIABLES_MAX]; /* the variables' contents */
	struct fdry_code_image code;    /* as the interposer would record it */
};

extern struct paper {
	struct fdry_driver drv;
	struct load *loads[LOADS_MAX];
	unsigned int nloads, unloaded;
	unsigned long long context;  /* the number of the current one */
	unsigned int calls, fail_at; /* the number of the call that fails, counted from 1; 0:
					none */
	bool hide_names;             /* the driver finds no variable by name */
	struct fdry_span ptx_cubin;  /* the result of "linking" ... */
	struct fdry_span ptx_cubin_64; /* ... and the result with 64 registers instead of 32 */
	void *registers;             /* of the link in progress */
	unsigned int links;
} paper;

CUresult paper_call(void);
#define CALL() do { if (paper_call()) return CUDA_ERROR_UNKNOWN; } while (0)

struct load *load_file(const char *name);
struct paper_kernel *kernel_of(struct load *l, const char *name);
uint8_t *variable_of(struct load *l, const char *name);
void paper_begin(void);
void paper_end(void);
int code_find(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret);
struct fdry_kernel_set *set_new(void);

/* Return a kernel as a library's kernel (with its function, as graph nodes have it), or as a
 * module's function. */
uint32_t intern(struct fdry_kernel_set *set, struct paper_kernel *k, bool library);
const struct fdry_kernel *sliced(struct fdry_kernel_set *set, uint32_t i);
void slice(struct fdry_kernel_set *set);
void slice_refused(struct fdry_kernel_set *set, const char *why, const char *who);
bool same_object(struct fdry_kernel_set *set, uint32_t a, uint32_t b);

/* Read an object of the kernel set @arg, for functions that get objects by id. */
int paper_object_get(void *arg, const struct fdry_oid *oid, struct fdry_span *ret);

#endif
