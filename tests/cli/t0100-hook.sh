#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the interposer: every way to load it, every way in which it finds the driver, and its
# behaviour without a driver. The driver of these tests has a few functions, each of which returns a
# number of its own.
. "$(dirname "$0")/../lib.sh"

src=$ROOT/tests/cli/hook
hook=$BUILD/foundry/hook/libcuda.so.1
twin=$BUILD/foundry/hook/libcuda.so
unset FOUNDRY_DRIVER FOUNDRY_LOG LD_PRELOAD LD_LIBRARY_PATH

mkdir driver other stubs plain
for d in driver:4242 other:1717 stubs:34; do
	$CC -shared -fPIC -O1 -DVERSION="${d#*:}" -Wl,-soname,libcuda.so.1 -o \
		"${d%:*}/libcuda.so.1" "$src/ways_driver.c"
done
echo 'int nothing;' | $CC -shared -fPIC -x c - -o plain/libcuda.so.1

$CC -std=gnu11 -I"$ROOT" -I"$ROOT/include" -isystem "$CUDA_INC" \
	"$src/ways_probe.c" -o probe -ldl -lpthread
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
{ cat "$ROOT/hook/symbols.list"; printf "%s\n" fdry_hook_reason fdry_hook_table; } |
	LC_ALL=C sort >want
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
$CC -shared -fPIC -O1 -DVERSION=34 -Wl,-soname,libcuda.so.1 -o other/driver.so \
	"$src/ways_driver.c"
t "late: a driver of another file name" fails \
	"^-109 $TMP/other/driver.so was loaded before the interposer" \
	sh -c "${ours[*]} LD_PRELOAD='$TMP/other/driver.so' ./probe late '$hook'; exit 1"
t "the twin before the interposer is not late" prints "0 " "${ours[@]}" ./probe late "$twin" \
	libcuda.so
t_done
