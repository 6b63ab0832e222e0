// SPDX-License-Identifier: Apache-2.0
/*
 * code_probe.c - loads and unloads device code, and asks the interposer for it
 * (t0102-hook-code.sh).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hook/hook.h"

struct wrapper { unsigned magic, version; const unsigned char *data; const void *more; };

static void *cuda;
static const struct fdry_hook *table;
static int bad;

#define expect(what) \
	do { \
		if (!(what)) { \
			bad++; \
			printf("line %d: %s\n", __LINE__, #what); \
		} \
	} while (0)

static void *fn(const char *name)
{
	return dlsym(cuda, name);
}

static struct fdry_code of_module(void *m)
{
	struct fdry_code c = { 0 };

	expect(!table->code_find(NULL, m, &c));
	expect(c.module == m && !c.library);
	return c;
}

static struct fdry_code of_library(void *l)
{
	struct fdry_code c = { 0 };

	expect(!table->code_find(l, NULL, &c));
	expect(c.library == l && !c.module);
	return c;
}

static void *load(const char *name, const void *image)
{
	void *h = NULL;

	/* functions with fewer parameters ignore them */
	expect(!((int (*)(void **, const void *, void *, void *, unsigned, void *, void *,
			  unsigned))fn(name))(&h, image, NULL, NULL, 0, NULL, NULL, 0));
	return h;
}

/* Code in memory that its owner frees at once, by every call. */
static void memory(void)
{
	static const char *const calls[] = { "cuModuleLoadData", "cuModuleLoadFatBinary",
					     "cuLibraryLoadData" };
	struct fdry_code c;
	void *handle[3];
	char *text;
	int i;

	for (i = 0; i < 3; i++) {
		text = malloc(64);
		sprintf(text, "// code %d", i);
		handle[i] = load(calls[i], text);
		memset(text, 'x', 64);
		free(text);
	}
	for (i = 0; i < 3; i++) {
		c = i == 2 ? of_library(handle[i]) : of_module(handle[i]);
		expect(c.kind == FDRY_CODE_PTX && c.len == 10 && !strncmp(c.data, "// code ", 8) &&
		       ((char *)c.data)[8] == '0' + i);
	}
	expect(table->code_find(NULL, (CUmodule)0x999, &c) == -FDRY_E_NOENT);
	expect(strstr(table->last_error(), "not seen"));
	setenv("REFUSE", "1", 1);
	expect(((int (*)(void **, const void *))fn("cuModuleLoadData"))(&handle[0], "// refused") ==
	       200);
	expect(table->code_find(NULL, handle[0], &c) == -FDRY_E_NOENT);
}

static void linker(void)
{
	struct fdry_code c;
	void *cubin, *m;
	size_t n;

	expect(!((int (*)(void *, void **, size_t *))fn("cuLinkComplete"))((void *)1, &cubin, &n));
	m = load("cuModuleLoadData", cubin);
	expect(!((int (*)(void *))fn("cuLinkDestroy"))((void *)1));
	c = of_module(m);
	expect(c.len == n && !strcmp(c.data, "// linked"));
}

static void options(void)
{
	CUjit_option *o = malloc(3 * sizeof(*o));
	void **v = malloc(3 * sizeof(*v)), *m, *l;
	struct fdry_code c;
	char log[16];

	o[0] = CU_JIT_ERROR_LOG_BUFFER, v[0] = log;
	o[1] = CU_JIT_OPTIMIZATION_LEVEL, v[1] = (void *)3;
	o[2] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, v[2] = (void *)16;
	expect(!((int (*)(void **, const void *, unsigned, CUjit_option *, void **))fn(
		"cuModuleLoadDataEx"))(&m, "// m", 3, o, v));
	expect(!((int (*)(void **, const void *, CUjit_option *, void **, unsigned, void *, void *,
			  unsigned))fn("cuLibraryLoadData"))(&l, "// l", o, v, 3, NULL, NULL, 0));
	memset(o, 0xff, 3 * sizeof(*o));
	memset(v, 0xff, 3 * sizeof(*v));
	free(o);
	free(v);
	c = of_module(m);
	expect(c.njit == 1 && c.jit[0] == CU_JIT_OPTIMIZATION_LEVEL &&
	       c.jit_values[0] == (void *)3 && !c.jit_symbols);
	expect(!strcmp(c.data, "// m"));
	c = of_library(l);
	expect(c.njit == 1 && c.jit[0] == CU_JIT_OPTIMIZATION_LEVEL &&
	       c.jit_values[0] == (void *)3 && !c.jit_symbols);
}

/* A library is closed after its code was loaded: the code stays, because the library does. */
static void library(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW), *m[4], *mod;
	const unsigned char *data;
	struct wrapper w;
	struct fdry_code c;

	m[0] = load("cuLibraryLoadData", dlsym(plugin, "wrapper"));
	data = ((struct wrapper *)dlsym(plugin, "wrapper"))->data;
	m[1] = load("cuModuleLoadData", dlsym(plugin, "ptx"));
	m[2] = load("cuLibraryLoadData", dlsym(plugin, "over_writable"));
	memset(dlsym(plugin, "writable"), 0, 16);
	expect(!((int (*)(void **, void *))fn("cuLibraryGetModule"))(&mod, m[0]));
	dlclose(plugin);
	expect(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL);
	c = of_library(m[0]);
	expect(c.kind == FDRY_CODE_WRAPPER && !c.len);
	memcpy(&w, c.data, sizeof(w));
	expect(w.data == data && !memcmp(w.data + 16, "fat", 3));
	c = of_module(m[1]);
	expect(c.kind == FDRY_CODE_PTX && !strcmp(c.data, "// a library's PTX"));
	c = of_library(m[2]);
	memcpy(&w, c.data, sizeof(w));
	expect(c.kind == FDRY_CODE_WRAPPER && w.version == 2 &&
	       !memcmp(w.data, "\x50\xED\x55\xBA", 4) && !memcmp(w.data + 16, "rw", 2));
	expect(!table->code_find(NULL, mod, &c) && c.library == m[0] &&
	       c.kind == FDRY_CODE_WRAPPER);
}

/* No code was loaded from the library, so closing it unloads it. */
static void untouched(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW);

	load("cuLibraryLoadData", dlsym(plugin, "over_writable"));
	dlclose(plugin);
	expect(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
}

static void files(void)
{
	struct fdry_code c;
	void *h;

	put("code", "// in a file");
	h = load("cuModuleLoad", "code");
	put("code", "// overwritten");
	c = of_module(h);
	expect(c.kind == FDRY_CODE_PTX && c.len == 13 && !strcmp(c.data, "// in a file"));
	h = load("cuLibraryLoadFromFile", "code");
	unlink("code");
	c = of_library(h);
	expect(c.len == 15 && !strcmp(c.data, "// overwritten"));
	expect(((int (*)(void **, const char *))fn("cuModuleLoad"))(&h, "code") == 301);
	setenv("REWRITE", "1", 1);
	put("code", "// as the driver saw it, or not?");
	h = load("cuModuleLoad", "code");
	c = of_module(h);
	expect(c.kind == FDRY_CODE_UNKNOWN && !c.data && !c.len);
}

int main(int argc, char **argv)
{
	cuda = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
	if (argc < 3 || !cuda)
		return 2;
	table = ((fdry_hook_table_fn)fn(FDRY_HOOK_SYMBOL))();
	if (!strcmp(argv[1], "memory"))
		memory();
	else if (!strcmp(argv[1], "linker"))
		linker();
	else if (!strcmp(argv[1], "options"))
		options();
	else if (!strcmp(argv[1], "library"))
		library(argv[3]);
	else if (!strcmp(argv[1], "untouched"))
		untouched(argv[3]);
	else
		files();
	printf("%d bad\n", bad);
	return bad != 0;
}
