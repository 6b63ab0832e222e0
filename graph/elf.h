/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf.h - the ELF files of device code: on-disk structs and checked access.
 *
 * fdry_elf_init() checks names, sections and symbols once. After that, every index, name and
 * byte range in struct fdry_elf lies inside the file. The view points into the bytes, which must
 * outlive it. <elf.h> is not used, since CUDA differs from it in many constants.
 */
#ifndef FDRY_GRAPH_ELF_H
#define FDRY_GRAPH_ELF_H

#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

#define FDRY_ELF_SECTIONS_MAX 65000u    /* below the reserved section indices */
#define FDRY_ELF_SYMBOLS_MAX (1u << 24) /* symbol indices have 24 bits in the sh_info of code */
#define FDRY_ELF_RELOCS_MAX (1u << 24)  /* of one section */

enum {
	FDRY_ET_REL = 1,
	FDRY_ET_EXEC = 2,
	FDRY_ET_DYN = 3,
	FDRY_EM_CUDA = 190,

	FDRY_SHT_NULL = 0,
	FDRY_SHT_PROGBITS = 1,
	FDRY_SHT_SYMTAB = 2,
	FDRY_SHT_STRTAB = 3,
	FDRY_SHT_RELA = 4,
	FDRY_SHT_NOTE = 7,
	FDRY_SHT_NOBITS = 8,
	FDRY_SHT_REL = 9,
	FDRY_SHT_CUDA_INFO = 0x70000000,
	FDRY_SHT_CUDA_CALLGRAPH = 0x70000001,
	FDRY_SHT_CUDA_PROTOTYPE = 0x70000002,
	FDRY_SHT_CUDA_REL_ACTION = 0x7000000b,
	FDRY_SHT_CUDA_COMPAT = 0x70000086,

	FDRY_SHF_INFO_LINK = 0x40,

	FDRY_STT_NOTYPE = 0,
	FDRY_STT_OBJECT = 1,
	FDRY_STT_FUNC = 2,
	FDRY_STT_SECTION = 3,
	FDRY_STT_CUDA_TEXTURE = 10, /* a texture reference; then of a sampler, and a surface */
	FDRY_STT_CUDA_SURFACE = 12,
	FDRY_STB_LOCAL = 0,
	FDRY_STO_ENTRY = 0x10, /* st_other of a kernel */

	FDRY_SHN_UNDEF = 0,
	FDRY_SHN_LORESERVE = 0xff00,
};

struct fdry_elf_ehdr {
	uint8_t ident[16];
	uint16_t type;
	uint16_t machine;
	uint32_t version;
	uint64_t entry;
	uint64_t phoff;
	uint64_t shoff;
	uint32_t flags;
	uint16_t ehsize;
	uint16_t phentsize;
	uint16_t phnum;
	uint16_t shentsize;
	uint16_t shnum;
	uint16_t shstrndx;
};
_Static_assert(sizeof(struct fdry_elf_ehdr) == 64, "as on disk");

struct fdry_elf_shdr {
	uint32_t name;
	uint32_t type;
	uint64_t flags;
	uint64_t addr;
	uint64_t offset;
	uint64_t size;
	uint32_t link;
	uint32_t info;
	uint64_t addralign;
	uint64_t entsize;
};
_Static_assert(sizeof(struct fdry_elf_shdr) == 64, "as on disk");

struct fdry_elf_sym {
	uint32_t name;
	uint8_t info; /* binding << 4 | type */
	uint8_t other;
	uint16_t shndx;
	uint64_t value;
	uint64_t size;
};
_Static_assert(sizeof(struct fdry_elf_sym) == 24, "as on disk");

struct fdry_elf_rela {
	uint64_t offset;
	uint64_t info; /* symbol << 32 | type */
	int64_t addend; /* SHT_REL has none */
};
_Static_assert(sizeof(struct fdry_elf_rela) == 24, "as on disk");
#define FDRY_ELF_REL_SIZE 16u

struct fdry_elf_section {
	const char *name;
	struct fdry_elf_shdr h;
	struct fdry_span data; /* empty for SHT_NOBITS */
};

struct fdry_elf_symbol {
	const char *name;
	struct fdry_elf_sym s; /* s.shndx is a section of the file, or reserved */
};

struct fdry_elf {
	struct fdry_span image;
	struct fdry_elf_ehdr h;
	struct fdry_elf_section *sections;
	uint32_t nsections;
	uint32_t symtab; /* section index of the symbol table; 0: none */
	struct fdry_elf_symbol *symbols;
	uint32_t nsymbols;
};

static inline unsigned int fdry_elf_sym_type(const struct fdry_elf_sym *s)
{
	return s->info & 15;
}

static inline unsigned int fdry_elf_sym_bind(const struct fdry_elf_sym *s)
{
	return s->info >> 4;
}

/* The machine of a 64-bit little-endian ELF; 0 if @image is none. */
uint16_t fdry_elf_machine(struct fdry_span image);

/**
 * fdry_elf_init() - Check an ELF and index its sections and symbols.
 * @image: the file; must outlive @ret
 *
 * Sections may overlap, because sections without relocations may share bytes. The function refuses
 * sections that end beyond the file, names without an end, and symbols of no section.
 * Errors: FDRY_E_BADCODE, FDRY_E_LIMIT, FDRY_E_NOMEM.
 */
int fdry_elf_init(struct fdry_span image, struct fdry_elf *ret) __must_check;
void fdry_elf_release(struct fdry_elf *elf);

/* The number of relocations in section @index, and its relocation @i. The addend is 0 if the
 * section is SHT_REL. fdry_elf_reloc() needs a section of type SHT_RELA or SHT_REL. */
uint32_t fdry_elf_reloc_count(const struct fdry_elf *elf, uint32_t index);
struct fdry_elf_rela fdry_elf_reloc(const struct fdry_elf *elf, uint32_t index, uint32_t i);

#endif
