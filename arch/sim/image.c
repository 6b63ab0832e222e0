// SPDX-License-Identifier: Apache-2.0
/*
 * image.c - recognises images of device code, and finds the software driver's object in them.
 *
 * The driver's interface has a pointer without a length, so the length comes from the object's
 * own headers; every access inside it is checked.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "arch/sim/code.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_ELF 2
#define FATBIN_COMPRESSED 0x2000u
#define IMAGE_MAX ((size_t)1 << 30)

#if defined(__x86_64__)
#define EM_OURS EM_X86_64
#elif defined(__aarch64__)
#define EM_OURS EM_AARCH64
#endif

struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *more;
};

struct fatbin_head {
	uint32_t magic;
	uint16_t version, head_size;
	uint64_t size; /* of the entries that follow */
};

struct fatbin_entry {
	uint16_t kind, version;
	uint32_t head_size;
	uint64_t size;
	uint32_t compressed_size, unknown;
	uint16_t minor, major;
	uint32_t arch, name_offset, name_size;
	uint64_t flags;
};

static const void *image_at(const struct sim_image *image, uint64_t offset, uint64_t size)
{
	if (offset > image->size || size > image->size - offset)
		return NULL;
	return image->data + offset;
}

/* Headers are copied out: an image may lie at any address. */
static bool image_read(const struct sim_image *image, uint64_t offset, void *to, size_t size)
{
	const void *p = image_at(image, offset, size);

	if (p)
		memcpy(to, p, size);
	return p != NULL;
}

static bool section(const struct sim_image *image, unsigned int i, Elf64_Shdr *ret)
{
	Elf64_Ehdr e;

	memcpy(&e, image->data, sizeof(e));
	return i < e.e_shnum && e.e_shentsize == sizeof(*ret) &&
	       image_read(image, e.e_shoff + (uint64_t)i * sizeof(*ret), ret, sizeof(*ret));
}

/* The end of the section headers, or of the last section after them; 0 if that is beyond @most. */
static size_t elf_size(const Elf64_Ehdr *e, const unsigned char *data, size_t most)
{
	struct sim_image image = { .data = data };
	uint64_t end = e->e_shoff + (uint64_t)e->e_shnum * e->e_shentsize;
	Elf64_Shdr s;
	unsigned int i;

	if (e->e_shoff > IMAGE_MAX || end < sizeof(*e) || end > most)
		return 0;
	image.size = end;
	for (i = 0; section(&image, i, &s); i++)
		if (s.sh_type != SHT_NOBITS && s.sh_offset <= IMAGE_MAX && s.sh_size <= IMAGE_MAX &&
		    s.sh_offset + s.sh_size > end)
			end = s.sh_offset + s.sh_size;
	return end <= most ? (size_t)end : 0;
}

static bool note_ours(const struct sim_image *image, const Elf64_Shdr *s)
{
	struct sim_note n;

	return s->sh_size >= sizeof(n) && image_read(image, s->sh_offset, &n, sizeof(n)) &&
	       n.namesz == sizeof(SIM_NOTE_NAME) && n.descsz == sizeof(n.abi) &&
	       n.type == SIM_NOTE_TYPE && !memcmp(n.name, SIM_NOTE_NAME, sizeof(SIM_NOTE_NAME)) &&
	       n.abi == SIM_ABI;
}

static bool image_ours(const struct sim_image *image)
{
	Elf64_Shdr s;
	unsigned int i;

	for (i = 0; section(image, i, &s); i++)
		if (s.sh_type == SHT_NOTE && note_ours(image, &s))
			return true;
	return false;
}

CUresult sim_image_elf(const unsigned char *data, size_t most, struct sim_image *ret)
{
	struct sim_image image = { .data = data };
	Elf64_Ehdr e;

	if (most < sizeof(e) || memcmp(data, ELFMAG, SELFMAG) || data[EI_CLASS] != ELFCLASS64 ||
	    data[EI_DATA] != ELFDATA2LSB)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&e, data, sizeof(e));
	if (e.e_machine != EM_OURS)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	image.size = elf_size(&e, data, most);
	if (!image.size || e.e_type != ET_DYN || !image_ours(&image))
		return CUDA_ERROR_INVALID_IMAGE;
	*ret = image;
	return CUDA_SUCCESS;
}

/* Find the first entry that is an object of the software driver. Such entries are never
 * compressed. */
static CUresult fatbin_find(const unsigned char *data, struct sim_image *ret)
{
	struct fatbin_head head;
	struct fatbin_entry entry;
	struct sim_image all = { .data = data };
	uint64_t at;

	memcpy(&head, data, sizeof(head));
	if (head.head_size < sizeof(head) || head.size > IMAGE_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	all.size = head.head_size + head.size;
	for (at = head.head_size; at < all.size; at += entry.head_size + entry.size) {
		if (!image_read(&all, at, &entry, sizeof(entry)) ||
		    entry.head_size < sizeof(entry) || entry.size > IMAGE_MAX ||
		    !image_at(&all, at + entry.head_size, entry.size))
			return CUDA_ERROR_INVALID_IMAGE;
		if (entry.kind == FATBIN_ELF && !(entry.flags & FATBIN_COMPRESSED) &&
		    !sim_image_elf(data + at + entry.head_size, entry.size, ret))
			return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* PTX begins with a comment or a directive; blanks may come first. */
static bool looks_like_text(const unsigned char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')
		p++;
	return (p[0] == '/' && (p[1] == '/' || p[1] == '*')) ||
	       (p[0] == '.' && p[1] >= 'a' && p[1] <= 'z');
}

CUresult sim_image_find(const void *data, struct sim_image *ret)
{
	struct wrapper w;
	uint32_t magic;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (looks_like_text(data))
		return sim_ptx_image(data, ret);
	if (!memcmp(data, ELFMAG, SELFMAG))
		return sim_image_elf(data, IMAGE_MAX, ret);
	memcpy(&magic, data, sizeof(magic));
	if (magic == FATBIN_MAGIC)
		return fatbin_find(data, ret);
	if (magic != WRAPPER_MAGIC)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&w, data, sizeof(w));
	if (!w.data)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&magic, w.data, sizeof(magic));
	return magic == FATBIN_MAGIC ? fatbin_find(w.data, ret) : CUDA_ERROR_INVALID_IMAGE;
}

void sim_image_release(struct sim_image *image)
{
	free(image->owned);
	image->owned = NULL;
}

/* A string of the string table @link, with its end inside of it. */
static const char *string_at(const struct sim_image *image, unsigned int link, uint64_t offset)
{
	Elf64_Shdr s;
	const char *p;

	if (!section(image, link, &s) || s.sh_type != SHT_STRTAB || offset >= s.sh_size)
		return NULL;
	p = image_at(image, s.sh_offset, s.sh_size);
	return p && memchr(p + offset, 0, s.sh_size - offset) ? p + offset : NULL;
}

static bool symbol_variable(const Elf64_Sym *sym)
{
	return ELF64_ST_TYPE(sym->st_info) == STT_OBJECT && sym->st_shndx != SHN_UNDEF &&
	       sym->st_size && ELF64_ST_VISIBILITY(sym->st_other) == STV_DEFAULT;
}

bool sim_image_variable(const struct sim_image *image, size_t *at, struct sim_symbol *ret)
{
	Elf64_Shdr s = { 0 };
	Elf64_Sym sym;
	unsigned int i;
	const char *name;

	for (i = 0; section(image, i, &s); i++)
		if (s.sh_type == SHT_DYNSYM)
			break;
	if (s.sh_type != SHT_DYNSYM)
		return false;
	for (; *at < s.sh_size / sizeof(sym); (*at)++) {
		if (!image_read(image, s.sh_offset + *at * sizeof(sym), &sym, sizeof(sym)))
			return false;
		name = string_at(image, s.sh_link, sym.st_name);
		if (!name || !symbol_variable(&sym) || !strcmp(name, SIM_MODULE_SYMBOL))
			continue;
		*ret = (struct sim_symbol){ name, sym.st_value, sym.st_size };
		(*at)++;
		return true;
	}
	return false;
}

CUresult sim_file_read(const char *path, void **ret, size_t *size_ret)
{
	FILE *f = fdry_fopen_read(path);
	CUresult res = CUDA_ERROR_INVALID_IMAGE;
	char *data = NULL;
	long size;

	if (!f)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0 || (size_t)size > IMAGE_MAX ||
	    fseek(f, 0, SEEK_SET))
		goto out_close;
	res = CUDA_ERROR_OUT_OF_MEMORY;
	data = calloc(1, (size_t)size + sizeof(Elf64_Ehdr)); /* at least the length of a header */
	if (!data)
		goto out_close;
	res = CUDA_ERROR_INVALID_IMAGE;
	if (fread(data, 1, (size_t)size, f) != (size_t)size)
		goto out_close;
	*ret = data;
	data = NULL;
	if (size_ret)
		*size_ret = (size_t)size;
	res = CUDA_SUCCESS;
out_close:
	free(data);
	fclose(f);
	return res;
}
