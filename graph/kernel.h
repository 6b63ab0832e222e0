/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - the kernels of an image: from driver handles to kernel objects and back.
 *
 * While graphs are read, every kernel they launch is interned into a set: its index is
 * what graph objects say. When all graphs are read the set is sliced: each kernel gets
 * a kernel object (a cubin that holds it and what it needs, see cubin.h), whole cubins
 * only where a slice cannot be proven safe. A loader turns kernel objects into CUkernels.
 */
#ifndef FDRY_GRAPH_KERNEL_H
#define FDRY_GRAPH_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"
#include "arch/driver.h"
#include "lib/oid.h"

#define FDRY_KERNEL_PARAMS_MAX 4096u      /* parameters of one kernel */
#define FDRY_KERNEL_PARAM_BYTES_MAX 32764u /* bytes of its parameter buffer */
#define FDRY_KERNEL_LOADS_MAX 256u        /* sets of attributes of one function: an object is loaded once for each */

struct fdry_param {
	uint16_t offset; /* in the parameter buffer, bytes */
	uint16_t size;   /* bytes */
};

/* Every function attribute that can be set: X(id in formats, CUfunction_attribute, name, what a fresh one has). Ids are never
 * used twice. What else a function has is compiled into it. */
#define FDRY_FUNC_ATTRS(X) \
	X(0, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max_dynamic_shared, 0) \
	X(1, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout, -1) \
	X(2, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, non_portable_cluster, 0) \
	X(3, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, required_cluster_width, 0) \
	X(4, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, required_cluster_height, 0) \
	X(5, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, required_cluster_depth, 0) \
	X(6, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, cluster_scheduling_policy, 0)
#define FDRY_FUNC_ATTR_COUNT 7

/* One kernel, as formats and graph objects know it. */
struct fdry_kernel {
	const char *name;          /* entry name in the object, mangled */
	struct fdry_oid object;    /* set once sliced */
	int32_t attrs[FDRY_FUNC_ATTR_COUNT];
	uint32_t nparams;
	uint32_t param_bytes;      /* size of the parameter buffer */
	const struct fdry_param *params;
	bool whole;                /* the object is a whole cubin ... */
	const char *whole_reason;  /* ... for this reason; NULL where it is a slice */
};

/* The code that a kernel's library or module was loaded from; see hook/hook.h. Kept abstract here: graph does not include hook.
 * All that it points at stays as it is for as long as the set lives. */
struct fdry_code_image {
	const void *data;
	size_t len;     /* 0: a fatbin wrapper, whose fatbin has a header of its own */
	uint32_t njit;  /* JIT options that it was loaded with: PTX is compiled with them again */
	const CUjit_option *jit;
	void *const *jit_values;
};

/* Find the code behind a library or module handle; -FDRY_E_NOENT where it was never seen. */
typedef int (*fdry_code_find_fn)(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret);

struct fdry_kernel_set;

/* @dev: the ordinal whose architecture picks cubins out of fatbins. */
int fdry_kernel_set_new(const struct fdry_driver *drv, CUdevice dev, fdry_code_find_fn find, void *arg,
			struct fdry_kernel_set **ret) __must_check;
void fdry_kernel_set_free(struct fdry_kernel_set *set);

/*
 * Code that a set has taken out of fatbins, and linked, for the next set of the same device and the same @find. Finding it
 * anew means to decompress it. What code a handle has is asked each time: the bytes behind a pointer that @find gives must
 * stay what they are.
 */
/* Start a new set with @codes, zeroed or from fdry_kernel_set_yield(). */
void fdry_kernel_set_adopt(struct fdry_kernel_set *set, struct fdry_buf *codes);
/* Take the codes out of a set that is only to be freed. More than some hundred MiB are not kept. */
void fdry_kernel_set_yield(struct fdry_kernel_set *set, struct fdry_buf *codes);
void fdry_kernel_codes_release(struct fdry_buf *codes);

/* Intern the kernel of a node, as cuGraphKernelNodeGetParams gives it (kern or func may be NULL).
 * FDRY_E_REFUSED names kernel and reason: code never seen, parameter query failed, printf, malloc, dynamic parallelism, ... */
int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func, uint32_t *index) __must_check;

/* Valid until the set is freed; pointers stay valid while more are interned. */
const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index);
uint32_t fdry_kernel_set_count(const struct fdry_kernel_set *set);

/* Make the kernel objects. Refuses variables whose bytes differ from the cubin's. */
int fdry_kernel_set_slice(struct fdry_kernel_set *set) __must_check;

/* The distinct objects, in order of first use. */
uint32_t fdry_kernel_set_object_count(const struct fdry_kernel_set *set);
struct fdry_span fdry_kernel_set_object(const struct fdry_kernel_set *set, uint32_t i, struct fdry_oid *ret);
/* Bytes of the whole cubins that the objects were sliced from, each counted once: what slicing saved. */
uint64_t fdry_kernel_set_whole_bytes(const struct fdry_kernel_set *set);

/* FDRY_E_LIMIT: one of @n kernels has more than FDRY_KERNEL_LOADS_MAX sets of attributes. Seals ask, too. */
int fdry_kernel_attrs_check(const struct fdry_kernel *kernels, uint32_t n) __must_check;

/* Kernels brought back: functions of the current context by index, with their attributes set. Freed with that context current. */
struct fdry_kernel_bank;
typedef int (*fdry_object_get_fn)(void *arg, const struct fdry_oid *oid, struct fdry_span *ret);
/* @get: gives an object's bytes, valid until the call returns. FDRY_E_BADIMAGE where an entry or its parameter layout differs. */
int fdry_kernel_bank_new(const struct fdry_driver *drv, const struct fdry_kernel *kernels, uint32_t count,
			  fdry_object_get_fn get, void *arg, struct fdry_kernel_bank **ret) __must_check;
CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index);
void fdry_kernel_bank_free(struct fdry_kernel_bank *bank);

#endif
