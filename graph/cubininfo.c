// SPDX-License-Identifier: Apache-2.0
/*
 * cubininfo.c - look-ups in a cubin, the records of .nv.info, the pairs of .nv.callgraph;
 * see cubin.h.
 *
 * Symbols have other indices in a slice. To copy a record into a slice, the slicer must know which
 * words of its payload are symbol indices. The two lists below hold that.
 */
#include "graph/cubin.h"
#include "lib/search.h"

/* Attributes with a payload, and the symbols in it. All others are FDRY_ATTR_UNKNOWN. */
static const uint8_t sized[256] = {
	[FDRY_EIATTR_PARAM_CBANK] = FDRY_ATTR_FIRST + 1,
	[FDRY_EIATTR_EXTERNS] = FDRY_ATTR_ALL + 1,
	[FDRY_EIATTR_FRAME_SIZE] = FDRY_ATTR_FIRST + 1,
	[FDRY_EIATTR_MIN_STACK_SIZE] = FDRY_ATTR_FIRST + 1,
	[FDRY_EIATTR_MAX_STACK_SIZE] = FDRY_ATTR_FIRST + 1,
	[FDRY_EIATTR_REGCOUNT] = FDRY_ATTR_FIRST + 1,
	[FDRY_EIATTR_SHADER_TYPE] = FDRY_ATTR_FIRST + 1,
	/* The payloads of these have no symbols. They are numbers, offsets of instructions in the
	 * function's own code, or register numbers. */
	[0x05] = FDRY_ATTR_PLAIN + 1, /* most threads */
	[0x10] = FDRY_ATTR_PLAIN + 1, /* required threads */
	[FDRY_EIATTR_KPARAM_INFO] = FDRY_ATTR_PLAIN + 1,
	[0x1c] = FDRY_ATTR_PLAIN + 1, /* exits */
	[0x1d] = FDRY_ATTR_PLAIN + 1, /* reads of the block's index */
	[0x1e] = FDRY_ATTR_PLAIN + 1, /* call stack */
	[0x25] = FDRY_ATTR_PLAIN + 1, /* loads with cache modifiers */
	[0x26] = FDRY_ATTR_PLAIN + 1, /* cache preference */
	[0x27] = FDRY_ATTR_PLAIN + 1, /* system-wide atomics */
	[0x28] = FDRY_ATTR_PLAIN + 1, /* cooperative groups */
	[0x29] = FDRY_ATTR_PLAIN + 1, /* their mask registers */
	[0x2d] = FDRY_ATTR_PLAIN + 1, /* emulated atomics */
	[0x2e] = FDRY_ATTR_PLAIN + 1, /* their registers */
	[0x31] = FDRY_ATTR_PLAIN + 1, /* warp-wide integer instructions */
	[0x34] = FDRY_ATTR_PLAIN + 1, /* indirect branches and their targets */
	[0x36] = FDRY_ATTR_PLAIN + 1, /* workarounds */
	[0x37] = FDRY_ATTR_PLAIN + 1, /* version of the toolkit's interface */
	[0x39] = FDRY_ATTR_PLAIN + 1, /* barriers in memory */
	[0x3d] = FDRY_ATTR_PLAIN + 1, /* blocks of a cluster */
	[0x3f] = FDRY_ATTR_PLAIN + 1, /* most blocks of a cluster */
	[0x44] = FDRY_ATTR_PLAIN + 1, /* bytes that loads do not use */
	[FDRY_EIATTR_KPARAM_INFO_V2] = FDRY_ATTR_PLAIN + 1,
	[0x46] = FDRY_ATTR_PLAIN + 1, /* calls into the driver's code */
	[0x47] = FDRY_ATTR_PLAIN + 1, /* workarounds of barriers */
	[0x55] = FDRY_ATTR_PLAIN + 1, /* annotated instructions */
	[0x57] = FDRY_ATTR_PLAIN + 1, /* stack canaries */
	[0x59] = FDRY_ATTR_PLAIN + 1, /* asynchronous stores */
	[0x66] = FDRY_ATTR_PLAIN + 1, /* source language: 3 wherever seen */
};

/* Attributes of 16 bits that are numbers. */
static const uint8_t halves[256] = {
	[FDRY_EIATTR_CBANK_PARAM_SIZE] = 1,
	[0x1b] = 1, /* most registers */
	[0x38] = 1, /* barriers in memory */
	[0x50] = 1, /* sparse matrix operands */
	[0x5f] = 1, /* version of the instruction set */
	[0x68] = 1, /* flags: 4 or 12 wherever seen */
	[0x6b] = 1, /* flag: 1 wherever seen */
};

enum fdry_attr_symbols fdry_cubin_attr_symbols(const struct fdry_cubin_attr *a)
{
	if (a->format == FDRY_EIFMT_HALF)
		return halves[a->id] ? FDRY_ATTR_PLAIN : FDRY_ATTR_UNKNOWN;
	if (a->format != FDRY_EIFMT_SIZED)
		return FDRY_ATTR_PLAIN;
	if (!sized[a->id] ||
	    (sized[a->id] != FDRY_ATTR_PLAIN + 1 && (a->data.len < 4 || a->data.len % 4)))
		return FDRY_ATTR_UNKNOWN;
	return (enum fdry_attr_symbols)(sized[a->id] - 1);
}

uint64_t fdry_cubin_attr_words(const struct fdry_cubin_attr *a)
{
	enum fdry_attr_symbols which = fdry_cubin_attr_symbols(a);

	return which == FDRY_ATTR_ALL ? a->data.len : which == FDRY_ATTR_FIRST ? 4 : 0;
}

/* .nv.constant0.K, which holds the parameters of K. */
static uint32_t parameter_bank(const struct fdry_cubin *c, uint32_t text)
{
	static const char prefix[] = ".nv.constant0.";
	uint32_t i;

	for (i = c->sections[text].owned; i; i = c->sections[i].next_owned)
		if (!strncmp(c->elf.sections[i].name, prefix, sizeof(prefix) - 1))
			return i;
	return 0;
}

/* The section symbol of section @section, or 0. */
static uint32_t section_symbol(const struct fdry_cubin *c, uint32_t section)
{
	uint32_t i;

	for (i = 1; i < c->elf.nsymbols; i++)
		if (fdry_elf_sym_type(&c->elf.symbols[i].s) == FDRY_STT_SECTION &&
		    fdry_cubin_symbol_section(c, i) == section)
			return i;
	return 0;
}

uint32_t fdry_cubin_attr_symbol(const struct fdry_cubin *c, uint32_t text,
				const struct fdry_cubin_attr *a, uint64_t i)
{
	uint32_t symbol = fdry_get32(a->data.data + i), at, bank;

	at = symbol < c->elf.nsymbols ? fdry_cubin_symbol_section(c, symbol) : 0;
	if (text && a->id == FDRY_EIATTR_PARAM_CBANK && (!at || c->sections[at].owner != text)) {
		bank = parameter_bank(c, text);
		symbol = bank ? section_symbol(c, bank) : UINT32_MAX;
	}
	return symbol < c->elf.nsymbols ? symbol : UINT32_MAX;
}

int fdry_cubin_attr_next(struct fdry_span info, uint64_t *pos, struct fdry_cubin_attr *ret)
{
	const uint8_t *p = fdry_span_at(info, *pos, 4);

	if (*pos == info.len)
		return 0;
	if (!p || p[0] < FDRY_EIFMT_NONE || p[0] > FDRY_EIFMT_SIZED)
		return fdry_fail(
			FDRY_E_BADCODE,
			"malformed cubin: an info record has an unknown form; rebuild the library");
	ret->format = p[0];
	ret->id = p[1];
	ret->value = fdry_get16(p + 2);
	ret->data.len = p[0] == FDRY_EIFMT_SIZED ? ret->value : 0;
	ret->data.data = fdry_span_at(info, *pos + 4, ret->data.len);
	if (!ret->data.data)
		return fdry_fail(FDRY_E_BADCODE, "malformed cubin: an info record ends beyond its "
						 "section; rebuild the library");
	*pos += 4 + ret->data.len;
	return 1;
}

uint32_t fdry_cubin_call_count(const struct fdry_cubin *c)
{
	size_t len = c->callgraph ? c->elf.sections[c->callgraph].data.len : 0;

	return len / 8 > UINT32_MAX ? UINT32_MAX : (uint32_t)(len / 8);
}

int fdry_cubin_call_get(const struct fdry_cubin *c, uint32_t i, uint32_t *part,
			struct fdry_cubin_call *ret)
{
	const uint8_t *p = fdry_span_at(c->elf.sections[c->callgraph].data, 8ull * i, 8);
	bool symbol;

	if (!p)
		return fdry_bug("no pair %u in the call graph", i);
	ret->from = fdry_get32(p);
	ret->to = fdry_get32(p + 4);
	ret->mark = !ret->from && -ret->to >= FDRY_CALL_DIRECT && -ret->to <= FDRY_CALL_RESOLVED;
	if (ret->mark)
		*part = -ret->to;
	ret->part = (enum fdry_call)*part;
	if (ret->mark)
		return 0;
	symbol = *part == FDRY_CALL_DIRECT || *part == FDRY_CALL_RESOLVED;
	if (!*part || ret->from >= c->elf.nsymbols || (symbol && ret->to >= c->elf.nsymbols))
		return fdry_fail(
			FDRY_E_BADCODE,
			"malformed cubin: a call has no caller or callee; rebuild the library");
	return 0;
}

/* --- look-ups --- */

const struct fdry_cubin_kernel *fdry_cubin_kernel_find(const struct fdry_cubin *c, const char *name)
{
	const struct fdry_cubin_kernel *found = NULL;
	uint32_t i;

	for (i = 0; i < c->nkernels; i++) {
		if (strcmp(c->kernels[i].name, name))
			continue;
		if (found)
			return NULL;
		found = &c->kernels[i];
	}
	return found;
}

struct fdry_span fdry_cubin_initial(const struct fdry_cubin *c, const struct fdry_cubin_variable *v)
{
	struct fdry_span bytes = { NULL, v->size };

	if (c->elf.sections[v->section].data.data)
		bytes.data = c->elf.sections[v->section].data.data + v->offset;
	return bytes;
}

uint32_t fdry_cubin_function(const struct fdry_cubin *c, uint32_t section)
{
	uint32_t i = c->elf.sections[section].h.info & FDRY_CUBIN_SYMBOL_BITS, found = 0;
	const struct fdry_elf_sym *s;

	if (i < c->elf.nsymbols && fdry_cubin_symbol_section(c, i) == section)
		return i;
	for (i = c->elf.nsymbols; i-- > 1;) {
		s = &c->elf.symbols[i].s;
		if (fdry_elf_sym_type(s) == FDRY_STT_FUNC && !s->value &&
		    fdry_cubin_symbol_section(c, i) == section &&
		    (!found || s->other & FDRY_STO_ENTRY))
			found = i;
	}
	return found;
}

/* Variables are sorted by section, offset and symbol. */
static bool lies_before(const struct fdry_cubin_variable *v, uint32_t section, uint64_t offset,
			uint32_t symbol)
{
	if (v->section != section)
		return v->section < section;
	return v->offset != offset ? v->offset < offset : v->symbol < symbol;
}

bool fdry_cubin_function_word(const struct fdry_cubin *c, const struct fdry_elf_rela *r)
{
	uint32_t symbol = (uint32_t)(r->info >> 32), at = fdry_cubin_symbol_section(c, symbol);

	return (uint32_t)r->info == FDRY_R_CUDA_64 && !r->addend && at &&
	       c->sections[at].kind == FDRY_SECTION_TEXT &&
	       fdry_elf_sym_type(&c->elf.symbols[symbol].s) == FDRY_STT_FUNC;
}

uint32_t fdry_cubin_variable_of(const struct fdry_cubin *c, uint32_t symbol)
{
	uint32_t section = fdry_cubin_symbol_section(c, symbol);
	uint64_t offset = c->elf.symbols[symbol].s.value;
	size_t lo = fdry_lower_bound(i, c->nvariables,
				     lies_before(&c->variables[i], section, offset, symbol));
	return lo < c->nvariables && c->variables[lo].symbol == symbol ? (uint32_t)lo : UINT32_MAX;
}
