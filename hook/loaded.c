// SPDX-License-Identifier: Apache-2.0
/*
 * loaded.c - searches the objects that the loader has mapped. It finds a libcuda other than the
 * interposer. It finds the shared object that holds given bytes, and can pin it.
 *
 * The list of objects is in the order of loading, so the objects before the interposer are known at
 * any later time. dl_iterate_phdr() holds a lock of the loader, so its callback opens no object.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Searches for the driver's name, and skips the first @skip objects that have it. */
struct scan {
	bool before; /* only objects that were loaded before the interposer */
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

/* Whether the object has the driver's file name, or its SONAME, which programs use. */
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
	if (segment_of(info, fdry_jumps, 1))
		return s->before;
	if (!has_driver_name(info) || s->skip--)
		return 0;
	snprintf(s->path, s->size, "%s", info->dlpi_name);
	return 2;
}

/* The interposer's twin, which has no functions, and a second copy of the interposer also have the
 * driver's name.
 */
static bool is_interposer(const char *file)
{
	void *handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
	bool ret =
		!handle || !fdry_dynsym(handle, "cuInit") || fdry_dynsym(handle, FDRY_HOOK_SYMBOL);

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
		if (!is_interposer(path))
			return true;
	}
}

/* --- finding the object that holds bytes --- */

/* A loadable segment of an object. */
struct segment {
	uintptr_t start, end;
	bool writable;
	unsigned int object;
};

struct object {
	char *name; /* "" is the main program, which is never unloaded */
	uintptr_t base;
	bool pinned;
};

/* The loaded objects after @adds loads and @subs unloads. The segments are sorted by address. */
struct list {
	unsigned long long adds, subs;
	struct segment *segments;
	struct object *objects;
	size_t nsegments, nobjects, room_segments, room_objects;
	bool short_of_memory;
};

/* Never held during a call of the loader: a constructor of an object that is being loaded may call
 * this file. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list current; /* the newest */

static void list_release(struct list *l)
{
	size_t i;

	for (i = 0; i < l->nobjects; i++)
		free(l->objects[i].name);
	free(l->objects);
	free(l->segments);
}

/* Grow for one more item at least. */
static bool grow(void *items, size_t size, size_t n, size_t *capacity)
{
	void *p, **at = items;

	if (n < *capacity)
		return true;
	p = reallocarray(*at, 2 * n + 64, size);
	if (!p)
		return false;
	*at = p;
	*capacity = 2 * n + 64;
	return true;
}

static bool segment_add(struct list *l, uintptr_t base, const ElfW(Phdr) *ph)
{
	if (!grow(&l->segments, sizeof(*l->segments), l->nsegments, &l->room_segments))
		return false;
	l->segments[l->nsegments++] = (struct segment){
		.start = base + ph->p_vaddr,
		.end = base + ph->p_vaddr + ph->p_memsz,
		.writable = ph->p_flags & PF_W, /* writable bytes may change before they are read */
		.object = (unsigned int)l->nobjects - 1,
	};
	return true;
}

static int list_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct list *l = arg;
	struct object *o;
	int i;

	(void)size;
	l->adds = info->dlpi_adds;
	l->subs = info->dlpi_subs;
	l->short_of_memory = !grow(&l->objects, sizeof(*l->objects), l->nobjects, &l->room_objects);
	if (l->short_of_memory)
		return 1;
	o = &l->objects[l->nobjects];
	*o = (struct object){ .name = strdup(info->dlpi_name), .base = info->dlpi_addr };
	l->short_of_memory = !o->name;
	l->nobjects += !!o->name;
	for (i = 0; !l->short_of_memory && i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD)
			l->short_of_memory = !segment_add(l, info->dlpi_addr, &info->dlpi_phdr[i]);
	return l->short_of_memory;
}

static int by_start(const void *a, const void *b)
{
	const struct segment *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int count_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct list *l = arg;

	(void)size;
	l->adds = info->dlpi_adds;
	l->subs = info->dlpi_subs;
	return 1;
}

/* Lock held. */
static void pinned_note(struct list *l, const struct object *o)
{
	size_t i;

	for (i = 0; i < l->nobjects; i++)
		if (l->objects[i].base == o->base && !strcmp(l->objects[i].name, o->name))
			l->objects[i].pinned = true;
}

/* Replace the list by @list, unless another thread's is newer. Pinned objects stay pinned. */
static void list_set(struct list *list)
{
	struct list old = *list;
	size_t i;

	pthread_mutex_lock(&list_lock);
	for (i = 0; i < current.nobjects; i++)
		if (current.objects[i].pinned)
			pinned_note(list, &current.objects[i]);
	if (list->adds + list->subs >= current.adds + current.subs) {
		old = current;
		current = *list;
	}
	pthread_mutex_unlock(&list_lock);
	list_release(&old);
}

/* A walk over hundreds of objects takes a tenth of a millisecond, so it happens only after loads
 * and unloads. */
static void list_renew(void)
{
	struct list now = { 0 };
	bool same;

	dl_iterate_phdr(count_one, &now);
	pthread_mutex_lock(&list_lock);
	same = current.nobjects && current.adds == now.adds && current.subs == now.subs;
	pthread_mutex_unlock(&list_lock);
	if (same)
		return;
	dl_iterate_phdr(list_one, &now);
	if (now.short_of_memory) {
		list_release(&now);
		now = (struct list){ 0 };
	}
	qsort(now.segments, now.nsegments, sizeof(*now.segments), by_start);
	list_set(&now);
}

/* The segment that holds [@data, @data + @len), or NULL; lock held. */
static const struct segment *segment_at(const void *data, size_t len)
{
	uintptr_t at = (uintptr_t)data;
	size_t lo = fdry_lower_bound(i, current.nsegments, current.segments[i].end <= at);
	if (lo == current.nsegments || current.segments[lo].start > at ||
	    len > current.segments[lo].end - at)
		return NULL;
	return &current.segments[lo];
}

bool fdry_loaded_holds(const void *data)
{
	bool ret;

	list_renew();
	pthread_mutex_lock(&list_lock);
	ret = segment_at(data, 1);
	pthread_mutex_unlock(&list_lock);
	return ret;
}

/* True if the bytes lie in a read-only part of the object @ret. */
static bool owner_of(const void *data, size_t len, struct object *ret, char *name, size_t size)
{
	const struct segment *s;
	bool found;

	list_renew();
	pthread_mutex_lock(&list_lock);
	s = segment_at(data, len);
	found = s && !s->writable;
	if (found) {
		*ret = current.objects[s->object];
		snprintf(name, size, "%s", ret->name);
		ret->name = name;
	}
	pthread_mutex_unlock(&list_lock);
	return found;
}

bool fdry_loaded_pin(const void *data, size_t len)
{
	char name[PATH_MAX];
	struct link_map *map;
	struct object o;
	void *handle;

	if (!owner_of(data, len, &o, name, sizeof(name)))
		return false;
	if (!*name || o.pinned)
		return true;
	handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	if (!handle)
		return false;
	/* NODELETE pins the object; the reference stays, too. */
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || map->l_addr != o.base)
		return false;
	pthread_mutex_lock(&list_lock);
	pinned_note(&current, &o);
	pthread_mutex_unlock(&list_lock);
	return true;
}

int fdry_loaded_late(void)
{
	char path[PATH_MAX];

	/* The search needs the loader's lock, which may stay locked in a forked child. */
	if (fdry_start_is_forked() || !fdry_loaded_driver(true, path, sizeof(path)))
		return 0;
	return fdry_fail(
		FDRY_E_LATE,
		"%s was loaded before the interposer, so calls bypass the interposer; start "
		"the program with \"python -m foundry run\" or LD_PRELOAD, or import "
		"foundry before whatever uses CUDA",
		path);
}
