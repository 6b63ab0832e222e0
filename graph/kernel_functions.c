// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_functions.c - the functions that kernels call through pointers.
 *
 * Code that is linked from several files has tables with addresses of functions, and NCCL's kernels
 * call through such a table. The driver fills in the addresses when it loads the code, so a load of
 * the image has tables that are right for it. Two things could make them wrong. A program may have
 * written other addresses into a table: so the device computes fingerprints of the code at each
 * address, and they must be those of the function that the table names. And a program may have
 * copied an address to other memory: the seal searches for all of them (image/seal/functions.c).
 *
 * The driver changes the instructions that relocations patch. They are left out of the comparison,
 * so two functions that differ in them alone are refused.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/kernel_set.h"
#include "lib/search.h"

#define INSTRUCTION 16ull /* bytes, for all GPUs since compute capability 7.0 */
#define SEEN 9            /* the architecture whose code memory was read by kernels */

static const struct fdry_set_function *functions_of(const struct fdry_kernel_set *set, size_t *n)
{
	*n = fdry_array_count(set->functions, struct fdry_set_function);
	return fdry_array(set->functions, struct fdry_set_function);
}

static const char *name_of(const struct fdry_set_function *f)
{
	return f->cubin->elf.symbols[f->symbol].name;
}

/* --- the list --- */

static int by_address(const void *a, const void *b)
{
	const struct fdry_set_function *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->cubin != y->cubin)
		return x->cubin < y->cubin ? -1 : 1;
	return (x->symbol > y->symbol) - (x->symbol < y->symbol);
}

int fdry_set_functions_sort(struct fdry_kernel_set *set)
{
	struct fdry_set_function *f = fdry_array(set->functions, struct fdry_set_function);
	size_t i, kept = 0, n = fdry_array_count(set->functions, struct fdry_set_function);

	if (!n)
		return 0;
	qsort(f, n, sizeof(*f), by_address);
	for (i = 0; i < n; i++) {
		if (!kept || f[i].addr != f[kept - 1].addr) {
			f[kept++] = f[i];
			continue;
		}
		if (f[i].load != f[kept - 1].load || f[i].cubin != f[kept - 1].cubin ||
		    f[i].symbol != f[kept - 1].symbol)
			return fdry_fail(FDRY_E_REFUSED,
					 "a table of functions has the address 0x%llx for both "
					 "%.200s and %.200s; do not change tables of functions",
					 f[i].addr, name_of(&f[kept - 1]), name_of(&f[i]));
	}
	set->functions.len = kept * sizeof(*f);
	return 0;
}

const char *fdry_kernel_set_function(const struct fdry_kernel_set *set, CUdeviceptr addr)
{
	size_t n;
	const struct fdry_set_function *f = functions_of(set, &n);
	size_t at = fdry_lower_bound(i, n, f[i].addr < addr);

	return at < n && f[at].addr == addr ? name_of(&f[at]) : NULL;
}

uint32_t fdry_kernel_set_function_count(const struct fdry_kernel_set *set)
{
	size_t n;

	(void)functions_of(set, &n);
	return (uint32_t)n;
}

struct fdry_fingerprint_range fdry_kernel_set_function_at(const struct fdry_kernel_set *set,
							  uint32_t i)
{
	size_t n;
	const struct fdry_set_function *f = &functions_of(set, &n)[i];

	return (struct fdry_fingerprint_range){ f->addr, f->cubin->elf.symbols[f->symbol].s.size };
}

/* --- the code --- */

/* The parts of functions that no relocation patches. */
struct parts {
	struct fdry_buf ranges;  /* of struct fdry_fingerprint_range: on the device */
	struct fdry_buf prints;  /* of struct fdry_fingerprint: of the cubin's bytes there */
	struct fdry_buf firsts;  /* u64 each: the first part of each function */
};

/* The code of a function in its cubin. */
static int code_of(const struct fdry_set_function *f, struct fdry_span *ret)
{
	const struct fdry_elf_sym *s = &f->cubin->elf.symbols[f->symbol].s;
	const uint8_t *code = fdry_span_at(f->cubin->elf.sections[s->shndx].data, s->value,
					   s->size);

	if (!code || !s->size)
		return fdry_fail(FDRY_E_REFUSED,
				 "the code of %.200s, which kernels call through pointers, cannot "
				 "be compared, since its size is not known; do not capture such "
				 "kernels",
				 name_of(f));
	*ret = (struct fdry_span){ code, (size_t)s->size };
	return 0;
}

/* Append the offsets of the patched instructions of a function. */
static int patched_list(const struct fdry_set_function *f, uint64_t len, struct fdry_buf *ret)
{
	const struct fdry_cubin *c = f->cubin;
	const struct fdry_elf_sym *y = &c->elf.symbols[f->symbol].s;
	struct fdry_elf_rela r;
	uint32_t s, i;
	int err = 0;

	for (s = c->sections[y->shndx].relocs; s; s = c->sections[s].next_reloc)
		for (i = 0; i < fdry_elf_reloc_count(&c->elf, s) && !err; i++) {
			r = fdry_elf_reloc(&c->elf, s, i);
			if (r.offset - y->value < len)
				err = fdry_buf_put_u64(ret, (r.offset - y->value) / INSTRUCTION *
								    INSTRUCTION);
		}
	return err;
}

static int part_put(struct parts *p, const struct fdry_set_function *f, struct fdry_span code,
		    uint64_t from, uint64_t to)
{
	struct fdry_fingerprint_range range = { f->addr + from, to - from };
	struct fdry_fingerprint print;

	if (from >= to)
		return 0;
	print = fdry_fingerprint_of(code.data + from, (size_t)range.len);
	return fdry_buf_put(&p->ranges, &range, sizeof(range)) ?:
	       fdry_buf_put(&p->prints, &print, sizeof(print));
}

static int function_cut(struct parts *p, const struct fdry_set_function *f)
{
	struct fdry_buf patched = { 0 };
	struct fdry_span code = { 0 };
	uint64_t from = 0, at;
	size_t i;
	int err = code_of(f, &code) ?:
		  fdry_buf_put_u64(&p->firsts, fdry_array_count(p->ranges,
								struct fdry_fingerprint_range));

	if (err)
		return err;
	err = patched_list(f, code.len, &patched);
	if (patched.len)
		qsort(patched.data, patched.len / 8, 8, fdry_u64_cmp);
	for (i = 0; i < patched.len && !err; i += 8) {
		at = fdry_get64(patched.data + i);
		err = part_put(p, f, code, from, at);
		from = at + INSTRUCTION > from ? at + INSTRUCTION : from;
	}
	if (!err)
		err = part_put(p, f, code, from, code.len);
	fdry_buf_release(&patched);
	return err;
}

static size_t first_of(const struct parts *p, size_t i)
{
	return i < p->firsts.len / 8 ? (size_t)fdry_get64(p->firsts.data + 8 * i)
				     : fdry_array_count(p->ranges, struct fdry_fingerprint_range);
}

/* The parts of function @i: their offsets, lengths and fingerprints, as bytes. */
static int form_of(const struct parts *p, size_t i, CUdeviceptr addr, struct fdry_buf *ret)
{
	const struct fdry_fingerprint_range *r =
		fdry_array(p->ranges, struct fdry_fingerprint_range);
	const struct fdry_fingerprint *prints = fdry_array(p->prints, struct fdry_fingerprint);
	size_t k;
	int err = 0;

	ret->len = 0;
	for (k = first_of(p, i); k < first_of(p, i + 1) && !err; k++)
		err = fdry_buf_put_u64(ret, r[k].addr - addr) ?:
		      fdry_buf_put_u64(ret, r[k].len) ?:
		      fdry_buf_put(ret, &prints[k], sizeof(prints[k]));
	return err;
}

struct form {
	struct fdry_oid hash; /* of form_of() */
	const struct fdry_set_function *f;
};

static int by_cubin(const void *a, const void *b)
{
	const struct form *x = a, *y = b;

	if (x->f->cubin != y->f->cubin)
		return x->f->cubin < y->f->cubin ? -1 : 1;
	return fdry_oid_cmp(&x->hash, &y->hash);
}

/* Refuse two functions of a cubin that the comparison cannot tell apart. A function may be there
 * once for each load of the cubin. */
static int forms_compare(struct form *forms, size_t n)
{
	size_t i;

	qsort(forms, n, sizeof(*forms), by_cubin);
	for (i = 1; i < n; i++)
		if (!by_cubin(&forms[i - 1], &forms[i]) &&
		    forms[i].f->symbol != forms[i - 1].f->symbol)
			return fdry_fail(FDRY_E_REFUSED,
					 "the functions %.200s and %.200s, which kernels call "
					 "through pointers, have the same code, so a changed table "
					 "would not be noticed; do not capture such kernels",
					 name_of(forms[i - 1].f), name_of(forms[i].f));
	return 0;
}

static int forms_check(const struct fdry_kernel_set *set, const struct parts *p)
{
	size_t n, i;
	const struct fdry_set_function *f = functions_of(set, &n);
	struct form *forms = calloc(n + 1, sizeof(*forms));
	struct fdry_buf bytes = { 0 };
	int err = forms ? 0 : fdry_nomem();

	for (i = 0; i < n && !err; i++) {
		forms[i].f = &f[i];
		err = form_of(p, i, f[i].addr, &bytes) ?:
		      fdry_oid_of(bytes.data, bytes.len, &forms[i].hash);
	}
	if (!err)
		err = forms_compare(forms, n);
	fdry_buf_release(&bytes);
	free(forms);
	return err;
}

static int prints_compare(const struct fdry_kernel_set *set, const struct parts *p,
			  const struct fdry_fingerprint *found)
{
	const struct fdry_fingerprint *want = fdry_array(p->prints, struct fdry_fingerprint);
	size_t n, i, k;
	const struct fdry_set_function *f = functions_of(set, &n);

	for (i = 0; i < n; i++)
		for (k = first_of(p, i); k < first_of(p, i + 1); k++)
			if (!fdry_fingerprint_eq(found[k], want[k]))
				return fdry_fail(FDRY_E_REFUSED,
						 "a table of functions has the address 0x%llx for "
						 "%.200s, which is not there; do not change tables "
						 "of functions",
						 f[i].addr, name_of(&f[i]));
	return 0;
}

static int parts_check(const struct fdry_kernel_set *set, const struct parts *p,
		       fdry_prints_fn prints, void *arg)
{
	size_t n = fdry_array_count(p->ranges, struct fdry_fingerprint_range);
	struct fdry_fingerprint *found = malloc((n + 1) * sizeof(*found));
	int err;

	if (!found)
		return fdry_nomem();
	if (prints(arg, fdry_array(p->ranges, struct fdry_fingerprint_range), n, found))
		err = prints_compare(set, p, found);
	else
		err = fdry_fail(FDRY_E_REFUSED,
				"kernels call functions through pointers, and the device cannot "
				"compute fingerprints of their code, so changed pointers would not "
				"be noticed; do not capture such kernels");
	free(found);
	return err;
}

int fdry_kernel_set_functions_check(const struct fdry_kernel_set *set, fdry_prints_fn prints,
				    void *arg)
{
	size_t n, i;
	const struct fdry_set_function *f = functions_of(set, &n);
	struct parts p = { 0 };
	int err = 0;

	if (!n)
		return 0;
	if (set->cc / 10 != SEEN)
		return fdry_fail(FDRY_E_REFUSED,
				 "kernels call functions through pointers, such as %.200s, which "
				 "is supported on GPUs of compute capability %d alone; do not "
				 "capture such kernels on this one (%u.%u)",
				 name_of(&f[0]), SEEN, set->cc / 10, set->cc % 10);
	for (i = 0; i < n && !err; i++)
		err = function_cut(&p, &f[i]);
	if (!err)
		err = forms_check(set, &p) ?: parts_check(set, &p, prints, arg);
	fdry_buf_release(&p.ranges);
	fdry_buf_release(&p.prints);
	fdry_buf_release(&p.firsts);
	return err;
}
