// SPDX-License-Identifier: Apache-2.0
/*
 * code_reach.c - what some kernels of a cubin need; see code_reach.h.
 *
 * Code reaches other code, data and functions of the driver in four ways: by relocations, by the
 * call graph (including calls through pointers), by the list of external symbols in its info
 * records, and by reading constants, since constant bank 4 holds addresses. Data reaches more by
 * the relocations inside its reached bytes. Reached data is recorded in words of four bytes. A work
 * list is used because recursion could overflow the stack.
 */
#include "graph/code_reach.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/devcall.h"
#include "graph/sass.h"

#define WORD 4u

static void unsliceable(struct fdry_code_reach *r, const char *what, const char *name)
{
	if (!r->unsliceable[0])
		snprintf(r->unsliceable, sizeof(r->unsliceable), what, name);
}

static void refuse(struct fdry_code_reach *r, const char *name, const char *why)
{
	if (!r->refused[0])
		snprintf(r->refused, sizeof(r->refused), "calls %.120s (%s)", name, why);
}

/* A function that the module does not hold belongs to the driver. */
static void extern_reached(struct fdry_code_reach *r, const char *name)
{
	const char *why = fdry_devcall_refused(name);

	if (why)
		refuse(r, name, why);
	why = fdry_devcall_whole(name);
	if (!why)
		return;
	r->prints |= fdry_devcall_memory(name) == FDRY_DEVCALL_PRINTF;
	r->allocates |= fdry_devcall_memory(name) == FDRY_DEVCALL_HEAP;
	if (!r->unsliceable[0])
		snprintf(r->unsliceable, sizeof(r->unsliceable), "it calls %.120s (%s)", name, why);
}

/* --- code and data --- */

enum work { WORK_TEXT, WORK_DATA, WORK_VARIABLE, WORK_KINDS };

/* Each item enters the list once, when its flag is set, so the list never overflows. */
static void work_add(struct fdry_code_reach *r, uint8_t *flags, uint32_t i, enum work kind)
{
	if (flags[i])
		return;
	flags[i] = 1;
	r->work[r->nwork++] = (uint64_t)i * WORK_KINDS + kind;
}

/* The program binds a reference to an array by calls that no graph shows, so a load cannot. */
static void reference_reached(struct fdry_code_reach *r, const char *name)
{
	if (!r->refused[0])
		snprintf(r->refused, sizeof(r->refused), "uses texture or surface reference %.120s",
			 name);
}

static bool is_reference(const struct fdry_elf_sym *s)
{
	unsigned int type = fdry_elf_sym_type(s);

	return type >= FDRY_STT_CUDA_TEXTURE && type <= FDRY_STT_CUDA_SURFACE;
}

static void undefined_reached(struct fdry_code_reach *r, uint32_t symbol, bool by_code)
{
	const struct fdry_elf_symbol *y = &r->cubin->elf.symbols[symbol];
	unsigned int type = fdry_elf_sym_type(&y->s);

	if (fdry_cubin_symbol_reserved(y->name))
		return;
	if (is_reference(&y->s))
		reference_reached(r, y->name);
	if (y->s.shndx != FDRY_SHN_UNDEF || (type != FDRY_STT_FUNC && type != FDRY_STT_NOTYPE))
		unsliceable(r, "it refers to symbol %.120s, which is of an unknown kind", y->name);
	else if (by_code)
		extern_reached(r, y->name);
}

static void data_symbol_reached(struct fdry_code_reach *r, uint32_t symbol, uint32_t section)
{
	const struct fdry_elf_sym *s = &r->cubin->elf.symbols[symbol].s;

	if (fdry_elf_sym_type(s) == FDRY_STT_SECTION || !s->size)
		work_add(r, r->whole, section, WORK_DATA);
	else
		work_add(r, r->variables, fdry_cubin_variable_of(r->cubin, symbol), WORK_VARIABLE);
}

static void function_reached(struct fdry_code_reach *r, uint32_t symbol, uint32_t section)
{
	const char *name = r->cubin->elf.symbols[symbol].name;

	if (fdry_devcall_known(name)) /* the device runtime is linked in */
		extern_reached(r, name);
	work_add(r, r->sections, section, WORK_TEXT);
}

/* @by_code: code refers to the symbol, so it may call it. An entry in a table of addresses is not a
 * call. */
static void symbol_reached(struct fdry_code_reach *r, uint32_t symbol, bool by_code)
{
	uint32_t section = fdry_cubin_symbol_section(r->cubin, symbol);

	r->symbols[symbol] = 1;
	switch (section ? r->cubin->sections[section].kind : FDRY_SECTION_NULL) {
	case FDRY_SECTION_NULL:
		undefined_reached(r, symbol, by_code);
		break;
	case FDRY_SECTION_TEXT:
		function_reached(r, symbol, section);
		break;
	case FDRY_SECTION_OWNED:
		work_add(r, r->sections, r->cubin->sections[section].owner, WORK_TEXT);
		break;
	case FDRY_SECTION_DATA:
		data_symbol_reached(r, symbol, section);
		break;
	case FDRY_SECTION_MODULE:
		break;
	default:
		unsliceable(r, "it refers to symbol %.120s in a section of another kind",
			    r->cubin->elf.symbols[symbol].name);
	}
}

/*
 * Follow the relocations that patch words [@from, @to] of a section. Each relocation patches up to
 * two words.
 */
static void relocs_reached(struct fdry_code_reach *r, uint32_t section, uint64_t from, uint64_t to)
{
	const struct fdry_cubin *c = r->cubin;
	bool by_code = c->sections[section].kind != FDRY_SECTION_DATA;
	struct fdry_elf_rela rel;
	uint32_t s, i, n;

	for (s = c->sections[section].relocs; s; s = c->sections[s].next_reloc) {
		n = fdry_elf_reloc_count(&c->elf, s);
		for (i = 0; i < n; i++) {
			rel = fdry_elf_reloc(&c->elf, s, i);
			if (rel.offset / WORD <= to && rel.offset / WORD + 1 >= from)
				symbol_reached(r, (uint32_t)(rel.info >> 32), by_code);
		}
	}
}

/* Code that reads part of a variable, or has its address, may use all of it. */
static void variables_reached(struct fdry_code_reach *r, uint32_t section, uint64_t from,
			      uint64_t to)
{
	const struct fdry_cubin_variable *v = r->cubin->variables;
	uint32_t i;

	for (i = 0; i < r->cubin->nvariables; i++)
		if (v[i].section == section && v[i].offset < to && v[i].offset + v[i].size > from)
			work_add(r, r->variables, i, WORK_VARIABLE);
}

/* Bytes [@from, @to) of a data section are reached. */
static void data_reached(struct fdry_code_reach *r, uint32_t section, uint64_t from, uint64_t to)
{
	uint64_t size = r->cubin->elf.sections[section].h.size, w;
	uint8_t *touched = r->touched + r->data_at[section];
	bool done = r->sections[section];

	r->sections[section] = 1;
	if (to > size)
		to = size;
	if (from >= to)
		return;
	for (w = from / WORD; w <= (to - 1) / WORD; w++) {
		done = done && touched[w];
		touched[w] = 1;
	}
	if (done)
		return;
	variables_reached(r, section, from, to);
	relocs_reached(r, section, from / WORD, (to - 1) / WORD);
}

/* --- tables of functions --- */

/* The variable that holds the word which @r patches, if the driver finds it by its name; else
 * UINT32_MAX. */
static uint32_t table_at(const struct fdry_cubin *c, uint32_t section,
			 const struct fdry_elf_rela *r)
{
	const struct fdry_cubin_variable *v = c->variables;
	uint32_t i;

	for (i = 0; i < c->nvariables; i++)
		if (v[i].section == section && r->offset >= v[i].offset && v[i].size >= 8 &&
		    r->offset - v[i].offset <= v[i].size - 8 && v[i].name[0] && v[i].unique &&
		    !v[i].literal)
			return i;
	return UINT32_MAX;
}

/* Reach the tables that hold addresses of functions. @held: set for each of these functions. */
static void tables_reached(struct fdry_code_reach *r, uint8_t *held)
{
	const struct fdry_cubin *c = r->cubin;
	struct fdry_elf_rela rel;
	uint32_t section, s, i, table;

	for (section = 1; section < c->elf.nsections; section++) {
		if (c->sections[section].kind != FDRY_SECTION_DATA)
			continue;
		for (s = c->sections[section].relocs; s; s = c->sections[s].next_reloc)
			for (i = 0; i < fdry_elf_reloc_count(&c->elf, s); i++) {
				rel = fdry_elf_reloc(&c->elf, s, i);
				if (!fdry_cubin_function_word(c, &rel))
					continue;
				table = table_at(c, section, &rel);
				if (table == UINT32_MAX)
					continue;
				held[rel.info >> 32] = 1;
				work_add(r, r->variables, table, WORK_VARIABLE);
			}
	}
}

/*
 * A function has another address in each load of its code. The driver fills in the tables of a
 * load. A seal can search all other memory for such addresses only if it knows them, so a table
 * must hold every function whose address the module uses.
 */
static int tables_walk(struct fdry_code_reach *r)
{
	uint32_t i, part = 0, n = fdry_cubin_call_count(r->cubin), taken = 0;
	uint8_t *held = calloc((size_t)r->cubin->elf.nsymbols + 1, 1);
	struct fdry_cubin_call call;
	bool all = true;
	int err = 0;

	if (!held)
		return fdry_nomem();
	tables_reached(r, held);
	for (i = 0; i < n && !err; i++) {
		err = fdry_cubin_call_get(r->cubin, i, &part, &call);
		if (err || call.mark || call.part != FDRY_CALL_TAKEN)
			continue;
		taken++;
		all &= held[call.from];
	}
	/* Without a function of its own, the module calls those of another one. */
	if (!all || !taken)
		refuse(r, "functions",
		       "through pointers, and no table of its module has all of them");
	unsliceable(r, "%s", "it calls functions through pointers");
	free(held);
	return err;
}

/* --- code --- */

static int externs_walk(struct fdry_code_reach *r, const struct fdry_cubin_attr *a)
{
	uint64_t i;
	uint32_t symbol;

	for (i = 0; i + 4 <= a->data.len; i += 4) {
		symbol = fdry_get32(a->data.data + i);
		if (symbol >= r->cubin->elf.nsymbols)
			return fdry_fail(FDRY_E_BADCODE, "malformed cubin: an external function "
							 "has no symbol; rebuild the library");
		symbol_reached(r, symbol, true);
	}
	return 0;
}

struct jumps {
	uint32_t *at;
	uint32_t n, cap;
	uint32_t tables;
};

static int jump_add(struct jumps *j, uint64_t offset)
{
	uint32_t *grown;

	if (j->n == j->cap) {
		grown = realloc(j->at, (j->cap * 2ull + 16) * sizeof(*grown));
		if (!grown)
			return fdry_nomem();
		j->at = grown;
		j->cap = j->cap * 2 + 16;
	}
	j->at[j->n++] = offset > UINT32_MAX ? UINT32_MAX : (uint32_t)offset;
	return 0;
}

#define EIATTR_BRANCH_TARGETS 0x34

/* Records of {branch, 0, count, targets}. */
static int targets_walk(struct jumps *j, const struct fdry_cubin_attr *a)
{
	uint64_t pos = 0;
	const uint8_t *p;
	uint32_t i, n;
	int err;

	while ((p = fdry_span_at(a->data, pos, 12))) {
		n = fdry_get32(p + 8);
		p = fdry_span_at(a->data, pos + 12, 4ull * n);
		if (!p)
			break;
		for (i = 0; i < n; i++) {
			err = jump_add(j, fdry_get32(p + 4ull * i));
			if (err)
				return err;
		}
		j->tables++;
		pos += 12 + 4ull * n;
	}
	return 0;
}

static int info_walk(struct fdry_code_reach *r, uint32_t section, struct jumps *j)
{
	struct fdry_cubin_attr a;
	uint64_t pos = 0;
	int got, err = 0;

	while ((got = fdry_cubin_attr_next(r->cubin->elf.sections[section].data, &pos, &a)) > 0) {
		if (a.id == FDRY_EIATTR_NEED_CNP_WRAPPER || a.id == FDRY_EIATTR_NEED_CNP_PATCH)
			refuse(r, "the device runtime", "dynamic parallelism");
		if (a.format == FDRY_EIFMT_SIZED && a.id == FDRY_EIATTR_EXTERNS)
			err = externs_walk(r, &a);
		if (a.format == FDRY_EIFMT_SIZED && a.id == EIATTR_BRANCH_TARGETS)
			err = targets_walk(j, &a);
		if (err)
			return err;
	}
	return got;
}

/* A call through a pointer may reach any function with that prototype whose address is used. */
static int pointer_walk(struct fdry_code_reach *r, uint32_t prototype)
{
	uint32_t i, part = 0, n = fdry_cubin_call_count(r->cubin);
	struct fdry_cubin_call call;
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_cubin_call_get(r->cubin, i, &part, &call);
		if (err)
			return err;
		if (!call.mark && call.part == FDRY_CALL_TAKEN && call.to == prototype)
			symbol_reached(r, call.from, true);
	}
	return 0;
}

static int calls_walk(struct fdry_code_reach *r, uint32_t section)
{
	uint32_t i, part = 0, n = fdry_cubin_call_count(r->cubin);
	struct fdry_cubin_call call;
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_cubin_call_get(r->cubin, i, &part, &call);
		if (err)
			return err;
		if (call.mark || fdry_cubin_symbol_section(r->cubin, call.from) != section)
			continue;
		if (call.part == FDRY_CALL_DIRECT || call.part == FDRY_CALL_RESOLVED)
			symbol_reached(r, call.to, true);
		if (call.part != FDRY_CALL_POINTER)
			continue;
		r->pointers = true;
		err = pointer_walk(r, call.to);
		if (err)
			return err;
	}
	return 0;
}

static int constant_read(void *arg, const struct fdry_sass_read *read)
{
	struct fdry_code_reach *r = arg;
	uint32_t i;

	for (i = 1; i < r->cubin->elf.nsections; i++) {
		if (r->cubin->sections[i].kind != FDRY_SECTION_DATA ||
		    r->cubin->sections[i].bank != (int)read->bank)
			continue;
		if (read->all)
			work_add(r, r->whole, i, WORK_DATA);
		else
			data_reached(r, i, read->from, read->to);
	}
	return 0;
}

static void constants_all(struct fdry_code_reach *r)
{
	struct fdry_sass_read read = { .all = true };

	for (read.bank = 1; read.bank < FDRY_SASS_BANKS; read.bank++)
		(void)constant_read(r, &read);
}

/* A return address is a relocation: the function's own symbol and an offset. */
static int returns_walk(struct fdry_code_reach *r, uint32_t section, struct jumps *j)
{
	const struct fdry_cubin *c = r->cubin;
	struct fdry_elf_rela rel;
	uint32_t s, i, n, symbol;
	int err;

	for (s = c->sections[section].relocs; s; s = c->sections[s].next_reloc) {
		n = fdry_elf_reloc_count(&c->elf, s);
		for (i = 0; i < n; i++) {
			rel = fdry_elf_reloc(&c->elf, s, i);
			symbol = (uint32_t)(rel.info >> 32);
			if (fdry_cubin_symbol_section(c, symbol) != section)
				continue;
			err = jump_add(j, c->elf.symbols[symbol].s.value + (uint64_t)rel.addend);
			if (err)
				return err;
		}
	}
	return 0;
}

static bool has_banks(const struct fdry_cubin *c)
{
	uint32_t i;

	for (i = 1; i < c->elf.nsections; i++)
		if (c->sections[i].kind == FDRY_SECTION_DATA && c->sections[i].bank >= 0)
			return true;
	return false;
}

static int code_walk(struct fdry_code_reach *r, uint32_t section, struct jumps *j)
{
	struct fdry_sass_code code = { .bytes = r->cubin->elf.sections[section].data,
				       .arch = r->cubin->arch };
	int err;

	if (!has_banks(r->cubin))
		return 0;
	if (!fdry_sass_supported(code.arch)) {
		constants_all(r);
		return 0;
	}
	err = returns_walk(r, section, j);
	if (err)
		return err;
	code.jumps = j->at;
	code.njumps = j->n;
	code.anywhere = fdry_sass_tables(code.bytes) > j->tables;
	err = fdry_sass_reads(&code, constant_read, r);
	if (err != -FDRY_E_NOSLICE)
		return err;
	unsliceable(r, "%s", fdry_last_error());
	constants_all(r);
	return 0;
}

static void variable_walk(struct fdry_code_reach *r, uint32_t i)
{
	const struct fdry_cubin_variable *v = &r->cubin->variables[i];

	r->symbols[v->symbol] = 1;
	data_reached(r, v->section, v->offset, v->offset + v->size);
}

static int text_walk(struct fdry_code_reach *r, uint32_t section)
{
	const struct fdry_cubin_section *cs = r->cubin->sections;
	struct jumps j = { 0 };
	uint32_t i;
	int err;

	relocs_reached(r, section, 0, UINT64_MAX);
	for (i = cs[section].owned; i; i = cs[i].next_owned) {
		r->sections[i] = 1;
		relocs_reached(r, i, 0, UINT64_MAX);
		err = cs[i].kind == FDRY_SECTION_OWNED_INFO ? info_walk(r, i, &j) : 0;
		if (err)
			goto out_free;
	}
	err = calls_walk(r, section);
	if (err)
		goto out_free;
	err = code_walk(r, section, &j);
out_free:
	free(j.at);
	return err;
}

static int work_do(struct fdry_code_reach *r)
{
	uint64_t item = r->work[--r->nwork];
	uint32_t i = (uint32_t)(item / WORK_KINDS);

	if (item % WORK_KINDS == WORK_TEXT)
		return text_walk(r, i);
	if (item % WORK_KINDS == WORK_VARIABLE)
		variable_walk(r, i);
	else
		data_reached(r, i, 0, UINT64_MAX);
	return 0;
}

static int work_all(struct fdry_code_reach *r)
{
	int err = 0;

	while (r->nwork && !err)
		err = work_do(r);
	return err;
}

/* Allocate a byte for each word of data, and two more for each section, since a relocation spans
 * two words. */
static int touched_make(struct fdry_code_reach *r)
{
	const struct fdry_cubin *c = r->cubin;
	uint64_t total = 0;
	uint32_t i;

	r->data_at = calloc(c->elf.nsections, sizeof(*r->data_at));
	if (!r->data_at)
		return fdry_nomem();
	for (i = 1; i < c->elf.nsections; i++) {
		if (c->sections[i].kind != FDRY_SECTION_DATA)
			continue;
		r->data_at[i] = (uint32_t)total;
		if (c->elf.sections[i].h.size > UINT32_MAX)
			return fdry_fail(
				FDRY_E_LIMIT,
				"its code has variables of more than 4 GiB; split the module");
		total += c->elf.sections[i].h.size / WORD + 2;
		if (total > UINT32_MAX)
			return fdry_fail(
				FDRY_E_LIMIT,
				"its code has variables of more than 4 GiB; split the module");
	}
	r->touched = calloc(total + 1, 1);
	return r->touched ? 0 : fdry_nomem();
}

static int reach_alloc(struct fdry_code_reach *r)
{
	const struct fdry_cubin *c = r->cubin;

	r->sections = calloc(c->elf.nsections, 1);
	r->symbols = calloc(c->elf.nsymbols + 1, 1);
	r->variables = calloc(c->nvariables + 1, 1);
	r->whole = calloc(c->elf.nsections, 1);
	r->work = calloc(2ull * c->elf.nsections + c->nvariables, sizeof(*r->work));
	if (!r->sections || !r->symbols || !r->variables || !r->whole || !r->work)
		return fdry_nomem();
	return touched_make(r);
}

int fdry_code_reach_init(const struct fdry_cubin *c, const uint32_t *kernels, uint32_t count,
			 struct fdry_code_reach *ret)
{
	struct fdry_code_reach r = { .cubin = c };
	uint32_t i;
	int err = reach_alloc(&r);

	if (err)
		goto out_release;
	snprintf(r.unsliceable, sizeof(r.unsliceable), "%s", c->unsliceable);
	for (i = 0; i < count; i++)
		symbol_reached(&r, c->kernels[kernels[i]].symbol, true);
	err = work_all(&r);
	if (!err && r.pointers)
		err = tables_walk(&r) ?: work_all(&r);
	if (err)
		goto out_release;
	*ret = r;
	return 0;

out_release:
	fdry_code_reach_release(&r);
	return err;
}

int fdry_code_reach_variables(struct fdry_code_reach *r, const uint32_t *variables, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		work_add(r, r->variables, variables[i], WORK_VARIABLE);
	return work_all(r);
}

void fdry_code_reach_trim(struct fdry_code_reach *r)
{
	free(r->sections);
	free(r->symbols);
	free(r->touched);
	free(r->data_at);
	free(r->whole);
	free(r->work);
	r->sections = r->symbols = r->touched = r->whole = NULL;
	r->data_at = NULL;
	r->work = NULL;
}

void fdry_code_reach_release(struct fdry_code_reach *r)
{
	fdry_code_reach_trim(r);
	free(r->variables);
	memset(r, 0, sizeof(*r));
}

bool fdry_code_reach_keeps(const struct fdry_code_reach *r, uint32_t target, uint64_t offset)
{
	const struct fdry_elf_section *s = &r->cubin->elf.sections[target];
	const uint8_t *touched;

	if (!r->sections[target])
		return false;
	if (r->cubin->sections[target].kind != FDRY_SECTION_DATA)
		return true;
	touched = r->touched + r->data_at[target] + offset / WORD;
	return offset < s->h.size && (touched[0] || touched[1]);
}
