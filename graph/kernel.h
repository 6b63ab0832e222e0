/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - the kernels of an image: from driver handles to kernel objects and back.
 *
 * A seal adds every kernel that the graphs launch to a kernel set; graph objects name kernels by
 * their index in it. Then it slices the set: each kernel gets a kernel object, which is a small
 * cubin with the kernel and everything it needs (cubin.h). A kernel keeps its whole cubin if a
 * slice cannot be proven safe. A loader turns kernel objects into CUfunctions (the kernel bank).
 */
#ifndef FDRY_GRAPH_KERNEL_H
#define FDRY_GRAPH_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"
#include "arch/driver.h"
#include "lib/oid.h"
#include "graph/fingerprint.h"

#define FDRY_KERNEL_PARAMS_MAX 4096u      /* parameters of one kernel */
#define FDRY_KERNEL_PARAM_BYTES_MAX 32764u /* bytes of its parameter buffer */
#define FDRY_KERNEL_LOADS_MAX \
	256u /* sets of attributes of one function; an object is loaded once for each */

struct fdry_param {
	uint16_t offset; /* in the parameter buffer, bytes */
	uint16_t size;   /* bytes */
};

/* All function attributes that a program can set: X(id in formats, CUfunction_attribute, name,
 * initial value). Ids are never reused. The compiler fixes all other attributes of a function. */
#define FDRY_FUNC_ATTRS(X) \
	X(0, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max_dynamic_shared, 0) \
	X(1, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout, -1) \
	X(2, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, non_portable_cluster, 0) \
	X(3, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, required_cluster_width, 0) \
	X(4, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, required_cluster_height, 0) \
	X(5, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, required_cluster_depth, 0) \
	X(6, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, cluster_scheduling_policy, 0)
#define FDRY_FUNC_ATTR_COUNT 7
#define FDRY_FUNC_ATTR_MAX_SHARED 0 /* the id of max_dynamic_shared */

/* One kernel of an image. */
struct fdry_kernel {
	const char *name;          /* entry name in the object, mangled */
	struct fdry_oid object;    /* set by slicing */
	int32_t attrs[FDRY_FUNC_ATTR_COUNT];
	uint32_t nparams;
	uint32_t param_bytes;      /* size of the parameter buffer */
	const struct fdry_param *params;
	bool whole;                /* the object is a whole cubin ... */
	const char *whole_reason;  /* ... for this reason; NULL: it is a slice */
	bool prints;               /* by the driver's printf; set by slicing */
	bool allocates;            /* or frees, in the device's heap; set by slicing */
	bool has_values;           /* the image has values for variables of the object, so the
				      object's modules are not shared with other images */
};

/* The code that a kernel's library or module was loaded from; see hook/hook.h, which graph/ cannot
 * include. All memory that it points to must stay unchanged for the life of the set. */
struct fdry_code_image {
	const void *data;
	size_t len;     /* 0: a fatbin wrapper; the header of its fatbin holds the length */
	uint32_t njit;  /* JIT options of the load: PTX is compiled with them again */
	const CUjit_option *jit;
	void *const *jit_values;
};

/* Find the code of a library or module handle; -FDRY_E_NOENT if the interposer did not see its
 * load. */
typedef int (*fdry_code_find_fn)(void *arg, CUlibrary library, CUmodule module,
				 struct fdry_code_image *ret);

struct fdry_kernel_set;

/* @dev: the device whose architecture selects cubins in fatbins. */
int fdry_kernel_set_new(const struct fdry_driver *drv, CUdevice dev, fdry_code_find_fn find,
			void *arg, struct fdry_kernel_set **ret) __must_check;
void fdry_kernel_set_free(struct fdry_kernel_set *set);

/*
 * A set can pass its unpacked, linked and sliced code to the next set, which then need not
 * decompress or slice it again. Both must have the same device and the same @find. Each set calls
 * @find anew for each handle, so the bytes that @find returned must stay unchanged.
 */
/* Start a new set with @codes, which are zeroed or from fdry_kernel_set_yield(). */
void fdry_kernel_set_adopt(struct fdry_kernel_set *set, struct fdry_buf *codes);
/* Move the codes out of a set before it is freed. Codes of more than 512 MiB stay. Slices of more
 * than 256 MiB are freed: the set's objects are not valid any more. */
void fdry_kernel_set_yield(struct fdry_kernel_set *set, struct fdry_buf *codes);
void fdry_kernel_codes_release(struct fdry_buf *codes);

/* Add the kernel of a node, as in cuGraphKernelNodeGetParams; @kern or @func may be NULL.
 * FDRY_E_REFUSED names kernel and reason: unknown code, failed parameter query, malloc,
 * dynamic parallelism, ... */
int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func,
			   uint32_t *index) __must_check;

/* A node launches kernel @index with @bytes of dynamic shared memory. So the kernel's attributes
 * must allow that much, even if the program lowered them after it added the node. */
void fdry_kernel_set_allow_shared(struct fdry_kernel_set *set, uint32_t index, uint32_t bytes);

/* Valid until the set is freed, also while more kernels are added. */
const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index);
uint32_t fdry_kernel_set_count(const struct fdry_kernel_set *set);

/* Append index, code, name, parameters and attributes of a kernel as bytes. Two kernels differ in
 * them, also if they belong to different sets of the process. */
int fdry_kernel_set_print(const struct fdry_kernel_set *set, uint32_t index,
			  struct fdry_buf *ret) __must_check;

/* Make the kernel objects, and read the variables that their kernels reach. FDRY_E_REFUSED if a
 * variable cannot be read. */
int fdry_kernel_set_slice(struct fdry_kernel_set *set) __must_check;

/*
 * After slicing: the functions whose addresses tables of the kernels' modules hold. Kernels call
 * them through these pointers. A load of the image has them at other addresses, and the driver
 * fills in its tables. So such an address anywhere else cannot be restored.
 */
/* The name of the function at @addr; NULL if there is none. */
const char *fdry_kernel_set_function(const struct fdry_kernel_set *set, CUdeviceptr addr);
uint32_t fdry_kernel_set_function_count(const struct fdry_kernel_set *set);
/* The address that the tables hold for function @i, and the bytes of its code. */
struct fdry_fingerprint_range fdry_kernel_set_function_at(const struct fdry_kernel_set *set,
							  uint32_t i);

/* Compute fingerprints of device memory, one for each range. False if the device cannot. */
typedef bool (*fdry_prints_fn)(void *arg, const struct fdry_fingerprint_range *ranges, size_t n,
			       struct fdry_fingerprint *ret);
/*
 * Compare the code at these addresses with the functions' code. A program may have changed a table,
 * which only this shows. The device reads the code, so each address must lie in memory that the
 * driver has mapped. FDRY_E_REFUSED names a function that is not there.
 */
int fdry_kernel_set_functions_check(const struct fdry_kernel_set *set, fdry_prints_fn prints,
				    void *arg) __must_check;

/* A part of a variable whose value differs from the one in its code: a load writes it. */
struct fdry_kernel_value {
	uint32_t object;        /* index of the kernel object that has the variable */
	const char *name;
	uint64_t offset;        /* in the variable */
	struct fdry_span bytes;
	CUdeviceptr addr;       /* of @bytes, in the capturing process */
};
typedef int (*fdry_value_fn)(void *arg, const struct fdry_kernel_value *v);
/*
 * Call @fn for the variables of all objects, sorted by object, name and offset, until it returns an
 * error. A variable that holds addresses of other variables, as its code does, is passed in parts
 * without them: the driver fills them in when it loads the object.
 */
int fdry_kernel_set_values(struct fdry_kernel_set *set, fdry_value_fn fn, void *arg) __must_check;
/* Call @fn with the address and size of each variable that the kernels reach, changed or not. */
typedef int (*fdry_variable_fn)(void *arg, CUdeviceptr addr, uint64_t size);
int fdry_kernel_set_variables(const struct fdry_kernel_set *set, fdry_variable_fn fn,
			      void *arg) __must_check;

/*
 * After all kernels were added: find the variable of one of their modules that has the byte at
 * @addr, and note that a pointer points to it. *ret is the address of the variable, or 0 if there
 * is none; *size: its bytes. FDRY_E_REFUSED if the pointer may also be
 * the end of a variable in another place.
 */
int fdry_kernel_set_point(struct fdry_kernel_set *set, CUdeviceptr addr, CUdeviceptr *ret,
			  uint64_t *size) __must_check;
/* Whether fdry_kernel_set_slice() must run again, because it does not know all these variables. */
bool fdry_kernel_set_pointed_more(const struct fdry_kernel_set *set);
/* After slicing: the variable that begins at @addr, as fdry_kernel_set_point() returned it. */
struct fdry_kernel_variable {
	uint32_t object; /* index of the one kernel object that has it */
	const char *name;
	uint64_t size;
};
int fdry_kernel_set_pointed(const struct fdry_kernel_set *set, CUdeviceptr addr,
			    struct fdry_kernel_variable *ret) __must_check;

/* The distinct objects, in order of first use. */
uint32_t fdry_kernel_set_object_count(const struct fdry_kernel_set *set);
struct fdry_span fdry_kernel_set_object(const struct fdry_kernel_set *set, uint32_t i,
					struct fdry_oid *ret);
/*
 * Total size of the whole cubins of the objects, each counted once; shows how much slicing saved.
 */
uint64_t fdry_kernel_set_whole_bytes(const struct fdry_kernel_set *set);

/* FDRY_E_LIMIT if one of @n kernels has more than FDRY_KERNEL_LOADS_MAX sets of attributes. Seals
 * and loads check it. */
int fdry_kernel_attrs_check(const struct fdry_kernel *kernels, uint32_t n) __must_check;

/* The loaded kernels of an image: functions of the current context by index, with their attributes
 * set. The same context must be current when the bank is freed. */
struct fdry_kernel_bank;
typedef int (*fdry_object_get_fn)(void *arg, const struct fdry_oid *oid, struct fdry_span *ret);
/* @get: returns an object's bytes, valid until fdry_kernel_bank_new() or
 * fdry_kernel_bank_writable() returns. FDRY_E_BADIMAGE if an entry or its parameter layout
 * differs. */
int fdry_kernel_bank_new(const struct fdry_driver *drv, const struct fdry_kernel *kernels,
			 uint32_t count, fdry_object_get_fn get, void *arg,
			 struct fdry_kernel_bank **ret) __must_check;
CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index);
/* Called with the address of a variable's bytes in one module. */
typedef int (*fdry_place_fn)(void *arg, CUdeviceptr addr);
/*
 * Call @fn for @len bytes at @offset of variable @name in every module that the bank has of
 * @object, until it returns an error. FDRY_E_BADIMAGE if there is no such variable, or it is too
 * small.
 */
int fdry_kernel_bank_each_place(const struct fdry_kernel_bank *bank, const struct fdry_oid *object,
				const char *name, uint64_t offset, uint64_t len,
				fdry_place_fn fn, void *arg) __must_check;
/*
 * Call @fn for each variable that kernels of the bank can write, until it returns an error. Only
 * before the function that returns objects to the bank becomes invalid. Variables that the driver
 * does not find by name are left out: a seal refuses kernels that reach them.
 */
typedef int (*fdry_writable_fn)(void *arg, CUdeviceptr addr, uint64_t size);
int fdry_kernel_bank_writable(const struct fdry_kernel_bank *bank, fdry_writable_fn fn,
			      void *arg) __must_check;
/* The address of a variable that pointers of the image point to. FDRY_E_BADIMAGE if @object is not
 * loaded exactly once, or its variable has another size than @size. */
int fdry_kernel_bank_variable(const struct fdry_kernel_bank *bank, const struct fdry_oid *object,
			      const char *name, uint64_t size, CUdeviceptr *ret) __must_check;
void fdry_kernel_bank_free(struct fdry_kernel_bank *bank);

#endif
