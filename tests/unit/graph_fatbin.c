// SPDX-License-Identifier: Apache-2.0
/* Unit tests of fatbins: which entry is chosen, compression, wrappers, damage. */
#include "tests/lib/golden.h"

#include "graph/elf.h"
#include "graph/fatbin.h"

static const char *const fatbins[] = { "plain.none.fatbin", "plain.lz4.fatbin",
				       "plain.zstd.fatbin" };

/* --- the golden fatbins: sm_80, sm_90, sm_90a, sm_100f, PTX for 80 --- */

START_TEST(walks_to_the_end)
{
	struct fdry_span f = golden_read(fatbins[_i]);
	struct fdry_fatbin_entry e;
	struct fdry_fatbin_iter it;
	struct fdry_devcode code;
	unsigned int elves = 0, texts = 0;
	bool more;
	int err;

	ck_assert_int_eq(fdry_fatbin_init(f, &it), 0);
	while (!(err = fdry_fatbin_next(&it, &e, &more)) && more) {
		ck_assert_int_eq(fdry_fatbin_unpack(&e, &code), 0);
		ck_assert_uint_eq(!!(e.flags & FDRY_FATBIN_LZ4), _i == 1);
		ck_assert_uint_eq(!!(e.flags & FDRY_FATBIN_ZSTD), _i == 2);
		elves += e.kind == FDRY_FATBIN_ELF && code.kind == FDRY_DEVCODE_CUBIN;
		texts += e.kind == FDRY_FATBIN_PTX && code.kind == FDRY_DEVCODE_PTX;
		fdry_devcode_release(&code);
	}
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(elves, 4);
	ck_assert_uint_eq(texts, 1);
	golden_free(f);
}
END_TEST

/* The driver's choice: the e_flags of the chosen cubin; 0: PTX. */
static const struct {
	unsigned int cc;
	uint32_t flags;
} choices[] = {
	{ 80, 0x06005004 }, { 86, 0x06005004 }, { 89, 0x06005004 }, { 90, 0x06005a04 },
	{ 100, 0x06006402 }, { 103, 0x06006402 }, { 120, 0 }, { 101, 0 },
};

START_TEST(chooses_as_the_driver_does)
{
	struct fdry_span f = golden_read(fatbins[_i]);
	const struct fdry_elf_ehdr *h;
	struct fdry_devcode code;
	size_t i;

	for (i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		ck_assert_int_eq(fdry_devcode_init(f.data, f.len, choices[i].cc, &code), 0);
		if (choices[i].flags) {
			ck_assert_int_eq(code.kind, FDRY_DEVCODE_CUBIN);
			h = (const void *)code.bytes.data;
			ck_assert_uint_eq(h->flags & 0xff00, choices[i].flags & 0xff00);
		} else {
			ck_assert_int_eq(code.kind, FDRY_DEVCODE_PTX);
			ck_assert_ptr_nonnull(
				memmem(code.bytes.data, code.bytes.len, ".target sm_80", 13));
			ck_assert_ptr_null(memchr(code.bytes.data, 0, code.bytes.len));
		}
		fdry_devcode_release(&code);
	}
	ck_assert_int_eq(fdry_devcode_init(f.data, f.len, 75, &code), -FDRY_E_NOENT);
	golden_free(f);
}
END_TEST

START_TEST(compression_changes_nothing)
{
	struct fdry_span a = golden_read(fatbins[0]), b = golden_read(fatbins[_i]);
	struct fdry_devcode x, y;
	unsigned int cc;

	for (cc = 80; cc <= 120; cc += 10) {
		ck_assert_int_eq(fdry_devcode_init(a.data, a.len, cc, &x),
				 fdry_devcode_init(b.data, b.len, cc, &y));
		/* Compiled apart, yet equal byte for byte. */
		ck_assert_uint_eq(x.bytes.len, y.bytes.len);
		ck_assert_mem_eq(x.bytes.data, y.bytes.data, x.bytes.len);
		fdry_devcode_release(&x);
		fdry_devcode_release(&y);
	}
	golden_free(a);
	golden_free(b);
}
END_TEST

/* --- fatbins made by hand --- */

struct made {
	struct fdry_buf b;
};

static void made_begin(struct made *m)
{
	static const uint8_t header[16] = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0 };

	memset(m, 0, sizeof(*m));
	ck_assert_int_eq(fdry_buf_put(&m->b, header, sizeof(header)), 0);
}

/* An entry whose 64 bytes of "code" begin like a cubin of @type and end in @mark. */
static void made_entry(struct made *m, uint16_t kind, uint32_t arch, uint64_t flags, uint8_t mark)
{
	uint8_t h[64] = { 0 }, code[64] = { 0x7f, 'E', 'L', 'F', 2, 1 };

	fdry_set16(h, kind);
	fdry_set16(h + 2, 0x101);
	fdry_set32(h + 4, sizeof(h));
	fdry_set64(h + 8, sizeof(code));
	fdry_set32(h + 28, arch);
	fdry_set64(h + 40, flags | 0x11);
	fdry_set16(code + 16, mark == 'r' ? FDRY_ET_REL : FDRY_ET_EXEC);
	fdry_set16(code + 18, FDRY_EM_CUDA);
	code[63] = mark;
	ck_assert_int_eq(fdry_buf_put(&m->b, h, sizeof(h)), 0);
	ck_assert_int_eq(fdry_buf_put(&m->b, code, sizeof(code)), 0);
	fdry_set64(m->b.data + 8, m->b.len - 16);
}

/* The mark of the entry chosen for @cc, or the error. */
static int made_choice(const struct made *m, unsigned int cc)
{
	struct fdry_devcode code;
	int ret = fdry_devcode_init(m->b.data, m->b.len, cc, &code);

	if (ret)
		return ret;
	ret = code.bytes.data[63];
	fdry_devcode_release(&code);
	return ret;
}

START_TEST(exact_before_family_before_plain)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	made_entry(&m, FDRY_FATBIN_ELF, 90, FDRY_FATBIN_EXACT, 'a');
	made_entry(&m, FDRY_FATBIN_ELF, 100, 0, 'q');
	made_entry(&m, FDRY_FATBIN_ELF, 100, FDRY_FATBIN_FAMILY, 'f');
	made_entry(&m, FDRY_FATBIN_ELF, 120, FDRY_FATBIN_EXACT, 'x');
	ck_assert_int_eq(made_choice(&m, 90), 'a');
	ck_assert_int_eq(made_choice(&m, 100), 'f');
	ck_assert_int_eq(made_choice(&m, 103), 'f');
	ck_assert_int_eq(made_choice(&m, 101), 'q'); /* a family of its own */
	ck_assert_int_eq(made_choice(&m, 120), 'x');
	ck_assert_int_eq(made_choice(&m, 121), -FDRY_E_NOENT); /* exact means exact */
	ck_assert_int_eq(made_choice(&m, 89), -FDRY_E_NOENT);  /* another major version */
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(highest_minor_version)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 86, 0, '6');
	made_entry(&m, FDRY_FATBIN_ELF, 80, 0, '0');
	made_entry(&m, FDRY_FATBIN_ELF, 89, 0, '9');
	ck_assert_int_eq(made_choice(&m, 80), '0');
	ck_assert_int_eq(made_choice(&m, 86), '6');
	ck_assert_int_eq(made_choice(&m, 87), '6');
	ck_assert_int_eq(made_choice(&m, 89), '9');
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(unknown_entries_do_not_count)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, 0x40, 90, 0, 'u');
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_NOENT);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	ck_assert_int_eq(made_choice(&m, 90), 'p');
	fdry_buf_release(&m.b);
}
END_TEST

/* The driver links such objects: neither they nor the code beside them is the code that runs. */
START_TEST(relocatable_objects_are_refused)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_PTX, 90, 0, 0);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'r');
	made_entry(&m, FDRY_FATBIN_ELF, 80, 0, 'o');
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_BADCODE);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "not linked"));
	ck_assert_int_eq(made_choice(&m, 80), 'o');
	made_entry(&m, FDRY_FATBIN_ELF, 90, FDRY_FATBIN_EXACT, 'a');
	ck_assert_int_eq(made_choice(&m, 90), 'a');
	fdry_buf_release(&m.b);
}
END_TEST

/* As tests/gpu/fatbin_choice.c sees the driver do it. */
START_TEST(first_of_equal_cubins)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 't');
	ck_assert_int_eq(made_choice(&m, 90), 'p');
	made_entry(&m, FDRY_FATBIN_ELF, 90, FDRY_FATBIN_EXACT, 'a');
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'u');
	made_entry(&m, FDRY_FATBIN_ELF, 90, FDRY_FATBIN_EXACT, 'b');
	ck_assert_int_eq(made_choice(&m, 90), 'a');
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(equal_texts_are_refused)
{
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_PTX, 90, 0, 0);
	made_entry(&m, FDRY_FATBIN_PTX, 80, 0, 0);
	made_entry(&m, FDRY_FATBIN_PTX, 90, 0, 0);
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_BADCODE);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	ck_assert_int_eq(made_choice(&m, 90), 'p');
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(nothing_behind_it_is_looked_at)
{
	struct made m, n;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 80, 0, '0');
	made_begin(&n);
	made_entry(&n, FDRY_FATBIN_ELF, 90, 0, 'n');
	ck_assert_int_eq(fdry_buf_put(&m.b, n.b.data, n.b.len), 0);
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_NOENT);
	ck_assert_int_eq(made_choice(&m, 80), '0');
	fdry_buf_release(&m.b);
	fdry_buf_release(&n.b);
}
END_TEST

/* Each field of the headers is set to an invalid value. */
static const struct {
	unsigned int at, size;
	uint64_t value;
} bad_fields[] = {
	{ 0, 4, 1 },
	{ 4, 2, 2 },
	{ 6, 2, 64 },
	{ 8, 8, 1 << 20 },
	{ 8, 8, UINT64_MAX },
	{ 8, 8, 70 },
	{ 18, 2, 0x102 },
	{ 20, 4, 63 },
	{ 20, 4, UINT32_MAX },
	{ 24, 8, 65 },
	{ 24, 8, UINT64_MAX },
	{ 32, 4, 5 }, /* a compressed size, though the entry is not compressed */
	{ 56, 8, FDRY_FATBIN_LZ4 | FDRY_FATBIN_ZSTD },
	{ 56, 8, FDRY_FATBIN_LZ4 },
	{ 56, 8, FDRY_FATBIN_ZSTD },
};

START_TEST(bad_field)
{
	struct made m;
	int err;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	memcpy(m.b.data + bad_fields[_i].at, &bad_fields[_i].value, bad_fields[_i].size);
	err = made_choice(&m, 90);
	ck_assert_msg(err == -FDRY_E_BADCODE || err == -FDRY_E_LIMIT, "field at %u: %d",
		      bad_fields[_i].at, err);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(absurd_sizes_allocate_no_memory)
{
	struct made m;
	uint64_t flags = (_i ? FDRY_FATBIN_ZSTD : FDRY_FATBIN_LZ4) | 0x11;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	fdry_set64(m.b.data + 16 + 40, flags);
	fdry_set32(m.b.data + 16 + 16, 64);
	fdry_set64(m.b.data + 16 + 56, FDRY_FATBIN_CODE_MAX);
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_BADCODE);
	fdry_set64(m.b.data + 16 + 56, FDRY_FATBIN_CODE_MAX + 1);
	ck_assert_int_eq(made_choice(&m, 90), -FDRY_E_LIMIT);
	fdry_buf_release(&m.b);
}
END_TEST

/* --- wrappers and bare code --- */

START_TEST(wrappers)
{
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} w = { FDRY_FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
	struct fdry_devcode code;
	struct made m;

	made_begin(&m);
	made_entry(&m, FDRY_FATBIN_ELF, 90, 0, 'p');
	w.data = m.b.data;
	for (w.version = 1; w.version <= 2; w.version++) {
		ck_assert_int_eq(fdry_devcode_init(&w, 0, 90, &code), 0);
		ck_assert_ptr_eq(code.bytes.data, m.b.data + 80);
		/* Bytes with a length may come from a file, so their pointers may have any
		 * value. */
		ck_assert_int_eq(fdry_devcode_init(&w, sizeof(w), 90, &code), -FDRY_E_BADCODE);
		ck_assert_int_eq(fdry_devcode_init(&w, sizeof(w) - 1, 90, &code), -FDRY_E_BADCODE);
	}
	ck_assert_int_eq(fdry_devcode_init(&w, 0, 90, &code), -FDRY_E_BADCODE);
	w.version = 1;
	w.data = NULL;
	ck_assert_int_eq(fdry_devcode_init(&w, 0, 90, &code), -FDRY_E_BADCODE);
	w.data = "no fatbin at all, just text";
	ck_assert_int_eq(fdry_devcode_init(&w, 0, 90, &code), -FDRY_E_BADCODE);
	ck_assert_int_eq(fdry_devcode_init(m.b.data, 0, 90, &code),
			 0); /* a fatbin has its length in its header */
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(bare_code)
{
	static const char ptx[] = "// made by hand\n.version 8.0\n.target sm_90\n\0garbage";
	uint8_t host[64] = { 0x7f, 'E', 'L', 'F', 2, 1 };
	struct fdry_span cubin = golden_read("plain.90.cubin");
	struct fdry_devcode code;

	ck_assert_int_eq(fdry_devcode_init(cubin.data, cubin.len, 90, &code), 0);
	ck_assert_int_eq(code.kind, FDRY_DEVCODE_CUBIN);
	ck_assert_uint_eq(code.bytes.len, cubin.len);
	ck_assert_int_eq(fdry_devcode_init(cubin.data, 0, 90, &code), -FDRY_E_BADCODE);
	ck_assert_int_eq(fdry_devcode_init(ptx, sizeof(ptx), 90, &code), 0);
	ck_assert_int_eq(code.kind, FDRY_DEVCODE_PTX);
	ck_assert_uint_eq(code.bytes.len, strlen(ptx));
	fdry_set16(host + 18, 62);
	ck_assert_int_eq(fdry_devcode_init(host, sizeof(host), 90, &code), 0);
	ck_assert_int_eq(code.kind, FDRY_DEVCODE_HOST);
	ck_assert_int_eq(fdry_devcode_init("neither of them", 15, 90, &code), -FDRY_E_BADCODE);
	ck_assert_int_eq(fdry_devcode_init(NULL, 0, 90, &code), -FDRY_E_BADCODE);
	ck_assert_int_eq(fdry_devcode_init("ab", 2, 90, &code), -FDRY_E_BADCODE);
	golden_free(cubin);
}
END_TEST

/* --- damage --- */

static void find_any(struct fdry_span bytes)
{
	struct fdry_devcode code;
	unsigned int cc;
	int err;

	for (cc = 80; cc <= 100; cc += 10) {
		err = bytes.len ? fdry_devcode_init(bytes.data, bytes.len, cc, &code)
				: -FDRY_E_BADCODE;
		if (!err)
			fdry_devcode_release(&code);
		else
			ck_assert_msg(err == -FDRY_E_BADCODE || err == -FDRY_E_NOENT ||
					      err == -FDRY_E_LIMIT,
				      "%d: %s", err, fdry_last_error());
	}
}

START_TEST(damage)
{
	golden_damage(fatbins[_i], 300, 2000, find_any);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_fatbin");
	TCase *tc = tcase_create("fatbin");

	tcase_add_loop_test(tc, walks_to_the_end, 0, 3);
	tcase_add_loop_test(tc, chooses_as_the_driver_does, 0, 3);
	tcase_add_loop_test(tc, compression_changes_nothing, 1, 3);
	tcase_add_test(tc, exact_before_family_before_plain);
	tcase_add_test(tc, highest_minor_version);
	tcase_add_test(tc, unknown_entries_do_not_count);
	tcase_add_test(tc, relocatable_objects_are_refused);
	tcase_add_test(tc, first_of_equal_cubins);
	tcase_add_test(tc, equal_texts_are_refused);
	tcase_add_test(tc, nothing_behind_it_is_looked_at);
	tcase_add_loop_test(tc, bad_field, 0, (int)(sizeof(bad_fields) / sizeof(bad_fields[0])));
	tcase_add_loop_test(tc, absurd_sizes_allocate_no_memory, 0, 2);
	tcase_add_test(tc, wrappers);
	tcase_add_test(tc, bare_code);
	tcase_add_loop_test(tc, damage, 0, 3);
	suite_add_tcase(s, tc);
	return test_main(s);
}
