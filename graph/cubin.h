/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cubin.h - what a cubin holds: sections, kernels, variables, calls.
 *
 * A cubin is parsed once and read many times. The result points into its bytes, which must
 * outlive it. Content that the parser does not recognise is no error: the parser records it as
 * the reason why the cubin cannot be sliced (@unsliceable). The rules for each section are in
 * Documentation/format/kernel-object.rst.
 *
 * Locking: read-only after fdry_cubin_new(); any thread may read.
 */
#ifndef FDRY_GRAPH_CUBIN_H
#define FDRY_GRAPH_CUBIN_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"
#include "graph/elf.h"
#include "graph/kernel.h"

/* Kinds of sections, by what the slicer does with them. */
enum fdry_section_kind {
	FDRY_SECTION_NULL,
	FDRY_SECTION_NAMES,  /* .shstrtab, .strtab: rewritten */
	FDRY_SECTION_SYMTAB, /* rewritten */
	FDRY_SECTION_DEBUG,  /* dropped */
	FDRY_SECTION_MODULE, /* copied: notes, compatibility, relocation actions, reserved shared
				memory */
	FDRY_SECTION_INFO,   /* .nv.info: records about functions */
	FDRY_SECTION_CALLGRAPH,
	FDRY_SECTION_PROTOTYPE,
	FDRY_SECTION_RELOC,
	FDRY_SECTION_DATA,	 /* variables: .nv.global, .nv.global.init, .nv.constantN */
	FDRY_SECTION_TEXT,	 /* .text.K: one function, or a kernel and its own functions */
	FDRY_SECTION_OWNED,	 /* .nv.constantN.K, .nv.shared.K, .nv.local.K: kept or dropped with
				    .text.K */
	FDRY_SECTION_OWNED_INFO, /* .nv.info.K */
	FDRY_SECTION_UNKNOWN,	 /* anything else */
};

struct fdry_cubin_section {
	enum fdry_section_kind kind;
	uint32_t owner; /* TEXT, OWNED*: index of the code section; RELOC: of the section that it
			   patches */
	int bank;       /* constant bank of a DATA section, or -1 */
	/* Chains of section indices, each ended by 0, in ascending order. */
	uint32_t owned, next_owned; /* the sections of a TEXT */
	uint32_t relocs, next_reloc; /* the relocations of a TEXT, OWNED or DATA */
};

struct fdry_cubin_kernel {
	const char *name;
	uint32_t symbol;
	uint32_t section;     /* its code */
	uint32_t param_bytes;
	uint32_t nparams;
	struct fdry_param *params; /* by ordinal */
};

/* A variable of the module. */
struct fdry_cubin_variable {
	const char *name;
	uint32_t symbol;
	uint32_t section;
	uint64_t offset;  /* in its section */
	uint64_t size;
	bool constant;    /* in a constant bank: no device code can write it */
	bool literal;     /* a string, or a table of the compiler's library: never written */
	bool unique;      /* no other variable has this name */
};

struct fdry_cubin {
	struct fdry_elf elf;
	unsigned int arch;   /* 10 * major + minor; 0: the header does not have it */
	struct fdry_cubin_section *sections;
	struct fdry_cubin_kernel *kernels; /* in order of their symbols */
	uint32_t nkernels;
	struct fdry_cubin_variable *variables; /* by section, offset, symbol */
	uint32_t nvariables;
	uint32_t info, callgraph, prototype; /* section indices; 0: none */
	char unsliceable[200]; /* why the cubin cannot be sliced; "" if it can */
};

/* @image: the cubin; must outlive @ret. Errors: FDRY_E_BADCODE (malformed), FDRY_E_LIMIT,
 * FDRY_E_NOMEM. */
int fdry_cubin_new(struct fdry_span image, struct fdry_cubin **ret) __must_check;
void fdry_cubin_free(struct fdry_cubin *c);

/* The kernel of that name; NULL if there is none, or the name occurs twice. */
const struct fdry_cubin_kernel *fdry_cubin_kernel_find(const struct fdry_cubin *c,
						       const char *name);

/* The index of the variable that is symbol @symbol; UINT32_MAX if the symbol is no variable. */
uint32_t fdry_cubin_variable_of(const struct fdry_cubin *c, uint32_t symbol);

/* A variable's initial bytes; data is NULL if the file holds none, which means zeros. */
struct fdry_span fdry_cubin_initial(const struct fdry_cubin *c,
				    const struct fdry_cubin_variable *v);

/* Relocations by which the driver fills in an address of 64 bits. */
enum { FDRY_R_CUDA_64 = 2, FDRY_R_CUDA_G64 = 4 };

/* Whether a relocation of data fills in the address of a function. Other relocations fill in a
 * number in the place of the address. */
bool fdry_cubin_function_word(const struct fdry_cubin *c, const struct fdry_elf_rela *r);

/* The symbol of the function in code section @section, or 0. cuBLAS rewrites cubins in memory
 * without updating the number in sh_info, so all symbols are searched if that number is wrong. */
uint32_t fdry_cubin_function(const struct fdry_cubin *c, uint32_t section);

#define FDRY_CUBIN_SYMBOL_BITS \
	0xffffffu /* of a code section's sh_info; the bits above are the number of registers */

/* The section that holds code or data, or 0. */
static inline uint32_t fdry_cubin_symbol_section(const struct fdry_cubin *c, uint32_t symbol)
{
	uint32_t at = c->elf.symbols[symbol].s.shndx;

	return at < FDRY_SHN_LORESERVE ? at : 0;
}

/* Whether a symbol is for shared memory that the driver reserves. Such a symbol is undefined, and
 * slices always keep it. */
static inline bool fdry_cubin_symbol_reserved(const char *name)
{
	return !strncmp(name, ".nv.reservedSmem.", sizeof(".nv.reservedSmem.") - 1);
}

/* One record of .nv.info or .nv.info.K. */
struct fdry_cubin_attr {
	uint8_t format;
	uint8_t id;
	uint16_t value;         /* the value, if the format has no payload */
	struct fdry_span data;  /* the payload of all other formats */
};
enum {
	FDRY_EIFMT_NONE = 1,
	FDRY_EIFMT_BYTE = 2,
	FDRY_EIFMT_HALF = 3,
	FDRY_EIFMT_SIZED = 4, /* has a payload */

	FDRY_EIATTR_PARAM_CBANK = 0x0a,
	FDRY_EIATTR_EXTERNS = 0x0f,
	FDRY_EIATTR_FRAME_SIZE = 0x11,
	FDRY_EIATTR_MIN_STACK_SIZE = 0x12,
	FDRY_EIATTR_KPARAM_INFO = 0x17,
	FDRY_EIATTR_CBANK_PARAM_SIZE = 0x19,
	FDRY_EIATTR_NEED_CNP_WRAPPER = 0x1f,
	FDRY_EIATTR_NEED_CNP_PATCH = 0x20,
	FDRY_EIATTR_MAX_STACK_SIZE = 0x23,
	FDRY_EIATTR_REGCOUNT = 0x2f,
	FDRY_EIATTR_KPARAM_INFO_V2 = 0x45,
	FDRY_EIATTR_SHADER_TYPE = 0x49,
};

/* The words of a record's payload that are symbol indices. */
enum fdry_attr_symbols {
	FDRY_ATTR_PLAIN, /* none */
	FDRY_ATTR_FIRST, /* the first */
	FDRY_ATTR_ALL,   /* every one */
	FDRY_ATTR_UNKNOWN, /* not known */
};
enum fdry_attr_symbols fdry_cubin_attr_symbols(const struct fdry_cubin_attr *a);
/*
 * The number of bytes at the beginning of a record's payload that are symbol indices of four bytes.
 */
uint64_t fdry_cubin_attr_words(const struct fdry_cubin_attr *a);
/* The symbol at byte @i of those bytes; UINT32_MAX if the number there is no symbol. @text: the
 * code that the record describes, or 0. cuBLAS also leaves outdated numbers of parameter banks.
 * Such a number counts as the parameter bank of that code. */
uint32_t fdry_cubin_attr_symbol(const struct fdry_cubin *c, uint32_t text,
				const struct fdry_cubin_attr *a, uint64_t i);

/*
 * Read the record at *@pos of an info section, and move *@pos after it. Returns 1, 0 at the end, or
 * -FDRY_E_BADCODE.
 */
int fdry_cubin_attr_next(struct fdry_span info, uint64_t *pos,
			 struct fdry_cubin_attr *ret) __must_check;

/* The call graph of a cubin is a list of pairs in four parts. Each part begins with the pair (0,
 * -part). */
enum fdry_call {
	FDRY_CALL_DIRECT = 1,   /* caller, callee */
	FDRY_CALL_TAKEN = 2,    /* function whose address is used, its prototype */
	FDRY_CALL_POINTER = 3,  /* caller through a pointer, prototype */
	FDRY_CALL_RESOLVED = 4, /* caller, callee of a call through a pointer */
};
struct fdry_cubin_call {
	enum fdry_call part;
	bool mark;       /* the pair that begins the part */
	uint32_t from;   /* symbol */
	uint32_t to;     /* symbol, or offset of the prototype in .strtab */
};
uint32_t fdry_cubin_call_count(const struct fdry_cubin *c);
/* Pair @i; callers must count @i up from 0. *@part holds state between calls and starts at 0. */
int fdry_cubin_call_get(const struct fdry_cubin *c, uint32_t i, uint32_t *part,
			struct fdry_cubin_call *ret) __must_check;

#endif
