// SPDX-License-Identifier: Apache-2.0
/*
 * slice.c - writes a smaller cubin; see slice.h.
 *
 * Sections and symbols keep their order and get new numbers. Every field that holds such a number
 * is rewritten; a field that might hold one makes the slice impossible. Debug sections and program
 * headers are left out; the driver needs neither.
 */
#include "graph/slice.h"

#include <stdlib.h>

struct slice {
	const struct fdry_cubin *c;
	const struct fdry_code_reach *r;
	uint32_t *sections;  /* new index by old index; 0: left out */
	uint32_t *symbols;   /* new index by old index; 0: left out */
	uint32_t nsections, nsymbols;
	uint32_t symtab_info; /* new sh_info of the symbol table */
	struct fdry_elf_shdr *headers; /* by new index */
	struct fdry_buf names;     /* .shstrtab */
	struct fdry_buf strings;   /* .strtab */
	uint32_t *name_at;         /* by new symbol: offset in strings */
	struct fdry_buf *out;
};

static int noslice(const char *what, const char *name)
{
	return fdry_fail(FDRY_E_NOSLICE, what, name);
}

/* --- what stays --- */

static bool reloc_kept(const struct slice *s, uint32_t section)
{
	uint32_t i, n = fdry_elf_reloc_count(&s->c->elf, section),
		    owner = s->c->sections[section].owner;

	for (i = 0; i < n; i++)
		if (fdry_code_reach_keeps(s->r, owner,
					  fdry_elf_reloc(&s->c->elf, section, i).offset))
			return true;
	return false;
}

static bool section_kept(const struct slice *s, uint32_t i)
{
	switch (s->c->sections[i].kind) {
	case FDRY_SECTION_NAMES:
	case FDRY_SECTION_SYMTAB:
	case FDRY_SECTION_MODULE:
	case FDRY_SECTION_INFO:
	case FDRY_SECTION_CALLGRAPH:
	case FDRY_SECTION_PROTOTYPE:
		return true;
	case FDRY_SECTION_RELOC:
		return reloc_kept(s, i);
	default:
		return s->r->sections[i];
	}
}

static bool symbol_kept(const struct slice *s, uint32_t i)
{
	const struct fdry_elf_symbol *y = &s->c->elf.symbols[i];
	uint32_t at = fdry_cubin_symbol_section(s->c, i);

	if (!at)
		return s->r->symbols[i] || fdry_cubin_symbol_reserved(y->name);
	if (!s->sections[at])
		return false;
	return s->c->sections[at].kind != FDRY_SECTION_DATA ||
	       fdry_elf_sym_type(&y->s) == FDRY_STT_SECTION || s->r->symbols[i];
}

static void choose(struct slice *s)
{
	uint32_t i, info = s->c->elf.sections[s->c->elf.symtab].h.info;

	for (s->nsections = i = 1; i < s->c->elf.nsections; i++)
		if (section_kept(s, i))
			s->sections[i] = s->nsections++;
	for (s->nsymbols = i = 1; i < s->c->elf.nsymbols; i++) {
		if (i == info)
			s->symtab_info = s->nsymbols;
		if (symbol_kept(s, i))
			s->symbols[i] = s->nsymbols++;
	}
	if (info >= s->c->elf.nsymbols)
		s->symtab_info = s->nsymbols;
}

/* --- strings --- */

static int strings_make(struct slice *s)
{
	const struct fdry_elf *elf = &s->c->elf;
	uint32_t i;
	int err = fdry_buf_put(&s->strings, "", 1);

	if (err)
		return err;
	for (i = 1; i < elf->nsymbols; i++) {
		if (!s->symbols[i] || !elf->symbols[i].name[0])
			continue;
		s->name_at[s->symbols[i]] = (uint32_t)s->strings.len;
		err = fdry_buf_put(&s->strings, elf->symbols[i].name,
				   strlen(elf->symbols[i].name) + 1);
		if (err)
			return err;
	}
	return 0;
}

/* The new offset of a prototype, which lies in .strtab beside the names; 0 stays 0. */
static int prototype_put(struct slice *s, uint32_t old, uint32_t *ret)
{
	const struct fdry_elf *elf = &s->c->elf;
	struct fdry_span from = elf->sections[elf->sections[elf->symtab].h.link].data;
	const char *text = fdry_span_at(from, old, 1);
	size_t len = text ? strnlen(text, from.len - old) : 0;
	const void *found;

	*ret = 0;
	if (!old)
		return 0;
	if (!text || len == from.len - old)
		return fdry_fail(
			FDRY_E_BADCODE,
			"malformed cubin: a prototype has no end; rebuild the library");
	found = memmem(s->strings.data, s->strings.len, text, len + 1);
	if (found) {
		*ret = (uint32_t)((const uint8_t *)found - s->strings.data);
		return 0;
	}
	*ret = (uint32_t)s->strings.len;
	return fdry_buf_put(&s->strings, text, len + 1);
}

/* --- sections that are rewritten --- */

/* Renumber the symbols of an info record. @text: the code that it describes, whose records must all
 * stay; 0: a record of the module, which is dropped (@keep) with its function. */
static int info_words(const struct slice *s, uint32_t text, const struct fdry_cubin_attr *a,
		      uint8_t *to, bool *keep)
{
	uint64_t i, n = fdry_cubin_attr_words(a);
	uint32_t symbol;

	if (fdry_cubin_attr_symbols(a) == FDRY_ATTR_UNKNOWN)
		return fdry_fail(FDRY_E_NOSLICE,
				 "its info attribute 0x%02x of form %u is not known", a->id,
				 a->format);
	*keep = true;
	for (i = 0; i < n; i += 4) {
		symbol = fdry_cubin_attr_symbol(s->c, text, a, i);
		if (symbol == UINT32_MAX)
			return fdry_fail(FDRY_E_BADCODE, "malformed cubin: an info record names no "
							 "symbol; rebuild the library");
		*keep = *keep && (!symbol || s->symbols[symbol]);
		fdry_set32(to + i, s->symbols[symbol]);
	}
	return 0;
}

static int info_put(struct slice *s, struct fdry_span info, uint32_t text)
{
	struct fdry_cubin_attr a;
	uint64_t pos = 0, from = 0;
	size_t before;
	bool keep = true;
	int got, err;

	for (; (got = fdry_cubin_attr_next(info, &pos, &a)) > 0; from = pos) {
		before = s->out->len;
		err = fdry_buf_put(s->out, info.data + from, pos - from);
		if (err)
			return err;
		err = info_words(s, text, &a, s->out->data + before + 4, &keep);
		if (err)
			return err;
		if (!keep && text)
			return noslice("%s", "its info names a symbol that nothing else names");
		if (!keep)
			s->out->len = before;
	}
	return got;
}

static int relocs_put(struct slice *s, uint32_t section)
{
	const struct fdry_elf *elf = &s->c->elf;
	uint32_t i, n = fdry_elf_reloc_count(elf, section), symbol;
	struct fdry_elf_rela r;
	int err;

	for (i = 0; i < n; i++) {
		r = fdry_elf_reloc(elf, section, i);
		if (!fdry_code_reach_keeps(s->r, s->c->sections[section].owner, r.offset))
			continue;
		symbol = (uint32_t)(r.info >> 32);
		if (symbol && !s->symbols[symbol])
			return noslice("it is patched with %.100s, which nothing reaches",
				       elf->symbols[symbol].name);
		r.info = (uint64_t)s->symbols[symbol] << 32 | (uint32_t)r.info;
		err = fdry_buf_put(s->out, &r, elf->sections[section].h.entsize);
		if (err)
			return err;
	}
	return 0;
}

static int pair_put(struct slice *s, uint32_t a, uint32_t b)
{
	int err = fdry_buf_put_u32(s->out, a);

	return err ? err : fdry_buf_put_u32(s->out, b);
}

static int call_put(struct slice *s, const struct fdry_cubin_call *call)
{
	uint32_t to;
	int err;

	if (call->mark)
		return pair_put(s, 0, call->to);
	if (!s->symbols[call->from])
		return 0;
	if (call->part == FDRY_CALL_DIRECT || call->part == FDRY_CALL_RESOLVED) {
		to = s->symbols[call->to];
		return to ? pair_put(s, s->symbols[call->from], to)
			  : noslice("it calls %.100s, which nothing reaches",
				    s->c->elf.symbols[call->to].name);
	}
	err = prototype_put(s, call->to, &to);
	return err ? err : pair_put(s, s->symbols[call->from], to);
}

static int calls_put(struct slice *s)
{
	uint32_t i, part = 0, n = fdry_cubin_call_count(s->c);
	struct fdry_cubin_call call;
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_cubin_call_get(s->c, i, &part, &call);
		if (err)
			return err;
		err = call_put(s, &call);
		if (err)
			return err;
	}
	return 0;
}

/* Copy the prototypes: pairs of an external function and its prototype. */
static int prototypes_put(struct slice *s, struct fdry_span pairs)
{
	uint64_t i;
	uint32_t symbol, to;
	int err;

	for (i = 0; i + 8 <= pairs.len; i += 8) {
		symbol = fdry_get32(pairs.data + i);
		if (symbol >= s->c->elf.nsymbols)
			return fdry_fail(FDRY_E_BADCODE, "malformed cubin: a prototype belongs to "
							 "no symbol; rebuild the library");
		if (!s->symbols[symbol])
			continue;
		err = prototype_put(s, fdry_get32(pairs.data + i + 4), &to);
		if (err)
			return err;
		err = pair_put(s, s->symbols[symbol], to);
		if (err)
			return err;
	}
	return 0;
}

static int symbols_put(struct slice *s)
{
	const struct fdry_elf *elf = &s->c->elf;
	struct fdry_elf_sym y;
	uint32_t i, at;
	int err;

	for (i = 0; i < elf->nsymbols; i++) {
		if (i && !s->symbols[i])
			continue;
		y = elf->symbols[i].s;
		at = fdry_cubin_symbol_section(s->c, i);
		y.name = s->name_at[s->symbols[i]];
		if (at)
			y.shndx = (uint16_t)s->sections[at];
		err = fdry_buf_put(s->out, &y, sizeof(y));
		if (err)
			return err;
	}
	return 0;
}

/* --- headers --- */

/* Whether a relocation depends on this cubin alone. Those to texture and surface slots, and to the
 * unified table of the process, depend on more. */
static bool reloc_is_local(uint32_t type)
{
	static const uint8_t process_wide[] = { 6,  7,	8,  9,	19, 20, 21, 22,
						23, 26, 29, 30, 51, 52, 65 };
	size_t i;

	for (i = 0; i < sizeof(process_wide); i++)
		if (type == process_wide[i])
			return false;
	return type <= 100 || (type >= 114 && type <= 116);
}

static int relocs_check(const struct slice *s, uint32_t section)
{
	uint32_t i, n = fdry_elf_reloc_count(&s->c->elf, section), type;

	for (i = 0; i < n; i++) {
		type = (uint32_t)fdry_elf_reloc(&s->c->elf, section, i).info;
		if (!reloc_is_local(type))
			return fdry_fail(FDRY_E_NOSLICE,
					 "relocation type %u depends on more than its cubin", type);
	}
	return 0;
}

/* The sh_info of code is the symbol of its function. */
static int text_header(const struct slice *s, uint32_t old, struct fdry_elf_shdr *h)
{
	uint32_t symbol = fdry_cubin_function(s->c, old);

	if (!(h->info & FDRY_CUBIN_SYMBOL_BITS))
		return 0; /* cuBLAS's Hopper kernels have none, and the driver needs none */
	if (!symbol || !s->symbols[symbol])
		return noslice("section %.120s names no function of its own",
			       s->c->elf.sections[old].name);
	h->info = (h->info & ~FDRY_CUBIN_SYMBOL_BITS) | s->symbols[symbol];
	return 0;
}

/* sh_link and sh_info of a section that is copied unchanged. */
static int module_header(const struct slice *s, uint32_t old, struct fdry_elf_shdr *h)
{
	bool info = h->flags & FDRY_SHF_INFO_LINK;

	if ((h->link && !s->sections[h->link]) ||
	    (info ? h->info >= s->c->elf.nsections || !s->sections[h->info] : h->info != 0))
		return noslice("section %.120s refers to a section that is left out",
			       s->c->elf.sections[old].name);
	h->link = s->sections[h->link];
	if (info)
		h->info = s->sections[h->info];
	return 0;
}

/* Renumber sh_link and sh_info, by the kind of the section. */
static int header_renumber(const struct slice *s, uint32_t old, struct fdry_elf_shdr *h)
{
	const struct fdry_cubin_section *cs = &s->c->sections[old];
	uint32_t symtab = s->sections[s->c->elf.symtab];

	switch (cs->kind) {
	case FDRY_SECTION_SYMTAB:
		h->link = s->sections[h->link];
		h->info = s->symtab_info;
		return 0;
	case FDRY_SECTION_RELOC:
	case FDRY_SECTION_OWNED_INFO:
		h->link = symtab;
		h->info = s->sections[cs->owner];
		return cs->kind == FDRY_SECTION_RELOC ? relocs_check(s, old) : 0;
	case FDRY_SECTION_TEXT:
		h->link = symtab;
		return text_header(s, old, h);
	case FDRY_SECTION_OWNED:
		h->info = s->sections[cs->owner];
		break;
	case FDRY_SECTION_INFO:
	case FDRY_SECTION_CALLGRAPH:
	case FDRY_SECTION_PROTOTYPE:
		h->link = symtab;
		break;
	default:
		return module_header(s, old, h);
	}
	if (cs->kind == FDRY_SECTION_OWNED ? h->link != 0 : h->info != 0)
		return noslice("section %.120s refers to another in an unknown way",
			       s->c->elf.sections[old].name);
	return 0;
}

/* --- writing --- */

static int content_put(struct slice *s, uint32_t old)
{
	const struct fdry_elf_section *es = &s->c->elf.sections[old];

	switch (s->c->sections[old].kind) {
	case FDRY_SECTION_NAMES:
		return old == s->c->elf.h.shstrndx
			       ? fdry_buf_put(s->out, s->names.data, s->names.len)
			       : fdry_buf_put(s->out, s->strings.data, s->strings.len);
	case FDRY_SECTION_SYMTAB:
		return symbols_put(s);
	case FDRY_SECTION_INFO:
	case FDRY_SECTION_OWNED_INFO:
		return info_put(s, es->data, s->c->sections[old].owner);
	case FDRY_SECTION_CALLGRAPH:
		return calls_put(s);
	case FDRY_SECTION_PROTOTYPE:
		return prototypes_put(s, es->data);
	case FDRY_SECTION_RELOC:
		return relocs_put(s, old);
	default:
		return fdry_buf_put(s->out, es->data.data, es->data.len);
	}
}

static int section_put(struct slice *s, uint32_t old)
{
	struct fdry_elf_shdr *h = &s->headers[s->sections[old]];
	const char *name = s->c->elf.sections[old].name;
	int err;

	*h = s->c->elf.sections[old].h;
	err = header_renumber(s, old, h);
	if (err)
		return err;
	err = fdry_buf_align(s->out, h->addralign ? h->addralign : 1);
	if (err)
		return err;
	h->name = (uint32_t)s->names.len;
	h->offset = s->out->len;
	err = fdry_buf_put(&s->names, name, strlen(name) + 1);
	if (err)
		return err;
	if (s->c->sections[old].kind != FDRY_SECTION_NAMES) {
		err = content_put(s, old);
		if (err)
			return err;
	}
	if (h->type != FDRY_SHT_NOBITS)
		h->size = s->out->len - h->offset;
	return 0;
}

/* Write the string tables last, since writing the other sections fills them. */
static int names_put(struct slice *s)
{
	struct fdry_elf_shdr *h;
	uint32_t i;
	int err;

	for (i = 1; i < s->c->elf.nsections; i++) {
		if (s->c->sections[i].kind != FDRY_SECTION_NAMES)
			continue;
		h = &s->headers[s->sections[i]];
		h->offset = s->out->len;
		err = content_put(s, i);
		if (err)
			return err;
		h->size = s->out->len - h->offset;
	}
	return 0;
}

static int file_put(struct slice *s)
{
	struct fdry_elf_ehdr h = s->c->elf.h;
	uint32_t i;
	int err;

	err = fdry_buf_grow(s->out, sizeof(h), NULL);
	if (err)
		return err;
	err = fdry_buf_put(&s->names, "", 1);
	if (err)
		return err;
	for (i = 1; i < s->c->elf.nsections; i++) {
		err = s->sections[i] ? section_put(s, i) : 0;
		if (err)
			return err;
	}
	err = names_put(s);
	if (err)
		return err;
	err = fdry_buf_align(s->out, 8);
	if (err)
		return err;
	h.phoff = h.phentsize = h.phnum = 0;
	h.shoff = s->out->len;
	h.shnum = (uint16_t)s->nsections;
	h.shstrndx = (uint16_t)s->sections[h.shstrndx];
	memcpy(s->out->data, &h, sizeof(h));
	return fdry_buf_put(s->out, s->headers, s->nsections * sizeof(*s->headers));
}

static int slice_make(struct slice *s)
{
	const struct fdry_elf *elf = &s->c->elf;
	const struct fdry_cubin_section *kinds = s->c->sections;
	uint32_t names = elf->sections[elf->symtab].h.link;
	int err;

	if (elf->h.shstrndx == names || kinds[elf->h.shstrndx].kind != FDRY_SECTION_NAMES ||
	    kinds[names].kind != FDRY_SECTION_NAMES ||
	    kinds[elf->symtab].kind != FDRY_SECTION_SYMTAB)
		return noslice("%s", "its symbols or names lie in tables of an unknown kind");
	s->sections = calloc(elf->nsections, sizeof(*s->sections));
	s->symbols = calloc(elf->nsymbols + 1, sizeof(*s->symbols));
	s->headers = calloc(elf->nsections, sizeof(*s->headers));
	s->name_at = calloc(elf->nsymbols + 1, sizeof(*s->name_at));
	if (!s->sections || !s->symbols || !s->headers || !s->name_at)
		return fdry_nomem();
	choose(s);
	err = strings_make(s);
	return err ? err : file_put(s);
}

int fdry_slice(const struct fdry_code_reach *r, struct fdry_buf *ret)
{
	struct slice s = { .c = r->cubin, .r = r, .out = ret };
	int err;

	if (r->unsliceable[0])
		return fdry_fail(FDRY_E_NOSLICE, "%s", r->unsliceable);
	err = slice_make(&s);
	free(s.sections);
	free(s.symbols);
	free(s.headers);
	free(s.name_at);
	fdry_buf_release(&s.names);
	fdry_buf_release(&s.strings);
	if (err)
		goto out_release;
	err = fdry_slice_check(r, (struct fdry_span){ ret->data, ret->len });
	if (err)
		goto out_release;
	return 0;
out_release:
	fdry_buf_release(ret);
	return err;
}
