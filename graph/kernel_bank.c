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

struct loaded {
	struct fdry_oid oid;
	uint32_t copy; /* of how many loads of the object this is which */
	CUmodule module;
};

struct fdry_kernel_bank {
	const struct fdry_driver *drv;
	struct loaded *loaded;
	uint32_t nloaded;
	uint32_t *copies; /* by kernel */
	CUfunction *functions;
};

/* Which load of its object each kernel needs: equal attributes, or another function. */
static void copies_count(const struct fdry_kernel *k, uint32_t n, uint32_t *copies)
{
	uint32_t i, j;

	for (i = 0; i < n; i++)
		for (j = 0; j < i; j++) {
			if (!fdry_oid_eq(&k[j].object, &k[i].object) || strcmp(k[j].name, k[i].name))
				continue;
			if (!memcmp(k[j].attrs, k[i].attrs, sizeof(k[j].attrs))) {
				copies[i] = copies[j];
				break;
			}
			if (copies[i] <= copies[j])
				copies[i] = copies[j] + 1;
		}
}

static int object_load(struct fdry_kernel_bank *bank, const struct fdry_kernel *k, uint32_t copy,
		       fdry_object_get_fn get, void *arg, CUmodule *ret)
{
	struct loaded *l = &bank->loaded[bank->nloaded];
	struct fdry_span bytes;
	CUresult res;
	uint32_t i;
	int err;

	for (i = 0; i < bank->nloaded; i++)
		if (fdry_oid_eq(&bank->loaded[i].oid, &k->object) && bank->loaded[i].copy == copy) {
			*ret = bank->loaded[i].module;
			return 0;
		}
	err = get(arg, &k->object, &bytes);
	if (!err)
		err = fdry_module_load(bank->drv, bytes, &l->module, &res);
	if (err)
		return err;
	l->oid = k->object;
	l->copy = copy;
	bank->nloaded++;
	*ret = l->module;
	return 0;
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

int fdry_kernel_bank_load(const struct fdry_driver *drv, const struct fdry_kernel *kernels, uint32_t count,
			  fdry_object_get_fn get, void *arg, struct fdry_kernel_bank **ret)
{
	struct fdry_kernel_bank *bank = calloc(1, sizeof(*bank));
	CUmodule module;
	uint32_t i;
	int err = 0;

	if (!bank)
		return fdry_nomem();
	bank->drv = drv;
	bank->loaded = calloc(count ? count : 1, sizeof(*bank->loaded));
	bank->functions = calloc(count ? count : 1, sizeof(*bank->functions));
	bank->copies = calloc(count ? count : 1, sizeof(*bank->copies));
	if (!bank->loaded || !bank->functions || !bank->copies)
		err = fdry_nomem();
	else
		copies_count(kernels, count, bank->copies);
	for (i = 0; i < count && !err; i++) {
		err = object_load(bank, &kernels[i], bank->copies[i], get, arg, &module);
		if (!err)
			err = kernel_load(bank, &kernels[i], module, &bank->functions[i]);
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
	for (i = 0; i < bank->nloaded; i++)
		(void)fdry_call_raw(bank->drv, cuModuleUnload, bank->loaded[i].module);
	free(bank->copies);
	free(bank->loaded);
	free(bank->functions);
	free(bank);
}
