/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cubin.h - what a cubin holds: kernels, functions, variables, and who reaches what.
 *
 * A cubin is parsed once and read many times; everything here points into its bytes,
 * which must outlive it. What the parser does not recognise is not an error: it is kept
 * as a reason why nothing may be sliced out (@unsliceable). The rules, section by section, are in
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

/* What a section is to a slicer. */
enum fdry_section_kind {
	FDRY_SECTION_NULL,
	FDRY_SECTION_NAMES,     /* .shstrtab, .strtab: written anew */
	FDRY_SECTION_SYMTAB,    /* written anew */
	FDRY_SECTION_DEBUG,     /* dropped */
	FDRY_SECTION_MODULE,    /* copied: notes, compatibility, relocation actions, reserved shared memory */
	FDRY_SECTION_INFO,      /* .nv.info: records about functions */
	FDRY_SECTION_CALLGRAPH,
	FDRY_SECTION_PROTOTYPE,
	FDRY_SECTION_RELOC,
	FDRY_SECTION_DATA,      /* variables: .nv.global, .nv.global.init, .nv.constantN */
	FDRY_SECTION_TEXT,      /* .text.K: one function, or a kernel and its own functions */
	FDRY_SECTION_OWNED,     /* .nv.constantN.K, .nv.shared.K, .nv.local.K: go with .text.K */
	FDRY_SECTION_OWNED_INFO, /* .nv.info.K */
	FDRY_SECTION_UNKNOWN,       /* anything else */
};

struct fdry_cubin_section {
	enum fdry_section_kind kind;
	uint32_t owner; /* TEXT, OWNED*: index of the code section; RELOC: of the section that it patches */
	int bank;       /* constant bank of DATA, or -1 */
	/* Chains of section indices, each ended by 0, in ascending order. */
	uint32_t owned, next_owned; /* a TEXT's sections */
	uint32_t relocs, next_reloc; /* what patches a TEXT, OWNED or DATA */
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
	bool literal;     /* made by the compiler for a string or a table of its library: never written */
	bool unique;      /* no other variable has this name */
};

struct fdry_cubin {
	struct fdry_elf elf;
	unsigned int arch;   /* 10 * major + minor; 0 where the header does not say */
	struct fdry_cubin_section *sections;
	struct fdry_cubin_kernel *kernels; /* in order of their symbols */
	uint32_t nkernels;
	struct fdry_cubin_variable *variables; /* by section, offset, symbol */
	uint32_t nvariables;
	uint32_t info, callgraph, prototype; /* section indices; 0: none */
	char unsliceable[200];       /* why nothing may be sliced out; "" where it may */
};

/* @image: the cubin; must outlive @ret. Errors: FDRY_E_BADCODE (malformed), FDRY_E_LIMIT, FDRY_E_NOMEM. */
int fdry_cubin_new(struct fdry_span image, struct fdry_cubin **ret) __must_check;
void fdry_cubin_free(struct fdry_cubin *c);

/* The kernel of that name; NULL where there is none or the name occurs twice. */
const struct fdry_cubin_kernel *fdry_cubin_kernel_find(const struct fdry_cubin *c, const char *name);

/* The index of the variable that is symbol @symbol; UINT32_MAX where that is none. */
uint32_t fdry_cubin_variable_of(const struct fdry_cubin *c, uint32_t symbol);

/* A variable's initial bytes; zeroes (@ret->data NULL) where the file holds none. */
struct fdry_span fdry_cubin_initial(const struct fdry_cubin *c, const struct fdry_cubin_variable *v);

/* The symbol of the function that code section @section is made of, or 0. cuBLAS rewrites cubins in memory and leaves
 * the number in sh_info as it was, so that is asked only first. */
uint32_t fdry_cubin_function(const struct fdry_cubin *c, uint32_t section);
/* The symbol that stands for section @section, or 0. */
uint32_t fdry_cubin_section_symbol(const struct fdry_cubin *c, uint32_t section);

#define FDRY_CUBIN_SYMBOL_BITS 0xffffffu /* of a code section's sh_info; the number of registers lies above */

/* The section that holds code or data, or 0. */
static inline uint32_t fdry_cubin_symbol_section(const struct fdry_cubin *c, uint32_t symbol)
{
	uint32_t at = c->elf.symbols[symbol].s.shndx;

	return at < FDRY_SHN_LORESERVE ? at : 0;
}

/* Symbols for shared memory that the driver reserves: undefined, and always kept. */
static inline bool fdry_cubin_symbol_reserved(const char *name)
{
	return !strncmp(name, ".nv.reservedSmem.", sizeof(".nv.reservedSmem.") - 1);
}

/* One record of .nv.info or .nv.info.K. */
struct fdry_cubin_attr {
	uint8_t format;
	uint8_t id;
	uint16_t value;         /* of formats without a payload */
	struct fdry_span data;  /* of those with one */
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

/* Which words of a record's payload are symbol indices. */
enum fdry_attr_symbols {
	FDRY_ATTR_PLAIN, /* none */
	FDRY_ATTR_FIRST, /* the first */
	FDRY_ATTR_ALL,   /* every one */
	FDRY_ATTR_UNKNOWN,   /* not known */
};
enum fdry_attr_symbols fdry_cubin_attr_symbols(const struct fdry_cubin_attr *a);
/* Bytes at the beginning of a record's payload that are symbol indices, of four bytes each. */
uint64_t fdry_cubin_attr_words(const struct fdry_cubin_attr *a);
/* The symbol at byte @i of them. @text: the code that the record is about, or 0. A parameter bank whose number is
 * no longer its symbol's (cuBLAS again) is taken for the code's own. UINT32_MAX where it is no symbol. */
uint32_t fdry_cubin_attr_symbol(const struct fdry_cubin *c, uint32_t text, const struct fdry_cubin_attr *a, uint64_t i);

/* The record at *@pos of an info section, *@pos moved behind it; 1, 0 at the end, -FDRY_E_BADCODE. */
int fdry_cubin_attr_next(struct fdry_span info, uint64_t *pos, struct fdry_cubin_attr *ret) __must_check;

/* The call graph: pairs in four parts, each begun by a pair (0, -part). */
enum fdry_call {
	FDRY_CALL_DIRECT = 1,   /* caller, callee */
	FDRY_CALL_TAKEN = 2,    /* function whose address is taken, its prototype */
	FDRY_CALL_POINTER = 3,  /* caller through a pointer, prototype */
	FDRY_CALL_RESOLVED = 4, /* caller, callee of such a call */
};
struct fdry_cubin_call {
	enum fdry_call part;
	bool mark;       /* the pair that begins the part */
	uint32_t from;   /* symbol */
	uint32_t to;     /* symbol, or offset of the prototype in .strtab */
};
uint32_t fdry_cubin_call_count(const struct fdry_cubin *c);
/* Pair @i, for @i that counts up from 0; *@part is the caller's memory between calls, 0 to start. */
int fdry_cubin_call_get(const struct fdry_cubin *c, uint32_t i, uint32_t *part, struct fdry_cubin_call *ret) __must_check;

#endif
