#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every symbol of the interposer calls the driver's function of that name. cuGetProcAddress()
# returns the interposer's function exactly if the driver returns one that is hooked. The driver of
# these tests has every symbol; each function returns its number.
. "$(dirname "$0")/../lib.sh"

src=$ROOT/tests/cli/hook
hook=$BUILD/foundry/hook/libcuda.so.1
defs=$ROOT/hook/hooks.def
list=$ROOT/hook/symbols.list
unset FOUNDRY_LOG LD_PRELOAD LD_LIBRARY_PATH

# Hooks as lines "symbol name since flags"; the lists as C, once for both programs.
sed -nE 's/^HOOK\((\w+), (\w+), ([0-9]+), (\w+),.*/\1 \2 \3 \4/p' "$defs" |
	sed 's/ANY$/0/; s/LEGACY$/1/; s/PER_THREAD$/2/' >hooks
awk '{ printf "{ \"%s\", \"%s\", %d, %d },\n", $1, $2, $3, $4 }' hooks >hooks.inc
awk '{ printf "{ \"%s\", %d },\n", $1, NR + 1000 }' "$list" >symbols.inc

{
	cat <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static const struct { const char *symbol, *name; int since, flags; } hooks[] = {
#include "hooks.inc"
};
static int newer(void) { return 9; }
/* The driver's own look-up may return another function than the exported one. */
#define INNER(symbol) static int inner_##symbol(void) { return 8; }
END
	awk '{ print "INNER(" $1 ")" }' hooks
	echo 'static const struct { const char *symbol; void *fn; } inner[] = {'
	awk '{ print "{ \"" $1 "\", (void *)inner_" $1 " }," }' hooks
	cat <<'END'
};
static void *exported(const char *symbol)
{
	Dl_info i;
	void *self;
	dladdr((void *)newer, &i);
	self = dlopen(i.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	return dlsym(self, symbol);
}
/* The newest version that is not newer than asked for. */
int cuGetProcAddress_v2(const char *name, void **ret, int version, long flags, int *status)
{
	int i, best = -1, n = (int)(sizeof(hooks) / sizeof(hooks[0]));

	if (getenv("NEWEST"))
		version = 13000;
	for (i = 0; i < n; i++)
		if (!strcmp(hooks[i].name, name) && hooks[i].since <= version &&
		    (hooks[i].flags == 0 || hooks[i].flags == (flags & 2 ? 2 : 1)) && (best < 0 ||
		hooks[i].since > hooks[best].since))
			best = i;
	*ret = NULL;
	if (best >= 0)
		*ret = getenv("INNER") ? inner[best].fn : exported(hooks[best].symbol);
	else if (!strchr(name, '_'))
		*ret = exported(name);
	if (best >= 0 && version >= 90000)
		*ret = (void *)newer;
	if (status)
		*status = *ret ? 0 : 1;
	return *ret ? 0 : 500;
}
int cuGetProcAddress(const char *name, void **ret, int version, long flags)
{
	return cuGetProcAddress_v2(name, ret, version, flags, NULL);
}
END
	awk '$1 !~ /^cuGetProcAddress/ {
		print "int " $1 "(void) { return getenv(\"SUCCESS\") ? 0 : " NR + 1000 "; }"
	}' "$list"
} >driver.c
$CC -shared -fPIC -O1 -I. -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,--hash-style=gnu -o \
	libcuda.so.1 driver.c -ldl
mkdir sysv && $CC -shared -fPIC -O1 -I. -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic \
	-Wl,--hash-style=sysv -o sysv/libcuda.so.1 driver.c -ldl

$CC -std=gnu11 -I. -I"$ROOT" -I"$ROOT/include" -isystem "$CUDA_INC" \
	"$src/entry_probe.c" -o probe -ldl
export FOUNDRY_DRIVER=$TMP/libcuda.so.1

jumps=$((3 * ($(wc -l <"$list") - $(wc -l <hooks))))
answers=$((26 * 3 * $(wc -l <hooks)))
t "there are hooks" test "$(wc -l <hooks)" -ge 30
t "every symbol's jump leads to its function, at the first call and later" prints "$jumps calls
0 bad" ./probe jumps "$hook"
t "every jump leads to its function in a driver with an old hash table" prints "$jumps calls
0 bad" env FOUNDRY_DRIVER="$TMP/sysv/libcuda.so.1" ./probe jumps "$hook"
t "every name, version and variant gets the interposer's function" prints "$answers answers
0 bad" ./probe procs "$hook"
t "the same if the driver's look-up returns functions that it does not export" prints \
	"$answers answers
0 bad" env INNER=1 ./probe procs "$hook"
t "the same if the driver returns its newest function for old versions" prints "$answers answers
0 bad" env NEWEST=1 ./probe procs "$hook"
t "an unknown version is returned unwrapped and counted" prints "0 bad" ./probe unknown "$hook"
t "captures, textures, surfaces and launches are counted in every variant" prints "0 bad" ./probe \
	counts "$hook"
t_done
