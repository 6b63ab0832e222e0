// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_pointed.c - variables of the kernels' modules that pointers point to.
 *
 * A program may pass the address of a module variable as an argument, or store it in memory. A load
 * of the image has another address there, so the image names the variable instead. All kernels that
 * reach such a variable stay in one object, and the object has the variable even if no kernel
 * reaches it by a relocation. So all of them use one variable after a load, as before.
 *
 * A pointer to the first byte of a variable may be meant as the end of the variable before it. A
 * slice keeps the layout of each section, so both meanings hold if both variables are in one
 * object. Kernels that reach the variable before it therefore stay in that object, too.
 */
#include <stdlib.h>

#include "graph/code_vars.h"
#include "graph/kernel_set.h"
#include "lib/search.h"

/* --- the variables of all loads, by address --- */

static CUresult address_of(const struct fdry_driver *drv, const struct fdry_set_owner *o,
			   const char *name, CUdeviceptr *addr, size_t *size)
{
	return o->library ? fdry_call_raw(drv, cuLibraryGetGlobal, addr, size, o->library, name)
			  : fdry_call_raw(drv, cuModuleGetGlobal_v2, addr, size, o->module, name);
}

/* Add the variables of one load that the driver finds by their names. */
static int load_add(struct fdry_kernel_set *set, const struct fdry_set_owner *o,
		    const struct fdry_cubin_variable *v, size_t n)
{
	struct fdry_set_known k = { .owner = *o };
	size_t i, size;
	int err = 0;

	k.owner.code = ((const struct fdry_set_code *)set->codes.data)[o->code].first;
	for (i = 0; i < n && !err; i++) {
		if (!v[i].unique || !v[i].name[0] || !v[i].size ||
		    address_of(set->drv, o, v[i].name, &k.addr, &size) || size != v[i].size)
			continue;
		k.variable = v[i];
		k.index = (uint32_t)i;
		err = fdry_buf_put(&set->known, &k, sizeof(k));
	}
	return err;
}

static int code_add(struct fdry_kernel_set *set, const struct fdry_set_owner *o)
{
	const struct fdry_set_code *code = fdry_array(set->codes, struct fdry_set_code) + o->code;
	struct fdry_buf list = { 0 };
	int err;

	if (code->cubin)
		return load_add(set, o, code->cubin->variables, code->cubin->nvariables);
	err = fdry_code_vars_host(code->bytes, &list, NULL) ?:
	      load_add(set, o, fdry_array(list, struct fdry_cubin_variable),
		       fdry_array_count(list, struct fdry_cubin_variable));
	fdry_buf_release(&list);
	return err;
}

static int owner_cmp(const void *a, const void *b)
{
	const struct fdry_set_owner *x = a, *y = b;

	if (x->library != y->library)
		return x->library < y->library ? -1 : 1;
	return (x->module > y->module) - (x->module < y->module);
}

static int known_cmp(const void *a, const void *b)
{
	const struct fdry_set_known *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/* List the loads, then their variables. A load may be there as a library and as a module. */
static int known_make(struct fdry_kernel_set *set)
{
	struct fdry_set_entry **e = (struct fdry_set_entry **)set->entries.data;
	struct fdry_buf loads = { 0 };
	struct fdry_set_owner *o;
	uint32_t i, n = fdry_kernel_set_count(set);
	size_t k, count;
	int err = 0;

	set->known.len = 0;
	for (i = 0; i < n && !err; i++)
		err = fdry_buf_put(&loads, e[i]->owners.data, e[i]->owners.len);
	o = fdry_array(loads, struct fdry_set_owner);
	count = fdry_array_count(loads, struct fdry_set_owner);
	if (count)
		qsort(o, count, sizeof(*o), owner_cmp);
	for (k = 0; k < count && !err; k++)
		if (!k || owner_cmp(&o[k - 1], &o[k]))
			err = code_add(set, &o[k]);
	fdry_buf_release(&loads);
	if (!err && set->known.len)
		qsort(set->known.data, fdry_array_count(set->known, struct fdry_set_known),
		      sizeof(struct fdry_set_known), known_cmp);
	set->known_entries = err ? 0 : n;
	return err;
}

/* --- finding one --- */

/* Does a variable of another load, or of another section, end where @k begins? */
static bool is_others_end(const struct fdry_kernel_set *set, const struct fdry_set_known *k)
{
	const struct fdry_set_known *all = fdry_array(set->known, struct fdry_set_known), *b;
	const struct fdry_set_code *code =
		&((const struct fdry_set_code *)set->codes.data)[k->owner.code];

	for (b = k; b > all && b[-1].addr == k->addr; b--)
		;
	return b > all && b[-1].addr + b[-1].variable.size == k->addr &&
	       (b[-1].owner.code != k->owner.code || b[-1].owner.module != k->owner.module ||
		(code->cubin && b[-1].variable.section != k->variable.section));
}

static int pointed_add(struct fdry_kernel_set *set, const struct fdry_set_known *k)
{
	const struct fdry_set_pointed *p = fdry_array(set->pointed, struct fdry_set_pointed);
	size_t i, n = fdry_array_count(set->pointed, struct fdry_set_pointed);
	struct fdry_set_pointed add = { .known = *k };

	for (i = 0; i < n; i++)
		if (p[i].known.addr == k->addr)
			return 0;
	set->pointed_more = true;
	return fdry_buf_put(&set->pointed, &add, sizeof(add));
}

int fdry_kernel_set_point(struct fdry_kernel_set *set, CUdeviceptr addr, CUdeviceptr *ret,
			  uint64_t *size)
{
	const struct fdry_set_known *k;
	size_t i, n;
	int err = 0;

	*ret = 0;
	if (set->known_entries != fdry_kernel_set_count(set))
		err = known_make(set);
	if (err)
		return err;
	k = fdry_array(set->known, struct fdry_set_known);
	n = fdry_array_count(set->known, struct fdry_set_known);
	i = fdry_lower_bound(j, n, k[j].addr + k[j].variable.size <= addr);
	if (i == n || addr < k[i].addr)
		return 0;
	if (addr == k[i].addr && is_others_end(set, &k[i]))
		return fdry_fail(FDRY_E_REFUSED,
				 "a pointer may point to the beginning of variable %.200s or to "
				 "the end of another one; pass them in device memory instead",
				 k[i].variable.name);
	err = pointed_add(set, &k[i]);
	if (err)
		return err;
	*ret = k[i].addr;
	*size = k[i].variable.size;
	return 0;
}

bool fdry_kernel_set_pointed_more(const struct fdry_kernel_set *set)
{
	return set->pointed_more;
}

static uint32_t object_index(const struct fdry_kernel_set *set, const struct fdry_oid *oid)
{
	const struct fdry_set_object *o = fdry_array(set->objects, struct fdry_set_object);
	uint32_t i = 0;

	while (!fdry_oid_eq(&o[i].oid, oid))
		i++;
	return i;
}

int fdry_kernel_set_pointed(const struct fdry_kernel_set *set, CUdeviceptr addr,
			    struct fdry_kernel_variable *ret)
{
	const struct fdry_set_pointed *p = fdry_array(set->pointed, struct fdry_set_pointed);
	size_t i, n = fdry_array_count(set->pointed, struct fdry_set_pointed);

	for (i = 0; i < n && p[i].known.addr != addr; i++)
		;
	if (i == n || set->pointed_more)
		return fdry_bug("no variable at 0x%llx was sliced", (unsigned long long)addr);
	*ret = (struct fdry_kernel_variable){ .object = object_index(set, &p[i].object),
					      .name = p[i].known.variable.name,
					      .size = p[i].known.variable.size };
	return 0;
}
