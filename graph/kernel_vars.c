// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_vars.c - checks that a module's variables still have their initial values.
 *
 * A load of a kernel object gives each variable the bytes in the cubin. The captured program may
 * have changed the variable. So a seal reads the variables from the device and compares them, in
 * every load of the module whose kernels the graphs launch. It refuses a variable that it cannot
 * read, unless nothing can have written it.
 */
#include <stdlib.h>

#include "graph/kernel_set.h"
#include "graph/code_reach.h"

#define REMEDY "pass it as an argument in device memory instead, or do not capture the kernel"

struct look {
	const struct fdry_driver *drv;
	const struct fdry_cubin *c;
	const struct fdry_set_owner *owner;
};

static int changed(const struct fdry_cubin_variable *v, const char *what)
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
		return changed(v, "has no unique name, so it cannot be read");
	if (l->owner->library)
		res = fdry_call_raw(l->drv, cuLibraryGetGlobal, &addr, &size, l->owner->library,
				    v->name);
	else
		res = fdry_call_raw(l->drv, cuModuleGetGlobal_v2, &addr, &size, l->owner->module,
				    v->name);
	if (res == CUDA_ERROR_NOT_FOUND)
		return changed(v, "is unknown to the driver, so it cannot be read");
	if (res)
		return fdry_driver_result(l->drv, l->owner->library ? FDRY_DRV_cuLibraryGetGlobal :
					  FDRY_DRV_cuModuleGetGlobal_v2, res);
	if (size != v->size)
		return changed(v, "has another size than in its code");
	*ret = addr;
	return 0;
}

enum { R_CUDA_64 = 2, R_CUDA_G64 = 4 };

/* Write the address that the driver relocates there into @bytes, the variable's initial content. */
static int address_expect(const struct look *l, const struct fdry_cubin_variable *v,
			  const struct fdry_elf_rela *r, uint8_t *bytes)
{
	uint32_t to = fdry_cubin_variable_of(l->c, (uint32_t)(r->info >> 32));
	uint32_t type = (uint32_t)r->info;
	CUdeviceptr addr;
	int err;

	if (to == UINT32_MAX || (type != R_CUDA_64 && type != R_CUDA_G64) ||
	    r->offset < v->offset || v->size < 8 || r->offset - v->offset > v->size - 8)
		return changed(v, "holds an address that cannot be compared");
	err = variable_address(l, &l->c->variables[to], &addr);
	if (err)
		return err;
	fdry_set64(bytes + (r->offset - v->offset), addr + (uint64_t)r->addend);
	return 0;
}

static int addresses_expect(const struct look *l, const struct fdry_cubin_variable *v,
			    uint8_t *bytes)
{
	const struct fdry_cubin_section *cs = l->c->sections;
	struct fdry_elf_rela r;
	uint32_t s, i, n;
	int err;

	for (s = cs[v->section].relocs; s; s = cs[s].next_reloc) {
		n = fdry_elf_reloc_count(&l->c->elf, s);
		for (i = 0; i < n; i++) {
			r = fdry_elf_reloc(&l->c->elf, s, i);
			if (r.offset >= v->offset + v->size ||
			    (r.offset < v->offset && v->offset - r.offset >= 8))
				continue;
			err = address_expect(l, v, &r, bytes);
			if (err)
				return err;
		}
	}
	return 0;
}

/* Compare a variable on the device with @expect; @found is memory for its bytes. */
static int device_compare(const struct look *l, const struct fdry_cubin_variable *v,
			  CUdeviceptr addr, const uint8_t *expect, uint8_t *found)
{
	int err = fdry_call(l->drv, cuMemcpyDtoH_v2, found, addr, v->size);

	if (err)
		return err;
	return memcmp(expect, found, v->size)
		       ? changed(v, "no longer has the value that it was compiled with")
		       : 0;
}

static int bytes_compare(const struct look *l, const struct fdry_cubin_variable *v,
			 CUdeviceptr addr, uint8_t *expect, uint8_t *found)
{
	struct fdry_span initial = fdry_cubin_initial(l->c, v);
	int err;

	if (initial.data)
		memcpy(expect, initial.data, v->size);
	err = addresses_expect(l, v, expect);
	return err ? err : device_compare(l, v, addr, expect, found);
}

static int variable_check(const struct look *l, const struct fdry_cubin_variable *v)
{
	uint8_t *expect, *found;
	CUdeviceptr addr;
	int err;

	if (v->literal || !v->size)
		return 0;
	err = variable_address(l, v, &addr);
	if (err)
		return err;
	expect = calloc(1, v->size);
	found = malloc(v->size);
	err = expect && found ? bytes_compare(l, v, addr, expect, found) : fdry_nomem();
	free(expect);
	free(found);
	return err;
}

/* --- objects of the software driver --- */

enum { STB_GLOBAL = 1, STT_OBJECT = 1, SHF_WRITE = 1 };

/* Whether a symbol is a variable that device code may write, not private data of the object. */
static bool host_variable(const struct fdry_elf *elf, const struct fdry_elf_symbol *s)
{
	return fdry_elf_sym_type(&s->s) == STT_OBJECT && fdry_elf_sym_bind(&s->s) == STB_GLOBAL &&
	       s->s.size && s->s.shndx < elf->nsections &&
	       elf->sections[s->s.shndx].h.flags & SHF_WRITE;
}

static int host_variable_check(const struct look *l, const struct fdry_elf *elf,
			       const struct fdry_elf_symbol *s)
{
	const struct fdry_elf_section *section = &elf->sections[s->s.shndx];
	const struct fdry_cubin_variable v = { .name = s->name, .size = s->s.size, .unique = true };
	const void *initial = fdry_span_at(section->data, s->s.value - section->h.addr, s->s.size);
	uint8_t *expect, *found;
	CUdeviceptr addr;
	int err;

	err = variable_address(l, &v, &addr);
	if (err)
		return err;
	expect = calloc(1, v.size);
	found = malloc(v.size);
	if (!expect || !found) {
		err = fdry_nomem();
		goto out_free;
	}
	if (initial)
		memcpy(expect, initial, v.size);
	err = device_compare(l, &v, addr, expect, found);
out_free:
	free(expect);
	free(found);
	return err;
}

static int host_owner_check(const struct look *l, const struct fdry_elf *elf)
{
	uint32_t i;
	int err;

	for (i = 0; i < elf->nsymbols; i++) {
		if (!host_variable(elf, &elf->symbols[i]))
			continue;
		err = host_variable_check(l, elf, &elf->symbols[i]);
		if (err)
			return err;
	}
	return 0;
}

int fdry_set_host_variables_check(const struct fdry_kernel_set *set, const struct fdry_set_entry *e)
{
	const struct fdry_set_owner *owners = (const struct fdry_set_owner *)e->owners.data;
	struct look l = { .drv = set->drv };
	size_t i, n = e->owners.len / sizeof(*owners);
	struct fdry_elf elf;
	int err;

	err = fdry_elf_init(((const struct fdry_set_code *)set->codes.data)[e->code].bytes, &elf);
	if (err)
		return err;
	for (i = 0; i < n && !err; i++) {
		l.owner = &owners[i];
		err = host_owner_check(&l, &elf);
	}
	fdry_elf_release(&elf);
	return err ? fdry_fail_at(err, "kernel %.200s", e->k.name) : 0;
}

int fdry_set_variables_check(const struct fdry_kernel_set *set, const struct fdry_set_entry *e,
			     const struct fdry_code_reach *reach)
{
	const struct fdry_set_owner *owners = (const struct fdry_set_owner *)e->owners.data;
	struct look l = { .drv = set->drv, .c = reach->cubin };
	size_t i, n = e->owners.len / sizeof(*owners);
	uint32_t v;
	int err;

	for (i = 0; i < n; i++)
		for (v = 0; v < l.c->nvariables; v++) {
			if (!reach->variables[v])
				continue;
			l.owner = &owners[i];
			err = variable_check(&l, &l.c->variables[v]);
			if (err)
				return err;
		}
	return 0;
}
