// SPDX-License-Identifier: Apache-2.0
/*
 * elf.c - reads the ELF of device code; see elf.h.
 *
 * Every field is checked here against the file's size, so that users of the parsed view need
 * no checks of their own. Headers are copied, since a cubin inside a fatbin may be unaligned.
 */
#include "graph/elf.h"

#include <stdbool.h>
#include <stdlib.h>

static int elf_bad(const char *what)
{
	return fdry_fail(FDRY_E_BADCODE,
			 "malformed device code: %s; rebuild the library it came from", what);
}

uint16_t fdry_elf_machine(struct fdry_span image)
{
	static const uint8_t magic[6] = { 0x7f, 'E', 'L', 'F', 2, 1 };
	const uint8_t *p = fdry_span_at(image, 0, sizeof(struct fdry_elf_ehdr));

	if (!p || memcmp(p, magic, sizeof(magic)))
		return 0;
	return fdry_get16(p + offsetof(struct fdry_elf_ehdr, machine));
}

/* A table of strings begins with an empty string, which is the name of everything without a name.
 * It ends at its last NUL. */
static bool strings_of(struct fdry_span s, struct fdry_span *ret)
{
	const uint8_t *last;

	if (!s.len || s.data[0])
		return false;
	last = memrchr(s.data, 0, s.len);
	*ret = (struct fdry_span){ s.data, (size_t)(last - s.data) + 1 };
	return true;
}

static const char *name_at(struct fdry_span strings, uint32_t off)
{
	return off < strings.len ? (const char *)strings.data + off : NULL;
}

/* The last two types hold variables (0x70000007) and shared memory (0x7000000a) in relocatable
 * objects. */
static bool has_no_bytes(uint32_t type)
{
	return type == FDRY_SHT_NULL || type == FDRY_SHT_NOBITS || type == 0x70000007 ||
	       type == 0x7000000a;
}

static int section_data(const struct fdry_elf *elf, struct fdry_elf_section *s)
{
	const struct fdry_elf_shdr *h = &s->h;

	if (has_no_bytes(h->type))
		return 0;
	s->data.data = fdry_span_at(elf->image, h->offset, h->size);
	s->data.len = h->size;
	return s->data.data ? 0 : elf_bad("a section ends beyond the file");
}

/* Check the fields that are used as indices or to compute counts. */
static int section_check(const struct fdry_elf *elf, const struct fdry_elf_shdr *h)
{
	if (h->link >= elf->nsections)
		return elf_bad("a section links to no section");
	if (h->addralign & (h->addralign - 1) || h->addralign > 4096)
		return elf_bad("a section's alignment is not a small power of two");
	if (h->type != FDRY_SHT_RELA && h->type != FDRY_SHT_REL)
		return 0;
	if (h->info >= elf->nsections)
		return elf_bad("a section of relocations names no section to patch");
	if (h->entsize !=
	    (h->type == FDRY_SHT_RELA ? sizeof(struct fdry_elf_rela) : FDRY_ELF_REL_SIZE))
		return elf_bad("its relocations have an unknown size");
	if (h->size % h->entsize)
		return elf_bad("a relocation is cut off");
	if (h->size / h->entsize > FDRY_ELF_RELOCS_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"a section of the device code has more than %u relocations; split the code",
			FDRY_ELF_RELOCS_MAX);
	return 0;
}

static int sections_load(struct fdry_elf *elf)
{
	const uint8_t *table = fdry_span_at(elf->image, elf->h.shoff,
					    (uint64_t)elf->h.shnum * sizeof(struct fdry_elf_shdr));
	uint32_t i;
	int err;

	if (!table)
		return elf_bad("the section table ends beyond the file");
	elf->nsections = elf->h.shnum;
	elf->sections = calloc(elf->nsections, sizeof(*elf->sections));
	if (!elf->sections)
		return fdry_nomem();
	for (i = 0; i < elf->nsections; i++) {
		memcpy(&elf->sections[i].h, table + (size_t)i * sizeof(struct fdry_elf_shdr),
		       sizeof(struct fdry_elf_shdr));
		err = section_data(elf, &elf->sections[i]);
		if (err)
			return err;
		if (elf->sections[i].h.type != FDRY_SHT_SYMTAB)
			continue;
		if (elf->symtab)
			return elf_bad("it has two symbol tables");
		elf->symtab = i;
	}
	return 0;
}

static int sections_check(struct fdry_elf *elf)
{
	struct fdry_span names;
	uint32_t i;
	int err;

	if (!strings_of(elf->sections[elf->h.shstrndx].data, &names))
		return elf_bad("its table of section names is not a table of strings");
	for (i = 0; i < elf->nsections; i++) {
		elf->sections[i].name = i ? name_at(names, elf->sections[i].h.name) : "";
		if (!elf->sections[i].name)
			return elf_bad("a section's name has no end");
		err = section_check(elf, &elf->sections[i].h);
		if (err)
			return err;
	}
	return 0;
}

static int symbol_load(const struct fdry_elf *elf, struct fdry_span names,
		       struct fdry_elf_symbol *y)
{
	y->name = name_at(names, y->s.name);
	if (!y->name)
		return elf_bad("a symbol's name has no end");
	if (y->s.shndx >= elf->nsections && y->s.shndx < FDRY_SHN_LORESERVE)
		return elf_bad("a symbol lies in no section");
	return 0;
}

/* Symbol number 0 means no symbol. */
static bool symbol_null(const struct fdry_elf *elf)
{
	static const struct fdry_elf_sym none;

	return !elf->nsymbols || !memcmp(&elf->symbols[0].s, &none, sizeof(none));
}

static int symbols_load(struct fdry_elf *elf)
{
	const struct fdry_elf_section *tab = &elf->sections[elf->symtab];
	struct fdry_span names;
	uint32_t i;
	int err;

	if (!elf->symtab)
		return 0;
	if (!strings_of(elf->sections[tab->h.link].data, &names))
		return elf_bad("its table of symbol names is not a table of strings");
	if (tab->h.entsize != sizeof(struct fdry_elf_sym) ||
	    tab->h.size % sizeof(struct fdry_elf_sym))
		return elf_bad("its symbols have an unknown size");
	if (tab->h.size / sizeof(struct fdry_elf_sym) > FDRY_ELF_SYMBOLS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the device code has more than %u symbols; split it",
				 FDRY_ELF_SYMBOLS_MAX);
	elf->nsymbols = (uint32_t)(tab->h.size / sizeof(struct fdry_elf_sym));
	elf->symbols = calloc(elf->nsymbols + 1, sizeof(*elf->symbols));
	if (!elf->symbols)
		return fdry_nomem();
	for (i = 0; i < elf->nsymbols; i++) {
		memcpy(&elf->symbols[i].s, tab->data.data + (size_t)i * sizeof(struct fdry_elf_sym),
		       sizeof(struct fdry_elf_sym));
		err = symbol_load(elf, names, &elf->symbols[i]);
		if (err)
			return err;
	}
	return symbol_null(elf) ? 0 : elf_bad("symbol 0 is not empty");
}

static int relocs_check(const struct fdry_elf *elf)
{
	uint64_t bytes = 0;
	uint32_t i, j, n;

	for (i = 0; i < elf->nsections; i++) {
		/* Tools that process cubins leave debug relocations that link to arbitrary
		 * sections. */
		n = elf->sections[i].h.link == elf->symtab ? fdry_elf_reloc_count(elf, i) : 0;
		bytes += n ? elf->sections[i].h.size : 0;
		if (bytes > elf->image.len)
			return elf_bad("sections share their relocations");
		for (j = 0; j < n; j++)
			if (fdry_elf_reloc(elf, i, j).info >> 32 >= elf->nsymbols)
				return elf_bad("a relocation refers to no symbol");
	}
	return 0;
}

int fdry_elf_init(struct fdry_span image, struct fdry_elf *ret)
{
	struct fdry_elf elf = { .image = image };
	int err;

	if (!fdry_elf_machine(image))
		return elf_bad("no 64-bit ELF");
	memcpy(&elf.h, image.data, sizeof(elf.h));
	if (elf.h.shentsize != sizeof(struct fdry_elf_shdr) || !elf.h.shnum)
		return elf_bad("it has no section table");
	if (elf.h.shnum > FDRY_ELF_SECTIONS_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the device code has more than %u sections; split it",
				 FDRY_ELF_SECTIONS_MAX);
	if (elf.h.shstrndx >= elf.h.shnum)
		return elf_bad("it has no section names");
	err = sections_load(&elf);
	if (err)
		goto out_release;
	err = sections_check(&elf);
	if (err)
		goto out_release;
	err = symbols_load(&elf);
	if (err)
		goto out_release;
	err = relocs_check(&elf);
	if (err)
		goto out_release;
	*ret = elf;
	return 0;

out_release:
	fdry_elf_release(&elf);
	return err;
}

void fdry_elf_release(struct fdry_elf *elf)
{
	free(elf->sections);
	free(elf->symbols);
	memset(elf, 0, sizeof(*elf));
}

uint32_t fdry_elf_reloc_count(const struct fdry_elf *elf, uint32_t index)
{
	const struct fdry_elf_shdr *h = &elf->sections[index].h;

	if (h->type != FDRY_SHT_RELA && h->type != FDRY_SHT_REL)
		return 0;
	return (uint32_t)(h->size / h->entsize);
}

struct fdry_elf_rela fdry_elf_reloc(const struct fdry_elf *elf, uint32_t index, uint32_t i)
{
	const struct fdry_elf_section *s = &elf->sections[index];
	struct fdry_elf_rela r = { 0 };

	memcpy(&r, s->data.data + (size_t)i * s->h.entsize, s->h.entsize);
	return r;
}
