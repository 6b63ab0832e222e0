// SPDX-License-Identifier: Apache-2.0
/*
 * cubin.c - what a cubin holds; see cubin.h.
 *
 * One table maps a section's name and type to its kind. A section that the table does not have
 * makes the cubin unsliceable; that is no error. The sh_info of a function's sections is the index
 * of its code section; their names must agree with it.
 */
#include "graph/cubin.h"

#include <stdio.h>
#include <stdlib.h>

struct rule {
	const char *name;
	bool prefix; /* @name is the beginning of the name */
	uint32_t type;
	enum fdry_section_kind kind;
};

#define ANY_TYPE 0xffffffffu

static const struct rule rules[] = {
	{ ".shstrtab", false, FDRY_SHT_STRTAB, FDRY_SECTION_NAMES },
	{ ".strtab", false, FDRY_SHT_STRTAB, FDRY_SECTION_NAMES },
	{ ".symtab", false, FDRY_SHT_SYMTAB, FDRY_SECTION_SYMTAB },
	{ ".debug_", true, ANY_TYPE, FDRY_SECTION_DEBUG },
	{ ".nv_debug", true, ANY_TYPE, FDRY_SECTION_DEBUG },
	{ ".nv.debug", true, ANY_TYPE, FDRY_SECTION_DEBUG },
	{ ".rela.debug_", true, FDRY_SHT_RELA, FDRY_SECTION_DEBUG },
	{ ".rel.debug_", true, FDRY_SHT_REL, FDRY_SECTION_DEBUG },
	{ ".rela.nv_debug", true, FDRY_SHT_RELA, FDRY_SECTION_DEBUG },
	{ ".rel.nv_debug", true, FDRY_SHT_REL, FDRY_SECTION_DEBUG },
	{ ".note.nv.", true, FDRY_SHT_NOTE, FDRY_SECTION_MODULE },
	{ ".nv.compat", false, FDRY_SHT_CUDA_COMPAT, FDRY_SECTION_MODULE },
	{ ".nv.rel.action", false, FDRY_SHT_CUDA_REL_ACTION, FDRY_SECTION_MODULE },
	{ ".nv.shared.reserved.", true, FDRY_SHT_NOBITS, FDRY_SECTION_MODULE },
	{ ".nv.info", false, FDRY_SHT_CUDA_INFO, FDRY_SECTION_INFO },
	{ ".nv.info.", true, FDRY_SHT_CUDA_INFO, FDRY_SECTION_OWNED_INFO },
	{ ".nv.callgraph", false, FDRY_SHT_CUDA_CALLGRAPH, FDRY_SECTION_CALLGRAPH },
	{ ".nv.prototype", false, FDRY_SHT_CUDA_PROTOTYPE, FDRY_SECTION_PROTOTYPE },
	{ ".rela.", true, FDRY_SHT_RELA, FDRY_SECTION_RELOC },
	{ ".rel.", true, FDRY_SHT_REL, FDRY_SECTION_RELOC },
	{ ".nv.global", false, FDRY_SHT_NOBITS, FDRY_SECTION_DATA },
	{ ".nv.global.init", false, FDRY_SHT_PROGBITS, FDRY_SECTION_DATA },
	{ ".text.", true, FDRY_SHT_PROGBITS, FDRY_SECTION_TEXT },
	{ ".nv.shared.", true, FDRY_SHT_NOBITS, FDRY_SECTION_OWNED },
	{ ".nv.local.", true, FDRY_SHT_NOBITS, FDRY_SECTION_OWNED },
};

#define CONSTANT ".nv.constant"

static bool starts(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

static int cubin_bad(const char *what)
{
	return fdry_fail(FDRY_E_BADCODE, "malformed cubin: %s; rebuild the library it came from",
			 what);
}

static void unsliceable(struct fdry_cubin *c, const char *what, const char *name)
{
	if (!c->unsliceable[0])
		snprintf(c->unsliceable, sizeof(c->unsliceable), what, name);
}

/* ".nv.constant3" belongs to the module, ".nv.constant2.K" to function K. */
static enum fdry_section_kind constant_kind(const struct fdry_elf_section *s, int *bank)
{
	const char *p = s->name + strlen(CONSTANT);
	int nr = 0, digits;

	for (digits = 0; digits < 2 && *p >= '0' && *p <= '9'; digits++)
		nr = nr * 10 + *p++ - '0';
	if (!digits || s->h.type != FDRY_SHT_PROGBITS || (*p && *p != '.'))
		return FDRY_SECTION_UNKNOWN;
	if (*p == '.')
		return FDRY_SECTION_OWNED;
	*bank = nr;
	return FDRY_SECTION_DATA;
}

static enum fdry_section_kind section_kind(const struct fdry_elf_section *s, int *bank)
{
	const struct rule *r;

	*bank = -1;
	if (s->h.type == FDRY_SHT_NULL)
		return FDRY_SECTION_NULL;
	if (starts(s->name, CONSTANT))
		return constant_kind(s, bank);
	for (r = rules; r < rules + sizeof(rules) / sizeof(rules[0]); r++)
		if ((r->prefix ? starts(s->name, r->name) : !strcmp(s->name, r->name)) &&
		    (r->type == ANY_TYPE || r->type == s->h.type))
			return r->kind;
	return FDRY_SECTION_UNKNOWN;
}

/* Store the index of a section whose kind may occur once. */
static void only(struct fdry_cubin *c, uint32_t *slot, uint32_t i)
{
	if (*slot)
		unsliceable(c, "there are two sections named %s", c->elf.sections[i].name);
	*slot = i;
}

static void section_classify(struct fdry_cubin *c, uint32_t i)
{
	const struct fdry_elf_section *s = &c->elf.sections[i];
	struct fdry_cubin_section *cs = &c->sections[i];

	cs->kind = section_kind(s, &cs->bank);
	switch (cs->kind) {
	case FDRY_SECTION_INFO:
		only(c, &c->info, i);
		break;
	case FDRY_SECTION_CALLGRAPH:
		only(c, &c->callgraph, i);
		break;
	case FDRY_SECTION_PROTOTYPE:
		only(c, &c->prototype, i);
		break;
	case FDRY_SECTION_UNKNOWN:
		unsliceable(c,
			    starts(s->name, ".nv.merc") || starts(s->name, ".nv.capmerc")
				    ? "it holds Mercury code (section %.120s)"
				    : "section %.120s is of an unknown kind",
			    s->name);
		break;
	default:
		break;
	}
}

/* Whether the name of an owned section ends with the name of the code. */
static bool names_agree(const char *owned, const char *text)
{
	size_t n = strlen(owned), m = strlen(text + strlen(".text"));

	return n > m && !strcmp(owned + n - m, text + strlen(".text"));
}

static void section_own(struct fdry_cubin *c, uint32_t i)
{
	struct fdry_cubin_section *cs = &c->sections[i], *text;
	uint32_t owner = c->elf.sections[i].h.info;

	if (owner >= c->elf.nsections || c->sections[owner].kind != FDRY_SECTION_TEXT ||
	    !names_agree(c->elf.sections[i].name, c->elf.sections[owner].name)) {
		cs->kind = FDRY_SECTION_UNKNOWN;
		unsliceable(c, "section %.120s belongs to no function", c->elf.sections[i].name);
		return;
	}
	text = &c->sections[owner];
	cs->owner = owner;
	cs->next_owned = text->owned;
	text->owned = i;
}

static void section_patch(struct fdry_cubin *c, uint32_t i)
{
	struct fdry_cubin_section *cs = &c->sections[i],
				  *target = &c->sections[c->elf.sections[i].h.info];
	const struct fdry_elf_shdr *h = &c->elf.sections[i].h;

	if (h->link != c->elf.symtab) {
		/* Tools that remove relocations leave empty sections with arbitrary links. */
		cs->kind = h->size ? FDRY_SECTION_UNKNOWN : FDRY_SECTION_DEBUG;
		if (h->size)
			unsliceable(c,
				    "the relocations of section %.120s do not use its symbol table",
				    c->elf.sections[i].name);
		return;
	}
	if (target->kind != FDRY_SECTION_TEXT && target->kind != FDRY_SECTION_OWNED &&
	    target->kind != FDRY_SECTION_DATA) {
		cs->kind = FDRY_SECTION_UNKNOWN;
		unsliceable(c, "section %.120s patches no code and no data",
			    c->elf.sections[i].name);
		return;
	}
	cs->owner = c->elf.sections[i].h.info;
	cs->next_reloc = target->relocs;
	target->relocs = i;
}

static int sections_classify(struct fdry_cubin *c)
{
	uint32_t i;

	c->sections = calloc(c->elf.nsections, sizeof(*c->sections));
	if (!c->sections)
		return fdry_nomem();
	if (c->elf.h.type != FDRY_ET_EXEC)
		unsliceable(c, "it is a relocatable object, not an executable%s", "");
	for (i = 1; i < c->elf.nsections; i++)
		section_classify(c, i);
	for (i = c->elf.nsections - 1; i; i--) /* backwards, since each section is added at the head
						  of its chain */
		if (c->sections[i].kind == FDRY_SECTION_OWNED ||
		    c->sections[i].kind == FDRY_SECTION_OWNED_INFO)
			section_own(c, i);
	for (i = c->elf.nsections - 1; i; i--)
		if (c->sections[i].kind == FDRY_SECTION_RELOC)
			section_patch(c, i);
	return 0;
}

/* --- kernels --- */

static bool is_kernel(const struct fdry_cubin *c, uint32_t i)
{
	const struct fdry_elf_sym *s = &c->elf.symbols[i].s;
	uint32_t at = fdry_cubin_symbol_section(c, i);

	return fdry_elf_sym_type(s) == FDRY_STT_FUNC && s->other & FDRY_STO_ENTRY && at &&
	       c->sections[at].kind == FDRY_SECTION_TEXT;
}

static int param_add(struct fdry_cubin_kernel *k, const struct fdry_cubin_attr *a)
{
	const uint8_t *p = a->data.data;
	struct fdry_param *grown;
	uint32_t nr, size;

	if (a->data.len != 12)
		return cubin_bad("a parameter record has an unknown size");
	nr = fdry_get16(p + 4);
	size = a->id == FDRY_EIATTR_KPARAM_INFO ? fdry_get32(p + 8) >> 18 : fdry_get32(p + 8);
	if (nr >= FDRY_KERNEL_PARAMS_MAX || !size || size > FDRY_KERNEL_PARAM_BYTES_MAX)
		return cubin_bad("a parameter lies beyond the limits of kernels");
	if (nr >= k->nparams) {
		grown = realloc(k->params, (nr + 1) * sizeof(*grown));
		if (!grown)
			return fdry_nomem();
		memset(grown + k->nparams, 0, (nr + 1 - k->nparams) * sizeof(*grown));
		k->params = grown;
		k->nparams = nr + 1;
	}
	k->params[nr].offset = fdry_get16(p + 6);
	k->params[nr].size = (uint16_t)size;
	return 0;
}

static int kernel_attr(struct fdry_cubin_kernel *k, const struct fdry_cubin_attr *a)
{
	if (a->format == FDRY_EIFMT_HALF && a->id == FDRY_EIATTR_CBANK_PARAM_SIZE)
		k->param_bytes = a->value;
	if (a->format == FDRY_EIFMT_SIZED &&
	    (a->id == FDRY_EIATTR_KPARAM_INFO || a->id == FDRY_EIATTR_KPARAM_INFO_V2))
		return param_add(k, a);
	return 0;
}

/* Parameters lie one after the other in the buffer, and none is missing. */
static int params_check(const struct fdry_cubin_kernel *k)
{
	uint32_t i, end = 0;

	for (i = 0; i < k->nparams; i++) {
		if (!k->params[i].size || k->params[i].offset < end)
			return cubin_bad("a kernel's parameters overlap, or one is missing");
		end = k->params[i].offset + (uint32_t)k->params[i].size;
	}
	if (end > k->param_bytes || k->param_bytes > FDRY_KERNEL_PARAM_BYTES_MAX)
		return cubin_bad("a kernel's parameters end beyond their buffer");
	return 0;
}

static int kernel_load(const struct fdry_cubin *c, uint32_t symbol, struct fdry_cubin_kernel *k)
{
	struct fdry_cubin_attr a;
	uint64_t pos = 0;
	uint32_t i;
	int got;

	k->name = c->elf.symbols[symbol].name;
	k->symbol = symbol;
	k->section = fdry_cubin_symbol_section(c, symbol);
	for (i = c->sections[k->section].owned; i; i = c->sections[i].next_owned) {
		if (c->sections[i].kind != FDRY_SECTION_OWNED_INFO)
			continue;
		while ((got = fdry_cubin_attr_next(c->elf.sections[i].data, &pos, &a)) > 0) {
			got = kernel_attr(k, &a);
			if (got)
				return got;
		}
		return got ? got : params_check(k);
	}
	return cubin_bad("a kernel has no info section");
}

static int kernels_load(struct fdry_cubin *c)
{
	uint32_t i, n = 0;
	int err;

	for (i = 0; i < c->elf.nsymbols; i++)
		n += is_kernel(c, i);
	c->kernels = calloc(n + 1, sizeof(*c->kernels));
	if (!c->kernels)
		return fdry_nomem();
	for (i = 0; i < c->elf.nsymbols; i++) {
		if (!is_kernel(c, i))
			continue;
		err = kernel_load(c, i, &c->kernels[c->nkernels++]);
		if (err)
			return err;
	}
	return 0;
}

/* --- variables --- */

/* Compilers give these names only to strings and unnamed constants, which programs cannot write. */
static bool is_literal(const struct fdry_elf_symbol *y)
{
	static const char *const names[] = { "$str", "__unnamed_", "__cudart_" };
	size_t i;

	if (fdry_elf_sym_bind(&y->s) != FDRY_STB_LOCAL)
		return false;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (starts(y->name, names[i]))
			return true;
	return false;
}

static bool is_variable(const struct fdry_cubin *c, uint32_t i)
{
	uint32_t at = fdry_cubin_symbol_section(c, i);
	unsigned int type = fdry_elf_sym_type(&c->elf.symbols[i].s);

	return at && c->sections[at].kind == FDRY_SECTION_DATA && type != FDRY_STT_SECTION;
}

static int variable_load(const struct fdry_cubin *c, uint32_t symbol, struct fdry_cubin_variable *v)
{
	const struct fdry_elf_symbol *y = &c->elf.symbols[symbol];
	const struct fdry_elf_shdr *h;

	v->name = y->name;
	v->symbol = symbol;
	v->section = fdry_cubin_symbol_section(c, symbol);
	v->offset = y->s.value;
	v->size = y->s.size;
	v->constant = c->sections[v->section].bank >= 0;
	v->literal = !v->constant && c->elf.sections[v->section].h.type == FDRY_SHT_PROGBITS &&
		     is_literal(y);
	h = &c->elf.sections[v->section].h;
	if (v->offset > h->size || v->size > h->size - v->offset)
		return cubin_bad("a variable ends beyond its section");
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct fdry_cubin_variable *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->symbol < y->symbol ? -1 : x->symbol > y->symbol;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct fdry_cubin_variable *const *)a)->name,
		      (*(struct fdry_cubin_variable *const *)b)->name);
}

static int variables_name(struct fdry_cubin *c)
{
	struct fdry_cubin_variable **v = calloc(c->nvariables + 1, sizeof(*v));
	uint32_t i;

	if (!v)
		return fdry_nomem();
	for (i = 0; i < c->nvariables; i++) {
		v[i] = &c->variables[i];
		v[i]->unique = true;
	}
	qsort(v, c->nvariables, sizeof(*v), by_name);
	for (i = 1; i < c->nvariables; i++)
		if (!strcmp(v[i - 1]->name, v[i]->name))
			v[i - 1]->unique = v[i]->unique = false;
	free(v);
	return 0;
}

static int variables_load(struct fdry_cubin *c)
{
	uint32_t i, n = 0;
	int err;

	for (i = 0; i < c->elf.nsymbols; i++)
		n += is_variable(c, i);
	c->variables = calloc(n + 1, sizeof(*c->variables));
	if (!c->variables)
		return fdry_nomem();
	for (i = 0; i < c->elf.nsymbols; i++) {
		if (!is_variable(c, i))
			continue;
		err = variable_load(c, i, &c->variables[c->nvariables++]);
		if (err)
			return err;
	}
	qsort(c->variables, c->nvariables, sizeof(*c->variables), by_place);
	return variables_name(c);
}

/* Check that every symbol lies in code, data or a description of them, not in a table of names or
 * symbols. */
static void symbols_classify(struct fdry_cubin *c)
{
	enum fdry_section_kind kind;
	uint32_t i;

	for (i = 1; i < c->elf.nsymbols; i++) {
		kind = c->sections[fdry_cubin_symbol_section(c, i)].kind;
		if (kind == FDRY_SECTION_NAMES || kind == FDRY_SECTION_SYMTAB ||
		    kind == FDRY_SECTION_RELOC)
			unsliceable(c, "symbol %.120s lies in a table", c->elf.symbols[i].name);
	}
}

/* The compute capability is the low byte of e_flags up to CUDA 12 (ABI 0x33), and the second byte
 * since then (ABI 0x41). */
static unsigned int arch_of(const struct fdry_elf_ehdr *h)
{
	return h->ident[7] == 0x33   ? h->flags & 0xff
	       : h->ident[7] == 0x41 ? h->flags >> 8 & 0xff
				     : 0;
}

int fdry_cubin_new(struct fdry_span image, struct fdry_cubin **ret)
{
	struct fdry_cubin *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	err = fdry_elf_init(image, &c->elf);
	if (err)
		goto out_free;
	if (c->elf.h.machine != FDRY_EM_CUDA || !c->elf.symtab) {
		err = cubin_bad("it is not an ELF file for a GPU, or has no symbols");
		goto out_free;
	}
	c->arch = arch_of(&c->elf.h);
	err = sections_classify(c);
	if (err)
		goto out_free;
	symbols_classify(c);
	err = kernels_load(c);
	if (err)
		goto out_free;
	err = variables_load(c);
	if (err)
		goto out_free;
	*ret = c;
	return 0;

out_free:
	fdry_cubin_free(c);
	return err;
}

void fdry_cubin_free(struct fdry_cubin *c)
{
	uint32_t i;

	if (!c)
		return;
	for (i = 0; i < c->nkernels; i++)
		free(c->kernels[i].params);
	free(c->kernels);
	free(c->variables);
	free(c->sections);
	fdry_elf_release(&c->elf);
	free(c);
}
