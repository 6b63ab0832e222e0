// SPDX-License-Identifier: Apache-2.0
/*
 * loaded.c - looks at what the loader has mapped: a libcuda other than the stand-in, and
 * whether bytes lie in a shared object that can be made to stay.
 *
 * The list of objects is in the order of loading, which is how "before the stand-in" is
 * known at any later time. Nothing is opened from inside dl_iterate_phdr(), which holds
 * a lock of the loader's.
 */
#include "hook/internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* Looks for the object that comes @skip places after the first with the driver's name. */
struct scan {
	bool before; /* only what was loaded before the stand-in */
	unsigned int skip;
	char *path;
	size_t size;
};

/* The loadable segment of @info that holds [@data, @data + @len), or NULL. */
static const ElfW(Phdr) *segment_of(const struct dl_phdr_info *info, const void *data, size_t len)
{
	uintptr_t at = (uintptr_t)data - info->dlpi_addr;
	int i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type == PT_LOAD && at >= ph->p_vaddr && at - ph->p_vaddr <= ph->p_memsz &&
		    len <= ph->p_memsz - (at - ph->p_vaddr))
			return ph;
	}
	return NULL;
}

/* By its file or by its SONAME: the latter is what programs get it by. */
static bool has_driver_name(const struct dl_phdr_info *info)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	int i;

	if (slash && !strncmp(slash + 1, "libcuda.so", 10))
		return true;
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return !strcmp("libcuda.so.1", fdry_dynsym_soname(info->dlpi_addr,
				(const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr)));
	return false;
}

static int scan_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct scan *s = arg;

	(void)size;
	if (segment_of(info, fdry_slots, 1))
		return s->before;
	if (!has_driver_name(info) || s->skip--)
		return 0;
	snprintf(s->path, s->size, "%s", info->dlpi_name);
	return 2;
}

/* The twin, which has no function, and a second copy of the stand-in have the driver's name too. */
static bool is_standin(const char *file)
{
	void *handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
	bool ret = !handle || !fdry_dynsym(handle, "cuInit") || fdry_dynsym(handle, FDRY_HOOK_SYMBOL);

	if (handle)
		dlclose(handle);
	return ret;
}

bool fdry_loaded_driver(bool before, char *path, size_t size)
{
	unsigned int skip;

	for (skip = 0;; skip++) {
		struct scan s = { .before = before, .skip = skip, .path = path, .size = size };

		if (dl_iterate_phdr(scan_one, &s) != 2)
			return false;
		if (!is_standin(path))
			return true;
	}
}

struct owner {
	const void *data;
	size_t len;
	bool found;
	bool program; /* the main program, which nobody unloads */
	ElfW(Addr) base;
	char name[PATH_MAX];
};

static int owner_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Phdr) *ph = NULL;
	struct owner *o = arg;

	(void)size;
	ph = segment_of(info, o->data, o->len);
	if (!ph)
		return 0;
	o->found = !(ph->p_flags & PF_W); /* what can be written may have changed by the time it is read */
	o->program = !*info->dlpi_name;
	o->base = info->dlpi_addr;
	snprintf(o->name, sizeof(o->name), "%s", info->dlpi_name);
	return 1;
}

bool fdry_loaded_pin(const void *data, size_t len)
{
	struct owner o = { .data = data, .len = len };
	struct link_map *map;
	void *handle;

	dl_iterate_phdr(owner_one, &o);
	if (!o.found || o.program)
		return o.found;
	handle = dlopen(o.name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	if (!handle)
		return false;
	/* The reference is kept, too; it is NODELETE that matters. */
	return !dlinfo(handle, RTLD_DI_LINKMAP, &map) && map->l_addr == o.base;
}
