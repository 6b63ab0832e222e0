// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of how the interposer keeps device code and remembers handles, without a driver:
 * lengths of every kind of code, code in place or copied, thousands of handles, reused handles, JIT
 * options.
 */
#include "hook/code.c"
#include "hook/copy.c"
#include "hook/dynsym.c"
#include "hook/loaded.c"
#include "hook/note.c"

#include <elf.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/lib/nomem.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

/* Functions and data of other files that these files use. */
void *fdry_jumps[1];
bool fdry_start_is_forked(void)
{
	return false;
}
int fdry_start_forked(void)
{
	return 0;
}

static const char ptx[] = "//\n.version 8.0\n.target sm_90\n.visible .entry k() { ret; }\n";
static const uint8_t fatbin[16 + 40]
	__attribute__((aligned(8))) = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0, 40, 0,
					0, 0, 0, 0, 0, 0, 1, 2, 3 };

/* An ELF file with two sections, one of them without bytes, and a segment; it ends at @end. */
static size_t make_elf(uint8_t *at, bool sections_last)
{
	Elf64_Shdr sh[3] = { { 0 } };
	Elf64_Ehdr eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
			  .e_shnum = 3, .e_shentsize = sizeof(sh[0]), .e_phnum = 1,
			  .e_phentsize = sizeof(Elf64_Phdr), .e_phoff = sizeof(Elf64_Ehdr) };
	Elf64_Phdr ph = { .p_type = PT_LOAD, .p_offset = 128, .p_filesz = 72 };
	uint64_t data = sections_last ? 200 : 400;

	eh.e_shoff = sections_last ? 304 : 128;
	sh[1] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_offset = data, .sh_size = 50 };
	sh[2] = (Elf64_Shdr){ .sh_type = SHT_NOBITS, .sh_offset = data, .sh_size = 1 << 20 };
	memset(at, 0xEE, 600);
	memcpy(at, &eh, sizeof(eh));
	memcpy(at + eh.e_phoff, &ph, sizeof(ph));
	memcpy(at + eh.e_shoff, sh, sizeof(sh));
	return sections_last ? 304 + sizeof(sh) : 450;
}

START_TEST(elf_lengths)
{
	_Alignas(8) uint8_t elf[600];
	struct fdry_kept k;
	size_t end;
	int last;

	for (last = 0; last < 2; last++) {
		end = make_elf(elf, last);
		ck_assert_int_eq(fdry_code_keep(elf, &k), 0);
		ck_assert_int_eq(k.kind, FDRY_CODE_ELF);
		ck_assert_uint_eq(k.len, end);
		ck_assert_ptr_ne(k.data, elf);
		ck_assert_mem_eq(k.data, elf, end);
		free(k.alloc);
	}
	/* a segment that ends last */
	end = make_elf(elf, false);
	((Elf64_Phdr *)(elf + sizeof(Elf64_Ehdr)))->p_filesz = 450;
	ck_assert_int_eq(fdry_code_keep(elf, &k), 0);
	ck_assert_uint_eq(k.len, 578);
	free(k.alloc);
}
END_TEST

START_TEST(elf_that_makes_no_sense)
{
	_Alignas(8) uint8_t elf[600];
	struct fdry_kept k = { .len = 77 };

	make_elf(elf, true);
	((Elf64_Ehdr *)elf)->e_shoff = 1ull << 60;
	ck_assert_int_eq(fdry_code_keep(elf, &k), -FDRY_E_BADCODE);
	make_elf(elf, true);
	((Elf64_Shdr *)(elf + 304))[1].sh_size = UINT64_MAX - 10;
	ck_assert_int_eq(fdry_code_keep(elf, &k), -FDRY_E_BADCODE);
	make_elf(elf, true);
	elf[EI_CLASS] = ELFCLASS32;
	ck_assert_int_eq(fdry_code_keep(elf, &k), -FDRY_E_BADCODE);
	ck_assert_uint_eq(k.len, 77);
}
END_TEST

#define LARGE ((size_t)3 << 20)

/* An ELF file of @LARGE bytes, mapped. Tables and a section's bytes are at its end. */
static uint8_t *large_elf(void)
{
	uint8_t *elf =
		mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	Elf64_Shdr sh = { .sh_type = SHT_PROGBITS, .sh_offset = 4096, .sh_size = LARGE - 8192 };
	Elf64_Ehdr eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
			  .e_shnum = 1, .e_shentsize = sizeof(sh),
			  .e_shoff = LARGE - sizeof(sh) };
	size_t i;

	ck_assert_ptr_ne(elf, MAP_FAILED);
	for (i = sizeof(eh); i < LARGE; i++)
		elf[i] = (uint8_t)(i * 7 >> 3);
	memcpy(elf, &eh, sizeof(eh));
	memcpy(elf + eh.e_shoff, &sh, sizeof(sh));
	return elf;
}

static bool copied(const void *image, struct fdry_kept *k)
{
	struct fdry_copy c;
	bool ret;

	fdry_copy_begin(image, &c);
	ret = fdry_copy_take(&c, k);
	fdry_copy_end(&c);
	return ret;
}

START_TEST(large_code_is_copied_meanwhile)
{
	uint8_t *elf = large_elf(), *same = large_elf();
	struct fdry_kept k;
	struct fdry_copy c;

	fdry_copy_begin(elf, &c);
	ck_assert(c.running);
	ck_assert(fdry_copy_take(&c, &k));
	fdry_copy_end(&c);
	ck_assert_int_eq(k.kind, FDRY_CODE_ELF);
	ck_assert_uint_eq(k.len, LARGE);
	ck_assert_ptr_ne(k.data, elf);
	munmap(elf, LARGE);
	ck_assert(!memcmp(k.data, same, LARGE));
	fdry_code_drop(k.alloc, k.mapped);
	/* no caller uses the copy */
	fdry_copy_begin(same, &c);
	fdry_copy_end(&c);
	munmap(same, LARGE);
}
END_TEST

/* The driver has not accepted this code yet: it may be wrong or end early. */
START_TEST(large_code_that_is_not_there)
{
	uint8_t *elf = large_elf();
	Elf64_Ehdr *eh = (Elf64_Ehdr *)elf;
	const Elf64_Ehdr good = *eh;
	struct fdry_kept k = { .len = 77 };

	eh->e_shoff = UINT64_MAX - 100;
	ck_assert(!copied(elf, &k));
	*eh = good;
	eh->e_shnum = UINT16_MAX;
	eh->e_shentsize = UINT16_MAX;
	ck_assert(!copied(elf, &k));
	*eh = good;
	eh->e_phnum = 3;
	eh->e_phentsize = sizeof(Elf64_Phdr);
	eh->e_phoff = 1ull << 50;
	ck_assert(!copied(elf, &k));
	*eh = good;
	((Elf64_Shdr *)(elf + good.e_shoff))->sh_size = 1ull << 35; /* more than is mapped */
	ck_assert(!copied(elf, &k));
	((Elf64_Shdr *)(elf + good.e_shoff))->sh_size = UINT64_MAX;
	ck_assert(!copied(elf, &k));
	((Elf64_Shdr *)(elf + good.e_shoff))->sh_size = 8;
	ck_assert(!mprotect(elf + LARGE / 2, 4096, PROT_NONE));
	ck_assert(!copied(elf, &k));
	ck_assert_uint_eq(k.len, 77);
	ck_assert(!mprotect(elf + LARGE / 2, 4096, PROT_READ));
	ck_assert(copied(elf, &k));
	fdry_code_drop(k.alloc, k.mapped);
	munmap(elf, LARGE);
}
END_TEST

START_TEST(code_that_is_not_copied_beside_the_driver)
{
	_Alignas(8) static const uint8_t in_program[LARGE] = {
		0x7f, 'E', 'L', 'F', ELFCLASS64, [0x28 + 2] = 0x10
	};
	_Alignas(8) uint8_t small[600];
	struct fdry_copy c;

	make_elf(small, true);
	fdry_copy_begin(small, &c);
	ck_assert(!c.running);
	fdry_copy_begin(in_program, &c);
	ck_assert(!c.running);
	fdry_copy_begin(ptx, &c);
	ck_assert(!c.running);
	fdry_copy_begin(NULL, &c);
	ck_assert(!c.running);
	fdry_copy_end(&c);
}
END_TEST

/* Objects that are loaded after the first look are found, and stay after some of their code is
 * kept. */
START_TEST(objects_that_come_and_go)
{
	const char *path = test_built("sim/kernels.cubin");
	struct link_map *map;
	char *name;
	void *handle;
	int i;

	ck_assert(!fdry_loaded_holds(&path));
	ck_assert(fdry_loaded_holds(ptx));
	for (i = 0; i < 2; i++) {
		handle = dlopen(path, RTLD_NOW);
		ck_assert_msg(handle != NULL, "%s", dlerror());
		ck_assert(!dlinfo(handle, RTLD_DI_LINKMAP, &map));
		name = (char *)map->l_addr;
		ck_assert(fdry_loaded_holds(name));
		if (i)
			ck_assert(fdry_loaded_pin(name, 4));
		dlclose(handle);
		ck_assert_int_eq(fdry_loaded_holds(name), i);
	}
	ck_assert(!memcmp(name, ELFMAG, SELFMAG));
	ck_assert(fdry_loaded_pin(name, 4));
	ck_assert(fdry_loaded_pin(ptx, sizeof(ptx)));
	ck_assert(!fdry_loaded_pin(&current, 1)); /* writable */
}
END_TEST

START_TEST(ptx_keeps_its_nul)
{
	char *text = strdup(ptx);
	struct fdry_kept k;

	ck_assert_int_eq(fdry_code_keep(text, &k), 0);
	memset(text, 'x', strlen(text));
	free(text);
	ck_assert_int_eq(k.kind, FDRY_CODE_PTX);
	ck_assert_uint_eq(k.len, sizeof(ptx));
	ck_assert_mem_eq(k.data, ptx, sizeof(ptx));
	free(k.alloc);
}
END_TEST

START_TEST(read_only_code_stays_in_place)
{
	struct fdry_kept k;

	ck_assert_int_eq(fdry_code_keep(ptx, &k), 0);
	ck_assert_ptr_eq(k.data, ptx);
	ck_assert_ptr_null(k.alloc);
	ck_assert_int_eq(fdry_code_keep(fatbin, &k), 0);
	ck_assert_int_eq(k.kind, FDRY_CODE_FATBIN);
	ck_assert_ptr_eq(k.data, fatbin);
	ck_assert_uint_eq(k.len, sizeof(fatbin));
	ck_assert_ptr_null(k.alloc);
}
END_TEST

START_TEST(writable_code_is_copied)
{
	static uint8_t writable[sizeof(fatbin)] __attribute__((aligned(8)));
	struct fdry_kept k;

	memcpy(writable, fatbin, sizeof(fatbin));
	ck_assert_int_eq(fdry_code_keep(writable, &k), 0);
	memset(writable, 0, sizeof(writable));
	ck_assert_ptr_ne(k.data, writable);
	ck_assert_mem_eq(k.data, fatbin, sizeof(fatbin));
	free(k.alloc);
}
END_TEST

START_TEST(wrapper_is_copied_and_its_fatbin_kept)
{
	struct wrapper w = { WRAPPER_MAGIC, 2, fatbin, "elsewhere" }, got;
	uint8_t *heap = malloc(sizeof(fatbin));
	struct fdry_kept k;

	ck_assert_int_eq(fdry_code_keep(&w, &k), 0);
	ck_assert_int_eq(k.kind, FDRY_CODE_WRAPPER);
	ck_assert_uint_eq(k.len, 0);
	memcpy(&got, k.data, sizeof(got));
	ck_assert_uint_eq(got.magic, WRAPPER_MAGIC);
	ck_assert_uint_eq(got.version, 2);
	ck_assert_ptr_eq(got.data, fatbin);
	ck_assert_ptr_null(got.more);
	free(k.alloc);

	memcpy(heap, fatbin, sizeof(fatbin));
	w.data = heap;
	ck_assert_int_eq(fdry_code_keep(&w, &k), 0);
	memset(heap, 0, sizeof(fatbin));
	free(heap);
	memset(&w, 0, sizeof(w));
	memcpy(&got, k.data, sizeof(got));
	ck_assert_mem_eq(got.data, fatbin, sizeof(fatbin));
	ck_assert_uint_eq((uintptr_t)got.data % 8, 0);
	free(k.alloc);

	w = (struct wrapper){ WRAPPER_MAGIC, 1, ptx, NULL };
	ck_assert_int_eq(fdry_code_keep(&w, &k), -FDRY_E_BADCODE);
	w.data = NULL;
	ck_assert_int_eq(fdry_code_keep(&w, &k), -FDRY_E_BADCODE);
}
END_TEST

START_TEST(unknown_kinds)
{
	static const uint8_t junk[64] = { 0xDE, 0xC0, 0x17, 0x0B, 1 }, zero[64];
	struct fdry_kept k;

	ck_assert_int_eq(fdry_code_keep(junk, &k), -FDRY_E_BADCODE);
	ck_assert_int_eq(fdry_code_keep(zero, &k), -FDRY_E_BADCODE);
}
END_TEST

START_TEST(bytes_of_files_are_adopted)
{
	struct fdry_kept k;
	char *text = strdup(ptx), *tiny = calloc(1, 3), *wrapper = calloc(1, 65);
	uint32_t magic = WRAPPER_MAGIC;

	fdry_code_adopt(text, sizeof(ptx) - 1, &k);
	ck_assert_int_eq(k.kind, FDRY_CODE_PTX);
	ck_assert_uint_eq(k.len, sizeof(ptx));
	free(k.alloc);
	fdry_code_adopt(tiny, 2, &k);
	ck_assert_int_eq(k.kind, FDRY_CODE_UNKNOWN);
	free(k.alloc);
	memcpy(wrapper, &magic, sizeof(magic));
	fdry_code_adopt(wrapper, 64, &k);
	ck_assert_int_eq(k.kind, FDRY_CODE_UNKNOWN);
	free(k.alloc);
}
END_TEST

/* The last byte of code may be the last one of its mapping. */
START_TEST(nothing_beyond_the_end_is_read)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fdry_kept k;
	uint8_t elf[600];
	size_t len;
	char *at;

	ck_assert_int_eq(mprotect(page + 4096, 4096, PROT_NONE), 0);
	at = page + 4096 - sizeof(ptx);
	memcpy(at, ptx, sizeof(ptx));
	ck_assert_int_eq(fdry_code_keep(at, &k), 0);
	free(k.alloc);
	at = page + 4096 - sizeof(fatbin);
	memcpy(at, fatbin, sizeof(fatbin));
	ck_assert_int_eq(fdry_code_keep(at, &k), 0);
	free(k.alloc);
	len = make_elf(elf, true);
	at = page + 4096 - len;
	memcpy(at, elf, len);
	ck_assert_int_eq(fdry_code_keep(at, &k), 0);
	ck_assert_uint_eq(k.len, len);
	free(k.alloc);
	munmap(page, 8192);
}
END_TEST

static CUmodule module_nr(uintptr_t i)
{
	return (CUmodule)(0x7f0000001000 + 16 * i);
}

START_TEST(thousands_of_handles)
{
	struct fdry_code c;
	uintptr_t i;
	char text[32];

	for (i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "// module %d", (int)i);
		fdry_note(&(struct fdry_load){ .module = module_nr(i), .image = text });
	}
	fdry_note(&(struct fdry_load){ .library = (CUlibrary)module_nr(7), .image = ptx });
	for (i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "// module %d", (int)i);
		ck_assert_int_eq(fdry_note_find(NULL, module_nr(i), &c), 0);
		ck_assert_ptr_eq(c.module, module_nr(i));
		ck_assert_ptr_null(c.library);
		ck_assert_str_eq(c.data, text);
	}
	ck_assert_int_eq(fdry_note_find((CUlibrary)module_nr(7), NULL, &c), 0);
	ck_assert_ptr_eq(c.data, ptx);
	c.len = 1234;
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(5000), &c), -FDRY_E_NOENT);
	ck_assert_int_eq(fdry_note_find((CUlibrary)module_nr(8), NULL, &c), -FDRY_E_NOENT);
	ck_assert_int_eq(fdry_note_find(NULL, NULL, &c), -FDRY_E_NOENT);
	ck_assert_uint_eq(c.len, 1234);
}
END_TEST

START_TEST(the_newest_note_wins)
{
	struct fdry_code old, c;
	char first[] = "// first", second[] = "// second", third[] = "// third";

	fdry_note(&(struct fdry_load){ .module = module_nr(1), .image = first });
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(1), &old), 0);
	fdry_note(&(struct fdry_load){ .module = module_nr(1), .image = second });
	fdry_note(&(struct fdry_load){ .module = module_nr(1),
				       .image = third }); /* frees the second, which no caller
							     saw */
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(1), &c), 0);
	ck_assert_str_eq(c.data, third);
	ck_assert_str_eq(old.data, first); /* a caller that saw it can still use it */
	/* code that could not be kept: the older note must not answer */
	fdry_note(&(struct fdry_load){ .module = module_nr(1) });
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(1), &c), 0);
	ck_assert_int_eq(c.kind, FDRY_CODE_UNKNOWN);
	ck_assert_ptr_null(c.data);
	ck_assert_uint_eq(c.len, 0);
}
END_TEST

START_TEST(a_module_has_its_librarys_code)
{
	struct fdry_code c;
	char text[] = "// library", other[] = "// other";

	fdry_note(&(struct fdry_load){ .library = (CUlibrary)module_nr(3), .image = text });
	fdry_note_alias((CUlibrary)module_nr(3), module_nr(4));
	fdry_note_alias((CUlibrary)module_nr(99), module_nr(5));
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(5), &c), -FDRY_E_NOENT);
	fdry_note(&(struct fdry_load){ .library = (CUlibrary)module_nr(3), .image = other });
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(4), &c), 0);
	ck_assert_str_eq(c.data, text);
	ck_assert_ptr_eq(c.library, (CUlibrary)module_nr(3));
}
END_TEST

/* The driver reuses both handles: the module's older note must not describe the code that the
 * handle has now. */
START_TEST(a_modules_older_code_does_not_answer)
{
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *few = (void *)32, *many = (void *)64;
	struct fdry_load load = { .library = (CUlibrary)module_nr(6), .image = ptx, .n = 1,
				  .options = &option, .values = &few };
	struct fdry_code c;

	/* the same code at the same address, with other options */
	fdry_note(&load);
	fdry_note_alias((CUlibrary)module_nr(6), module_nr(7));
	load.values = &many;
	fdry_note(&load);
	fdry_note_alias((CUlibrary)module_nr(6), module_nr(7));
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(7), &c), 0);
	ck_assert_uint_eq(c.njit, 1);
	ck_assert_ptr_eq(c.jit_values[0], many);
	/* a library whose load was not seen */
	fdry_note_alias((CUlibrary)module_nr(98), module_nr(7));
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(7), &c), 0);
	ck_assert_int_eq(c.kind, FDRY_CODE_UNKNOWN);
	ck_assert_ptr_null(c.data);
}
END_TEST

START_TEST(jit_options_are_copied_without_outputs)
{
	CUjit_option options[] = { CU_JIT_MAX_REGISTERS,
				   CU_JIT_INFO_LOG_BUFFER,
				   CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_ERROR_LOG_BUFFER,
				   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_WALL_TIME,
				   CU_JIT_TARGET };
	char log[16];
	void *values[] = { (void *)32, log, (void *)16, log, (void *)16, NULL, (void *)90 };
	CUjit_option symbols[] = { CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_COUNT };
	struct fdry_load load = {
		.module = module_nr(1), .image = ptx, .n = 7, .options = options, .values = values
	};
	struct fdry_code c;

	fdry_note(&load);
	memset(options, 0xff, sizeof(options));
	memset(values, 0xff, sizeof(values));
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(1), &c), 0);
	ck_assert_uint_eq(c.njit, 2);
	ck_assert_int_eq(c.jit[0], CU_JIT_MAX_REGISTERS);
	ck_assert_ptr_eq(c.jit_values[0], (void *)32);
	ck_assert_int_eq(c.jit[1], CU_JIT_TARGET);
	ck_assert_ptr_eq(c.jit_values[1], (void *)90);
	ck_assert(!c.jit_symbols);

	load = (struct fdry_load){
		.module = module_nr(2), .image = ptx, .n = 2, .options = symbols, .values = values
	};
	fdry_note(&load);
	ck_assert_int_eq(fdry_note_find(NULL, module_nr(2), &c), 0);
	ck_assert_uint_eq(c.njit, 0);
	ck_assert(c.jit_symbols);
	ck_assert_int_eq(c.kind, FDRY_CODE_PTX);
}
END_TEST

/* No note points to the caller's memory, which the caller may free or change. */
START_TEST(a_note_without_memory)
{
	static const char text[] = "//\n.version 8.0\n.target sm_90\n.visible .entry k() {}\n";
	unsigned long n, made;
	struct fdry_code code;
	char *image;
	CUmodule m;

	for (n = 1;; n++) {
		m = (CUmodule)(uintptr_t)(0x10000 + 64 * n);
		image = strdup(text);
		code = (struct fdry_code){ 0 };
		test_nomem(n);
		fdry_note(&(struct fdry_load){ .module = m, .image = image });
		made = test_nomem(0);
		ck_assert_msg(fdry_note_find(NULL, m, &code) || code.data != image,
			      "allocation %lu", n);
		free(image);
		if (made < n)
			break;
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_code");
	TCase *tc = tcase_create("code");

	tcase_add_test(tc, elf_lengths);
	tcase_add_test(tc, elf_that_makes_no_sense);
	tcase_add_test(tc, large_code_is_copied_meanwhile);
	tcase_add_test(tc, large_code_that_is_not_there);
	tcase_add_test(tc, code_that_is_not_copied_beside_the_driver);
	tcase_add_test(tc, objects_that_come_and_go);
	tcase_add_test(tc, ptx_keeps_its_nul);
	tcase_add_test(tc, read_only_code_stays_in_place);
	tcase_add_test(tc, writable_code_is_copied);
	tcase_add_test(tc, wrapper_is_copied_and_its_fatbin_kept);
	tcase_add_test(tc, unknown_kinds);
	tcase_add_test(tc, bytes_of_files_are_adopted);
	tcase_add_test(tc, nothing_beyond_the_end_is_read);
	suite_add_tcase(s, tc);
	tc = tcase_create("notes");
	tcase_add_test(tc, thousands_of_handles);
	tcase_add_test(tc, the_newest_note_wins);
	tcase_add_test(tc, a_module_has_its_librarys_code);
	tcase_add_test(tc, a_modules_older_code_does_not_answer);
	tcase_add_test(tc, jit_options_are_copied_without_outputs);
	tcase_add_test(tc, a_note_without_memory);
	suite_add_tcase(s, tc);
	return test_main(s);
}
