// SPDX-License-Identifier: Apache-2.0
/*
 * code_driver.c - a driver that returns handles for modules and libraries without reading them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned long next = 0x1000;
static int take(void **ret) { *ret = (void *)(next += 16); return getenv("REFUSE") ? 200 : 0; }
int cuInit(unsigned f) { return (int)f; }
int cuModuleLoadData(void **ret, const void *p) { return take(ret) + (p == NULL); }
int cuModuleLoadFatBinary(void **ret, const void *p) { return take(ret) + (p == NULL); }
int cuModuleLoadDataEx(void **ret, const void *p, unsigned n, void *o, void *v)
{
	return take(ret) + (p == NULL || (n && (!o || !v)));
}
int cuLibraryLoadData(void **ret, const void *p) { return take(ret) + (p == NULL); }
/* Destroying the linker frees its output. */
static char *linked;
int cuLinkComplete(void *s, void **p, size_t *n)
{
	*n = strlen("// linked") + 1;
	*p = linked = strdup("// linked");
	return s == NULL;
}
int cuLinkDestroy(void *s)
{
	memset(linked, 'x', 9);
	free(linked);
	return s == NULL;
}
int cuLibraryGetModule(void **ret, void *lib) { return take(ret) + (lib == NULL); }
static int take_file(void **ret, const char *path)
{
	FILE *f = fopen(path, "r");
	if (!f)
		return 301;
	fclose(f);
	if (getenv("REWRITE") && (f = fopen(path, "a"))) {
		fputs("// more\n", f);
		fclose(f);
	}
	return take(ret);
}
int cuModuleLoad(void **ret, const char *path) { return take_file(ret, path); }
int cuLibraryLoadFromFile(void **ret, const char *path) { return take_file(ret, path); }
