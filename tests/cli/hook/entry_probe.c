// SPDX-License-Identifier: Apache-2.0
/*
 * entry_probe.c - calls the interposer's symbols, and looks them up (t0101-hook-entry.sh).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hook/hook.h"

static const struct { const char *symbol, *name; int since, flags; } hooks[] = {
#include "hooks.inc"
};
static const struct { const char *symbol; int nr; } symbols[] = {
#include "symbols.inc"
};
#define HOOKS (int)(sizeof(hooks) / sizeof(hooks[0]))
#define SYMBOLS (int)(sizeof(symbols) / sizeof(symbols[0]))

static void *hook, *real;
static int bad;

static int hooked(const char *symbol)
{
	int i;

	for (i = 0; i < HOOKS; i++)
		if (!strcmp(hooks[i].symbol, symbol))
			return 1;
	return 0;
}

static void jumps(void)
{
	int i, k, got, n = 0;

	for (i = 0; i < SYMBOLS; i++)
		for (k = 0; k < 3 && !hooked(symbols[i].symbol); k++, n++) {
			got = ((int (*)(void))dlsym(hook, symbols[i].symbol))();
			if (got != symbols[i].nr)
				bad++, printf("%s answers %d, not %d\n", symbols[i].symbol, got,
					      symbols[i].nr);
		}
	printf("%d calls\n", n);
}

static void *ask(int v2, const char *name, int version, long flags, int *res)
{
	void *p = (void *)1;
	int status;

	if (v2)
		*res = ((int (*)(const char *, void **, int, long, int *))dlsym(
			hook, "cuGetProcAddress_v2"))(name, &p, version, flags, &status);
	else
		*res = ((int (*)(const char *, void **, int, long))dlsym(hook, "cuGetProcAddress"))(
			name, &p, version, flags);
	return p;
}

static void expect(void *got, void *want, const char *name, int version, int flags)
{
	if (got != want)
		bad++, printf("%s %d %d: %p, not %p\n", name, version, flags, got, want);
}

/* The symbol that this version and these flags mean, by the list. */
static const char *meant(const char *name, int version, int flags)
{
	int i, best = -1;

	if (getenv("NEWEST"))
		version = 13000;
	for (i = 0; i < HOOKS; i++)
		if (!strcmp(hooks[i].name, name) && hooks[i].since <= version &&
		    (hooks[i].flags == 0 || hooks[i].flags == (flags & 2 ? 2 : 1)) &&
		    (best < 0 || hooks[i].since > hooks[best].since))
			best = i;
	return best < 0 ? NULL : hooks[best].symbol;
}

static void procs(void)
{
	static const int versions[] = { 0,     2000,  3020,  4000,  5000,  7000, 10000,
					10010, 11000, 11030, 12000, 12030, 13000 };
	int i, v, f, v2, res, n = 0;
	const char *m;

	for (i = 0; i < HOOKS; i++)
		for (v = 0; v < 13; v++)
			for (f = 0; f < 3; f++)
				for (v2 = 0; v2 < 2; v2++, n++) {
					m = meant(hooks[i].name, versions[v], f);
					if (m)
						expect(ask(v2, hooks[i].name, versions[v], f, &res),
						       dlsym(hook, m), m, versions[v], f);
					else
						ask(v2, hooks[i].name, versions[v], f, &res);
				}
	for (i = 0; i < SYMBOLS; i++)
		if (!strchr(symbols[i].symbol, '_') && !hooked(symbols[i].symbol))
			expect(ask(1, symbols[i].symbol, 13000, 0, &res),
			       dlsym(real, symbols[i].symbol), symbols[i].symbol, 13000, 0);
	/* the driver answers calls with a suffixed name or without a name */
	expect(ask(1, "cuMemAlloc_v2", 13000, 0, &res), NULL, "cuMemAlloc_v2", 13000, 0);
	bad += res != 500;
	expect(ask(0, "cuNothing", 13000, 0, &res), NULL, "cuNothing", 13000, 0);
	bad += res != 500;
	printf("%d answers\n", n);
}

/* A driver with a version of cuMemAlloc that the interposer does not know. */
static void unknown(void)
{
	const struct fdry_hook *table = ((fdry_hook_table_fn)dlsym(hook, FDRY_HOOK_SYMBOL))();
	struct fdry_hook_live live = { 0 };
	int res;
	void *p;

	table->live(&live);
	bad += live.unwrapped != 0;
	p = ask(1, "cuMemAlloc", 99000, 0, &res);
	bad += res || ((int (*)(void))p)() != 9;
	table->live(&live);
	bad += live.unwrapped != 1;
}

static struct fdry_hook_live live(void)
{
	struct fdry_hook_live ret;

	((fdry_hook_table_fn)dlsym(hook, FDRY_HOOK_SYMBOL))()->live(&ret);
	return ret;
}

static void call(const char *symbol, uintptr_t a)
{
	((int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))dlsym(
		hook, symbol))(a, 0, 0, 0, 0, 0);
}

/* The counts of every hooked variant of these, after a success and after a failure. */
static void counts(void)
{
	static const char *const pairs[][2] = {
		{ "cuStreamBeginCapture", "cuStreamEndCapture" },
		{ "cuStreamBeginCapture_v2", "cuStreamEndCapture" },
		{ "cuStreamBeginCaptureToGraph", "cuStreamEndCapture" },
		{ "cuStreamBeginCapture_ptsz", "cuStreamEndCapture_ptsz" },
		{ "cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz" },
		{ "cuStreamBeginCaptureToGraph_ptsz", "cuStreamEndCapture_ptsz" },
		{ "cuStreamBeginCapture_v2", "cuStreamDestroy" },
		{ "cuStreamBeginCapture_v2", "cuStreamDestroy_v2" }
	};
	unsigned i;

	setenv("SUCCESS", "1", 1);
	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		call(pairs[i][0], 64);
		bad += live().captures != 1;
		call(pairs[i][1], 128); /* another stream */
		bad += live().captures != 1;
		call(pairs[i][1], 64);
		bad += live().captures != 0;
	}
	/* stream 0 is the per-thread stream, 2, to variants for it and the legacy one to the others
	 */
	call("cuStreamBeginCapture_v2_ptsz", 0);
	call("cuStreamEndCapture", 0);
	bad += live().captures != 1;
	call("cuStreamEndCapture", 2);
	bad += live().captures != 0;
	call("cuStreamBeginCaptureToGraph", 2);
	call("cuStreamEndCapture_ptsz", 0);
	bad += live().captures != 0;

	call("cuTexObjectCreate", 0);
	call("cuTexObjectCreate", 0);
	call("cuSurfObjectCreate", 0);
	bad += live().textures != 2 || live().surfaces != 1;
	call("cuTexObjectDestroy", 0);
	call("cuSurfObjectDestroy", 0);
	bad += live().textures != 1 || live().surfaces != 0;
	call("cuGraphLaunch", 0);
	call("cuGraphLaunch_ptsz", 0);
	bad += live().graph_launches != 2;

	unsetenv("SUCCESS");
	call("cuStreamBeginCapture_v2", 64);
	call("cuTexObjectCreate", 0);
	call("cuTexObjectDestroy", 0);
	call("cuSurfObjectCreate", 0);
	call("cuSurfObjectDestroy", 0);
	bad += live().captures != 0 || live().textures != 1 || live().surfaces != 0;
}

int main(int argc, char **argv)
{
	hook = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
	real = dlopen(getenv("FOUNDRY_DRIVER"), RTLD_NOW);
	if (argc != 3 || !hook || !real || hook == real)
		return 2;
	if (!strcmp(argv[1], "jumps"))
		jumps();
	else if (!strcmp(argv[1], "procs"))
		procs();
	else if (!strcmp(argv[1], "counts"))
		counts();
	else
		unknown();
	printf("%d bad\n", bad);
	return bad != 0;
}
