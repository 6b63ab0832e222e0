// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of module.h, through which all device code reaches the driver. Each object ends right
 * before a page that cannot be read. So a reader that trusts a wrong header ends with a signal.
 */
#include <dirent.h>
#include <sys/mman.h>

#include "graph/elf.h"
#include "graph/fatbin.h"
#include "graph/module.h"
#include "tests/lib/golden.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

#define ROOM ((size_t)4 << 20)

static uint8_t *wall; /* the first byte that cannot be read */

static void setup(void)
{
	uint8_t *map =
		mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	wall = map + ROOM;
	ck_assert(!mprotect(wall, 4096, PROT_NONE));
}

static struct fdry_span at_wall(const void *data, size_t len)
{
	ck_assert_uint_le(len, ROOM);
	return (struct fdry_span){ memcpy(wall - len, data, len), len };
}

static int load(const struct fdry_driver *drv, struct fdry_span code)
{
	CUresult res = CUDA_SUCCESS;
	CUmodule module = NULL;
	int err = fdry_module_load(drv, code, &module, &res);

	if (err)
		ck_assert_int_ne(res, CUDA_SUCCESS);
	else
		ck_assert_int_eq(drv->cuModuleUnload(module), CUDA_SUCCESS);
	return err;
}

#define refused(drv, ...) ck_assert_int_eq(load(drv, __VA_ARGS__), -FDRY_E_BADCODE)

/* --- bytes that are no object --- */

START_TEST(neither_cubin_nor_ours)
{
	static const char ptx[] = ".version 8.0\n.target sm_90\n.visible .entry k() { ret; }\n";
	const struct fdry_driver *drv = test_sim();
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = { FDRY_FATBIN_WRAPPER_MAGIC, 1, (const void *)0x4141414141414000, NULL };
	struct {
		uint32_t magic;
		uint16_t version, header;
		uint64_t size;
	} fatbin = { FDRY_FATBIN_MAGIC, 1, 16, 1u << 30 };

	refused(drv, at_wall("", 0));
	refused(drv, at_wall("\x7f" "EL", 3));
	refused(drv, at_wall(ptx, sizeof(ptx) - 1)); /* text without its end */
	refused(drv, at_wall(ptx, sizeof(ptx)));
	refused(drv, at_wall(&wrapper, sizeof(wrapper)));
	refused(drv, at_wall(&fatbin, sizeof(fatbin)));
	refused(drv, (struct fdry_span){ NULL, 0 });
}
END_TEST

/* --- an object of the software driver with wrong headers --- */

struct object {
	uint8_t *bytes;
	size_t len;
	struct fdry_elf_ehdr *h;
};

static struct object object_read(void)
{
	struct object o;

	o.bytes = test_sim_cubin("kernels", &o.len);
	o.h = (struct fdry_elf_ehdr *)o.bytes;
	return o;
}

START_TEST(headers_that_lie)
{
	const struct fdry_driver *drv = test_sim();
	struct object o = object_read();
	struct fdry_elf_ehdr whole = *o.h;
	struct fdry_elf_shdr *s = (struct fdry_elf_shdr *)(o.bytes + o.h->shoff), kept;
	uint64_t *ph = (uint64_t *)(o.bytes + o.h->phoff), ph_kept;
	uint32_t i;

	ck_assert_msg(!load(drv, at_wall(o.bytes, o.len)), "%s", fdry_last_error());
	o.h->shoff = 0x30000000;
	refused(drv, at_wall(o.bytes, o.len));
	o.h->shoff = UINT64_MAX - 16;
	refused(drv, at_wall(o.bytes, o.len));
	*o.h = whole;
	o.h->shnum = 60000;
	refused(drv, at_wall(o.bytes, o.len));
	*o.h = whole;
	o.h->shstrndx = 50000;
	refused(drv, at_wall(o.bytes, o.len));
	*o.h = whole;
	o.h->phoff = o.len - 8;
	refused(drv, at_wall(o.bytes, o.len));
	*o.h = whole;
	o.h->phentsize = 1;
	refused(drv, at_wall(o.bytes, o.len));
	*o.h = whole;
	for (i = 1; i < o.h->shnum; i++) {
		kept = s[i];
		s[i].offset = o.len - 1;
		s[i].size = 4096;
		if (s[i].type != FDRY_SHT_NOBITS)
			refused(drv, at_wall(o.bytes, o.len));
		s[i] = kept;
	}
	ph_kept = ph[4]; /* filesz of the first segment */
	ph[4] = o.len + 1;
	refused(drv, at_wall(o.bytes, o.len));
	ph[4] = ph_kept;
	ck_assert_msg(!load(drv, at_wall(o.bytes, o.len)), "%s", fdry_last_error());
	free(o.bytes);
}
END_TEST

START_TEST(cut_anywhere)
{
	const struct fdry_driver *drv = test_sim();
	struct object o = object_read();
	size_t len;

	for (len = 0; len < o.len; len += len < 256 ? 1 : 509)
		refused(drv, at_wall(o.bytes, len));
	free(o.bytes);
}
END_TEST

/* With any number damaged, the reader reads only inside objects that the check accepts. dlopen()
 * would run their code, so they are not loaded. */
START_TEST(damaged_anywhere)
{
	const struct fdry_driver *drv = test_sim();
	struct object o = object_read();
	uint32_t state = 11, i, let = 0;
	uint8_t *at;
	uint8_t kept;

	for (i = 0; i < 3000; i++) {
		at = i % 2 ? o.bytes + golden_random(&state) % 64 :
		     o.bytes + o.h->shoff + golden_random(&state) % (o.h->shnum * 64u);
		kept = *at;
		*at = (uint8_t)golden_random(&state);
		let += !fdry_module_check(drv, at_wall(o.bytes, o.len));
		*at = kept;
	}
	ck_assert_uint_gt(let, 0);
	ck_assert_uint_lt(let, 3000);
	free(o.bytes);
}
END_TEST

/* --- cubins --- */

START_TEST(every_real_cubin_passes)
{
	struct fdry_driver nvidia = { .software = false };
	const struct fdry_driver *drv = test_sim();
	DIR *d = opendir("tests/golden/cubin");
	struct fdry_span code;
	struct dirent *e;
	size_t n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (!strstr(e->d_name, ".cubin"))
			continue;
		code = golden_read(e->d_name);
		ck_assert_msg(!fdry_module_check(&nvidia, code), "%s: %s", e->d_name,
			      fdry_last_error());
		ck_assert_msg(!fdry_module_check(drv, code), "%s: %s", e->d_name,
			      fdry_last_error());
		n++;
		golden_free(code);
	}
	closedir(d);
	ck_assert_uint_gt(n, 15);
}
END_TEST

/* Code for the processor is not for a GPU's driver. */
START_TEST(ours_is_for_the_software_driver_alone)
{
	struct fdry_driver nvidia = { .software = false };
	struct object o = object_read();

	ck_assert_int_eq(fdry_module_check(&nvidia, (struct fdry_span){ o.bytes, o.len }),
			 -FDRY_E_BADCODE);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "no cubin"));
	free(o.bytes);
}
END_TEST

/* --- sizes --- */

/* 60,000 sections with one name that ends at the end of 2 MB, and relocations that all of them
 * share. */
START_TEST(reading_is_linear)
{
	const uint32_t n = 60000, strings = 2 << 20, relocs = 20000, syms = 1;
	size_t len = 64 + (size_t)n * 64 + strings + relocs * 24 + 24 * syms, i;
	struct fdry_driver nvidia = { .software = false };
	uint8_t *b = calloc(1, len);
	struct fdry_elf_shdr *s = (struct fdry_elf_shdr *)(b + 64);
	uint64_t at = 64 + (uint64_t)n * 64;
	struct fdry_elf_ehdr h = { .ident = { 0x7f, 'E', 'L', 'F', 2, 1 },
				   .type = FDRY_ET_EXEC, .machine = FDRY_EM_CUDA, .shoff = 64,
				   .shentsize = 64, .shnum = (uint16_t)n, .shstrndx = 1 };

	ck_assert_ptr_nonnull(b);
	memcpy(b, &h, sizeof(h));
	memset(b + at + 1, 'a', strings - 2);
	s[1] = (struct fdry_elf_shdr){ .type = FDRY_SHT_STRTAB, .offset = at, .size = strings };
	s[2] = (struct fdry_elf_shdr){ .name = 1, .type = FDRY_SHT_SYMTAB, .offset = at + strings,
				       .size = 24 * syms, .link = 1, .entsize = 24 };
	for (i = 3; i < n; i++)
		s[i] = (struct fdry_elf_shdr){ .name = 1, .type = FDRY_SHT_NOTE };
	ck_assert_msg(!fdry_module_check(&nvidia, (struct fdry_span){ b, len }), "%s",
		      fdry_last_error());
	for (i = 3; i < n; i++)
		s[i] = (struct fdry_elf_shdr){ .name = 1, .type = FDRY_SHT_RELA,
					       .offset = at + strings + 24, .size = relocs * 24,
					       .link = 2, .info = 1, .entsize = 24 };
	ck_assert_int_eq(fdry_module_check(&nvidia, (struct fdry_span){ b, len }), -FDRY_E_BADCODE);
	free(b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_module");
	TCase *tc = tcase_create("module");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, neither_cubin_nor_ours);
	tcase_add_test(tc, headers_that_lie);
	tcase_add_test(tc, cut_anywhere);
	tcase_add_test(tc, damaged_anywhere);
	tcase_add_test(tc, every_real_cubin_passes);
	tcase_add_test(tc, ours_is_for_the_software_driver_alone);
	tcase_add_test(tc, reading_is_linear);
	suite_add_tcase(s, tc);
	return test_main(s);
}
