// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_vars.c - the values of the variables that kernels reach.
 *
 * A load of a kernel object gives each variable the bytes in the cubin. The captured program, or a
 * kernel, may have changed the variable since. So a seal reads the variables from the device, in
 * every load of the module whose kernels the graphs launch. A load of the image writes those that
 * differ from the cubin. An object has one set of variables. If kernels can write some, or pointers
 * lead there, the object belongs to one load of the module; if not, to all loads with these values.
 * A seal refuses a variable that it cannot read, unless nothing can have written it.
 *
 * The driver fills in addresses of variables when it loads code. Each load has other addresses, so
 * a word that still has the address of its code is no value. Neither is a word of a table with the
 * address of a function, once kernel_functions.c has compared the code there.
 */
#include <stdlib.h>

#include "graph/code_reach.h"
#include "graph/code_vars.h"
#include "graph/kernel_set.h"
#include "lib/search.h"

#define REMEDY "pass it as an argument in device memory instead, or do not capture the kernel"

struct look {
	struct fdry_kernel_set *set;
	const struct fdry_driver *drv;
	const struct fdry_cubin *c; /* NULL: an object of the software driver */
	const struct fdry_set_owner *owner;
	const struct fdry_oid *object;
};

static int refuse(const struct fdry_cubin_variable *v, const char *what)
{
	return fdry_fail(FDRY_E_REFUSED, "variable %.200s of its module %s; " REMEDY, v->name,
			 what);
}

/* The address of a variable in this load of the module. */
static int variable_address(const struct look *l, const struct fdry_cubin_variable *v,
			    CUdeviceptr *ret)
{
	CUdeviceptr addr = 0;
	size_t size = 0;
	CUresult res;

	if (!v->name[0] || !v->unique)
		return refuse(v, "has no unique name, so it cannot be read");
	if (l->owner->library)
		res = fdry_call_raw(l->drv, cuLibraryGetGlobal, &addr, &size, l->owner->library,
				    v->name);
	else
		res = fdry_call_raw(l->drv, cuModuleGetGlobal_v2, &addr, &size, l->owner->module,
				    v->name);
	if (res == CUDA_ERROR_NOT_FOUND)
		return refuse(v, "is unknown to the driver, so it cannot be read");
	if (res)
		return fdry_driver_result(l->drv, l->owner->library ? FDRY_DRV_cuLibraryGetGlobal :
					  FDRY_DRV_cuModuleGetGlobal_v2, res);
	if (size != v->size)
		return refuse(v, "has another size than in its code");
	*ret = addr;
	return 0;
}

/* The word of a table that holds the address of a function. */
struct function_word {
	uint64_t offset; /* in the table */
	uint32_t symbol;
};

/* The offsets of the words that the driver fills in. */
struct filled {
	struct fdry_buf *relocated; /* u64 each */
	struct fdry_buf functions;  /* of struct function_word: @relocated has them, too */
};

static int function_expect(const struct fdry_cubin_variable *v, const struct fdry_elf_rela *r,
			   struct filled *f)
{
	struct function_word word = { r->offset - v->offset, (uint32_t)(r->info >> 32) };

	return fdry_buf_put(&f->functions, &word, sizeof(word)) ?:
	       fdry_buf_put_u64(f->relocated, word.offset);
}

/* Write the address that the driver fills in there into @expect, and note its offset. */
static int address_expect(const struct look *l, const struct fdry_cubin_variable *v,
			  const struct fdry_elf_rela *r, uint8_t *expect, struct filled *f)
{
	uint32_t to = fdry_cubin_variable_of(l->c, (uint32_t)(r->info >> 32));
	uint32_t type = (uint32_t)r->info;
	bool inside = r->offset >= v->offset && v->size >= 8 &&
		      r->offset - v->offset <= v->size - 8;
	CUdeviceptr addr;
	int err;

	if (inside && fdry_cubin_function_word(l->c, r))
		return function_expect(v, r, f);
	if (to == UINT32_MAX || (type != FDRY_R_CUDA_64 && type != FDRY_R_CUDA_G64) || !inside)
		return refuse(v, "holds an address that cannot be compared");
	err = variable_address(l, &l->c->variables[to], &addr);
	if (err)
		return err;
	fdry_set64(expect + (r->offset - v->offset), addr + (uint64_t)r->addend);
	return fdry_buf_put_u64(f->relocated, r->offset - v->offset);
}

static int addresses_expect(const struct look *l, const struct fdry_cubin_variable *v,
			    uint8_t *expect, struct filled *f)
{
	const struct fdry_cubin_section *cs;
	struct fdry_elf_rela r;
	uint32_t s, i, n;
	int err;

	if (!l->c)
		return 0;
	cs = l->c->sections;
	for (s = cs[v->section].relocs; s; s = cs[s].next_reloc) {
		n = fdry_elf_reloc_count(&l->c->elf, s);
		for (i = 0; i < n; i++) {
			r = fdry_elf_reloc(&l->c->elf, s, i);
			if (r.offset >= v->offset + v->size ||
			    (r.offset < v->offset && v->offset - r.offset >= 8))
				continue;
			err = address_expect(l, v, &r, expect, f);
			if (err)
				return err;
		}
	}
	return 0;
}

/* Keep the offsets of words that have the address of the code, and zero these words in both. */
static void relocated_keep(struct fdry_buf *relocated, uint8_t *expect, uint8_t *found)
{
	size_t at, kept = 0;
	uint64_t offset;

	if (relocated->len)
		qsort(relocated->data, relocated->len / 8, 8, fdry_u64_cmp);
	for (at = 0; at < relocated->len; at += 8) {
		offset = fdry_get64(relocated->data + at);
		if (memcmp(expect + offset, found + offset, 8))
			continue;
		memset(expect + offset, 0, 8);
		memset(found + offset, 0, 8);
		fdry_set64(relocated->data + kept, offset);
		kept += 8;
	}
	relocated->len = kept;
}

static bool bytes_same(const struct fdry_buf *a, const struct fdry_buf *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

/* Refuse a variable that differs from the same one of a load with equal values, whose object it
 * shares. */
static int variable_same(const struct fdry_cubin_variable *v,
			 const struct fdry_set_variable *before,
			 const struct fdry_set_variable *add)
{
	if (bytes_same(&before->bytes, &add->bytes) &&
	    bytes_same(&before->relocated, &add->relocated))
		return 0;
	return refuse(v, "changed while the seal read it");
}

/* Add @add to the set's variables, which take its memory, or compare it with the same variable of
 * another load. */
static int variable_add(const struct look *l, const struct fdry_cubin_variable *v,
			struct fdry_set_variable *add)
{
	struct fdry_set_variable *all = (struct fdry_set_variable *)l->set->variables.data;
	size_t i, n = l->set->variables.len / sizeof(*all);
	int err;

	for (i = 0; i < n; i++)
		if (fdry_oid_eq(&all[i].object, l->object) && !strcmp(all[i].name, v->name))
			break;
	if (i < n)
		return variable_same(v, &all[i], add);
	add->name = strdup(v->name);
	if (!add->name)
		return fdry_nomem();
	err = fdry_buf_put(&l->set->variables, add, sizeof(*add));
	if (err) {
		free(add->name);
		return err;
	}
	add->bytes = add->relocated = (struct fdry_buf){ 0 };
	return 0;
}

/* Take the addresses of functions as they are, and note them: fdry_kernel_set_functions_check()
 * compares the code there. */
static int functions_note(const struct look *l, const struct filled *f, uint8_t *expect,
			  const uint8_t *found)
{
	const struct function_word *w = fdry_array(f->functions, struct function_word);
	size_t i, n = fdry_array_count(f->functions, struct function_word);
	struct fdry_set_function add = { .load = l->owner->module, .cubin = l->c };
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		memcpy(expect + w[i].offset, found + w[i].offset, 8);
		add.addr = fdry_get64(found + w[i].offset);
		add.symbol = w[i].symbol;
		err = fdry_buf_put(&l->set->functions, &add, sizeof(add));
	}
	return err;
}

/* @expect: memory for the bytes of the code, which the driver gave the variable first. */
static int value_read(const struct look *l, const struct fdry_cubin_variable *v,
		      struct fdry_span initial, struct fdry_set_variable *add, uint8_t *expect)
{
	struct filled filled = { .relocated = &add->relocated };
	uint8_t *found = add->bytes.data;
	int err;

	if (initial.data)
		memcpy(expect, initial.data, v->size);
	err = addresses_expect(l, v, expect, &filled);
	if (err)
		goto out_release;
	err = fdry_call(l->drv, cuMemcpyDtoH_v2, found, add->addr, v->size);
	if (err)
		goto out_release;
	err = functions_note(l, &filled, expect, found);
	if (err)
		goto out_release;
	relocated_keep(&add->relocated, expect, found);
	add->changed = memcmp(expect, found, v->size);
	err = variable_add(l, v, add);
out_release:
	fdry_buf_release(&filled.functions);
	return err;
}

/* @initial: its bytes in the code; data is NULL if they are zero. */
static int variable_read(const struct look *l, const struct fdry_cubin_variable *v,
			 struct fdry_span initial)
{
	struct fdry_set_variable add = { .object = *l->object };
	uint8_t *expect;
	int err = variable_address(l, v, &add.addr);

	if (err)
		return err;
	err = fdry_buf_grow(&add.bytes, v->size, NULL);
	if (err)
		return err;
	expect = calloc(1, v->size);
	err = expect ? value_read(l, v, initial, &add, expect) : fdry_nomem();
	free(expect);
	fdry_buf_release(&add.bytes);
	fdry_buf_release(&add.relocated);
	return err;
}

/* Whether a variable has the same bytes in the load of @owner. */
static int value_same(const struct look *l, const struct fdry_cubin_variable *v,
		      const struct fdry_set_owner *owner, uint8_t *bytes, bool *ret)
{
	const struct fdry_set_owner *both[] = { l->owner, owner };
	struct look one = *l;
	CUdeviceptr addr;
	int i, err;

	for (i = 0; i < 2; i++) {
		one.owner = both[i];
		err = variable_address(&one, v, &addr) ?:
		      fdry_call(l->drv, cuMemcpyDtoH_v2, bytes + (size_t)i * v->size, addr,
				v->size);
		if (err)
			return err;
	}
	*ret = !memcmp(bytes, bytes + v->size, v->size);
	return 0;
}

/* The load @load, of any code; NULL if the set has no kernel of it. */
static const struct fdry_set_owner *owner_of(const struct fdry_kernel_set *set, CUmodule load)
{
	struct fdry_set_entry *const *e = (struct fdry_set_entry *const *)set->entries.data;
	size_t i, n = set->entries.len / sizeof(*e);

	for (i = 0; i < n; i++)
		if (fdry_set_load(set, e[i]) == load)
			return (const struct fdry_set_owner *)e[i]->owners.data;
	return NULL;
}

int fdry_set_values_same(const struct fdry_kernel_set *set, const struct fdry_set_entry *e,
			 const struct fdry_code_reach *reach, CUmodule load, bool *ret)
{
	const struct fdry_cubin_variable *v = reach->cubin->variables;
	const struct fdry_set_owner *other = owner_of(set, load);
	struct look l = { .drv = set->drv, .c = reach->cubin,
			  .owner = (const struct fdry_set_owner *)e->owners.data };
	bool same = other;
	uint8_t *bytes;
	uint32_t k;
	int err = 0;

	for (k = 0; k < l.c->nvariables && same && !err; k++) {
		if (!reach->variables[k] || v[k].literal || !v[k].size)
			continue;
		bytes = calloc(2, v[k].size);
		err = bytes ? value_same(&l, &v[k], other, bytes, &same) : fdry_nomem();
		free(bytes);
	}
	if (!err)
		*ret = same;
	return err;
}

/* --- objects of the software driver --- */

int fdry_set_host_variables_read(struct fdry_kernel_set *set, const struct fdry_set_entry *e)
{
	const struct fdry_set_owner *owners = (const struct fdry_set_owner *)e->owners.data;
	struct look l = { .set = set, .drv = set->drv, .object = &e->k.object };
	size_t i, k, n = e->owners.len / sizeof(*owners);
	struct fdry_buf variables = { 0 }, initial = { 0 };
	int err;

	err = fdry_code_vars_host(((const struct fdry_set_code *)set->codes.data)[e->code].bytes,
				  &variables, &initial);
	for (i = 0; i < n && !err; i++) {
		l.owner = &owners[i];
		for (k = 0; k < fdry_array_count(initial, struct fdry_span) && !err; k++)
			err = variable_read(&l,
					    &fdry_array(variables, struct fdry_cubin_variable)[k],
					    fdry_array(initial, struct fdry_span)[k]);
	}
	fdry_buf_release(&variables);
	fdry_buf_release(&initial);
	return err ? fdry_fail_at(err, "kernel %.200s", e->k.name) : 0;
}

int fdry_set_variables_read(struct fdry_kernel_set *set, const struct fdry_set_entry *e,
			    const struct fdry_code_reach *reach)
{
	const struct fdry_set_owner *owners = (const struct fdry_set_owner *)e->owners.data;
	struct look l = { .set = set, .drv = set->drv, .c = reach->cubin, .object = &e->k.object };
	const struct fdry_cubin_variable *v = l.c->variables;
	size_t i, n = e->owners.len / sizeof(*owners);
	uint32_t k;
	int err;

	for (i = 0; i < n; i++)
		for (k = 0; k < l.c->nvariables; k++) {
			if (!reach->variables[k] || v[k].literal || !v[k].size)
				continue;
			l.owner = &owners[i];
			err = variable_read(&l, &v[k], fdry_cubin_initial(l.c, &v[k]));
			if (err)
				return err;
		}
	return 0;
}

int fdry_set_pointed_read(struct fdry_kernel_set *set, const struct fdry_set_pointed *p)
{
	const struct fdry_set_known *k = &p->known;
	const struct fdry_set_code *code =
		&((const struct fdry_set_code *)set->codes.data)[k->owner.code];
	struct look l = { .set = set,
			  .drv = set->drv,
			  .c = code->cubin,
			  .owner = &k->owner,
			  .object = &p->object };
	struct fdry_buf variables = { 0 }, initial = { 0 };
	int err;

	if (code->cubin)
		return variable_read(&l, &k->variable,
				     fdry_cubin_initial(code->cubin, &k->variable));
	err = fdry_code_vars_host(code->bytes, &variables, &initial) ?:
	      variable_read(&l, &k->variable, fdry_array(initial, struct fdry_span)[k->index]);
	fdry_buf_release(&variables);
	fdry_buf_release(&initial);
	return err;
}

/* --- the values --- */

void fdry_set_variables_clear(struct fdry_kernel_set *set)
{
	struct fdry_set_variable *v = (struct fdry_set_variable *)set->variables.data;
	size_t i, n = set->variables.len / sizeof(*v);

	for (i = 0; i < n; i++) {
		free(v[i].name);
		fdry_buf_release(&v[i].bytes);
		fdry_buf_release(&v[i].relocated);
	}
	set->variables.len = 0;
	set->functions.len = 0;
}

static uint32_t object_of(const struct fdry_kernel_set *set, const struct fdry_oid *oid)
{
	const struct fdry_set_object *o = (const struct fdry_set_object *)set->objects.data;
	uint32_t i = 0, n = (uint32_t)(set->objects.len / sizeof(*o));

	while (i + 1 < n && !fdry_oid_eq(&o[i].oid, oid))
		i++;
	return i;
}

static int variable_cmp(const void *a, const void *b, void *set)
{
	const struct fdry_set_variable *x = a, *y = b;
	uint32_t i = object_of(set, &x->object), k = object_of(set, &y->object);

	return i != k ? (i > k) - (i < k) : strcmp(x->name, y->name);
}

/* The parts of a variable between the addresses that the driver fills in. */
static int parts_pass(const struct fdry_set_variable *s, struct fdry_kernel_value *v,
		      fdry_value_fn fn, void *arg)
{
	size_t at = 0, i, end;
	int err;

	for (i = 0; i <= s->relocated.len; i += 8, at = end + 8) {
		end = i < s->relocated.len ? fdry_get64(s->relocated.data + i) : s->bytes.len;
		if (end < at)
			return fdry_bug("variable %.200s holds addresses that overlap", s->name);
		if (end == at)
			continue;
		v->offset = at;
		v->addr = s->addr + at;
		v->bytes = (struct fdry_span){ s->bytes.data + at, end - at };
		err = fn(arg, v);
		if (err)
			return err;
	}
	return 0;
}

int fdry_kernel_set_values(struct fdry_kernel_set *set, fdry_value_fn fn, void *arg)
{
	struct fdry_set_variable *s = (struct fdry_set_variable *)set->variables.data;
	size_t i, n = set->variables.len / sizeof(*s);
	struct fdry_kernel_value v;
	int err;

	if (n)
		qsort_r(s, n, sizeof(*s), variable_cmp, set);
	for (i = 0; i < n; i++) {
		if (!s[i].changed)
			continue;
		v.object = object_of(set, &s[i].object);
		v.name = s[i].name;
		err = parts_pass(&s[i], &v, fn, arg);
		if (err)
			return err;
	}
	return 0;
}

int fdry_kernel_set_variables(const struct fdry_kernel_set *set, fdry_variable_fn fn, void *arg)
{
	const struct fdry_set_variable *s = (const struct fdry_set_variable *)set->variables.data;
	size_t i, n = set->variables.len / sizeof(*s);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = fn(arg, s[i].addr, s[i].bytes.len);
	return err;
}
