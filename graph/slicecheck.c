// SPDX-License-Identifier: Apache-2.0
/*
 * slicecheck.c - compares a slice with its cubin; see slice.h.
 *
 * This file shares only the parser with slice.c, so it finds errors of slice.c. A slice must hold
 * everything that is reached. Its sections keep their order and names, and every number of a symbol
 * must mean the same symbol in both files.
 */
#include <stdlib.h>

#include "graph/slice.h"

struct check {
	const struct fdry_code_reach *r;
	const struct fdry_cubin *old, *new;
	uint32_t *sections; /* new index by old index; 0: not in the slice */
};

static int differs(const char *what, const char *name)
{
	return fdry_fail(FDRY_E_BUG,
			 "a slice differs from its cubin in %s of %.200s; please report it", what,
			 name);
}

static const struct fdry_elf_symbol *symbol_of(const struct fdry_cubin *c, uint32_t i)
{
	return &c->elf.symbols[i];
}

static bool same_symbol(const struct check *k, uint32_t a, uint32_t b)
{
	const struct fdry_elf_symbol *x = symbol_of(k->old, a), *y = symbol_of(k->new, b);
	uint32_t at = fdry_cubin_symbol_section(k->old, a),
		 to = fdry_cubin_symbol_section(k->new, b);

	return !strcmp(x->name, y->name) && x->s.info == y->s.info && x->s.other == y->s.other &&
	       x->s.value == y->s.value && x->s.size == y->s.size &&
	       (at ? to && k->sections[at] == to : x->s.shndx == y->s.shndx);
}

static bool bytes_same(struct fdry_span a, struct fdry_span b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

/* Whether a slice must have a section. */
static bool stays(const struct check *k, uint32_t i)
{
	switch (k->old->sections[i].kind) {
	case FDRY_SECTION_MODULE:
	case FDRY_SECTION_INFO:
	case FDRY_SECTION_CALLGRAPH:
	case FDRY_SECTION_PROTOTYPE:
		return true;
	default:
		return k->r->sections[i];
	}
}

/* Whether a slice must have a symbol. Unreached variables are dropped even if their section
 * stays. */
static bool symbol_stays(const struct check *k, uint32_t symbol)
{
	uint32_t at = fdry_cubin_symbol_section(k->old, symbol);

	if (!at && fdry_cubin_symbol_reserved(k->old->elf.symbols[symbol].name))
		return true;
	if (!at || (k->old->sections[at].kind == FDRY_SECTION_DATA &&
		    fdry_elf_sym_type(&k->old->elf.symbols[symbol].s) != FDRY_STT_SECTION))
		return symbol && k->r->symbols[symbol];
	return stays(k, at);
}

/* --- info --- */

/* The info records to compare: of code section @old and of @new; if both are 0, of the module. */
struct info {
	struct fdry_span old_bytes, new_bytes;
	uint32_t old, new;
	const char *name;
};

static bool words_same(const struct check *k, const struct info *n, const struct fdry_cubin_attr *a,
		       const struct fdry_cubin_attr *b)
{
	uint64_t i, words = fdry_cubin_attr_words(a);
	uint32_t x, y;

	if (a->format != b->format || a->id != b->id || a->data.len != b->data.len ||
	    (a->format != FDRY_EIFMT_SIZED && a->value != b->value))
		return false;
	for (i = 0; i < words; i += 4) {
		x = fdry_cubin_attr_symbol(k->old, n->old, a, i);
		y = fdry_get32(b->data.data + i);
		if (x == UINT32_MAX || y >= k->new->elf.nsymbols || !same_symbol(k, x, y))
			return false;
	}
	return !memcmp(a->data.data + words, b->data.data + words, a->data.len - words);
}

/* Whether all functions that a record describes stay. */
static bool record_stays(const struct check *k, const struct info *n,
			 const struct fdry_cubin_attr *a)
{
	uint64_t i, words = fdry_cubin_attr_words(a);
	uint32_t symbol;

	for (i = 0; i < words; i += 4) {
		symbol = fdry_cubin_attr_symbol(k->old, n->old, a, i);
		if (symbol == UINT32_MAX || (symbol && !symbol_stays(k, symbol)))
			return false;
	}
	return true;
}

static int info_check(const struct check *k, const struct info *n)
{
	struct fdry_cubin_attr a, b;
	uint64_t i = 0, j = 0;
	int got, had;

	while ((got = fdry_cubin_attr_next(n->old_bytes, &i, &a)) > 0) {
		if (!record_stays(k, n, &a))
			continue;
		had = fdry_cubin_attr_next(n->new_bytes, &j, &b);
		if (had <= 0 || !words_same(k, n, &a, &b))
			return differs("the info", n->name);
	}
	return got || j != n->new_bytes.len ? differs("the info", n->name) : 0;
}

/* --- relocations --- */

static int relocs_check(const struct check *k, uint32_t old, uint32_t new)
{
	const struct fdry_elf *a = &k->old->elf, *b = &k->new->elf;
	uint32_t s = k->old->sections[old].relocs, t = k->new->sections[new].relocs, i, j = 0;
	uint32_t n = s ? fdry_elf_reloc_count(a, s) : 0, m = t ? fdry_elf_reloc_count(b, t) : 0;
	struct fdry_elf_rela x, y;

	if ((s && k->old->sections[s].next_reloc) || (t && k->new->sections[t].next_reloc))
		return fdry_fail(FDRY_E_NOSLICE, "section %.120s is patched twice",
				 a->sections[old].name);
	for (i = 0; i < n; i++) {
		x = fdry_elf_reloc(a, s, i);
		if (!fdry_code_reach_keeps(k->r, old, x.offset))
			continue;
		if (j == m)
			return differs("the relocations", a->sections[old].name);
		y = fdry_elf_reloc(b, t, j++);
		if (x.offset != y.offset || x.addend != y.addend ||
		    (uint32_t)x.info != (uint32_t)y.info ||
		    !same_symbol(k, (uint32_t)(x.info >> 32), (uint32_t)(y.info >> 32)))
			return differs("a relocation", a->sections[old].name);
	}
	return j == m ? 0 : differs("the relocations", a->sections[old].name);
}

/* --- sections --- */

static bool headers_same(const struct check *k, uint32_t i, uint32_t j)
{
	const struct fdry_elf_shdr *a = &k->old->elf.sections[i].h, *b = &k->new->elf.sections[j].h;
	const struct fdry_cubin_section *x = &k->old->sections[i], *y = &k->new->sections[j];

	return a->type == b->type && a->flags == b->flags && a->addr == b->addr &&
	       a->addralign == b->addralign && a->entsize == b->entsize &&
	       (a->type != FDRY_SHT_NOBITS || a->size == b->size) && x->kind == y->kind &&
	       x->bank == y->bank && k->sections[x->owner] == y->owner;
}

static bool text_same(const struct check *k, uint32_t i, uint32_t j)
{
	uint32_t a = k->old->elf.sections[i].h.info, b = k->new->elf.sections[j].h.info;
	uint32_t x = fdry_cubin_function(k->old, i), y = b & FDRY_CUBIN_SYMBOL_BITS;

	if (!(a & FDRY_CUBIN_SYMBOL_BITS))
		return a == b;
	return !((a ^ b) & ~FDRY_CUBIN_SYMBOL_BITS) && x &&
	       y < k->new->elf.nsymbols &&same_symbol(k, x, y);
}

static int content_check(const struct check *k, uint32_t i, uint32_t j)
{
	const struct fdry_elf_section *a = &k->old->elf.sections[i], *b = &k->new->elf.sections[j];
	struct info n = { .old_bytes = a->data, .new_bytes = b->data, .name = a->name };

	switch (k->old->sections[i].kind) {
	case FDRY_SECTION_CALLGRAPH:
	case FDRY_SECTION_PROTOTYPE:
		return 0; /* calls_check() and prototypes_check() compare them */
	case FDRY_SECTION_INFO:
	case FDRY_SECTION_OWNED_INFO:
		n.old = k->old->sections[i].owner;
		n.new = k->new->sections[j].owner;
		return info_check(k, &n);
	case FDRY_SECTION_TEXT:
		if (!text_same(k, i, j))
			return differs("the function", a->name);
		break;
	default:
		break;
	}
	if (!bytes_same(a->data, b->data))
		return differs("the bytes", a->name);
	return relocs_check(k, i, j);
}

static bool is_table(const struct fdry_cubin *c, uint32_t i)
{
	enum fdry_section_kind kind = c->sections[i].kind;

	return kind == FDRY_SECTION_NAMES || kind == FDRY_SECTION_SYMTAB ||
	       kind == FDRY_SECTION_RELOC;
}

/* Besides tables, a slice has exactly the sections that stay, in their order. */
static int sections_match(const struct check *k)
{
	uint32_t i, j = 1;

	for (i = 1; i < k->old->elf.nsections; i++) {
		if (!stays(k, i))
			continue;
		while (j < k->new->elf.nsections && is_table(k->new, j))
			j++;
		if (j >= k->new->elf.nsections ||
		    strcmp(k->old->elf.sections[i].name, k->new->elf.sections[j].name))
			return differs("the name", k->old->elf.sections[i].name);
		k->sections[i] = j++;
	}
	while (j < k->new->elf.nsections && is_table(k->new, j))
		j++;
	return j == k->new->elf.nsections ? 0 : differs("the sections", "it");
}

static int sections_check(const struct check *k)
{
	uint32_t i;
	int err;

	for (i = 1; i < k->old->elf.nsections; i++) {
		if (!stays(k, i))
			continue;
		if (!headers_same(k, i, k->sections[i]))
			return differs("the header", k->old->elf.sections[i].name);
		err = content_check(k, i, k->sections[i]);
		if (err)
			return err;
	}
	return 0;
}

/* --- calls and kernels --- */

static const char *prototype(const struct fdry_cubin *c, uint32_t at)
{
	struct fdry_span s = c->elf.sections[c->elf.sections[c->elf.symtab].h.link].data;
	const char *p = fdry_span_at(s, at, 1);

	return p && memchr(p, 0, s.len - at) ? p : NULL;
}

static bool prototype_same(const struct check *k, uint32_t a, uint32_t b)
{
	const char *x = prototype(k->old, a), *y = prototype(k->new, b);

	return x && y && !strcmp(x, y);
}

static bool call_same(const struct check *k, const struct fdry_cubin_call *a,
		      const struct fdry_cubin_call *b)
{
	if (a->mark != b->mark || a->part != b->part)
		return false;
	if (a->mark)
		return a->to == b->to;
	if (!same_symbol(k, a->from, b->from))
		return false;
	return a->part == FDRY_CALL_DIRECT || a->part == FDRY_CALL_RESOLVED
		       ? same_symbol(k, a->to, b->to)
		       : prototype_same(k, a->to, b->to);
}

static int calls_check(const struct check *k)
{
	uint32_t i, j = 0, n = fdry_cubin_call_count(k->old), m = fdry_cubin_call_count(k->new),
		    p = 0, q = 0;
	struct fdry_cubin_call a, b;
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_cubin_call_get(k->old, i, &p, &a);
		if (err)
			return err;
		if (!a.mark && !symbol_stays(k, a.from))
			continue;
		if (j == m)
			return differs("the calls", "it");
		err = fdry_cubin_call_get(k->new, j++, &q, &b);
		if (err)
			return err;
		if (!call_same(k, &a, &b))
			return differs("a call", symbol_of(k->old, a.from)->name);
	}
	return j == m ? 0 : differs("the calls", "it");
}

static int prototypes_check(const struct check *k)
{
	struct fdry_span a, b;
	uint64_t i, j = 0;
	uint32_t symbol;

	if (!k->old->prototype)
		return 0;
	a = k->old->elf.sections[k->old->prototype].data;
	b = k->new->elf.sections[k->new->prototype].data;
	for (i = 0; i + 8 <= a.len; i += 8) {
		symbol = fdry_get32(a.data + i);
		if (!symbol_stays(k, symbol))
			continue;
		if (j + 8 > b.len || fdry_get32(b.data + j) >= k->new->elf.nsymbols ||
		    !same_symbol(k, symbol, fdry_get32(b.data + j)) ||
		    !prototype_same(k, fdry_get32(a.data + i + 4), fdry_get32(b.data + j + 4)))
			return differs("the prototypes", symbol_of(k->old, symbol)->name);
		j += 8;
	}
	return j == b.len ? 0 : differs("the prototypes", "it");
}

static int kernels_check(const struct check *k)
{
	const struct fdry_cubin_kernel *a, *b;
	uint32_t i, j = 0;

	for (i = 0; i < k->old->nkernels; i++) {
		a = &k->old->kernels[i];
		if (!k->r->sections[a->section])
			continue;
		b = j < k->new->nkernels ? &k->new->kernels[j++] : NULL;
		if (!b || !same_symbol(k, a->symbol, b->symbol) ||
		    a->param_bytes != b->param_bytes || a->nparams != b->nparams ||
		    (a->nparams && memcmp(a->params, b->params, a->nparams * sizeof(*a->params))))
			return differs("the kernel", a->name);
	}
	return j == k->new->nkernels ? 0 : differs("the kernels", "it");
}

static int header_check(const struct check *k)
{
	const struct fdry_elf_ehdr *a = &k->old->elf.h, *b = &k->new->elf.h;

	if (k->new->unsliceable[0] || k->old->arch != k->new->arch || a->flags != b->flags ||
	    memcmp(a->ident, b->ident, sizeof(b->ident)))
		return differs("the file's header", "it");
	return 0;
}

int fdry_slice_check(const struct fdry_code_reach *r, struct fdry_span slice)
{
	struct check k = { .r = r, .old = r->cubin };
	struct fdry_cubin *c;
	int err;

	err = fdry_cubin_new(slice, &c);
	if (err)
		return fdry_fail(FDRY_E_BUG, "a slice cannot be read: %s", fdry_last_error());
	k.new = c;
	k.sections = calloc(r->cubin->elf.nsections, sizeof(*k.sections));
	if (!k.sections) {
		err = fdry_nomem();
		goto out_free;
	}
	err = header_check(&k);
	if (err)
		goto out_free;
	err = sections_match(&k);
	if (err)
		goto out_free;
	err = sections_check(&k);
	if (err)
		goto out_free;
	err = calls_check(&k);
	if (err)
		goto out_free;
	err = prototypes_check(&k);
	if (err)
		goto out_free;
	err = kernels_check(&k);
out_free:
	free(k.sections);
	fdry_cubin_free(c);
	return err;
}
