// SPDX-License-Identifier: Apache-2.0
/* Unit tests of loaded kernel objects that several banks share, on a driver on paper (paper.h) that
 * counts loads. */
#include <sys/wait.h>
#include <unistd.h>

#include "graph/elf.h"
#include "graph/module.h"
#include "graph/module_table.h"
#include "tests/lib/paper.h"
#include "tests/lib/test.h"

/* Kernels of two files: "plain" has no variables, "vars" has some that its kernels write. */
struct kernels {
	struct fdry_kernel_set *set;
	struct fdry_kernel k[4];
	uint32_t n;
};

enum { SCALE, BUMP, BUMP_BY };

static void kernel_add(struct kernels *ks, struct load *l, const char *name)
{
	struct paper_kernel *k = kernel_of(l, name);
	uint32_t index;

	ck_assert_msg(!fdry_kernel_set_intern(ks->set, (CUkernel)k, (CUfunction)k, &index), "%s",
		      fdry_last_error());
	ck_assert_uint_eq(index, ks->n++);
}

static void kernels_make(struct kernels *ks)
{
	struct load *vars = load_file("vars.90.cubin");
	uint32_t i;

	memset(ks, 0, sizeof(*ks));
	ks->set = set_new();
	kernel_add(ks, load_file("plain.90.cubin"), "scale");
	kernel_add(ks, vars, "bump");
	kernel_add(ks, vars, "bump_by");
	ck_assert_msg(!fdry_kernel_set_slice(ks->set), "%s", fdry_last_error());
	for (i = 0; i < ks->n; i++)
		ks->k[i] = *fdry_kernel_set_get(ks->set, i);
}

static struct kernels ks;

static void setup(void)
{
	paper_begin();
	kernels_make(&ks);
}

static void teardown(void)
{
	fdry_kernel_set_free(ks.set);
	paper_end();
}

/* A bank of @n kernels from number @first on; how many modules the driver loaded for it. */
static unsigned int bank_new(uint32_t first, uint32_t n, struct fdry_kernel_bank **ret)
{
	unsigned int before = paper.nloads;

	ck_assert_msg(
		!fdry_kernel_bank_new(&paper.drv, &ks.k[first], n, paper_object_get, ks.set, ret),
		"%s", fdry_last_error());
	return paper.nloads - before;
}

/* How many modules the driver unloaded with it. */
static unsigned int bank_free(struct fdry_kernel_bank *bank)
{
	unsigned int before = paper.unloaded;

	fdry_kernel_bank_free(bank);
	return paper.unloaded - before;
}

START_TEST(banks_share_a_module_until_the_last_ends)
{
	struct fdry_kernel_bank *bank[3];

	ck_assert(!fdry_module_is_shared(&ks.k[SCALE].object));
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[0]), 1);
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[1]), 0);
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[2]), 0);
	ck_assert(fdry_module_is_shared(&ks.k[SCALE].object));
	ck_assert_ptr_eq(fdry_kernel_bank_get(bank[0], 0), fdry_kernel_bank_get(bank[1], 0));
	ck_assert_uint_eq(bank_free(bank[1]), 0);
	ck_assert_uint_eq(bank_free(bank[0]), 0);
	ck_assert_uint_eq(bank_free(bank[2]), 1);
	ck_assert(!fdry_module_is_shared(&ks.k[SCALE].object));
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[0]), 1); /* the next module begins with a new
							       bank */
	ck_assert_uint_eq(bank_free(bank[0]), 1);
}
END_TEST

/* Otherwise a kernel of one image would see values that another image's kernel wrote. */
START_TEST(a_module_with_variables_is_one_banks_own)
{
	struct fdry_kernel_bank *bank[2];

	ck_assert_uint_eq(bank_new(SCALE, 3, &bank[0]), 2);
	ck_assert_uint_eq(bank_new(SCALE, 3, &bank[1]), 1);
	ck_assert_ptr_eq(fdry_kernel_bank_get(bank[0], SCALE),
			 fdry_kernel_bank_get(bank[1], SCALE));
	ck_assert_ptr_ne(fdry_kernel_bank_get(bank[0], BUMP), fdry_kernel_bank_get(bank[1], BUMP));
	ck_assert_ptr_eq(((struct paper_kernel *)fdry_kernel_bank_get(bank[1], BUMP))->l,
			 ((struct paper_kernel *)fdry_kernel_bank_get(bank[1], BUMP_BY))->l);
	ck_assert(!fdry_module_is_shared(&ks.k[BUMP].object));
	ck_assert_uint_eq(bank_free(bank[0]), 1);
	ck_assert_uint_eq(bank_free(bank[1]), 2);
}
END_TEST

/* A function has one set of attributes. */
START_TEST(other_attributes_take_a_load_of_their_own)
{
	struct fdry_kernel_bank *plain, *large, *other;

	ck_assert_uint_eq(bank_new(SCALE, 1, &plain), 1);
	ks.k[SCALE].attrs[0] = 100000;
	ck_assert_uint_eq(bank_new(SCALE, 1, &large), 1);
	ck_assert_uint_eq(bank_new(SCALE, 1, &other), 0);
	ck_assert_ptr_eq(fdry_kernel_bank_get(large, 0), fdry_kernel_bank_get(other, 0));
	ck_assert_int_eq(((struct paper_kernel *)fdry_kernel_bank_get(plain, 0))->attrs[0], 49152);
	ck_assert_int_eq(((struct paper_kernel *)fdry_kernel_bank_get(large, 0))->attrs[0], 100000);
	ck_assert_uint_eq(bank_free(large), 0);
	ck_assert_uint_eq(bank_free(plain), 1);
	ck_assert_uint_eq(bank_free(other), 1);
}
END_TEST

START_TEST(another_context_has_its_own)
{
	struct fdry_kernel_bank *bank[3];

	paper.context = 1;
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[0]), 1);
	paper.context = 2;
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[1]), 1);
	paper.context = 1;
	ck_assert_uint_eq(bank_new(SCALE, 1, &bank[2]), 0);
	ck_assert_ptr_eq(fdry_kernel_bank_get(bank[0], 0), fdry_kernel_bank_get(bank[2], 0));
	ck_assert_uint_eq(bank_free(bank[0]), 0);
	ck_assert_uint_eq(bank_free(bank[1]), 1);
	ck_assert_uint_eq(bank_free(bank[2]), 1);
}
END_TEST

START_TEST(a_child_has_its_own)
{
	struct fdry_kernel_bank *bank, *again;
	pid_t pid;
	int status;

	ck_assert_uint_eq(bank_new(SCALE, 1, &bank), 1);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		ck_assert(!fdry_module_is_shared(&ks.k[SCALE].object));
		_exit(bank_new(SCALE, 1, &again) != 1 || bank_free(again) != 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	ck_assert_uint_eq(bank_free(bank), 1);
}
END_TEST

/* Parameters are compared with a shared function's as with the driver's. */
START_TEST(a_shared_kernel_is_compared)
{
	struct fdry_kernel_bank *bank, *none = NULL;
	struct fdry_kernel k = ks.k[SCALE];
	struct fdry_param params[8];

	ck_assert_uint_eq(bank_new(SCALE, 1, &bank), 1);
	memcpy(params, k.params, k.nparams * sizeof(*params));
	k.params = params;
	params[2].size = 4;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, &k, 1, paper_object_get, ks.set, &none),
			 -FDRY_E_BADIMAGE);
	k = ks.k[SCALE];
	k.nparams--;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, &k, 1, paper_object_get, ks.set, &none),
			 -FDRY_E_BADIMAGE);
	k.nparams = 0;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, &k, 1, paper_object_get, ks.set, &none),
			 -FDRY_E_BADIMAGE);
	k = ks.k[SCALE];
	k.name = "scaled";
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, &k, 1, paper_object_get, ks.set, &none),
			 -FDRY_E_BADIMAGE);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(bank_free(bank), 1);
}
END_TEST

/* A kernel that was refused leaves nothing that a good one of its name and object would meet. */
START_TEST(a_refused_kernel_leaves_nothing)
{
	struct fdry_kernel_bank *bank, *none = NULL;
	struct fdry_kernel two[2] = { ks.k[BUMP], ks.k[SCALE] };
	struct fdry_param params[8];

	memcpy(params, two[1].params, two[1].nparams * sizeof(*params));
	two[1].params = params;
	params[0].size = 1;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, two, 2, paper_object_get, ks.set, &none),
			 -FDRY_E_BADIMAGE);
	ck_assert_uint_eq(paper.unloaded, 2);
	ck_assert_uint_eq(bank_new(SCALE, 3, &bank), 2);
	ck_assert_uint_eq(bank_free(bank), 2);
}
END_TEST

START_TEST(a_load_that_fails_leaves_other_banks_as_they_are)
{
	struct fdry_kernel_bank *first, *again = NULL;
	unsigned int i, loads, failed = 0;

	ck_assert_uint_eq(bank_new(SCALE, 1, &first), 1);
	for (i = 1; !again; i++) {
		loads = paper.nloads;
		paper.unloaded = 0;
		paper.fail_at = paper.calls + i;
		failed += fdry_kernel_bank_new(&paper.drv, ks.k, ks.n, paper_object_get, ks.set,
					       &again) != 0;
		if (!again)
			ck_assert_uint_eq(paper.unloaded, paper.nloads - loads);
		paper.fail_at = 0;
	}
	ck_assert_uint_ge(failed, 4);
	ck_assert_ptr_eq(fdry_kernel_bank_get(first, SCALE), fdry_kernel_bank_get(again, SCALE));
	ck_assert_uint_eq(bank_free(first), 0);
	ck_assert_uint_eq(bank_free(again), 2);
}
END_TEST

static const struct code {
	const char *name;
	bool variables;
} codes[] = {
	{ "plain.90.cubin", false }, { "shared.90.cubin", false }, { "axpy.triton.cubin", false },
	{ "who.90a.cubin", false },  { "vars.80.cubin", true },	   { "vars.90.cubin", true },
	{ "vars.100.cubin", true },  { "shared.100.cubin", false },
	{ "syscalls.80.cubin", false }, { "syscalls.100.cubin", false },
	{ "linked.90.cubin", true }, { "syscalls.90.cubin", false },
	{ "calls.90.cubin", true },
};

static uint32_t section_named(const struct fdry_elf *elf, const char *name)
{
	uint32_t i;

	for (i = 1; strcmp(elf->sections[i].name, name); i++)
		;
	return i;
}

static uint32_t section_symbol(const struct fdry_elf *elf, uint32_t section)
{
	const struct fdry_elf_symbol *y = &elf->symbols[1];

	while (y->s.shndx != section || fdry_elf_sym_type(&y->s) != 3)
		y++;
	return (uint32_t)(y - elf->symbols);
}

/* A program can choose the name of a variable that is no string of the compiler's. */
static void string_rename(const struct fdry_elf *elf, uint8_t *bytes)
{
	const struct fdry_span *names = &elf->sections[section_named(elf, ".strtab")].data;
	const uint8_t *at = memmem(names->data, names->len, "__unnamed_2", sizeof("__unnamed_2"));

	bytes[at - elf->image.data] = 'a';
}

/* Code that has the address of the whole section may mean a byte that no name covers. */
static void string_unname(const struct fdry_elf *elf, uint8_t *bytes)
{
	uint32_t data = section_named(elf, ".nv.global.init");
	const struct fdry_span *relocs =
		&elf->sections[section_named(elf, ".rela.nv.constant4")].data;
	struct fdry_elf_rela r = { 0 };
	uint32_t i;

	for (i = 0; i < relocs->len / sizeof(r); i++) {
		memcpy(&r, relocs->data + i * sizeof(r), sizeof(r));
		if (elf->symbols[r.info >> 32].s.shndx == data)
			break;
	}
	r.info = (uint64_t)section_symbol(elf, data) << 32 | (uint32_t)r.info;
	memcpy(bytes + (relocs->data + i * sizeof(r) - elf->image.data), &r, sizeof(r));
}

/* Strings alone do not count. */
START_TEST(variables_that_may_not_be_strings_count)
{
	static void (*const change[])(const struct fdry_elf *elf,
				      uint8_t *bytes) = { string_rename, string_unname };
	struct fdry_span golden = golden_read("syscalls.90.cubin");
	struct fdry_span bytes = { malloc(golden.len), golden.len };
	struct fdry_elf elf;

	memcpy((uint8_t *)bytes.data, golden.data, golden.len);
	ck_assert(!fdry_module_has_variables(bytes));
	ck_assert_int_eq(fdry_elf_init(golden, &elf), 0);
	change[_i](&elf, (uint8_t *)bytes.data);
	fdry_elf_release(&elf);
	ck_assert(fdry_module_has_variables(bytes));
	free((void *)bytes.data);
	golden_free(golden);
}
END_TEST

START_TEST(variables_are_seen)
{
	struct fdry_span bytes = golden_read(codes[_i].name);

	ck_assert_msg(fdry_module_has_variables(bytes) == codes[_i].variables, "%s",
		      codes[_i].name);
	ck_assert(fdry_module_has_variables(
		/* the driver does not know this format */
		(struct fdry_span){ bytes.data, bytes.len / 2 }));
	golden_free(bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_module_table");
	TCase *tc = tcase_create("modules");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, banks_share_a_module_until_the_last_ends);
	tcase_add_test(tc, a_module_with_variables_is_one_banks_own);
	tcase_add_test(tc, other_attributes_take_a_load_of_their_own);
	tcase_add_test(tc, another_context_has_its_own);
	tcase_add_test(tc, a_child_has_its_own);
	tcase_add_test(tc, a_shared_kernel_is_compared);
	tcase_add_test(tc, a_refused_kernel_leaves_nothing);
	tcase_add_test(tc, a_load_that_fails_leaves_other_banks_as_they_are);
	tcase_add_loop_test(tc, variables_that_may_not_be_strings_count, 0, 2);
	tcase_add_loop_test(tc, variables_are_seen, 0, sizeof(codes) / sizeof(codes[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
