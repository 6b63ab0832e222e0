// SPDX-License-Identifier: Apache-2.0
/* Unit tests of kernel sets and banks, with a driver on paper (paper.h): interning, loading, and
 * every call failing once. */
#include "tests/lib/paper.h"

#include "graph/fatbin.h"

/* --- interning --- */

START_TEST(handles_become_one_kernel)
{
	struct fdry_kernel_set *set;
	struct load *l, *again;
	uint32_t a;

	paper_begin();
	l = load_file("plain.90.cubin");
	again = load_file("plain.90.cubin");
	set = set_new();
	a = intern(set, kernel_of(l, "scale"), true);
	ck_assert_uint_eq(a, 0);
	paper.fail_at = paper.calls + 1; /* known handles need no call of the driver */
	ck_assert_uint_eq(intern(set, kernel_of(l, "scale"), true), a);
	ck_assert_uint_eq(intern(set, kernel_of(l, "scale"), false), a);
	paper.fail_at = 0;
	ck_assert_uint_eq(intern(set, kernel_of(l, "add"), false), 1);
	/* The same code loaded twice. Its variables are read-only, so one object serves both. */
	ck_assert_uint_eq(intern(set, kernel_of(again, "scale"), true), a);
	/* Other attributes: another kernel. */
	kernel_of(again, "add")->attrs[0] = 100000;
	ck_assert_uint_eq(intern(set, kernel_of(again, "add"), true), 2);
	ck_assert_uint_eq(fdry_kernel_set_count(set), 3);
	ck_assert_int_eq(fdry_kernel_set_get(set, 2)->attrs[0], 100000);
	slice(set);
	ck_assert(same_object(set, 1, 2));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	ck_assert_uint_eq(fdry_kernel_set_whole_bytes(set), l->bytes.len);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* As long as the other, and other code: an instruction of "scale" differs. */
START_TEST(code_of_the_same_length)
{
	struct fdry_kernel_set *set;
	struct load *l, *other;
	const struct fdry_elf_section *text;
	struct fdry_cubin *cubin;
	uint32_t i, a;

	paper_begin();
	l = load_file("plain.90.cubin");
	other = load_file("plain.90.cubin");
	ck_assert_int_eq(
		fdry_cubin_new((struct fdry_span){ other->bytes.data, other->bytes.len }, &cubin),
		0);
	for (i = 0; i < cubin->elf.nsections && strcmp(cubin->elf.sections[i].name, ".text.scale");
	     i++)
		;
	ck_assert_uint_lt(i, cubin->elf.nsections);
	text = &cubin->elf.sections[i];
	*(uint8_t *)text->data.data ^= 1;
	fdry_cubin_free(cubin);
	set = set_new();
	a = intern(set, kernel_of(l, "scale"), true);
	ck_assert_uint_ne(intern(set, kernel_of(other, "scale"), true), a);
	ck_assert_uint_eq(fdry_kernel_set_whole_bytes(set), 2 * l->bytes.len);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Attributes set on the kernel, the function or both: the value that was set is used. */
START_TEST(attributes_of_kernels_and_functions)
{
	struct fdry_kernel_set *set;
	struct paper_kernel *k;
	const int32_t *attrs;

	paper_begin();
	set = set_new();
	k = kernel_of(load_file("plain.90.cubin"), "scale");
	k->kernel_attrs[0] = 100000;
	k->kernel_attrs[1] = 30;
	k->attrs[2] = 1;
	k->attrs[3] = 4;
	k->kernel_attrs[3] = 2;
	k->kernel_attrs[6] = 2;
	attrs = fdry_kernel_set_get(set, intern(set, k, true))->attrs;
	ck_assert_int_eq(attrs[0], 100000);
	ck_assert_int_eq(attrs[1], 30);
	ck_assert_int_eq(attrs[2], 1);
	ck_assert_int_eq(attrs[3], 4);
	ck_assert_int_eq(attrs[4], 0);
	ck_assert_int_eq(attrs[6], 2);
	/* A function of a module has no kernel beside it. */
	k = kernel_of(load_file("plain.90.cubin"), "scale");
	k->kernel_attrs[0] = 100000;
	attrs = fdry_kernel_set_get(set, intern(set, k, false))->attrs;
	ck_assert_int_eq(attrs[0], 49152);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(many_handles)
{
	struct paper_kernel copies[1500];
	struct fdry_kernel_set *set;
	struct load *l;
	uint32_t i;

	paper_begin();
	l = load_file("plain.90.cubin");
	set = set_new();
	for (i = 0; i < 1500; i++) {
		copies[i] = *kernel_of(l, i % 2 ? "add" : "scale");
		ck_assert_uint_eq(intern(set, &copies[i], false), i % 2);
	}
	for (i = 0; i < 1500; i++)
		ck_assert_uint_eq(intern(set, &copies[i], false), i % 2);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(parameters)
{
	static const struct fdry_param scale[] = { { 0, 8 }, { 8, 16 }, { 24, 1 }, { 28, 4 } };
	struct fdry_kernel_set *set;
	const struct fdry_kernel *k;

	paper_begin();
	set = set_new();
	k = fdry_kernel_set_get(set,
				intern(set, kernel_of(load_file("plain.90.cubin"), "scale"), true));
	ck_assert_str_eq(k->name, "scale");
	ck_assert_uint_eq(k->nparams, 4);
	ck_assert_mem_eq(k->params, scale, sizeof(scale));
	ck_assert_uint_eq(k->param_bytes, 32);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

static void intern_refused(struct fdry_kernel_set *set, struct paper_kernel *k, const char *why)
{
	uint32_t i = 77;

	ck_assert_int_eq(fdry_kernel_set_intern(set, NULL, (CUfunction)k, &i), -FDRY_E_REFUSED);
	ck_assert_msg(strstr(fdry_last_error(), why) != NULL, "%s", fdry_last_error());
	ck_assert_uint_eq(i, 77);
}

/* The driver reports other parameters than the code has, as if it used another entry of the
 * fatbin. */
START_TEST(parameters_must_agree)
{
	struct fdry_cubin_kernel lie;
	struct fdry_param params[4];
	struct fdry_kernel_set *set;
	struct paper_kernel *k;
	uint32_t i;

	paper_begin();
	set = set_new();
	k = kernel_of(load_file("plain.90.cubin"), "scale");
	lie = *k->k;
	memcpy(params, k->k->params, sizeof(params));
	lie.params = params;
	k->k = &lie;
	lie.nparams = 3;
	intern_refused(set, k, "parameters");
	lie.nparams = 4;
	params[3].size = 2;
	intern_refused(set, k, "reports other offsets of its parameters");
	params[3].size = 40;
	intern_refused(set, k, "parameters");
	params[3] = (struct fdry_param){ 10, 4 };
	intern_refused(set, k, "is impossible");
	memcpy(params, fdry_cubin_kernel_find(k->l->c, "scale")->params, sizeof(params));
	ck_assert_int_eq(fdry_kernel_set_intern(set, NULL, (CUfunction)k, &i), 0);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(unseen_code)
{
	struct fdry_kernel_set *set;
	struct load *l;
	uint32_t i;

	paper_begin();
	set = set_new();
	l = load_file("plain.90.cubin");
	l->code.data = NULL;
	intern_refused(set, kernel_of(l, "add"), "interposer");
	ck_assert_int_eq(fdry_kernel_set_intern(set, NULL, NULL, &i), -FDRY_E_REFUSED);
	l->code.data = "no code at all; text of another kind";
	l->code.len = 36;
	ck_assert_int_eq(fdry_kernel_set_intern(set, NULL, (CUfunction)kernel_of(l, "add"), &i),
			 -FDRY_E_BADCODE);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(ptx_is_linked_with_its_options)
{
	static const CUjit_option option = CU_JIT_MAX_REGISTERS;
	static const char ptx[] = ".version 9.0\n.target sm_90\n// and so on";
	static void *const value = (void *)32;
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("plain.90.cubin");
	paper.ptx_cubin = l->bytes;
	l->code = (struct fdry_code_image){ ptx, strlen(ptx), 1, &option, &value };
	intern(set, kernel_of(l, "add"), true);
	intern(set, kernel_of(l, "scale"), true);
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	ck_assert_uint_eq(paper.links, 0);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* The code that PTX compiles to depends on the options of its load. */
START_TEST(ptx_with_other_options_is_other_code)
{
	static const CUjit_option option = CU_JIT_MAX_REGISTERS;
	static const char ptx[] = ".version 9.0\n.target sm_90\n// and so on";
	static void *const values[] = { (void *)32, (void *)64 };
	struct load *plain, *again, *vars;
	struct fdry_kernel_set *set;

	paper_begin();
	set = set_new();
	plain = load_file("plain.90.cubin");
	again = load_file("plain.90.cubin");
	vars = load_file("vars.90.cubin");
	paper.ptx_cubin = plain->bytes;
	paper.ptx_cubin_64 = vars->bytes;
	plain->code = again->code =
		(struct fdry_code_image){ ptx, strlen(ptx), 1, &option, &values[0] };
	vars->code = (struct fdry_code_image){ ptx, strlen(ptx), 1, &option, &values[1] };
	ck_assert_uint_eq(intern(set, kernel_of(plain, "add"), true), 0);
	ck_assert_uint_eq(intern(set, kernel_of(vars, "alone"), true), 1);
	ck_assert_uint_eq(intern(set, kernel_of(again, "add"), true), 0);
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	ck_assert_uint_eq(fdry_kernel_set_whole_bytes(set), plain->bytes.len + vars->bytes.len);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(out_of_a_fatbin)
{
	struct fdry_span fatbin = golden_read("plain.zstd.fatbin");
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("plain.90.cubin");
	l->code.data = fatbin.data;
	l->code.len = 0; /* its header has the length */
	intern(set, kernel_of(l, "add"), true);
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	fdry_kernel_set_free(set);
	golden_free(fatbin);
	paper_end();
}
END_TEST

/* --- bringing them back --- */

/* The set's kernels as a loader has them. */
static uint32_t table(const struct fdry_kernel_set *set, struct fdry_kernel out[8])
{
	uint32_t i, n = fdry_kernel_set_count(set);

	ck_assert_uint_le(n, 8);
	for (i = 0; i < n; i++)
		out[i] = *fdry_kernel_set_get(set, i);
	return n;
}

START_TEST(bank_brings_back_kernels)
{
	struct fdry_kernel_bank *bank;
	struct fdry_kernel_set *set;
	struct fdry_kernel k[8];
	struct paper_kernel *f, *g;
	struct load *l, *again;
	uint32_t n, before;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	again = load_file("vars.90.cubin");
	kernel_of(l, "bump")->attrs[0] = 200000;
	kernel_of(l, "bump")->attrs[2] = 1;
	kernel_of(again, "alone")->attrs[1] = 50;
	kernel_of(again, "alone")->attrs[3] = 2;
	kernel_of(again, "alone")->attrs[6] = 1;
	intern(set, kernel_of(l, "bump"), true);
	intern(set, kernel_of(l, "alone"), true);
	intern(set, kernel_of(l, "bump_by"), true);
	intern(set, kernel_of(again, "alone"), true);
	slice(set);
	n = table(set, k);
	before = paper.nloads;
	ck_assert_msg(!fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank), "%s",
		      fdry_last_error());
	ck_assert_uint_eq(paper.nloads - before,
			  3); /* the counter's, alone's, and alone's again for its attributes */
	f = (struct paper_kernel *)(void *)fdry_kernel_bank_get(bank, 0);
	g = (struct paper_kernel *)(void *)fdry_kernel_bank_get(bank, 2);
	ck_assert_str_eq(f->k->name, "bump");
	ck_assert_ptr_eq(f->l, g->l);
	ck_assert_int_eq(f->attrs[0], 200000);
	ck_assert_int_eq(f->attrs[2], 1);
	ck_assert_int_eq(g->attrs[0], 49152);
	f = (struct paper_kernel *)(void *)fdry_kernel_bank_get(bank, 1);
	g = (struct paper_kernel *)(void *)fdry_kernel_bank_get(bank, 3);
	ck_assert_str_eq(g->k->name, "alone");
	ck_assert_ptr_ne(f, g);
	ck_assert_int_eq(f->attrs[1], -1);
	ck_assert_int_eq(g->attrs[1], 50);
	ck_assert_int_eq(g->attrs[3], 2);
	ck_assert_int_eq(g->attrs[4], 0);
	ck_assert_int_eq(g->attrs[6], 1);
	ck_assert_int_eq(f->attrs[6], 0);
	fdry_kernel_bank_free(bank);
	ck_assert_uint_eq(paper.unloaded, 3);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(bank_compares)
{
	struct fdry_param params[8];
	struct fdry_kernel_bank *bank = NULL;
	struct fdry_kernel_set *set;
	struct fdry_kernel k[8];
	uint32_t n;

	paper_begin();
	set = set_new();
	intern(set, kernel_of(load_file("plain.90.cubin"), "scale"), true);
	slice(set);
	n = table(set, k);
	memcpy(params, k[0].params, k[0].nparams * sizeof(*params));
	k[0].params = params;
	params[2].size = 4;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank),
			 -FDRY_E_BADIMAGE);
	params[2].size = 1;
	k[0].nparams = 3;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank),
			 -FDRY_E_BADIMAGE);
	k[0].nparams = 4;
	k[0].name = "scaled";
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank),
			 -FDRY_E_BADIMAGE);
	k[0].name = "scale";
	k[0].object.b[0] ^= 1;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank),
			 -FDRY_E_NOENT);
	k[0].object.b[0] ^= 1;
	ck_assert_ptr_null(bank);
	ck_assert_uint_eq(paper.unloaded, 3);
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, n, paper_object_get, set, &bank), 0);
	fdry_kernel_bank_free(bank);
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, 0, paper_object_get, set, &bank),
			 0); /* of nothing */
	fdry_kernel_bank_free(bank);
	fdry_kernel_bank_free(NULL);
	fdry_kernel_set_free(set);
	fdry_kernel_set_free(NULL);
	paper_end();
}
END_TEST

/* --- every call fails once --- */

static int whole_path(struct load *l)
{
	struct fdry_kernel_set *set;
	struct fdry_kernel_bank *bank;
	struct fdry_kernel k[8];
	uint32_t i;
	int err;

	err = fdry_kernel_set_new(&paper.drv, 0, code_find, &paper, &set);
	if (err)
		return err;
	err = fdry_kernel_set_intern(set, (CUkernel)kernel_of(l, "lookup"),
				     (CUfunction)kernel_of(l, "lookup"), &i) ?:
	      fdry_kernel_set_intern(set, NULL, (CUfunction)kernel_of(l, "bump"), &i) ?:
	      fdry_kernel_set_slice(set) ?:
	      fdry_kernel_bank_new(&paper.drv, k, table(set, k), paper_object_get, set, &bank);
	if (!err)
		fdry_kernel_bank_free(bank);
	fdry_kernel_set_free(set);
	return err;
}

START_TEST(every_call_fails_once)
{
	unsigned int n, calls;
	struct load *l;

	paper_begin();
	l = load_file("vars.90.cubin");
	kernel_of(l, "bump")->attrs[0] = 100000;
	paper.calls = 0;
	ck_assert_int_eq(whole_path(l), 0);
	calls = paper.calls;
	ck_assert_uint_gt(calls, 30);
	for (n = 1; n <= calls; n++) {
		paper_end();
		l = load_file("vars.90.cubin");
		kernel_of(l, "bump")->attrs[0] = 100000;
		paper.calls = 0;
		paper.fail_at = n;
		ck_assert_msg(whole_path(l) == -FDRY_E_DRIVER, "call %u: %s", n, fdry_last_error());
		ck_assert_ptr_nonnull(strstr(fdry_last_error(), "on paper"));
		paper.fail_at = 0;
	}
	paper_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_kernel");
	TCase *tc = tcase_create("kernel");

	tcase_add_test(tc, handles_become_one_kernel);
	tcase_add_test(tc, code_of_the_same_length);
	tcase_add_test(tc, attributes_of_kernels_and_functions);
	tcase_add_test(tc, many_handles);
	tcase_add_test(tc, parameters);
	tcase_add_test(tc, parameters_must_agree);
	tcase_add_test(tc, unseen_code);
	tcase_add_test(tc, ptx_is_linked_with_its_options);
	tcase_add_test(tc, ptx_with_other_options_is_other_code);
	tcase_add_test(tc, out_of_a_fatbin);
	tcase_add_test(tc, bank_brings_back_kernels);
	tcase_add_test(tc, bank_compares);
	tcase_add_test(tc, every_call_fails_once);
	suite_add_tcase(s, tc);
	return test_main(s);
}
