/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_table.h - loaded kernel objects, shared by all images of the process.
 *
 * A kernel object is a small cubin with a kernel and what it needs (kernel.h). An object is loaded
 * once in each context. Images that have the same object share that module, and it is unloaded when
 * the last of them returns it. A module has one set of attributes for each of its functions: a
 * kernel with other attributes gets a further load of the object.
 *
 * A module with variables is not shared. Kernels could have written them, and an image starts with
 * the values that they had at its seal. A module of constants is not shared either if an image has
 * values for them. Such a module belongs to one bank, and all kernels of that bank share it.
 *
 * Locking: the table locks itself; any thread may call. A child of fork() finds none of its
 * parent's modules.
 */
#ifndef FDRY_GRAPH_MODULE_TABLE_H
#define FDRY_GRAPH_MODULE_TABLE_H

#include "graph/kernel.h"

struct fdry_module;

/* One user of this table: the bank of kernels of an image. */
struct fdry_module_user {
	const struct fdry_driver *drv;
	unsigned long long ctx_id; /* of the current context, by cuCtxGetId() */
	fdry_object_get_fn get;    /* returns the bytes of an object that is not loaded */
	void *arg;
};

/**
 * fdry_module_get() - Find or load the module of a kernel, and its function in the current context.
 * @u: must stay at its address until its last module is returned; modules with variables belong to
 * it
 * @k: its object, name, attributes and parameters
 * @ret: the module; fdry_module_put() returns it
 * @func: the function, with its attributes set
 *
 * Errors: FDRY_E_BADIMAGE (the object has no such kernel, or other parameters), those of @u->get,
 * of fdry_module_load() and of the driver.
 */
int fdry_module_get(const struct fdry_module_user *u, const struct fdry_kernel *k,
		    struct fdry_module **ret, CUfunction *func) __must_check;
/* The object and the handle of a module that fdry_module_get() returned. */
const struct fdry_oid *fdry_module_object(const struct fdry_module *m);
CUmodule fdry_module_handle(const struct fdry_module *m);
/* Whether the module belongs to the user that got it, because it has variables. */
bool fdry_module_is_own(const struct fdry_module *m);
/* The context that the module was loaded in must be current. */
void fdry_module_put(struct fdry_module *m);

/* Whether some context has @object loaded as a shared module. It may be gone when this returns. */
bool fdry_module_is_shared(const struct fdry_oid *object);

#endif
