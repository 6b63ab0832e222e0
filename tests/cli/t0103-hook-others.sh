#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the interposer beside other libraries that wrap CUDA. If they pass calls on, captures
# work in any order of loading. If they lead calls past the interposer, a capture is refused with
# their name. Profilers, whose code the driver loads in cuInit(), are tested too.
. "$(dirname "$0")/../lib.sh"

hook=$BUILD/foundry/hook/libcuda.so.1
unset FOUNDRY_LOG LD_PRELOAD LD_LIBRARY_PATH
export PYTHONPATH=$ROOT/tests/python:$PYTHONPATH SAID=$TMP/said

cat >wrap.h <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* This library saw a call. */
static inline void said(void)
{
	int fd = open(getenv("SAID"), O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd >= 0 && write(fd, "x", 1) == 1)
		close(fd);
}
/* The C library's function, even if a library replaces it. */
static inline void *libc_fn(const char *name)
{
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };
	void *fn = NULL;
	unsigned i;

	for (i = 0; !fn && i < 3; i++)
		fn = dlvsym(RTLD_NEXT, name, versions[i]);
	return fn;
}
static inline void *libc_dlsym(void *handle, const char *name)
{
	return ((void *(*)(void *, const char *))libc_fn("dlsym"))(handle, name);
}
static inline void *libc_dlopen(const char *file, int flags)
{
	return ((void *(*)(const char *, int))libc_fn("dlopen"))(file, flags);
}
END

# The wrapped functions; they pass calls on to ORIGINAL(name).
cat >functions.h <<'END'
int cuMemAlloc_v2(void *ret, size_t size)
{
	said();
	return ((int (*)(void *, size_t))ORIGINAL("cuMemAlloc_v2"))(ret, size);
}
int cuModuleLoadData(void *ret, const void *image)
{
	said();
	return ((int (*)(void *, const void *))ORIGINAL("cuModuleLoadData"))(ret, image);
}
int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long flags, int *status)
{
	int res = ((int (*)(const char *, void **, int, unsigned long, int *))ORIGINAL(
		"cuGetProcAddress_v2"))(name, ret, version, flags, status);
	if (!res && !strcmp(name, "cuMemAlloc") && version >= 3020)
		*ret = (void *)cuMemAlloc_v2;
	return res;
}
END

cat >next.c <<'END'
#include "wrap.h"
#define ORIGINAL(name) dlsym(RTLD_NEXT, name)
#include "functions.h"
END
# As libraries that divide a GPU among programs do: this library receives every dlsym() of a
# program.
cat >symbols.c <<'END'
#include "wrap.h"
#define ORIGINAL(name) libc_dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name)
#include "functions.h"
void *dlsym(void *handle, const char *name)
{
	if (!strcmp(name, "cuMemAlloc_v2"))
		return (void *)cuMemAlloc_v2;
	if (!strcmp(name, "cuModuleLoadData"))
		return (void *)cuModuleLoadData;
	if (!strcmp(name, "cuGetProcAddress_v2"))
		return (void *)cuGetProcAddress_v2;
	return libc_dlsym(handle, name);
}
END
sed 's|dlopen("libcuda.so.1", RTLD_LAZY)|dlopen(getenv("FOUNDRY_DRIVER"), RTLD_LAZY)|' symbols.c \
	>away.c
sed 's|dlsym(RTLD_NEXT, name)|dlsym(dlopen(getenv("FOUNDRY_DRIVER"), RTLD_LAZY), name)|' next.c \
	>astray.c
cat >opens.c <<'END'
#include "wrap.h"
void *dlopen(const char *file, int flags)
{
	if (file && strstr(file, "libcuda"))
		said();
	return libc_dlopen(file, flags);
}
END
# Every dlopen() of a libcuda, by any path, returns this library.
cat >instead.c <<'END'
#include "wrap.h"
int cuInit(unsigned flags) { return 700 + (int)flags; }
void *dlopen(const char *file, int flags)
{
	Dl_info i;
	if (file && strstr(file, "libcuda") && !getenv("PLAIN") && dladdr((void *)cuInit, &i))
		file = i.dli_fname;
	return libc_dlopen(file, flags);
}
END
# As a checking tool does: dlsym() returns the driver's functions to programs; the list of loaded
# libraries stays true.
cat >given.c <<'END'
#include "wrap.h"
void *dlopen(const char *file, int flags)
{
	if (file && !strcmp(file, "libcuda.so.1") && !(flags & RTLD_NOLOAD))
		file = getenv("FOUNDRY_DRIVER");
	return libc_dlopen(file, flags);
}
END
for lib in next symbols away astray opens instead given; do
	$CC -shared -fPIC -O1 -w -I. -Wl,-Bsymbolic -o $lib.so $lib.c -ldl
done
$CC -shared -fPIC -O1 -w -I. -Wl,-soname,libcuda.so.1 -o other-name.so instead.c -ldl

cat >work.py <<'END'
import payload_sim
import foundry
import sys
payload_sim.work("store", sys.argv[1])
END
cat >load.py <<'END'
import sys
import ways
wrong = ways.load("store", sys.argv[1:])
raise SystemExit(str(wrong) if wrong else 0)
END

# under PRELOAD COMMAND...: runs the command with these libraries and a ref of its own to seal
refs=()
under() {
	rm -f "$SAID"
	env LD_PRELOAD="$1" timeout 60 "${@:2}" "img${#refs[@]}" && refs+=("img${#refs[@]}")
}
# saw PRELOAD COMMAND...: the same, and the other library was called
saw() { under "$@" && test -s "$SAID"; }

t "a capture works without another library" under "$hook" python3 work.py
t "a library in front that calls the next one" saw "$TMP/next.so $hook" python3 work.py
t "a library behind that calls the next one" under "$hook $TMP/next.so" python3 work.py
t "a library in front that replaces dlsym()" saw "$TMP/symbols.so $hook" python3 work.py
t "a library behind that replaces dlsym()" saw "$hook $TMP/symbols.so" python3 work.py
t "a library that replaces dlsym(), under foundry run" \
	saw "$TMP/symbols.so" python3 -m foundry run work.py
t "a library that replaces dlopen()" saw "$TMP/opens.so $hook" python3 work.py
t "both of these libraries" saw "$TMP/opens.so $hook $TMP/symbols.so" python3 work.py
t "the interposer loaded first, beside a library that replaces dlsym()" saw "$TMP/symbols.so" \
	python3 -c 'import foundry; exec(open("work.py").read())'
t "loads of the sealed images compute the right numbers" python3 load.py "${refs[@]}"
t "there are nine sealed images" test "${#refs[@]}" = 9

# Behind the interposer, no call would reach astray.so.
hidden="gets the function of $TMP/%s.so, which does not call the interposer"
t "a library that calls the driver directly is detected" fails \
	"asks dlsym\(\) for cuMemAlloc_v2 ${hidden/\%s/away}" \
	under "$TMP/away.so $hook" python3 work.py
t "such a library is detected in front of a linked program, too" fails \
	"asks the linker for cuMemAlloc_v2 ${hidden/\%s/astray}" \
	under "$TMP/astray.so $hook" python3 work.py
t "a library that returns itself for every libcuda is detected" fails \
	"$TMP/instead.so was loaded before the interposer and answers to libcuda.so.1" \
	under "$TMP/instead.so $hook" python3 work.py
t "a library that returns the driver's functions to programs is detected" fails \
	"asks dlsym\(\) for cuMemAlloc_v2 gets the function of $FOUNDRY_DRIVER, which does not" \
	under "$TMP/given.so $hook" python3 work.py
t "a library with the driver's SONAME is detected" fails \
	"$TMP/other-name.so was loaded before the interposer" \
	under "$TMP/other-name.so $hook" env PLAIN=1 python3 work.py
t "a library with the driver's SONAME is detected under foundry run" fails \
	"$TMP/other-name.so was loaded before the interposer" \
	under "$TMP/other-name.so" env PLAIN=1 python3 -m foundry run work.py

# A driver other than the requested one would call the interposer back.
cat >linked.c <<'END'
#include <stdio.h>
#include "hook/hook.h"
int main(void)
{
	const struct fdry_hook *table = fdry_hook_table();
	printf("%s\n", table->real_path() ? "a path" : table->last_error());
	return 0;
}
END
sed -i 's/^int main/const struct fdry_hook *fdry_hook_table(void);\nint main/' linked.c
$CC -std=gnu11 -I"$ROOT" -I"$ROOT/include" -isystem "$CUDA_INC" linked.c -o linked "$hook"
t "a driver that replaces the requested one is not used" prints \
	"no CUDA driver: $FOUNDRY_DRIVER cannot be used: a library that replaces dlopen() returns \
another one; start the program without it; install the NVIDIA driver, or set FOUNDRY_DRIVER to the \
full path of a libcuda.so.1" \
	env LD_PRELOAD="$TMP/instead.so $hook" ./linked

# --- profilers: the driver loads them in cuInit, and they call it from there

cat >driver.c <<'END'
#include "wrap.h"
int cuDriverGetVersion(int *v) { *v = 4242; return 0; }
int cuGetExportTable(const void **t, const void *id) { *t = id; return 0; }
int cuOfNextYear(int i) { return i + 1; } /* in no list of Foundry's */
int cuGetProcAddress_v2(const char *n, void **p, int v, unsigned long f, int *s)
{
	*p = strcmp(n, "cuOfNextYear") ? (void *)cuGetExportTable : (void *)cuOfNextYear;
	return v + (int)f < 0;
}
int cuInit(unsigned flags)
{
	void *tool = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
	return tool ? ((int (*)(void))dlsym(tool, "InitializeInjection"))() != 1 : 999 + (int)flags;
}
END
$CC -shared -fPIC -O1 -w -I. -Wl,-soname,libcuda.so.1 -o libcuda.so.1 driver.c -ldl
cat >tool.c <<'END'
#include "wrap.h"
int InitializeInjection(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int v = 0, id = 0;
	const void *table = NULL;
	void *fn = NULL;

	((int (*)(int *))dlsym(cuda, "cuDriverGetVersion"))(&v);
	((int (*)(const void **, const void *))dlsym(cuda, "cuGetExportTable"))(&table, &id);
	((int (*)(const char *, void **, int, unsigned long, int *))dlsym(
		cuda, "cuGetProcAddress_v2"))("cuInit", &fn, 12000, 0, NULL);
	return v == 4242 && table == &id && fn && dlsym(cuda, "fdry_hook_table");
}
END
$CC -shared -fPIC -O1 -w -I. -o tool.so tool.c -ldl
t "calls of a tool that the driver loads in cuInit() work" prints 0 env \
	FOUNDRY_DRIVER="$TMP/libcuda.so.1" LD_PRELOAD="$hook" \
	CUDA_INJECTION64_PATH="$TMP/tool.so" timeout 20 python3 -c \
	'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))'

# --- symbols

t "cuGetProcAddress() returns functions that the list lacks" prints "42 False" env \
	FOUNDRY_DRIVER="$TMP/libcuda.so.1" LD_PRELOAD="$hook" python3 -c '
import ctypes
c, p = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert c.cuGetProcAddress_v2(b"cuOfNextYear", ctypes.byref(p), 14000, ctypes.c_uint64(0), None) == 0
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(p.value)(41), hasattr(c, "cuOfNextYear"))'
t "a function that the driver lacks is logged once, by name" prints "500 500 1" sh -c \
	"FOUNDRY_LOG=warn FOUNDRY_DRIVER='$TMP/libcuda.so.1' LD_PRELOAD='$hook' python3 -c '
import ctypes
c = ctypes.CDLL(\"libcuda.so.1\")
print(c.cuEGLApiInit(), c.cuEGLApiInit(), end=\" \", flush=True)' 2>log;
	grep -c 'lacks cuEGLApiInit; install a newer driver' log"
t_done
