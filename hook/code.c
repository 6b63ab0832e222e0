// SPDX-License-Identifier: Apache-2.0
/*
 * code.c - keeps device code after the call that loaded it.
 *
 * Code in a read-only part of a shared object stays in place, and the object is pinned. That stores
 * only a pointer and a length, and reads only a header. Other code belongs to the caller, who may
 * free or change it, so it is copied. Its length comes from the code itself, which is read only
 * after the driver has accepted it. Large code is copied during the load (copy.c).
 */
#include "hook/internal.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/buf.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xBA55ED50u
#define CODE_MAX (1ull << 36) /* a larger length is an error */

/* The structure that nvcc's registration code passes to the CUDA runtime. */
struct wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *more; /* version 2: the fatbins from which data was linked; else a file name */
};

static bool is_text(const char *p)
{
	int i;

	for (i = 0; i < 16 && p[i]; i++)
		if ((p[i] < ' ' || p[i] > '~') && !strchr("\t\n\r", p[i]))
			return false;
	return i > 0;
}

static enum fdry_code_kind kind_of(const void *image)
{
	if (!memcmp(image, ELFMAG, SELFMAG))
		return FDRY_CODE_ELF;
	switch (fdry_get32(image)) {
	case WRAPPER_MAGIC:
		return FDRY_CODE_WRAPPER;
	case FATBIN_MAGIC:
		return FDRY_CODE_FATBIN;
	default:
		return is_text(image) ? FDRY_CODE_PTX : FDRY_CODE_UNKNOWN;
	}
}

/* The maximum of @end and @off + @len; larger than CODE_MAX if it is impossible. */
static uint64_t later(uint64_t end, uint64_t off, uint64_t len)
{
	uint64_t sum;

	if (__builtin_add_overflow(off, len, &sum))
		sum = UINT64_MAX;
	return sum > end ? sum : end;
}

/* The end of the tables of an ELF file. */
static uint64_t elf_tables_end(const Elf64_Ehdr *eh)
{
	uint64_t end = later(sizeof(*eh), eh->e_shoff, (uint64_t)eh->e_shnum * eh->e_shentsize);

	return later(end, eh->e_phoff, (uint64_t)eh->e_phnum * eh->e_phentsize);
}

size_t fdry_code_elf_len(const void *header, const void *sections, const void *segments)
{
	Elf64_Ehdr eh;
	Elf64_Shdr sh;
	Elf64_Phdr ph;
	uint64_t end;
	size_t i;

	memcpy(&eh, header, sizeof(eh));
	end = elf_tables_end(&eh);
	for (i = 0; i < eh.e_shnum && eh.e_shentsize >= sizeof(sh); i++) {
		memcpy(&sh, (const char *)sections + i * eh.e_shentsize, sizeof(sh));
		if (sh.sh_type != SHT_NOBITS && sh.sh_type != SHT_NULL)
			end = later(end, sh.sh_offset, sh.sh_size);
	}
	for (i = 0; i < eh.e_phnum && eh.e_phentsize >= sizeof(ph); i++) {
		memcpy(&ph, (const char *)segments + i * eh.e_phentsize, sizeof(ph));
		end = later(end, ph.p_offset, ph.p_filesz);
	}
	return end > CODE_MAX ? 0 : end;
}

/* The length of a 64-bit ELF file that the driver has accepted. */
static uint64_t elf_len(const void *image)
{
	const uint8_t *at = image;
	Elf64_Ehdr eh;

	memcpy(&eh, at, sizeof(eh));
	return elf_tables_end(&eh) > CODE_MAX
		       ? 0
		       : fdry_code_elf_len(&eh, at + eh.e_shoff, at + eh.e_phoff);
}

static uint64_t fatbin_len(const void *image)
{
	return later(0, fdry_get16((const uint8_t *)image + 6),
		     fdry_get64((const uint8_t *)image + 8));
}

/* 0 if the length is unknown or impossible. */
static size_t len_of(enum fdry_code_kind kind, const void *image)
{
	uint64_t len = 0;

	if (kind == FDRY_CODE_ELF && ((const unsigned char *)image)[EI_CLASS] == ELFCLASS64)
		len = elf_len(image);
	else if (kind == FDRY_CODE_FATBIN)
		len = fatbin_len(image);
	else if (kind == FDRY_CODE_PTX)
		len = strlen(image) + 1;
	return len > CODE_MAX ? 0 : len;
}

/* Keep code of any kind except a wrapper. A copy has @head unused bytes in front, which only its
 * allocation counts. */
static int keep_plain(const void *image, size_t head, struct fdry_kept *ret)
{
	enum fdry_code_kind kind = kind_of(image);
	size_t len = len_of(kind, image);
	uint8_t *alloc;

	if (!len)
		return fdry_fail(FDRY_E_BADCODE,
				 "device code at %p was loaded but is of no known kind", image);
	if (fdry_loaded_pin(image, len)) {
		*ret = (struct fdry_kept){ .kind = kind, .data = image, .len = len };
		return 0;
	}
	alloc = malloc(head + len);
	if (!alloc)
		return fdry_nomem();
	memcpy(alloc + head, image, len);
	*ret = (struct fdry_kept){ .kind = kind, .data = alloc + head, .len = len, .alloc = alloc };
	return 0;
}

/* A wrapper lies in writable memory, so it is copied. If its fatbin is copied too, the wrapper
 * precedes it. */
static int keep_wrapper(const void *image, struct fdry_kept *ret)
{
	struct fdry_kept fatbin;
	struct wrapper w;
	int err;

	memcpy(&w, image, sizeof(w));
	if (!w.data || kind_of(w.data) != FDRY_CODE_FATBIN)
		return fdry_fail(FDRY_E_BADCODE,
				 "the fatbin wrapper at %p was loaded but holds no fatbin", image);
	err = keep_plain(w.data, sizeof(w), &fatbin);
	if (err)
		return err;
	if (!fatbin.alloc)
		fatbin.alloc = malloc(sizeof(w));
	if (!fatbin.alloc)
		return fdry_nomem();
	w.data = fatbin.data;
	w.more = NULL; /* nothing uses it after linking */
	memcpy(fatbin.alloc, &w, sizeof(w));
	*ret = (struct fdry_kept){ .kind = FDRY_CODE_WRAPPER,
				   .data = fatbin.alloc,
				   .alloc = fatbin.alloc };
	return 0;
}

int fdry_code_keep(const void *image, struct fdry_kept *ret)
{
	return kind_of(image) == FDRY_CODE_WRAPPER ? keep_wrapper(image, ret)
						   : keep_plain(image, 0, ret);
}

void fdry_code_drop(void *alloc, size_t mapped)
{
	if (mapped)
		munmap(alloc, mapped);
	else
		free(alloc);
}

void fdry_code_adopt(void *alloc, size_t len, struct fdry_kept *ret)
{
	enum fdry_code_kind kind = len > 3 ? kind_of(alloc) : FDRY_CODE_UNKNOWN;

	if (kind == FDRY_CODE_PTX)
		len++;
	if (kind == FDRY_CODE_WRAPPER) /* a wrapper has an address, which means nothing in a file */
		kind = FDRY_CODE_UNKNOWN;
	*ret = (struct fdry_kept){ .kind = kind, .data = alloc, .len = len, .alloc = alloc };
}
