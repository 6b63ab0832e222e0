// SPDX-License-Identifier: Apache-2.0
/*
 * dynsym.c - looks up a symbol in one object only.
 *
 * dlsym() cannot find the driver's functions, for two reasons. Libraries that wrap CUDA replace it
 * and return functions of their own, which call the interposer again. It also searches an object's
 * dependencies, so an object that needs libcuda.so.1 appears to have the interposer's symbols. The
 * tables of the objects need no checks, since the loader has accepted them.
 */
#include "hook/internal.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#define VERSION_HIDDEN 0x8000 /* in DT_VERSYM: not the default version of its name */

/* The parts of an object's dynamic section that are used here; NULL: the object lacks one. */
struct dynamic {
	Elf64_Addr base;
	const Elf64_Sym *symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *hash;
	const Elf64_Half *versions;
};

/* glibc has added the base to these addresses, unless the section is read-only. */
static const void *at(Elf64_Addr base, const Elf64_Dyn *d)
{
	Elf64_Addr addr = d->d_un.d_ptr;

	return (const void *)(addr < base ? addr + base : addr);
}

static void dynamic_read(Elf64_Addr base, const Elf64_Dyn *d, struct dynamic *ret)
{
	*ret = (struct dynamic){ .base = base };
	for (; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB:
			ret->symbols = at(base, d);
			break;
		case DT_STRTAB:
			ret->strings = at(base, d);
			break;
		case DT_GNU_HASH:
			ret->gnu_hash = at(base, d);
			break;
		case DT_HASH:
			ret->hash = at(base, d);
			break;
		case DT_VERSYM:
			ret->versions = at(base, d);
			break;
		default:
			break;
		}
}

/* The address of symbol @i if that is a function or an object called @name, else NULL. */
static void *address_of(const struct dynamic *dyn, uint32_t i, const char *name)
{
	const Elf64_Sym *s = &dyn->symbols[i];
	unsigned int type = ELF64_ST_TYPE(s->st_info);

	if (s->st_shndx == SHN_UNDEF ||
	    (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) ||
	    (dyn->versions && dyn->versions[i] & VERSION_HIDDEN) ||
	    strcmp(dyn->strings + s->st_name, name))
		return NULL;
	return (void *)(dyn->base + s->st_value);
}

static void *gnu_lookup(const struct dynamic *dyn, const char *name)
{
	const uint32_t *h = dyn->gnu_hash, *buckets = h + 4 + h[2] * (sizeof(Elf64_Addr) / 4),
		       *chain = buckets + h[0];
	uint32_t hash = 5381, i;
	const char *p;
	void *ret;

	for (p = name; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	i = h[0] ? buckets[hash % h[0]] : 0;
	if (i < h[1] || !i)
		return NULL;
	for (;; i++) {
		ret = (chain[i - h[1]] | 1) == (hash | 1) ? address_of(dyn, i, name) : NULL;
		if (ret || chain[i - h[1]] & 1)
			return ret;
	}
}

static void *sysv_lookup(const struct dynamic *dyn, const char *name)
{
	const uint32_t *buckets = dyn->hash + 2, *chain = buckets + dyn->hash[0];
	uint32_t hash = 0, i;
	const char *p;
	void *ret = NULL;

	for (p = name; *p; p++) {
		hash = (hash << 4) + (unsigned char)*p;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
	}
	if (!dyn->hash[0])
		return NULL;
	for (i = buckets[hash % dyn->hash[0]]; i && !ret; i = chain[i])
		ret = address_of(dyn, i, name);
	return ret;
}

void *fdry_dynsym(void *handle, const char *name)
{
	struct link_map *map;
	struct dynamic dyn;

	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map->l_ld)
		return NULL;
	dynamic_read(map->l_addr, map->l_ld, &dyn);
	if (!dyn.symbols || !dyn.strings)
		return NULL;
	return dyn.gnu_hash ? gnu_lookup(&dyn, name) : dyn.hash ? sysv_lookup(&dyn, name) : NULL;
}

const char *fdry_dynsym_soname(uintptr_t base, const void *dynamic)
{
	const Elf64_Dyn *d = dynamic;
	struct dynamic dyn;

	dynamic_read(base, d, &dyn);
	for (; d->d_tag != DT_NULL && dyn.strings; d++)
		if (d->d_tag == DT_SONAME)
			return dyn.strings + d->d_un.d_val;
	return "";
}
