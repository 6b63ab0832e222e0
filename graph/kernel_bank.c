// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_bank.c - kernel objects loaded into the driver, as functions of the current context.
 *
 * Each object is loaded once, however many kernels are in it; only a kernel that occurs
 * with other attributes is loaded again, since a function has one set of them. (Those
 * have no variables in common: a seal refuses that.) Attributes are set where they differ
 * from what a fresh function has. The parameter layout that the driver reads out of the
 * object must be the table's: the arguments in graph objects are laid out by it.
 *
 * Objects become modules, not libraries: a library is read once when it is loaded and again
 * when the first of its functions is asked for, which takes a sixth longer.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/kernel.h"
#include "graph/module.h"

struct fdry_kernel_bank {
	const struct fdry_driver *drv;
	uint32_t *loads;   /* by kernel: which module it is in */
	CUmodule *modules; /* NULL: not loaded */
	uint32_t nmodules;
	CUfunction *functions;
};

static int by_object(const struct fdry_kernel *x, const struct fdry_kernel *y)
{
	return memcmp(&x->object, &y->object, sizeof(x->object));
}

static int by_function(const struct fdry_kernel *x, const struct fdry_kernel *y)
{
	int order = by_object(x, y);

	return order ? order : strcmp(x->name, y->name);
}

static int by_load(const void *a, const void *b, void *kernels)
{
	const struct fdry_kernel *k = kernels, *x = &k[*(const uint32_t *)a], *y = &k[*(const uint32_t *)b];
	int order = by_function(x, y);

	return order ? order : memcmp(x->attrs, y->attrs, sizeof(x->attrs));
}

/*
 * Which load of its object each kernel needs: the sets of attributes of one function are loads 0, 1, ..., and functions of
 * one object share these. @loads gets a load's number, from 0 for the first of the first object; *@count how many there are.
 */
static int loads_number(const struct fdry_kernel *k, const uint32_t *order, uint32_t n, uint32_t *loads, uint32_t *count)
{
	uint32_t i, first = 0, copy = 0, most = 0;

	for (i = 0; i < n; i++) {
		const struct fdry_kernel *now = &k[order[i]], *before = i ? &k[order[i - 1]] : NULL;

		if (!before || by_object(before, now)) {
			first += i ? most + 1 : 0;
			copy = most = 0;
		} else if (by_function(before, now)) {
			copy = 0;
		} else if (memcmp(before->attrs, now->attrs, sizeof(now->attrs))) {
			copy++;
		}
		if (copy >= FDRY_KERNEL_LOADS_MAX)
			return fdry_fail(FDRY_E_LIMIT, "kernel %.200s has more than %u sets of attributes, each of which takes a load of its "
					 "code; launch it with fewer", now->name, FDRY_KERNEL_LOADS_MAX);
		if (copy > most)
			most = copy;
		loads[order[i]] = first + copy;
	}
	*count = n ? first + most + 1 : 0;
	return 0;
}

int fdry_kernel_loads(const struct fdry_kernel *kernels, uint32_t n, uint32_t *loads, uint32_t *count)
{
	uint32_t *order = calloc((size_t)n + 1, sizeof(*order)), i;
	int err;

	if (!order)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_load, (void *)kernels);
	err = loads_number(kernels, order, n, loads, count);
	free(order);
	return err;
}

static int object_load(struct fdry_kernel_bank *bank, const struct fdry_kernel *k, CUmodule *module, fdry_object_get_fn get, void *arg)
{
	struct fdry_span bytes;
	CUresult res;
	int err = *module ? 0 : get(arg, &k->object, &bytes);

	return err || *module ? err : fdry_module_load(bank->drv, bytes, module, &res);
}

struct attr {
	CUfunction_attribute attr;
	int32_t value;
};

static int attr_set(const struct fdry_driver *drv, CUfunction func, const struct attr *a)
{
	int now, err;

	err = fdry_call(drv, cuFuncGetAttribute, &now, a->attr, func);
	if (err || now == a->value)
		return err;
	return fdry_call(drv, cuFuncSetAttribute, func, a->attr, a->value);
}

static int attrs_set(const struct fdry_driver *drv, CUfunction func, const struct fdry_kernel *k)
{
	const struct attr attrs[] = {
#define X(id, attr, name, fresh) { attr, k->attrs[id] },
		FDRY_FUNC_ATTRS(X)
#undef X
	};
	size_t i;
	int err = 0;

	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]) && !err; i++)
		err = attr_set(drv, func, &attrs[i]);
	return err;
}

static int params_check(const struct fdry_driver *drv, CUfunction func, const struct fdry_kernel *k)
{
	size_t offset, size;
	uint32_t i;
	CUresult res;

	for (i = 0; i <= k->nparams; i++) {
		res = fdry_call_raw(drv, cuFuncGetParamInfo, func, i, &offset, &size);
		if (i == k->nparams && res == CUDA_ERROR_INVALID_VALUE)
			return 0;
		if (res && res != CUDA_ERROR_INVALID_VALUE)
			return fdry_driver_result(drv, FDRY_DRV_cuFuncGetParamInfo, res);
		if (res || i == k->nparams || offset != k->params[i].offset || size != k->params[i].size)
			break;
	}
	return fdry_fail(FDRY_E_BADIMAGE, "its object has other parameters than the image says, from number %u on; seal the image anew", i);
}

static int kernel_load(struct fdry_kernel_bank *bank, const struct fdry_kernel *k, CUmodule module, CUfunction *ret)
{
	CUfunction func;
	CUresult res;
	int err;

	res = fdry_call_raw(bank->drv, cuModuleGetFunction, &func, module, k->name);
	if (res == CUDA_ERROR_NOT_FOUND)
		return fdry_fail(FDRY_E_BADIMAGE, "its object has no kernel of that name; seal the image anew");
	err = fdry_driver_result(bank->drv, FDRY_DRV_cuModuleGetFunction, res);
	if (!err)
		err = attrs_set(bank->drv, func, k);
	if (!err)
		err = params_check(bank->drv, func, k);
	if (!err)
		*ret = func;
	return err;
}

int fdry_kernel_bank_new(const struct fdry_driver *drv, const struct fdry_kernel *kernels, uint32_t count,
			  fdry_object_get_fn get, void *arg, struct fdry_kernel_bank **ret)
{
	struct fdry_kernel_bank *bank = calloc(1, sizeof(*bank));
	uint32_t i;
	int err;

	if (!bank)
		return fdry_nomem();
	bank->drv = drv;
	bank->modules = calloc((size_t)count + 1, sizeof(*bank->modules));
	bank->functions = calloc((size_t)count + 1, sizeof(*bank->functions));
	bank->loads = calloc((size_t)count + 1, sizeof(*bank->loads));
	if (!bank->modules || !bank->functions || !bank->loads)
		err = fdry_nomem();
	else
		err = fdry_kernel_loads(kernels, count, bank->loads, &bank->nmodules);
	for (i = 0; i < count && !err; i++) {
		CUmodule *module = &bank->modules[bank->loads[i]];

		err = object_load(bank, &kernels[i], module, get, arg);
		if (!err)
			err = kernel_load(bank, &kernels[i], *module, &bank->functions[i]);
		if (err)
			fdry_fail_at(err, "kernel %u %.200s", i, kernels[i].name);
	}
	if (err) {
		fdry_kernel_bank_free(bank);
		return err;
	}
	*ret = bank;
	return 0;
}

CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index)
{
	return bank->functions[index];
}

void fdry_kernel_bank_free(struct fdry_kernel_bank *bank)
{
	uint32_t i;

	if (!bank)
		return;
	for (i = 0; i < bank->nmodules; i++)
		if (bank->modules[i])
			(void)fdry_call_raw(bank->drv, cuModuleUnload, bank->modules[i]);
	free(bank->loads);
	free(bank->modules);
	free(bank->functions);
	free(bank);
}
