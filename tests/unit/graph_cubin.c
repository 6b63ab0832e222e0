// SPDX-License-Identifier: Apache-2.0
/* Unit tests of cubins: kernels, parameters, variables, code that kernels reach, damage. */
#include "tests/lib/golden.h"

#include "graph/code_reach.h"
#include "graph/sass.h"

struct open {
	struct fdry_span bytes;
	struct fdry_cubin *c;
};

static struct open cubin_open(const char *name)
{
	struct open o = { .bytes = golden_read(name) };

	ck_assert_msg(!fdry_cubin_new(o.bytes, &o.c), "%s: %s", name, fdry_last_error());
	return o;
}

static void cubin_close(struct open *o)
{
	fdry_cubin_free(o->c);
	golden_free(o->bytes);
}

static struct fdry_code_reach reach(const struct open *o, const char *kernel)
{
	const struct fdry_cubin_kernel *k = fdry_cubin_kernel_find(o->c, kernel);
	struct fdry_code_reach r;
	uint32_t i;

	ck_assert_msg(k != NULL, "no kernel %s", kernel);
	i = (uint32_t)(k - o->c->kernels);
	ck_assert_msg(!fdry_code_reach_init(o->c, &i, 1, &r), "%s: %s", kernel, fdry_last_error());
	return r;
}

/* Return the names of the variables that a kernel reaches, sorted by address, with "," after
 * each. */
static const char *reached(const struct open *o, const char *kernel)
{
	static char names[2000];
	struct fdry_code_reach r = reach(o, kernel);
	uint32_t i;

	names[0] = '\0';
	for (i = 0; i < o->c->nvariables; i++)
		if (r.variables[i])
			snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s,",
				 o->c->variables[i].name);
	fdry_code_reach_release(&r);
	return names;
}

static const struct fdry_cubin_variable *variable(const struct open *o, const char *name)
{
	uint32_t i;

	for (i = 0; i < o->c->nvariables; i++)
		if (!strcmp(o->c->variables[i].name, name))
			return &o->c->variables[i];
	ck_abort_msg("no variable %s", name);
	return NULL;
}

static const char *const both[] = { "80", "90" };

static struct open both_open(const char *name, int i)
{
	char file[64];

	snprintf(file, sizeof(file), "%s.%s.cubin", name, both[i]);
	return cubin_open(file);
}

/* --- kernels --- */

START_TEST(kernels_and_parameters)
{
	struct open o = both_open("plain", _i);
	const struct fdry_cubin_kernel *k;
	static const struct fdry_param scale[] = { { 0, 8 }, { 8, 16 }, { 24, 1 }, { 28, 4 } };

	ck_assert_uint_eq(o.c->arch, _i ? 90 : 80);
	ck_assert_str_eq(o.c->unsliceable, "");
	ck_assert_uint_eq(o.c->nkernels, 3);
	k = fdry_cubin_kernel_find(o.c, "scale");
	ck_assert_ptr_nonnull(k);
	ck_assert_uint_eq(k->nparams, 4);
	ck_assert_mem_eq(k->params, scale, sizeof(scale));
	ck_assert_uint_eq(k->param_bytes, 32);
	k = fdry_cubin_kernel_find(o.c, "none");
	ck_assert_ptr_nonnull(k);
	ck_assert_uint_eq(k->nparams, 0);
	ck_assert_uint_eq(k->param_bytes, 0);
	ck_assert_ptr_null(fdry_cubin_kernel_find(o.c, "nobody"));
	cubin_close(&o);
}
END_TEST

START_TEST(parameters_beyond_4096_bytes)
{
	static const struct fdry_param all[] = { { 0, 8 }, { 8, 4 }, { 12, 32752 } },
				       some[] = { { 0, 8 }, { 8, 4088 } };
	struct open o = cubin_open("large.90.cubin");
	const struct fdry_cubin_kernel *k = fdry_cubin_kernel_find(o.c, "large");

	ck_assert_str_eq(o.c->unsliceable, "");
	ck_assert_ptr_nonnull(k);
	ck_assert_uint_eq(k->nparams, 3);
	ck_assert_mem_eq(k->params, all, sizeof(all));
	ck_assert_uint_eq(k->param_bytes, FDRY_KERNEL_PARAM_BYTES_MAX);
	k = fdry_cubin_kernel_find(o.c, "partial");
	ck_assert_ptr_nonnull(k);
	ck_assert_uint_eq(k->nparams, 2);
	ck_assert_mem_eq(k->params, some, sizeof(some));
	ck_assert_uint_eq(k->param_bytes, 4096);
	cubin_close(&o);
}
END_TEST

START_TEST(every_golden_cubin_is_understood)
{
	static const char *const names[] = { "plain.90a.cubin", "calls.80.cubin",
					     "calls.90.cubin", "shared.80.cubin",
					     "shared.90.cubin", "linked.90.cubin",
					     "vars.nvrtc.cubin", "axpy.triton.cubin" };
	struct open o = cubin_open(names[_i]);

	ck_assert_str_eq(o.c->unsliceable, "");
	ck_assert_uint_gt(o.c->nkernels, 0);
	cubin_close(&o);
}
END_TEST

START_TEST(odd_ones_say_why)
{
	struct open o = cubin_open("vars.100.cubin");

	ck_assert_uint_eq(o.c->arch, 100);
	ck_assert_ptr_nonnull(strstr(o.c->unsliceable, "Mercury"));
	cubin_close(&o);
	o = cubin_open("launches.rel.cubin");
	ck_assert_ptr_nonnull(strstr(o.c->unsliceable, "relocatable"));
	cubin_close(&o);
}
END_TEST

/* --- variables --- */

START_TEST(variables)
{
	struct open o = both_open("vars", _i);
	static const int table[4] = { 10, 20, 30, 40 }, weights[4] = { 1, 2, 3, 4 };
	const struct fdry_cubin_variable *v = variable(&o, "table");
	struct fdry_span s = fdry_cubin_initial(o.c, v);

	ck_assert(!v->constant && !v->literal && v->unique);
	ck_assert_uint_eq(s.len, sizeof(table));
	ck_assert_mem_eq(s.data, table, sizeof(table));
	v = variable(&o, "weights");
	s = fdry_cubin_initial(o.c, v);
	ck_assert(v->constant && !v->literal);
	ck_assert_mem_eq(s.data, weights, sizeof(weights));
	v = variable(&o, "counter");
	s = fdry_cubin_initial(o.c, v);
	ck_assert_ptr_null(s.data); /* zeroes that the file does not hold */
	ck_assert_uint_eq(s.len, 4);
	cubin_close(&o);
}
END_TEST

START_TEST(strings_are_literals)
{
	struct open o = both_open("syscalls", _i);
	struct fdry_span s = fdry_cubin_initial(o.c, variable(&o, "$str"));

	ck_assert(variable(&o, "$str")->literal);
	ck_assert(variable(&o, "__unnamed_1")->literal);
	ck_assert_ptr_nonnull(memchr(s.data, 0, s.len));
	cubin_close(&o);
}
END_TEST

/* --- variables that kernels reach --- */

START_TEST(variables_reached)
{
	static const char *const files[] = { "vars.80.cubin", "vars.90.cubin", "vars.nvrtc.cubin",
					     "vars.100.cubin" };
	struct open o = cubin_open(files[_i]);

	ck_assert_str_eq(reached(&o, "bump"), "counter,");
	ck_assert_str_eq(reached(&o, "bump_by"), "counter,");
	ck_assert_str_eq(reached(&o, "lookup"), "into_table,table,");
	ck_assert_str_eq(reached(&o, "affine"), "weights,biases,");
	ck_assert_str_eq(reached(&o, "own_static"), "_ZZ10own_staticE5calls,");
	ck_assert_str_eq(reached(&o, "copy"), "untouched,");
	ck_assert_str_eq(reached(&o, "alone"), "");
	cubin_close(&o);
}
END_TEST

START_TEST(variables_reached_when_linked)
{
	struct open o = cubin_open("linked.90.cubin");

	ck_assert_str_eq(reached(&o, "bump"), "counter,");
	ck_assert_str_eq(reached(&o, "lookup"), "into_table,table,");
	ck_assert_str_eq(reached(&o, "indirect"), "ops,");
	ck_assert_str_eq(reached(&o, "alone"), "");
	ck_assert_str_eq(reached(&o, "direct"), "");
	cubin_close(&o);
}
END_TEST

static uint32_t text_of(const struct open *o, const char *name)
{
	uint32_t i;

	for (i = 1; i < o->c->elf.nsections; i++)
		if (!strncmp(o->c->elf.sections[i].name, ".text.", 6) &&
		    !strcmp(o->c->elf.sections[i].name + 6, name))
			return i;
	ck_abort_msg("no code of %s", name);
	return 0;
}

START_TEST(functions_reached)
{
	struct open o = cubin_open("linked.90.cubin");
	struct fdry_code_reach r = reach(&o, "direct");

	ck_assert(r.sections[text_of(&o, "_Z4cubei")]);
	ck_assert(r.sections[text_of(&o, "_Z6squarei")]); /* through cube */
	ck_assert(!r.sections[text_of(&o, "__cuda_sm20_div_s64")]);
	ck_assert(!r.sections[text_of(&o, "indirect")]);
	fdry_code_reach_release(&r);
	r = reach(&o, "indirect"); /* through a table of pointers */
	ck_assert(r.sections[text_of(&o, "_Z4cubei")]);
	ck_assert(r.sections[text_of(&o, "_Z6squarei")]);
	fdry_code_reach_release(&r);
	r = reach(&o, "divide");
	ck_assert(r.sections[text_of(&o, "__cuda_sm20_div_s64")]);
	ck_assert(!r.sections[text_of(&o, "_Z6squarei")]);
	fdry_code_reach_release(&r);
	cubin_close(&o);
}
END_TEST

/* Without other information, a call through a pointer reaches every function with a suitable type
 * whose address is taken. */
START_TEST(pointers_reach_what_looks_right)
{
	struct fdry_span bytes = golden_read("linked.90.cubin");
	struct open o = cubin_open("linked.90.cubin");
	uint32_t quiet = fdry_cubin_kernel_find(o.c, "quiet")->symbol, i, part = 0, at, s;
	uint32_t alone = fdry_cubin_kernel_find(o.c, "alone")->symbol;
	uint8_t *to = (uint8_t *)bytes.data;
	struct fdry_cubin_call call;
	struct fdry_elf_rela r;
	struct fdry_code_reach reached_now;

	for (i = 0; i < fdry_cubin_call_count(o.c); i++) {
		ck_assert_int_eq(fdry_cubin_call_get(o.c, i, &part, &call), 0);
		if (!call.mark && call.part == FDRY_CALL_RESOLVED)
			fdry_set32(to + o.c->elf.sections[o.c->callgraph].h.offset + 8 * i, alone);
	}
	for (s = 1; s < o.c->elf.nsections; s++) {
		if (strcmp(o.c->elf.sections[s].name, ".rela.nv.global.init"))
			continue;
		for (i = 0; i < fdry_elf_reloc_count(&o.c->elf, s); i++) {
			r = fdry_elf_reloc(&o.c->elf, s, i);
			at = fdry_cubin_symbol_section(o.c, (uint32_t)(r.info >> 32));
			if (o.c->sections[at].kind == FDRY_SECTION_TEXT)
				fdry_set32(to + o.c->elf.sections[s].h.offset + 24 * i + 12, quiet);
		}
	}
	cubin_close(&o);
	o.bytes = bytes;
	ck_assert_int_eq(fdry_cubin_new(bytes, &o.c), 0);
	reached_now = reach(&o, "indirect");
	ck_assert(reached_now.sections[text_of(&o, "_Z4cubei")]);
	ck_assert(reached_now.sections[text_of(&o, "_Z6squarei")]);
	fdry_code_reach_release(&reached_now);
	cubin_close(&o);
}
END_TEST

static const struct {
	const char *file, *kernel, *why;
} refusals[] = {
	{ "launches.rel.cubin", "parent", "calls __cudaCDP2" },
	{ "untabled.90.cubin", "by_table", "calls functions (through pointers, and no table" },
	{ "untabled.90.cubin", "by_argument", "calls functions (through pointers, and no table" },
	/* harmless */
	{ "syscalls.90.cubin", "takes", "" },
	{ "syscalls.80.cubin", "takes", "" },
	{ "linked.90.cubin", "takes", "" },
	{ "syscalls.90.cubin", "gives", "" },
	{ "syscalls.80.cubin", "says", "" },
	{ "syscalls.90.cubin", "says", "" },
	{ "linked.90.cubin", "says", "" },
	{ "launches.rel.cubin", "child", "" },
	{ "syscalls.90.cubin", "checks", "" },
	{ "syscalls.80.cubin", "checks", "" },
	{ "linked.90.cubin", "checks", "" },
	{ "syscalls.90.cubin", "quiet", "" },
	{ "calls.90.cubin", "indirect", "" },
	{ "linked.90.cubin", "indirect", "" },
	{ "tables.90.cubin", "by_table", "" },
	{ "tables.90.cubin", "by_argument", "" },
	{ "untabled.90.cubin", "by_none", "" },
	{ "conditions.90.cubin", "decides", "" },
	{ "conditions.90.cubin", "plain", "" },
};

START_TEST(refused_calls)
{
	struct open o = cubin_open(refusals[_i].file);
	struct fdry_code_reach r = reach(&o, refusals[_i].kernel);

	if (refusals[_i].why[0])
		ck_assert_msg(strstr(r.refused, refusals[_i].why) == r.refused, "%s: '%s'",
			      refusals[_i].kernel, r.refused);
	else
		ck_assert_str_eq(r.refused, "");
	ck_assert(r.prints == !strcmp(refusals[_i].kernel, "says"));
	ck_assert(r.allocates == (!strcmp(refusals[_i].kernel, "takes") ||
				  !strcmp(refusals[_i].kernel, "gives")));
	if (r.prints)
		ck_assert_str_eq(r.unsliceable, "it calls vprintf (device printf)");
	if (r.allocates && !r.pointers)
		ck_assert_msg(strstr(r.unsliceable, " (device malloc)") != NULL, "%s",
			      r.unsliceable);
	if (r.pointers)
		ck_assert_str_eq(r.unsliceable, "it calls functions through pointers");
	ck_assert(r.pointers == (strstr(refusals[_i].file, "table") &&
				 strncmp(refusals[_i].kernel, "by_none", 7) != 0) ||
		  !strcmp(refusals[_i].file, "linked.90.cubin"));
	if (!strcmp(refusals[_i].kernel, "decides"))
		ck_assert_str_eq(r.unsliceable,
				 "it calls cudaGraphSetConditional (conditions of graphs)");
	fdry_code_reach_release(&r);
	cubin_close(&o);
}
END_TEST

/* An assertion's strings are found, although code reaches them through bank 4, indexed by a
 * register. */
START_TEST(asserts_reach_their_strings_only)
{
	struct open o = both_open("syscalls", _i);
	struct fdry_code_reach r = reach(&o, "checks");
	uint32_t i, n = 0;

	for (i = 0; i < o.c->nvariables; i++) {
		n += r.variables[i];
		ck_assert(!r.variables[i] || o.c->variables[i].literal);
	}
	ck_assert_uint_eq(n, 3); /* condition, file, function */
	fdry_code_reach_release(&r);
	cubin_close(&o);
}
END_TEST

/* --- constants read by code --- */

struct reads {
	uint32_t n;
	struct fdry_sass_read r[8];
};

static int read_note(void *arg, const struct fdry_sass_read *read)
{
	struct reads *rs = arg;

	ck_assert_uint_lt(rs->n, 8);
	rs->r[rs->n++] = *read;
	return 0;
}

/* Instructions of sm_90 as a disassembler shows them. */
static const uint64_t ldc_indexed[2] = { 0x0100000004047b82,
					 0x000e240000000a00 }; /* LDC.64 R4, c[0x4][R4] */
static const uint64_t mov_imm[2] = { 0x0000001800047802, 0x000fe20000000f00 }; /* MOV R4, 0x18 */
static const uint64_t nop[2] = { 0x0000000000007918, 0x000fc00000000000 };
static const uint64_t exit_[2] = { 0x000000000000794d, 0x000fea0003800000 };

static struct reads reads_of(const uint64_t (*code[])[2], uint32_t n, bool anywhere)
{
	struct fdry_sass_code c = { .arch = 90, .anywhere = anywhere };
	struct fdry_buf b = { 0 };
	struct reads rs = { 0 };
	uint32_t i;

	for (i = 0; i < n; i++)
		ck_assert_int_eq(fdry_buf_put(&b, *code[i], 16), 0);
	c.bytes = (struct fdry_span){ b.data, b.len };
	ck_assert_int_eq(fdry_sass_reads(&c, read_note, &rs), 0);
	fdry_buf_release(&b);
	return rs;
}

START_TEST(index_is_known)
{
	const uint64_t (*code[])[2] = { &nop, &nop, &mov_imm, &nop, &ldc_indexed, &exit_ };
	struct reads rs = reads_of(code, 6, false);

	ck_assert_uint_eq(rs.n, 1);
	ck_assert_uint_eq(rs.r[0].bank, 4);
	ck_assert(!rs.r[0].all);
	ck_assert_uint_eq(rs.r[0].from, 0x18);
	ck_assert_uint_eq(rs.r[0].to, 0x20);
}
END_TEST

START_TEST(index_is_not_known)
{
	static const uint64_t branch[2] = { 0xfffffffc00347947 - 0x30000000000,
					    0x000fea000383ffff }; /* BRA somewhere */
	static const uint64_t back[2] = { 0xfffffffc00f47947,
					  0x000fc0000383ffff }; /* BRA to two before itself */
	static const uint64_t other[2] = { 0x0000000500047c24,
					   0x000fe2000f8e02ff }; /* IMAD R4, ... */
	static const uint64_t maybe[2] = { 0x0000001800040802,
					   0x000fe20000000f00 }; /* @P0 MOV R4, 0x18 */
	const uint64_t (*start[])[2] = { &ldc_indexed };
	const uint64_t (*jump[])[2] = { &mov_imm, &branch, &ldc_indexed };
	const uint64_t (*landed[])[2] = { &mov_imm, &nop, &ldc_indexed, &nop, &back };
	const uint64_t (*written[])[2] = { &mov_imm, &other, &ldc_indexed };
	const uint64_t (*guarded[])[2] = { &maybe, &ldc_indexed };
	const uint64_t (*good[])[2] = { &mov_imm, &ldc_indexed };

	ck_assert(reads_of(start, 1, false).r[0].all);
	ck_assert(reads_of(jump, 3, false).r[0].all);
	ck_assert(reads_of(landed, 5, false).r[0].all);
	ck_assert(reads_of(written, 3, false).r[0].all);
	ck_assert(reads_of(guarded, 2, false).r[0].all);
	ck_assert(!reads_of(good, 2, false).r[0].all);
	ck_assert(reads_of(good, 2, true).r[0].all);
}
END_TEST

START_TEST(unknown_code_is_said_so)
{
	struct fdry_sass_code c = { .arch = 70 };
	struct reads rs = { 0 };

	ck_assert(!fdry_sass_supported(70));
	ck_assert_int_eq(fdry_sass_reads(&c, read_note, &rs), -FDRY_E_NOSLICE);
	c.arch = 90;
	c.bytes = (struct fdry_span){ (const uint8_t *)nop, 15 };
	ck_assert_int_eq(fdry_sass_reads(&c, read_note, &rs), -FDRY_E_NOSLICE);
}
END_TEST

/* --- damage --- */

static void parse_any(struct fdry_span bytes)
{
	struct fdry_cubin *c;
	struct fdry_code_reach r;
	uint32_t i;
	int err = fdry_cubin_new(bytes, &c);

	ck_assert_msg(!err || err == -FDRY_E_BADCODE || err == -FDRY_E_LIMIT, "%d: %s", err,
		      fdry_last_error());
	if (err)
		return;
	for (i = 0; i < c->nkernels; i++) {
		err = fdry_code_reach_init(c, &i, 1, &r);
		ck_assert_msg(!err || err == -FDRY_E_BADCODE || err == -FDRY_E_LIMIT, "%d: %s", err,
			      fdry_last_error());
		if (!err)
			fdry_code_reach_release(&r);
	}
	fdry_cubin_free(c);
}

START_TEST(damage)
{
	static const char *const names[] = { "vars.90.cubin", "calls.80.cubin",
					     "linked.90.cubin", "vars.100.cubin",
					     "axpy.triton.cubin", "launches.rel.cubin" };

	golden_damage(names[_i], 200, 1500, parse_any);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_cubin");
	TCase *tc = tcase_create("cubin");

	tcase_add_loop_test(tc, kernels_and_parameters, 0, 2);
	tcase_add_test(tc, parameters_beyond_4096_bytes);
	tcase_add_loop_test(tc, every_golden_cubin_is_understood, 0, 8);
	tcase_add_test(tc, odd_ones_say_why);
	tcase_add_loop_test(tc, variables, 0, 2);
	tcase_add_loop_test(tc, strings_are_literals, 0, 2);
	tcase_add_loop_test(tc, variables_reached, 0, 4);
	tcase_add_test(tc, variables_reached_when_linked);
	tcase_add_test(tc, functions_reached);
	tcase_add_test(tc, pointers_reach_what_looks_right);
	tcase_add_loop_test(tc, refused_calls, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_loop_test(tc, asserts_reach_their_strings_only, 0, 2);
	tcase_add_test(tc, index_is_known);
	tcase_add_test(tc, index_is_not_known);
	tcase_add_test(tc, unknown_code_is_said_so);
	tcase_add_loop_test(tc, damage, 0, 6);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return test_main(s);
}
