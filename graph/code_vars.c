// SPDX-License-Identifier: Apache-2.0
/* code_vars.c - lists the variables of a module; see code_vars.h. */
#include "graph/code_vars.h"

enum { STB_GLOBAL = 1, SHF_WRITE = 1 };

/* Whether a symbol is a variable that device code may write, not private data of the object. */
static bool host_variable(const struct fdry_elf *elf, const struct fdry_elf_symbol *s)
{
	return fdry_elf_sym_type(&s->s) == FDRY_STT_OBJECT &&
	       fdry_elf_sym_bind(&s->s) == STB_GLOBAL && s->s.size &&
	       s->s.shndx < elf->nsections && elf->sections[s->s.shndx].h.flags & SHF_WRITE;
}

static int host_add(const struct fdry_elf *elf, uint32_t symbol, struct fdry_buf *ret,
		    struct fdry_buf *ret_initial)
{
	const struct fdry_elf_symbol *s = &elf->symbols[symbol];
	const struct fdry_elf_section *section = &elf->sections[s->s.shndx];
	struct fdry_cubin_variable v = { .name = s->name,
					 .symbol = symbol,
					 .section = s->s.shndx,
					 .offset = s->s.value - section->h.addr,
					 .size = s->s.size,
					 .unique = true };
	struct fdry_span initial = { fdry_span_at(section->data, v.offset, v.size), v.size };
	int err = fdry_buf_put(ret, &v, sizeof(v));

	if (!err && ret_initial)
		err = fdry_buf_put(ret_initial, &initial, sizeof(initial));
	return err;
}

int fdry_code_vars_host(struct fdry_span code, struct fdry_buf *ret, struct fdry_buf *ret_initial)
{
	struct fdry_elf elf;
	uint32_t i;
	int err = fdry_elf_init(code, &elf);

	if (err)
		return err;
	for (i = 0; i < elf.nsymbols && !err; i++)
		if (host_variable(&elf, &elf.symbols[i]))
			err = host_add(&elf, i, ret, ret_initial);
	fdry_elf_release(&elf);
	return err;
}

int fdry_code_vars_list(struct fdry_span code, struct fdry_buf *ret)
{
	struct fdry_cubin *c;
	int err;

	if (fdry_elf_machine(code) != FDRY_EM_CUDA)
		return fdry_code_vars_host(code, ret, NULL);
	err = fdry_cubin_new(code, &c);
	if (err)
		return err;
	err = fdry_buf_put(ret, c->variables, c->nvariables * sizeof(*c->variables));
	fdry_cubin_free(c);
	return err;
}
