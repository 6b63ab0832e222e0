// SPDX-License-Identifier: Apache-2.0
/* module.c - checks device code and loads it; see module.h. */
#include "graph/module.h"

#include "graph/cubin.h"
#include "graph/elf.h"

enum { SHF_WRITE = 1, SHN_COMMON = 0xfff2 };

struct segment {
	uint32_t type;
	uint32_t flags;
	uint64_t offset;
	uint64_t vaddr;
	uint64_t paddr;
	uint64_t filesz;
	uint64_t memsz;
	uint64_t align;
};
_Static_assert(sizeof(struct segment) == 56, "as on disk");

/* Check the program headers. Slices have none, but cubins of compilers have them, and a driver may
 * read them. */
static int segments_check(const struct fdry_elf *elf)
{
	const uint8_t *table;
	struct segment s;
	uint32_t i;

	if (!elf->h.phnum)
		return 0;
	if (elf->h.phentsize != sizeof(s))
		return fdry_fail(FDRY_E_BADCODE, "malformed device code: program headers of an "
						 "unknown size; rebuild the library it came from");
	table = fdry_span_at(elf->image, elf->h.phoff, (uint64_t)elf->h.phnum * sizeof(s));
	if (!table)
		return fdry_fail(
			FDRY_E_BADCODE,
			"the device code is cut off before its program headers end; get it again");
	for (i = 0; i < elf->h.phnum; i++) {
		memcpy(&s, table + (size_t)i * sizeof(s), sizeof(s));
		if (s.filesz && !fdry_span_at(elf->image, s.offset, s.filesz))
			return fdry_fail(FDRY_E_BADCODE,
					 "malformed device code: segment %u ends beyond the file; "
					 "rebuild the library it came from",
					 i);
	}
	return 0;
}

int fdry_module_check(const struct fdry_driver *drv, struct fdry_span code)
{
	uint16_t machine = fdry_elf_machine(code);
	struct fdry_elf elf;
	int err;

	if (!machine || (machine != FDRY_EM_CUDA && !drv->software))
		return fdry_fail(FDRY_E_BADCODE,
				 "the code to load is no cubin%s; seal or build it again",
				 drv->software ? " and no object of the software driver" : "");
	err = fdry_elf_init(code, &elf);
	if (err)
		return err;
	err = segments_check(&elf);
	fdry_elf_release(&elf);
	return err;
}

/*
 * Whether a section holds variables that kernels can write. Four kinds of writable sections do
 * not: shared memory of blocks, local memory of threads, descriptions of other sections for
 * Mercury (architecture 100 and later), and, in an object of the software driver, the tables for
 * loading it. Constant banks are not writable.
 */
static bool section_is_variables(const struct fdry_elf_section *s)
{
	static const char *const others[] = { ".nv.shared.", ".nv.local.", ".nv.merc.",
					      ".data.rel.ro", ".dynamic",  ".got",
					      "sim_kernels" };
	size_t i;

	if (!s->h.size || !(s->h.flags & SHF_WRITE))
		return !strncmp(s->name, ".nv.global", strlen(".nv.global")) && s->h.size;
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strncmp(s->name, others[i], strlen(others[i])))
			return false;
	return true;
}

/* Whether literals are all that code can reach in the section. */
static bool section_is_literals(const struct fdry_cubin *c, uint32_t section)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->nvariables; i++) {
		if (c->variables[i].section == section && !c->variables[i].literal)
			return false;
		n += c->variables[i].section == section;
	}
	return n;
}

/* Code gets addresses by relocations alone. One that names no variable may mean any byte. */
static bool relocs_name_variables(const struct fdry_cubin *c, uint32_t relocs)
{
	uint32_t i, symbol, n = fdry_elf_reloc_count(&c->elf, relocs);

	for (i = 0; i < n; i++) {
		symbol = (uint32_t)(fdry_elf_reloc(&c->elf, relocs, i).info >> 32);
		if (symbol >= c->elf.nsymbols)
			return false;
		if (fdry_cubin_variable_of(c, symbol) == UINT32_MAX &&
		    section_is_variables(&c->elf.sections[fdry_cubin_symbol_section(c, symbol)]))
			return false;
	}
	return true;
}

/* Kernels with assertions have strings in writable memory, which no code writes. */
static bool variables_are_literals(struct fdry_span code)
{
	struct fdry_cubin *c;
	bool literals = true;
	uint32_t i;

	if (fdry_elf_machine(code) != FDRY_EM_CUDA || fdry_cubin_new(code, &c))
		return false;
	for (i = 1; i < c->elf.nsections && literals; i++) {
		if (c->sections[i].kind == FDRY_SECTION_RELOC)
			literals = relocs_name_variables(c, i);
		else if (section_is_variables(&c->elf.sections[i]))
			literals = section_is_literals(c, i);
	}
	fdry_cubin_free(c);
	return literals;
}

bool fdry_module_has_variables(struct fdry_span code)
{
	struct fdry_elf elf;
	bool found = false, common = false;
	uint32_t i;

	if (fdry_elf_init(code, &elf))
		return true;
	for (i = 1; i < elf.nsections && !found; i++)
		found = section_is_variables(&elf.sections[i]);
	for (i = 0; i < elf.nsymbols && !common; i++)
		common = elf.symbols[i].s.shndx == SHN_COMMON;
	fdry_elf_release(&elf);
	return common || (found && !variables_are_literals(code));
}

int fdry_module_load(const struct fdry_driver *drv, struct fdry_span code, CUmodule *ret,
		     CUresult *res)
{
	int err = fdry_module_check(drv, code);

	*res = CUDA_ERROR_INVALID_IMAGE;
	if (err)
		return err;
	*res = fdry_call_raw(drv, cuModuleLoadDataEx, ret, code.data, 0, NULL, NULL);
	return fdry_driver_result(drv, FDRY_DRV_cuModuleLoadDataEx, *res);
}
