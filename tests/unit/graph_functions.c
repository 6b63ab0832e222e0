// SPDX-License-Identifier: Apache-2.0
/* Tests functions that kernels call through pointers, with a fake driver: their tables, and the
 * comparison of their code. */
#include "tests/lib/paper.h"

#include <stdlib.h>

#define CODE 4096u /* more than a function has */

/* A load of tables.90.cubin whose tables point to copies of the functions' code. */
static struct {
	struct load *load;
	uint8_t *one, *two;
	unsigned int runs; /* how often fingerprints were computed */
	bool fails;        /* the device cannot compute them */
} w;

static const struct fdry_elf_sym *symbol_of(const char *name)
{
	const struct fdry_elf *elf = &w.load->c->elf;
	uint32_t i;

	for (i = 0; i < elf->nsymbols; i++)
		if (!strcmp(elf->symbols[i].name, name))
			return &elf->symbols[i].s;
	ck_abort_msg("no symbol %s", name);
	return NULL;
}

/* The code of a function, as the driver has it: it patches the operands of relocations. */
static uint8_t *code_new(const char *name)
{
	const struct fdry_elf_sym *s = symbol_of(name);
	const struct fdry_cubin *c = w.load->c;
	uint8_t *code = aligned_alloc(CODE, CODE);
	struct fdry_elf_rela r;
	uint32_t t, i;

	ck_assert_ptr_nonnull(code);
	ck_assert_uint_le(s->size, CODE);
	memcpy(code, c->elf.sections[s->shndx].data.data + s->value, s->size);
	for (t = c->sections[s->shndx].relocs; t; t = c->sections[t].next_reloc)
		for (i = 0; i < fdry_elf_reloc_count(&c->elf, t); i++) {
			r = fdry_elf_reloc(&c->elf, t, i);
			if (r.offset >= s->value && r.offset < s->value + s->size)
				code[r.offset - s->value] ^= 0x55;
		}
	return code;
}

static void table_set(const char *table, unsigned int i, const uint8_t *to)
{
	fdry_set64(variable_of(w.load, table) + 8 * i, (uint64_t)(uintptr_t)to);
}

static void begin(void)
{
	paper_begin();
	w.load = load_file("tables.90.cubin");
	w.runs = 0;
	w.fails = false;
	w.one = code_new("_Z3onei");
	w.two = code_new("_Z3twoi");
	table_set("table", 0, w.one);
	table_set("table", 1, w.two);
	table_set("again", 0, w.two);
}

static void end(void)
{
	free(w.one);
	free(w.two);
	paper_end();
}

static bool prints_of(void *arg, const struct fdry_fingerprint_range *ranges, size_t n,
		      struct fdry_fingerprint *ret)
{
	size_t i;

	ck_assert_ptr_eq(arg, &w);
	w.runs++;
	for (i = 0; i < n && !w.fails; i++)
		ret[i] = fdry_fingerprint_of((const void *)(uintptr_t)ranges[i].addr,
					     (size_t)ranges[i].len);
	return !w.fails;
}

static struct fdry_kernel_set *set_of(const char *kernel)
{
	struct fdry_kernel_set *set = set_new();

	intern(set, kernel_of(w.load, kernel), true);
	return set;
}

/* The error of the comparison for a kernel, "" if it succeeds. */
static const char *checked(const char *kernel)
{
	struct fdry_kernel_set *set = set_of(kernel);
	int err = fdry_kernel_set_slice(set);

	if (!err)
		err = fdry_kernel_set_functions_check(set, prints_of, &w);
	fdry_kernel_set_free(set);
	ck_assert(!err || err == -FDRY_E_REFUSED);
	return err ? fdry_last_error() : "";
}

START_TEST(functions_of_tables_are_known)
{
	struct fdry_kernel_set *set;

	begin();
	set = set_of("by_table");
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_function_count(set), 2);
	ck_assert_str_eq(fdry_kernel_set_function(set, (uint64_t)(uintptr_t)w.one), "_Z3onei");
	ck_assert_str_eq(fdry_kernel_set_function(set, (uint64_t)(uintptr_t)w.two), "_Z3twoi");
	ck_assert_ptr_null(fdry_kernel_set_function(set, (uint64_t)(uintptr_t)w.one + 1));
	ck_assert_ptr_null(fdry_kernel_set_function(set, 0));
	ck_assert_uint_lt(fdry_kernel_set_function_at(set, 0).addr,
			  fdry_kernel_set_function_at(set, 1).addr);
	ck_assert_uint_eq(fdry_kernel_set_function_at(set, 0).len,
			  symbol_of(w.one < w.two ? "_Z3onei" : "_Z3twoi")->size);
	ck_assert_int_eq(fdry_kernel_set_functions_check(set, prints_of, &w), 0);
	ck_assert_uint_eq(w.runs, 1);
	fdry_kernel_set_free(set);
	end();
}
END_TEST

/* Their kernels, and all others of the module, keep the whole code, which has all functions. */
START_TEST(such_modules_stay_whole)
{
	struct fdry_kernel_set *set;
	uint32_t i;

	begin();
	set = set_of("by_argument");
	intern(set, kernel_of(w.load, "by_none"), true);
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	for (i = 0; i < 2; i++)
		ck_assert(fdry_kernel_set_get(set, i)->whole);
	ck_assert_str_eq(fdry_kernel_set_get(set, 0)->whole_reason,
			 "it calls functions through pointers");
	fdry_kernel_set_free(set);
	set = set_of("by_none");
	slice(set);
	ck_assert(!fdry_kernel_set_get(set, 0)->whole);
	ck_assert_uint_eq(fdry_kernel_set_function_count(set), 0);
	ck_assert_int_eq(fdry_kernel_set_functions_check(set, prints_of, &w), 0);
	ck_assert_uint_eq(w.runs, 0);
	fdry_kernel_set_free(set);
	end();
}
END_TEST

static int value_count(void *arg, const struct fdry_kernel_value *v)
{
	(void)v;
	++*(unsigned int *)arg;
	return 0;
}

/* The driver fills in the addresses, so an image has no values for the tables. */
START_TEST(tables_have_no_values)
{
	struct fdry_kernel_set *set;
	unsigned int n = 0;

	begin();
	set = set_of("by_table");
	slice(set);
	ck_assert_int_eq(fdry_kernel_set_values(set, value_count, &n), 0);
	ck_assert_uint_eq(n, 0);
	fdry_kernel_set_free(set);
	end();
}
END_TEST

START_TEST(changed_tables_are_refused)
{
	static const char swapped[] = "a table of functions has the address 0x";

	begin();
	ck_assert_str_eq(checked("by_table"), "");
	table_set("table", 0, w.two);
	table_set("table", 1, w.one);
	table_set("again", 0, w.one);
	ck_assert_ptr_nonnull(strstr(checked("by_table"), swapped));
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "which is not there"));
	table_set("table", 1, w.two);
	ck_assert_ptr_nonnull(strstr(checked("by_table"), "for both _Z3"));
	ck_assert_uint_eq(w.runs, 2);
	end();
}
END_TEST

/* The functions of a load read the variables of that load. */
START_TEST(tables_with_functions_of_another_load_are_refused)
{
	struct fdry_kernel_set *set;
	struct load *first;

	begin();
	first = w.load;
	w.load = load_file("tables.90.cubin");
	table_set("table", 0, w.one);
	table_set("table", 1, w.two);
	table_set("again", 0, w.two);
	set = set_of("by_table");
	intern(set, kernel_of(first, "by_table"), true);
	slice_refused(set, "for both _Z3", "do not change tables");
	fdry_kernel_set_free(set);
	end();
}
END_TEST

/* Each byte of the code counts, except for the instructions that the driver patches. */
START_TEST(other_code_is_refused)
{
	const struct fdry_elf_sym *s;
	unsigned int i, patched = 0;

	begin();
	s = symbol_of("_Z3twoi");
	for (i = 0; i < s->size; i++) {
		w.two[i] ^= 1;
		patched += !*checked("by_table");
		w.two[i] ^= 1;
	}
	ck_assert_uint_gt(patched, 0);
	ck_assert_uint_le(patched, 64);
	ck_assert_uint_eq(patched % 16, 0);
	ck_assert_str_eq(checked("by_table"), "");
	end();
}
END_TEST

START_TEST(without_fingerprints_they_are_refused)
{
	begin();
	w.fails = true;
	ck_assert_ptr_nonnull(strstr(checked("by_table"), "cannot compute fingerprints"));
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_functions");
	TCase *tc = tcase_create("functions");

	tcase_add_test(tc, functions_of_tables_are_known);
	tcase_add_test(tc, such_modules_stay_whole);
	tcase_add_test(tc, tables_have_no_values);
	tcase_add_test(tc, changed_tables_are_refused);
	tcase_add_test(tc, tables_with_functions_of_another_load_are_refused);
	tcase_add_test(tc, other_code_is_refused);
	tcase_add_test(tc, without_fingerprints_they_are_refused);
	suite_add_tcase(s, tc);
	return test_main(s);
}
