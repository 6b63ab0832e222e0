// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_bank.c - the kernels of an image, as functions of the current context.
 *
 * Their modules come from the table that all images share (module_table.h). Each object is loaded
 * once for all its kernels. A kernel that occurs with two sets of attributes is loaded again, since
 * a function has one set. Each load has its own variables. So a seal refuses such a kernel if it
 * writes variables.
 *
 * Objects are loaded as modules, not as libraries. The driver reads a library twice, at its load
 * and at the query of its first function, so loading takes a sixth longer.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/code_vars.h"
#include "graph/kernel.h"
#include "graph/module_table.h"
#include "lib/search.h"

struct fdry_kernel_bank {
	struct fdry_module_user user;
	uint32_t count;             /* of loaded kernels */
	struct fdry_module **modules; /* by kernel */
	CUfunction *functions;
	const struct fdry_module **loads; /* each module once, ordered by its object */
	uint32_t nloads;
};

/* --- attributes --- */

static int by_load(const void *a, const void *b, void *kernels)
{
	const struct fdry_kernel *k = kernels, *x = &k[*(const uint32_t *)a],
				 *y = &k[*(const uint32_t *)b];
	int order = memcmp(&x->object, &y->object, sizeof(x->object));

	if (!order)
		order = strcmp(x->name, y->name);
	return order ? order : memcmp(x->attrs, y->attrs, sizeof(x->attrs));
}

static int sets_count(const struct fdry_kernel *k, const uint32_t *order, uint32_t n)
{
	uint32_t i, sets = 1;

	for (i = 1; i < n; i++) {
		const struct fdry_kernel *now = &k[order[i]], *before = &k[order[i - 1]];

		if (!fdry_oid_eq(&now->object, &before->object) || strcmp(now->name, before->name))
			sets = 1;
		else if (memcmp(now->attrs, before->attrs, sizeof(now->attrs)) &&
			 ++sets > FDRY_KERNEL_LOADS_MAX)
			return fdry_fail(FDRY_E_LIMIT,
					 "kernel %.200s has more than %u sets of attributes, and "
					 "each needs a load of its "
					 "code; launch it with fewer",
					 now->name, FDRY_KERNEL_LOADS_MAX);
	}
	return 0;
}

int fdry_kernel_attrs_check(const struct fdry_kernel *kernels, uint32_t n)
{
	uint32_t *order = calloc((size_t)n + 1, sizeof(*order)), i;
	int err;

	if (!order)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_load, (void *)kernels);
	err = sets_count(kernels, order, n);
	free(order);
	return err;
}

/* --- the bank --- */

static int context_id(const struct fdry_driver *drv, unsigned long long *ret)
{
	CUcontext ctx;
	int err = fdry_call(drv, cuCtxGetCurrent, &ctx);

	return err ? err : fdry_call(drv, cuCtxGetId, ctx, ret);
}

static int load_cmp(const void *a, const void *b)
{
	const struct fdry_module *x = *(const struct fdry_module *const *)a,
				 *y = *(const struct fdry_module *const *)b;
	int order = fdry_oid_cmp(fdry_module_object(x), fdry_module_object(y));

	return order ? order : (x > y) - (x < y);
}

/* List the modules by object, so that a variable's modules are found without a search of all
 * kernels. */
static int loads_list(struct fdry_kernel_bank *bank)
{
	uint32_t i;

	bank->loads = malloc(((size_t)bank->count + 1) * sizeof(*bank->loads));
	if (!bank->loads)
		return fdry_nomem();
	for (i = 0; i < bank->count; i++)
		bank->loads[i] = bank->modules[i];
	qsort(bank->loads, bank->count, sizeof(*bank->loads), load_cmp);
	for (i = 0; i < bank->count; i++)
		if (!i || bank->loads[i] != bank->loads[bank->nloads - 1])
			bank->loads[bank->nloads++] = bank->loads[i];
	return 0;
}

/* The first load of @object; the others follow it. */
static uint32_t load_first(const struct fdry_kernel_bank *bank, const struct fdry_oid *object)
{
	return (uint32_t)fdry_lower_bound(
		i, bank->nloads,
		fdry_oid_cmp(fdry_module_object(bank->loads[i]), object) < 0);
}

int fdry_kernel_bank_new(const struct fdry_driver *drv, const struct fdry_kernel *kernels,
			 uint32_t count, fdry_object_get_fn get, void *arg,
			 struct fdry_kernel_bank **ret)
{
	struct fdry_kernel_bank *bank = calloc(1, sizeof(*bank));
	int err;

	if (!bank)
		return fdry_nomem();
	bank->user = (struct fdry_module_user){ .drv = drv, .get = get, .arg = arg };
	bank->modules = calloc((size_t)count + 1, sizeof(*bank->modules));
	bank->functions = calloc((size_t)count + 1, sizeof(*bank->functions));
	if (!bank->modules || !bank->functions) {
		err = fdry_nomem();
		goto out_free;
	}
	err = context_id(drv, &bank->user.ctx_id);
	if (err)
		goto out_free;
	err = fdry_kernel_attrs_check(kernels, count);
	if (err)
		goto out_free;
	for (; bank->count < count; bank->count++) {
		const struct fdry_kernel *k = &kernels[bank->count];

		err = fdry_module_get(&bank->user, k, &bank->modules[bank->count],
				      &bank->functions[bank->count]);
		if (err) {
			err = fdry_fail_at(err, "kernel %u %.200s", bank->count, k->name);
			goto out_free;
		}
	}
	err = loads_list(bank);
	if (err)
		goto out_free;
	*ret = bank;
	return 0;

out_free:
	fdry_kernel_bank_free(bank);
	return err;
}

static int variable_find(const struct fdry_driver *drv, const struct fdry_module *m,
			 const char *name, CUdeviceptr *addr, size_t *size)
{
	CUresult res = fdry_call_raw(drv, cuModuleGetGlobal_v2, addr, size,
				     fdry_module_handle(m), name);

	if (res == CUDA_ERROR_NOT_FOUND)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "its object has no variable of that name; seal the image anew");
	return fdry_driver_result(drv, FDRY_DRV_cuModuleGetGlobal_v2, res);
}

/* The address of @len bytes at @offset of a variable. */
static int variable_place(const struct fdry_driver *drv, const struct fdry_module *m,
			  const char *name, uint64_t offset, uint64_t len, CUdeviceptr *ret)
{
	CUdeviceptr addr = 0;
	size_t size = 0;
	int err = variable_find(drv, m, name, &addr, &size);

	if (err)
		return err;
	if (len > size || offset > size - len)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "its object has %zu bytes for it, and the image %llu; seal the "
				 "image anew",
				 size, (unsigned long long)(offset + len));
	*ret = addr + offset;
	return 0;
}

int fdry_kernel_bank_each_place(const struct fdry_kernel_bank *bank, const struct fdry_oid *object,
				const char *name, uint64_t offset, uint64_t len,
				fdry_place_fn fn, void *arg)
{
	uint32_t i = load_first(bank, object);
	CUdeviceptr addr = 0;
	int err = 0;

	for (; i < bank->nloads && fdry_oid_eq(fdry_module_object(bank->loads[i]), object) && !err;
	     i++)
		err = variable_place(bank->user.drv, bank->loads[i], name, offset, len, &addr) ?:
		      fn(arg, addr);
	return err ? fdry_fail_at(err, "variable %.200s", name) : 0;
}

int fdry_kernel_bank_variable(const struct fdry_kernel_bank *bank, const struct fdry_oid *object,
			      const char *name, uint64_t size, CUdeviceptr *ret)
{
	uint32_t i = load_first(bank, object);
	CUdeviceptr addr = 0;
	size_t now = 0;
	int err;

	if (i == bank->nloads || !fdry_oid_eq(fdry_module_object(bank->loads[i]), object) ||
	    (i + 1 < bank->nloads &&
	     fdry_oid_eq(fdry_module_object(bank->loads[i + 1]), object)))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "variable %.200s: pointers point to it, and its object is loaded "
				 "not at all or more than once; seal the image anew",
				 name);
	err = variable_find(bank->user.drv, bank->loads[i], name, &addr, &now);
	if (!err && now != size)
		err = fdry_fail(FDRY_E_BADIMAGE,
				"its object has %zu bytes for it, and the image %llu; seal the "
				"image anew",
				now, (unsigned long long)size);
	if (err)
		return fdry_fail_at(err, "variable %.200s", name);
	*ret = addr;
	return 0;
}

/* The writable variables of one load. */
static int load_writable(const struct fdry_driver *drv, const struct fdry_module *m,
			 const struct fdry_buf *variables, fdry_writable_fn fn, void *arg)
{
	const struct fdry_cubin_variable *v = fdry_array(*variables, struct fdry_cubin_variable);
	size_t i, n = fdry_array_count(*variables, struct fdry_cubin_variable), size;
	CUdeviceptr addr;
	CUresult res;
	int err = 0;

	for (i = 0; i < n && !err; i++, v++) {
		if (v->constant || v->literal || !v->unique || !v->name[0] || !v->size)
			continue;
		res = fdry_call_raw(drv, cuModuleGetGlobal_v2, &addr, &size, fdry_module_handle(m),
				    v->name);
		if (!res)
			err = fn(arg, addr, size);
		else if (res != CUDA_ERROR_NOT_FOUND)
			err = fdry_driver_result(drv, FDRY_DRV_cuModuleGetGlobal_v2, res);
	}
	return err;
}

int fdry_kernel_bank_writable(const struct fdry_kernel_bank *bank, fdry_writable_fn fn, void *arg)
{
	const struct fdry_module_user *u = &bank->user;
	struct fdry_buf variables = { 0 };
	struct fdry_span bytes;
	uint32_t i;
	int err = 0;

	for (i = 0; i < bank->nloads && !err; i++) {
		if (!fdry_module_is_own(bank->loads[i]))
			continue;
		variables.len = 0;
		err = u->get(u->arg, fdry_module_object(bank->loads[i]), &bytes) ?:
		      fdry_code_vars_list(bytes, &variables) ?:
		      load_writable(u->drv, bank->loads[i], &variables, fn, arg);
	}
	fdry_buf_release(&variables);
	return err;
}

CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index)
{
	return bank->functions[index];
}

void fdry_kernel_bank_free(struct fdry_kernel_bank *bank)
{
	if (!bank)
		return;
	while (bank->count)
		fdry_module_put(bank->modules[--bank->count]);
	free(bank->modules);
	free(bank->functions);
	free(bank->loads);
	free(bank);
}
