#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the interposer: every way to load it, every way in which it finds the driver, and its
# behaviour without a driver. The driver of these tests has a few functions, each of which returns a
# number of its own.
. "$(dirname "$0")/../lib.sh"

hook=$BUILD/foundry/hook/libcuda.so.1
twin=$BUILD/foundry/hook/libcuda.so
unset FOUNDRY_DRIVER FOUNDRY_LOG LD_PRELOAD LD_LIBRARY_PATH

mkdir driver other stubs plain
cat >driver.c <<'END'
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void opened(void)
{
	const char *log = getenv("OPENED");
	int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
	if (fd >= 0 && write(fd, "x", 1) == 1)
		close(fd);
}
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
/* Arguments in every register and on the stack, named as the driver's function of that many. */
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
		   unsigned h, void *s, void **p, void **x)
{
	return f == (void *)1 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 &&
			       h == 8 && s == (void *)9 && p == (void *)10 && x == (void *)11
		       ? 0
		       : 1;
}
/* The driver's function of this name has other arguments: here, vectors in every register that can
 * hold one. */
int cuTexRefSetMipmapLevelClamp(void *t, double a, float b, double c, float d, double e, float f,
				double g, float h)
{
	return t == (void *)1 && a == 1.5 && b == 2.5f && c == 3.5 && d == 4.5f && e == 5.5 &&
			       f == 6.5f && g == 7.5 && h == 8.5f
		       ? 0
		       : 1;
}
typedef double quad __attribute__((vector_size(16)));
int cuTexRefSetBorderColor(quad a, quad b, quad c, quad d, quad e, quad f, quad g, quad h)
{
	return a[1] == 1 && b[1] == 2 && c[1] == 3 && d[1] == 4 && e[1] == 5 && f[1] == 6 &&
			       g[1] == 7 && h[1] == 8
		       ? 0
		       : 1;
}
/* Variadic: the count of vector registers is an argument, too. */
int cuParamSetv(int n, ...)
{
	va_list ap;
	double sum = 0;

	for (va_start(ap, n); n--;)
		sum += va_arg(ap, double);
	va_end(ap);
	return sum == 6 ? 0 : 1;
}
END
for d in driver:4242 other:1717 stubs:34; do
	$CC -shared -fPIC -O1 -DVERSION="${d#*:}" -Wl,-soname,libcuda.so.1 -o \
		"${d%:*}/libcuda.so.1" driver.c
done
echo 'int nothing;' | $CC -shared -fPIC -x c - -o plain/libcuda.so.1

cat >probe.c <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hook/hook.h"

static void *cuda;

static void *fn(const char *name)
{
	void *p = dlsym(cuda, name);
	if (!p) {
		printf("no %s\n", name);
		exit(3);
	}
	return p;
}

static void *open_it(const char *name, int flags)
{
	void *h = dlopen(name, flags);
	if (!h) {
		printf("%s\n", dlerror());
		exit(3);
	}
	return h;
}

static const struct fdry_hook *table(void)
{
	return ((fdry_hook_table_fn)fn(FDRY_HOOK_SYMBOL))();
}

/* Which library answers, and is it the interposer that was asked? */
static int version(void)
{
	int v = -1, res;

	errno = 77;
	res = ((int (*)(int *))fn("cuDriverGetVersion"))(&v);
	printf("%d %d%s%s\n", res, v, dlsym(cuda, FDRY_HOOK_SYMBOL) ? "" : " directly",
	       errno == 77 ? "" : " errno lost");
	return 0;
}

static int arguments(void)
{
	typedef double quad __attribute__((vector_size(16)));
	int bad = 0, i;

	for (i = 0; i < 2; i++) { /* looked up, then known */
		bad = 2 * bad + ((int (*)(void *, int, int, int, int, int, int, int, void *, void *,
					  void *))fn("cuLaunchKernel"))((void *)1, 2, 3, 4, 5, 6, 7,
									8, (void *)9, (void *)10,
									(void *)11);
		bad = 2 * bad + ((int (*)(void *, double, float, double, float, double, float,
					  double, float))fn("cuTexRefSetMipmapLevelClamp"))(
					(void *)1, 1.5, 2.5f, 3.5, 4.5f, 5.5, 6.5f, 7.5, 8.5f);
		bad = 2 * bad + ((int (*)(quad, quad, quad, quad, quad, quad, quad, quad))fn(
					"cuTexRefSetBorderColor"))((quad){ 0, 1 }, (quad){ 0, 2 },
								   (quad){ 0, 3 }, (quad){ 0, 4 },
								   (quad){ 0, 5 }, (quad){ 0, 6 },
								   (quad){ 0, 7 }, (quad){ 0, 8 });
		bad = 2 * bad + ((int (*)(int, ...))fn("cuParamSetv"))(3, 1.0, 2.0, 3.0);
	}
	printf("%d\n", bad);
	return 0;
}

/* The result of every call without a driver, and the bytes that it writes. */
static int without(void)
{
	const char *name = "x", *text = "x";
	void *p = (void *)1, *q = (void *)1, *addr = (void *)1;
	int v = 5, n = 5, status = 5, dev = 5, r[9];

	r[0] = ((int (*)(unsigned))fn("cuInit"))(0);
	r[1] = ((int (*)(int *))fn("cuDriverGetVersion"))(&v);
	r[2] = ((int (*)(int *))fn("cuDeviceGetCount"))(&n);
	r[3] = ((int (*)(const char *, void **, int, long, int *))fn("cuGetProcAddress_v2"))(
		"cuInit", &p, 12000, 0, &status);
	r[4] = ((int (*)(const char *, void **, int, long))fn("cuGetProcAddress"))("cuInit", &q,
										   12000, 0);
	r[5] = ((int (*)(void *, long))fn("cuMemAlloc_v2"))(&addr, 16);
	r[6] = ((int (*)(void *))fn("cuCtxGetDevice"))(&dev);
	r[7] = ((int (*)(int, const char **))fn("cuGetErrorName"))(100, &name);
	r[8] = ((int (*)(int, const char **))fn("cuGetErrorString"))(1, &text);
	printf("%d %d/%d %d/%d %d/%d %d/%d %d %d %d/%s %d/%s\n", r[0], r[1], v, r[2], n, r[3],
	       p != NULL, r[4], q != NULL, r[5], r[6], r[7], name, r[8], text ? text : "null");
	printf("%s\n", table()->real_path() ? "a path" : table()->last_error());
	return 0;
}

static int lacking(void)
{
	printf("%d ", ((int (*)(void *))fn("cuCtxGetDevice"))(NULL));
	printf("%s\n", table()->last_error());
	return 0;
}

static int late(void)
{
	printf("%d %s\n", table()->late(), table()->last_error());
	return 0;
}

static int begin(void)
{
	printf("%d %s\n", table()->region_begin(1ull << 40, 1 << 30), table()->last_error());
	return 0;
}

static pthread_barrier_t barrier;
static void *first_call(void *arg)
{
	int v = -1;

	pthread_barrier_wait(&barrier);
	if (((int (*)(int *))fn("cuDriverGetVersion"))(&v) || v != 4242)
		*(int *)arg = 1;
	return NULL;
}

/* Threads that all make the process's first call. */
static int threads(void)
{
	pthread_t t[8];
	int bad = 0, i;

	pthread_barrier_init(&barrier, NULL, 8);
	for (i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, first_call, &bad);
	for (i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", bad);
	return 0;
}

/* One thread runs a constructor, under the loader's lock, while another one calls.
 */
static void *load_slowly(void *arg)
{
	pthread_barrier_wait(&barrier);
	if (!dlopen(getenv("SLOW"), RTLD_NOW))
		*(int *)arg = 1;
	return NULL;
}

static void *call_meanwhile(void *arg)
{
	int (*fn_version)(int *) = (int (*)(int *))fn("cuDriverGetVersion"), v = -1;

	pthread_barrier_wait(&barrier);
	usleep(100000); /* the constructor sleeps now */
	*(int *)arg |= fn_version(&v) || v != 4242;
	return NULL;
}

static int constructor(void)
{
	pthread_t t[2];
	int bad = 0;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t[0], NULL, load_slowly, &bad);
	pthread_create(&t[1], NULL, call_meanwhile, &bad);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	printf("%d\n", bad);
	return 0;
}

static const struct { const char *name; int (*run)(void);
} commands[] = {
	{ "version", version }, { "arguments", arguments },
	{ "without", without }, { "lacking", lacking },
	{ "late", late },	{ "begin", begin },
	{ "threads", threads }, { "constructor", constructor },
};

/* probe COMMAND LIBRARY...: load these one after the other; ask the first, or the last that has no
 * path. */
int main(int argc, char **argv)
{
	int i;

	for (i = 2; i < argc; i++) {
		void *h = open_it(argv[i], RTLD_NOW | RTLD_GLOBAL);
		if (!strchr(argv[i], '/') || !cuda)
			cuda = h;
	}
	for (i = 0; i < (int)(sizeof(commands) / sizeof(commands[0])); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run();
	return 2;
}
END
$CC -std=gnu11 -I"$ROOT" -I"$ROOT/include" -isystem "$CUDA_INC" probe.c -o probe -ldl -lpthread
cat >linked.c <<'END'
#include <stdio.h>
int cuDriverGetVersion(int *);
int main(void)
{
	int v = -1, res = cuDriverGetVersion(&v);
	printf("%d %d\n", res, v);
	return 0;
}
END
$CC linked.c -o linked -l:libcuda.so.1 -L"$TMP/driver"
ours=(env "FOUNDRY_DRIVER=$TMP/driver/libcuda.so.1")

# --- exported symbols

exports() { nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | LC_ALL=C sort; }
hooked() { sed -n 's/^HOOK(\([A-Za-z0-9_]*\),.*/\1/p' "$ROOT/hook/hooks.def"; }
{ cat "$ROOT/hook/symbols.list"; echo fdry_hook_table; } | LC_ALL=C sort >want
exports "$hook" >got
t "it exports every symbol of the list and nothing else" diff want got
t "the list has driver 580's 674" test "$(wc -l <"$ROOT/hook/symbols.list")" -ge 674
stub=$CUDA_INC/../lib64/stubs/libcuda.so
if [ -e "$stub" ]; then
	t "the list has what this toolkit's stub exports" prints "" sh -c \
		"nm -D --defined-only '$stub' | awk '{ print \$3 }' | LC_ALL=C sort |
			comm -23 - want"
fi
t "its SONAME is the driver's" sh -c "readelf -d '$hook' | grep -q 'SONAME.*\[libcuda.so.1\]'"
t "the twin's SONAME is libcuda.so" sh -c "readelf -d '$twin' | grep -q 'SONAME.*\[libcuda.so\]'"
t "the twin needs the interposer" sh -c "readelf -d '$twin' | grep -q 'NEEDED.*\[libcuda.so.1\]'"
t "the interposer needs nothing but libc and the loader" prints "" sh -c \
	"readelf -d '$hook' | grep NEEDED | grep -vE 'libc[.]so|ld-linux|libdl|libpthread' || true"
t "hooks are listed once" prints "" sh -c \
	"sed -n 's/^HOOK(\([A-Za-z0-9_]*\),.*/\1/p' '$ROOT/hook/hooks.def' | sort | uniq -d"

# Every version and stream variant of a hooked name is hooked.
variants() {
	local name
	sed -n 's/^HOOK([A-Za-z0-9_]*, \([A-Za-z0-9_]*\),.*/\1/p' "$ROOT/hook/hooks.def" | sort -u |
		while IFS= read -r name; do
		grep -xE "$name(_v[0-9]+)?(_pt[ds]z?)?" "$ROOT/hook/symbols.list"
	done
}
t "all variants of a hooked name are hooked" diff <(variants | sort) <(hooked | sort)
t "Documentation has every hook and no other" diff <(hooked | sort) \
	<(grep -oE '^   \* - ``cu[A-Za-z0-9_]*``' "$ROOT/Documentation/design/interposer.rst" |
	grep -oE 'cu[A-Za-z0-9_]*' | sort)

# --- ways to load the interposer

t "loaded first, opened by name" prints "0 4242" "${ours[@]}" ./probe version "$hook" libcuda.so.1
t "loaded first, with the twin" prints "0 4242" "${ours[@]}" ./probe version "$hook" "$twin" \
	libcuda.so
t "the twin alone brings the interposer" prints "0 4242" "${ours[@]}" ./probe version "$twin" \
	libcuda.so
t "LD_PRELOAD, opened by name" prints "0 4242" "${ours[@]}" LD_PRELOAD="$hook" ./probe version \
	libcuda.so.1
t "LD_PRELOAD, linked" prints "0 4242" "${ours[@]}" LD_PRELOAD="$hook" ./linked
t "LD_PRELOAD of both" prints "0 4242" "${ours[@]}" LD_PRELOAD="$hook $twin" ./probe version \
	libcuda.so
t "LD_LIBRARY_PATH, linked" prints "0 4242" "${ours[@]}" LD_LIBRARY_PATH="${hook%/*}" ./linked
t "LD_LIBRARY_PATH, libcuda.so.1" prints "0 4242" "${ours[@]}" LD_LIBRARY_PATH="${hook%/*}" \
	./probe version libcuda.so.1
t "LD_LIBRARY_PATH, libcuda.so" prints "0 4242" "${ours[@]}" LD_LIBRARY_PATH="${hook%/*}" ./probe \
	version libcuda.so
t "without the interposer the probe says so" prints "0 4242 directly" env \
	LD_LIBRARY_PATH="$TMP/driver" ./probe version libcuda.so.1

# --- finding the driver

t "the next driver in the loader's path is found" prints "0 4242" env \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/driver" ./probe version libcuda.so.1
t "the first driver in the loader's path is used" prints "0 1717" env \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/other:$TMP/driver" ./probe version libcuda.so.1
t "FOUNDRY_DRIVER has precedence over the loader's path" prints "0 4242" "${ours[@]}" \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/other" ./probe version libcuda.so.1
t "the toolkit's stub is skipped" prints "0 4242" env \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/stubs:$TMP/driver" ./probe version libcuda.so.1
t "a library that is no driver is skipped" prints "0 4242" env \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/plain:$TMP/driver" ./probe version libcuda.so.1
mkdir copy && cp "$hook" copy/
t "another copy of the interposer is skipped" prints "0 4242" env \
	LD_LIBRARY_PATH="${hook%/*}:$TMP/copy:$TMP/driver" ./probe version libcuda.so.1
t "a driver that the process has loaded is used" prints "0 1717" \
	env LD_LIBRARY_PATH="$TMP/driver" ./probe version "$hook" "$TMP/other/libcuda.so.1"

# --- forwarding

t "arguments arrive in every register and on the stack" prints 0 "${ours[@]}" LD_PRELOAD="$hook" \
	./probe arguments libcuda.so.1
t "a function that the driver lacks" prints \
	"500 $TMP/driver/libcuda.so.1 lacks cuCtxGetDevice; install a newer driver" \
	"${ours[@]}" LD_PRELOAD="$hook" ./probe lacking libcuda.so.1
t "eight threads make the first call" prints 0 "${ours[@]}" OPENED="$TMP/threads" \
	LD_PRELOAD="$hook" ./probe threads libcuda.so.1
cat >slow.c <<'END'
#include <unistd.h>
int cuDriverGetVersion(int *);
int slow;
__attribute__((constructor)) static void start(void)
{
	usleep(300000);
	cuDriverGetVersion(&slow);
}
END
$CC -shared -fPIC -o slow.so slow.c
t "a constructor and a thread make the first call together" prints 0 \
	timeout 20 "${ours[@]}" SLOW="$TMP/slow.so" LD_PRELOAD="$hook" ./probe constructor \
	libcuda.so.1
t "the driver was opened once" prints x cat threads

# --- processes without CUDA, and without a driver

t "/bin/true under LD_PRELOAD" "${ours[@]}" OPENED="$TMP/opened" LD_PRELOAD="$hook" /bin/true
t "a shell with children under LD_PRELOAD" prints 3 "${ours[@]}" OPENED="$TMP/opened" \
	LD_PRELOAD="$hook" bash -c 'echo $(echo a b c | wc -w)'
t "processes without CUDA calls do not open the driver" test ! -e opened
t "one call opens the driver once" prints x sh -c \
	"FOUNDRY_DRIVER='$TMP/driver/libcuda.so.1' OPENED='$TMP/called' LD_PRELOAD='$hook' \
		./linked >/dev/null; cat called"
t "/bin/true under LD_PRELOAD without a driver" env FOUNDRY_DRIVER=/nowhere/libcuda.so.1 \
	LD_PRELOAD="$hook" /bin/true

nothing="100 100/0 100/0 100/0 100/0 100 100 0/CUDA_ERROR_NO_DEVICE 1/null"
remedy="install the NVIDIA driver, or set FOUNDRY_DRIVER to the full path of a libcuda.so.1"
t "no driver: every call returns that error, nothing is printed" prints "$nothing
no CUDA driver: /nowhere/libcuda.so.1 cannot be used: /nowhere/libcuda.so.1: \
cannot open shared object file: No such file or directory; $remedy" \
	env FOUNDRY_DRIVER=/nowhere/libcuda.so.1 ./probe without "$hook" libcuda.so.1
t "FOUNDRY_DRIVER names the interposer" prints "$nothing
no CUDA driver: $hook cannot be used: it is the interposer itself; $remedy" env \
	FOUNDRY_DRIVER="$hook" ./probe without "$hook" libcuda.so.1
t "FOUNDRY_DRIVER names something else" prints "$nothing
no CUDA driver: $TMP/plain/libcuda.so.1 cannot be used: it is not a CUDA driver; $remedy" \
	env FOUNDRY_DRIVER="$TMP/plain/libcuda.so.1" ./probe without "$hook" libcuda.so.1
t "a region needs a driver" fails "^-401 no CUDA driver" sh -c \
	"FOUNDRY_DRIVER=/nowhere ./probe begin '$hook' libcuda.so.1; exit 1"

# --- too late

t "the interposer was loaded first" prints "0 " "${ours[@]}" ./probe late "$hook" libcuda.so.1
t "a driver loaded later by its path changes nothing" prints "0 " "${ours[@]}" ./probe late \
	"$hook" "$TMP/other/libcuda.so.1"
t "late: the driver was loaded first" fails \
	"^-109 $TMP/other/libcuda.so.1 was loaded before the interposer" \
	sh -c "${ours[*]} LD_PRELOAD='$TMP/other/libcuda.so.1' ./probe late '$hook'; exit 1"
t "late: no region begins" fails "^-109 .*was loaded before" \
	sh -c "${ours[*]} LD_PRELOAD='$TMP/other/libcuda.so.1' ./probe begin '$hook'; exit 1"
$CC -shared -fPIC -O1 -DVERSION=34 -Wl,-soname,libcuda.so.1 -o other/driver.so driver.c
t "late: a driver of another file name" fails \
	"^-109 $TMP/other/driver.so was loaded before the interposer" \
	sh -c "${ours[*]} LD_PRELOAD='$TMP/other/driver.so' ./probe late '$hook'; exit 1"
t "the twin before the interposer is not late" prints "0 " "${ours[@]}" ./probe late "$twin" \
	libcuda.so
t_done
