// SPDX-License-Identifier: Apache-2.0
/* Unit tests of slices: their content, their check, equal bytes from equal input, damage. */
#include "tests/lib/golden.h"

#include "lib/oid.h"
#include "graph/slice.h"

static struct fdry_cubin *parse(struct fdry_span bytes)
{
	struct fdry_cubin *c;

	ck_assert_msg(!fdry_cubin_new(bytes, &c), "%s", fdry_last_error());
	return c;
}

static uint32_t kernel_index(const struct fdry_cubin *c, const char *name)
{
	const struct fdry_cubin_kernel *k = fdry_cubin_kernel_find(c, name);

	ck_assert_msg(k != NULL, "no kernel %s", name);
	return (uint32_t)(k - c->kernels);
}

/* The slice of up to three kernels, or the error. */
static int cut(const struct fdry_cubin *c, const char *const names[3], struct fdry_buf *ret)
{
	struct fdry_code_reach r;
	uint32_t k[3], n;
	int err;

	for (n = 0; n < 3 && names[n]; n++)
		k[n] = kernel_index(c, names[n]);
	ck_assert_int_eq(fdry_code_reach_init(c, k, n, &r), 0);
	err = fdry_slice(&r, ret);
	fdry_code_reach_release(&r);
	return err;
}

static struct fdry_buf cut_one(const struct fdry_cubin *c, const char *name)
{
	const char *const names[3] = { name };
	struct fdry_buf b = { 0 };

	ck_assert_msg(!cut(c, names, &b), "%s: %s", name, fdry_last_error());
	return b;
}

/* A kernel that prints, allocates, or calls functions through pointers has no slice. */
static bool is_whole(const struct fdry_cubin *c, uint32_t kernel)
{
	struct fdry_code_reach r;
	bool found;

	ck_assert_int_eq(fdry_code_reach_init(c, &kernel, 1, &r), 0);
	found = r.prints || r.allocates || r.pointers;
	fdry_code_reach_release(&r);
	return found;
}

static struct fdry_span span(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

static bool has_section(const struct fdry_cubin *c, const char *name)
{
	uint32_t i;

	for (i = 1; i < c->elf.nsections; i++)
		if (!strcmp(c->elf.sections[i].name, name))
			return true;
	return false;
}

/* --- the contents of a slice --- */

static const char *const files[] = {
	"plain.80.cubin", "plain.90.cubin", "plain.90a.cubin", "vars.80.cubin",
	"vars.90.cubin", "vars.nvrtc.cubin", "calls.80.cubin", "calls.90.cubin",
	"shared.80.cubin", "shared.90.cubin", "syscalls.80.cubin", "syscalls.90.cubin",
	"linked.90.cubin", "axpy.triton.cubin", "large.90.cubin",
};

START_TEST(every_kernel_alone)
{
	struct fdry_span bytes = golden_read(files[_i]);
	struct fdry_cubin *c = parse(bytes), *s;
	struct fdry_buf b;
	uint32_t i;

	for (i = 0; i < c->nkernels; i++) {
		if (is_whole(c, i))
			continue;
		b = cut_one(c, c->kernels[i].name);
		s = parse(span(&b));
		ck_assert_uint_eq(s->nkernels, 1);
		ck_assert_str_eq(s->kernels[0].name, c->kernels[i].name);
		ck_assert_uint_eq(s->kernels[0].nparams, c->kernels[i].nparams);
		ck_assert(c->nkernels == 1 || b.len < bytes.len);
		ck_assert_uint_eq(s->elf.h.phnum, 0);
		fdry_cubin_free(s);
		fdry_buf_release(&b);
	}
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(all_kernels_together)
{
	struct fdry_span bytes = golden_read(files[_i]);
	struct fdry_cubin *c = parse(bytes), *s;
	uint32_t k[64], i, n = 0;
	struct fdry_buf b = { 0 };
	struct fdry_code_reach r;

	ck_assert_uint_le(c->nkernels, 64);
	for (i = 0; i < c->nkernels; i++)
		if (!is_whole(c, i))
			k[n++] = i;
	ck_assert_int_eq(fdry_code_reach_init(c, k, n, &r), 0);
	ck_assert_msg(!fdry_slice(&r, &b), "%s", fdry_last_error());
	s = parse(span(&b));
	ck_assert_uint_eq(s->nkernels, n);
	fdry_cubin_free(s);
	fdry_buf_release(&b);
	fdry_code_reach_release(&r);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(leaves_out_what_is_not_reached)
{
	struct fdry_span bytes = golden_read("vars.90.cubin");
	struct fdry_cubin *c = parse(bytes), *s;
	struct fdry_buf b = cut_one(c, "alone");

	s = parse(span(&b));
	ck_assert(!has_section(s, ".nv.global") && !has_section(s, ".nv.global.init") &&
		  !has_section(s, ".nv.constant3") && !has_section(s, ".nv.constant4"));
	ck_assert(has_section(s, ".text.alone") && has_section(s, ".nv.info.alone") &&
		  has_section(s, ".nv.constant0.alone") && has_section(s, ".note.nv.cuinfo") &&
		  has_section(s, ".nv.compat"));
	ck_assert(!has_section(s, ".text.bump") && !has_section(s, ".debug_frame"));
	ck_assert_uint_eq(s->nvariables, 0);
	fdry_cubin_free(s);
	fdry_buf_release(&b);
	b = cut_one(c, "bump"); /* the counter is zero, so initialised variables can be left out */
	s = parse(span(&b));
	ck_assert(has_section(s, ".nv.global") && has_section(s, ".nv.constant4") &&
		  !has_section(s, ".nv.global.init"));
	ck_assert_uint_eq(s->nvariables, 1);
	ck_assert_str_eq(s->variables[0].name, "counter");
	fdry_cubin_free(s);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(keeps_several_together)
{
	static const char *const names[3] = { "bump_by", "bump", NULL };
	struct fdry_span bytes = golden_read("vars.90.cubin");
	struct fdry_cubin *c = parse(bytes), *s;
	struct fdry_buf b = { 0 };

	ck_assert_int_eq(cut(c, names, &b), 0);
	s = parse(span(&b));
	ck_assert_uint_eq(s->nkernels, 2);
	ck_assert_uint_eq(s->nvariables, 1);
	fdry_cubin_free(s);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(same_again)
{
	struct fdry_span bytes = golden_read(files[_i]), other = golden_cut(bytes, bytes.len);
	struct fdry_cubin *c = parse(bytes), *d = parse(other);
	struct fdry_buf a, b;
	uint32_t i;

	for (i = 0; i < c->nkernels; i++) {
		if (is_whole(c, i))
			continue;
		a = cut_one(c, c->kernels[i].name);
		b = cut_one(d, c->kernels[i].name);
		ck_assert_uint_eq(a.len, b.len);
		ck_assert_mem_eq(a.data, b.data, a.len);
		fdry_buf_release(&a);
		fdry_buf_release(&b);
	}
	fdry_cubin_free(c);
	fdry_cubin_free(d);
	golden_free(bytes);
	golden_free(other);
}
END_TEST

/* A slice of a slice is that slice: the first one left out nothing that its kernels need, and kept
 * nothing else. */
START_TEST(slice_of_a_slice)
{
	struct fdry_span bytes = golden_read(files[_i]);
	struct fdry_cubin *c = parse(bytes), *s;
	struct fdry_buf a, b;
	uint32_t i;

	for (i = 0; i < c->nkernels; i++) {
		if (is_whole(c, i))
			continue;
		a = cut_one(c, c->kernels[i].name);
		s = parse(span(&a));
		b = cut_one(s, c->kernels[i].name);
		ck_assert_uint_eq(a.len, b.len);
		ck_assert_mem_eq(a.data, b.data, a.len);
		fdry_cubin_free(s);
		fdry_buf_release(&a);
		fdry_buf_release(&b);
	}
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

/* Known answers: a change of the bytes is a change of every object's id, and must be meant. */
START_TEST(golden_hashes)
{
	static const struct {
		const char *file, *kernel, *hash;
	} known[] = {
		{ "plain.90.cubin", "scale",
		  "81be29736206764dd92a100f5cdf097b36e22dde627dcd184be8ae654b48152e" },
		{ "vars.90.cubin", "lookup",
		  "6a65b00c25ddda4d5b68dddeb830944299757d023ed2a14f0efe0661a4c4de16" },
		{ "calls.80.cubin", "jump",
		  "e5fc6c0892c6c3716057364c3dfb3eb81f35a988fe07ea2d7276b6695f44de54" },
		{ "linked.90.cubin", "direct",
		  "1b87aea169d03b2526c12bb01a12d2c3511519f7d238d0a519ef2b346dbe6543" },
	};
	struct fdry_span bytes = golden_read(known[_i].file);
	struct fdry_cubin *c = parse(bytes);
	struct fdry_buf b = cut_one(c, known[_i].kernel);
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;

	ck_assert_int_eq(fdry_oid_of(b.data, b.len, &oid), 0);
	ck_assert_str_eq(fdry_oid_hex(&oid, hex), known[_i].hash);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

/* --- code that cannot be sliced --- */

START_TEST(odd_cubins_stay_whole)
{
	static const char *const names[] = { "vars.100.cubin", "launches.rel.cubin" };
	static const char *const kernels[][3] = { { "alone", NULL }, { "child", NULL } };
	struct fdry_span bytes = golden_read(names[_i]);
	struct fdry_cubin *c = parse(bytes);
	struct fdry_buf b = { 0 };

	ck_assert_int_eq(cut(c, kernels[_i], &b), -FDRY_E_NOSLICE);
	ck_assert_str_eq(fdry_last_error(), c->unsliceable);
	ck_assert_ptr_null(b.data);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(printing_kernels_stay_whole)
{
	static const char *const names[] = { "syscalls.80.cubin", "syscalls.90.cubin",
					     "linked.90.cubin" };
	static const char *const kernel[3] = { "says" };
	struct fdry_span bytes = golden_read(names[_i]);
	struct fdry_cubin *c = parse(bytes);
	struct fdry_buf b = { 0 };

	ck_assert(is_whole(c, kernel_index(c, "says")));
	ck_assert_int_eq(cut(c, kernel, &b), -FDRY_E_NOSLICE);
	ck_assert_str_eq(fdry_last_error(), "it calls vprintf (device printf)");
	ck_assert_ptr_null(b.data);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

static uint32_t section_at(const struct fdry_cubin *c, const char *name)
{
	uint32_t i;

	for (i = 1; i < c->elf.nsections; i++)
		if (!strcmp(c->elf.sections[i].name, name))
			return i;
	ck_abort_msg("no section %s", name);
	return 0;
}

static size_t header_at(const struct fdry_cubin *c, const char *name)
{
	return c->elf.h.shoff + section_at(c, name) * sizeof(struct fdry_elf_shdr);
}

/* Each case has one unknown property, which the reason names. */
static void make_odd(const struct fdry_cubin *c, uint8_t *bytes, int which)
{
	const struct fdry_elf_section *s;

	switch (which) {
	case 0: /* a section of an unknown type */
		fdry_set32(bytes + header_at(c, ".nv.compat") +
				   offsetof(struct fdry_elf_shdr, type),
			   0x70000099);
		break;
	case 1: /* an info record with a payload that is not known */
		s = &c->elf.sections[section_at(c, ".nv.info.lookup")];
		bytes[s->h.offset + 1] = 0xee;
		bytes[s->h.offset] = FDRY_EIFMT_SIZED;
		break;
	case 2: /* a relocation that depends on the whole process */
		s = &c->elf.sections[section_at(c, ".rela.nv.constant4")];
		fdry_set32(bytes + s->h.offset + 8, 102);
		break;
	case 3: /* constants that belong to no function */
		fdry_set32(bytes + header_at(c, ".nv.constant0.lookup") +
				   offsetof(struct fdry_elf_shdr, info),
			   1);
		break;
	case 4: /* a table of symbols that is named as debug information is */
		s = &c->elf.sections[c->elf.symtab];
		memcpy(bytes + c->elf.sections[c->elf.h.shstrndx].h.offset + s->h.name, ".debug_",
		       sizeof(".symtab") - 1);
		break;
	default: /* constants of another function than the one in their name */
		fdry_set32(bytes + header_at(c, ".nv.constant0.lookup") +
				   offsetof(struct fdry_elf_shdr, info),
			   section_at(c, ".text.bump"));
		break;
	}
}

START_TEST(odd_things_keep_it_whole)
{
	static const char *const names[3] = { "lookup", NULL };
	static const char *const why[] = { ".nv.compat", "0xee", "102", ".nv.constant0.lookup",
					   "its symbols", ".nv.constant0.lookup" };
	struct fdry_span bytes = golden_read("vars.90.cubin"), odd = golden_cut(bytes, bytes.len);
	struct fdry_cubin *c = parse(bytes);
	struct fdry_buf b = { 0 };

	make_odd(c, (uint8_t *)odd.data, _i);
	fdry_cubin_free(c);
	c = parse(odd);
	ck_assert_int_eq(cut(c, names, &b), -FDRY_E_NOSLICE);
	ck_assert_msg(strstr(fdry_last_error(), why[_i]) != NULL, "%s", fdry_last_error());
	fdry_cubin_free(c);
	golden_free(bytes);
	golden_free(odd);
}
END_TEST

/* cuBLAS rewrites cubins in memory, and leaves some symbol numbers as they were. */
START_TEST(stale_numbers_are_put_right)
{
	static const uint32_t numbers[] = { 0xfffff, 1 };
	struct fdry_span bytes = golden_read("vars.90.cubin"), stale = golden_cut(bytes, bytes.len);
	struct fdry_cubin *c = parse(bytes);
	const struct fdry_elf_section *info = &c->elf.sections[section_at(c, ".nv.info.lookup")];
	uint8_t *to = (uint8_t *)stale.data,
		*h = to + header_at(c, ".text.lookup") + offsetof(struct fdry_elf_shdr, info);
	struct fdry_buf a = cut_one(c, "lookup"), b;
	struct fdry_cubin_attr at;
	uint64_t pos = 0;

	fdry_set32(h, (fdry_get32(h) & ~FDRY_CUBIN_SYMBOL_BITS) | numbers[_i]);
	while (fdry_cubin_attr_next(info->data, &pos, &at) > 0)
		if (at.id == FDRY_EIATTR_PARAM_CBANK)
			fdry_set32(to + (at.data.data - bytes.data), numbers[_i]);
	fdry_cubin_free(c);
	c = parse(stale);
	b = cut_one(c, "lookup");
	ck_assert_uint_eq(a.len, b.len);
	ck_assert_mem_eq(a.data, b.data, a.len);
	fdry_buf_release(&a);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
	golden_free(stale);
}
END_TEST

/* If code cannot be read, the kernel keeps every variable, and can still be sliced. */
START_TEST(unknown_code_reaches_everything)
{
	struct fdry_span bytes = golden_read("vars.90.cubin");
	struct fdry_cubin *c;
	struct fdry_buf b;
	uint32_t i, k;
	struct fdry_code_reach r;

	fdry_set32((uint8_t *)bytes.data + offsetof(struct fdry_elf_ehdr, flags), 0x06007f04);
	c = parse(bytes);
	k = kernel_index(c, "alone");
	ck_assert_int_eq(fdry_code_reach_init(c, &k, 1, &r), 0);
	for (i = 0; i < c->nvariables; i++)
		ck_assert(r.variables[i]);
	fdry_code_reach_release(&r);
	b = cut_one(c, "alone");
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

/* --- the check --- */

/* Must every change of section @i be noticed? Names and symbols hold more than is compared. */
static bool is_compared(const struct fdry_cubin *c, uint32_t i)
{
	enum fdry_section_kind kind = c->sections[i].kind;

	return c->elf.sections[i].data.data && kind != FDRY_SECTION_NAMES &&
	       kind != FDRY_SECTION_SYMTAB;
}

/* Every byte of every section of a slice turned, one at a time. */
START_TEST(check_notices_changes)
{
	static const struct {
		const char *file, *kernel;
	} which[] = { { "vars.90.cubin", "lookup" },
		      { "linked.90.cubin", "direct" },
		      { "calls.80.cubin", "jump" } };
	struct fdry_span bytes = golden_read(which[_i].file), bad;
	struct fdry_cubin *c = parse(bytes), *s;
	struct fdry_buf b = cut_one(c, which[_i].kernel);
	uint32_t k = kernel_index(c, which[_i].kernel), i;
	const struct fdry_elf_section *es;
	struct fdry_code_reach r;
	size_t at;

	ck_assert_int_eq(fdry_code_reach_init(c, &k, 1, &r), 0);
	ck_assert_int_eq(fdry_slice_check(&r, span(&b)), 0);
	s = parse(span(&b));
	bad = golden_cut(span(&b), b.len);
	for (i = 1; i < s->elf.nsections; i++) {
		es = &s->elf.sections[i];
		for (at = 0; is_compared(s, i) && at < es->data.len; at++) {
			((uint8_t *)bad.data)[es->h.offset + at] ^= 0x21;
			ck_assert_msg(fdry_slice_check(&r, bad), "%s, byte %zu", es->name, at);
			((uint8_t *)bad.data)[es->h.offset + at] ^= 0x21;
		}
	}
	ck_assert_int_eq(fdry_slice_check(&r, bad), 0);
	golden_free(bad);
	fdry_cubin_free(s);
	fdry_code_reach_release(&r);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

START_TEST(check_wants_the_same_kernel)
{
	struct fdry_span bytes = golden_read("plain.90.cubin");
	struct fdry_cubin *c = parse(bytes);
	struct fdry_buf b = cut_one(c, "add");
	uint32_t k = kernel_index(c, "none");
	struct fdry_code_reach r;

	ck_assert_int_eq(fdry_code_reach_init(c, &k, 1, &r), 0);
	ck_assert_int_eq(fdry_slice_check(&r, span(&b)), -FDRY_E_BUG);
	fdry_code_reach_release(&r);
	fdry_buf_release(&b);
	fdry_cubin_free(c);
	golden_free(bytes);
}
END_TEST

/* --- damage --- */

static void slice_any(struct fdry_span bytes)
{
	struct fdry_buf b = { 0 };
	struct fdry_cubin *c;
	struct fdry_code_reach r;
	uint32_t i;
	int err;

	if (fdry_cubin_new(bytes, &c))
		return;
	for (i = 0; i < c->nkernels; i++) {
		if (fdry_code_reach_init(c, &i, 1, &r))
			continue;
		err = fdry_slice(&r, &b);
		ck_assert_msg(!err || err == -FDRY_E_NOSLICE || err == -FDRY_E_BADCODE ||
				      err == -FDRY_E_LIMIT,
			      "%d: %s", err, fdry_last_error());
		fdry_buf_release(&b);
		fdry_code_reach_release(&r);
	}
	fdry_cubin_free(c);
}

START_TEST(damage)
{
	static const char *const names[] = { "vars.90.cubin", "calls.80.cubin",
					     "linked.90.cubin", "syscalls.80.cubin",
					     "axpy.triton.cubin", "shared.90.cubin" };

	golden_damage(names[_i], 100, 1500, slice_any);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_slice");
	TCase *tc = tcase_create("slice");
	int n = (int)(sizeof(files) / sizeof(files[0]));

	tcase_add_loop_test(tc, every_kernel_alone, 0, n);
	tcase_add_loop_test(tc, all_kernels_together, 0, n);
	tcase_add_loop_test(tc, same_again, 0, n);
	tcase_add_loop_test(tc, slice_of_a_slice, 0, n);
	tcase_add_test(tc, leaves_out_what_is_not_reached);
	tcase_add_test(tc, keeps_several_together);
	tcase_add_loop_test(tc, golden_hashes, 0, 4);
	tcase_add_loop_test(tc, odd_cubins_stay_whole, 0, 2);
	tcase_add_loop_test(tc, printing_kernels_stay_whole, 0, 3);
	tcase_add_loop_test(tc, odd_things_keep_it_whole, 0, 6);
	tcase_add_loop_test(tc, stale_numbers_are_put_right, 0, 2);
	tcase_add_test(tc, unknown_code_reaches_everything);
	tcase_add_loop_test(tc, check_notices_changes, 0, 3);
	tcase_add_test(tc, check_wants_the_same_kernel);
	tcase_add_loop_test(tc, damage, 0, 6);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return test_main(s);
}
