#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of what is written for aarch64. The interposer's jumps assemble, with one jump and one slot
# for each symbol. If a compiler and an emulator for aarch64 exist, calls through the jumps keep all
# arguments, and fingerprints by vectors equal those of plain C and of this machine.
. "$(dirname "$0")/../lib.sh"

awk -f "$ROOT/hook/symbols.awk" "$ROOT/hook/hooks.def" "$ROOT/hook/symbols.list" >symbols.inc
mkdir -p gen/hook && mv symbols.inc gen/hook/
# The linker takes from the library's parts what the interposer needs. oid.c is left out, since it
# needs libcrypto.
shopt -s extglob
sources=("$ROOT"/hook/*.c "$ROOT"/hook/jump.S)
parts=("$ROOT"/mm/*.c "$ROOT"/arch/{driver,stream}.c "$ROOT"/lib/!(oid).c)
flags=(-std=gnu11 -O2 -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE '-DFDRY_VERSION="x"'
	-I"$ROOT" -I"$ROOT/include" -Igen)

symbols() {
	readelf -sW jump.o | awk '$4 == "FUNC" && $5 == "GLOBAL" { print $8 }' | LC_ALL=C sort
}
jumps() { sed -n 's/^JUMP([0-9]*, \(.*\))$/\1/p' gen/hook/symbols.inc | LC_ALL=C sort; }
slots() { readelf -sW jump.o | awk '$8 == "fdry_jumps" { print $3 }'; }

t "clang assembles it" clang --target=aarch64-linux-gnu "${flags[@]}" -Wall -Werror \
	-c -o jump.o "$ROOT/hook/jump.S"
t "the object is for aarch64" sh -c "readelf -h jump.o | grep -q 'Machine:.*AArch64'"
t "every symbol that is not hooked has its jump" diff <(jumps) <(symbols)
t "every symbol has a slot" prints $((8 * $(wc -l <"$ROOT/hook/symbols.list"))) slots
t "the jumps refer to the slots and the resolver alone" prints "fdry_jump_resolve" sh -c \
	"readelf -sW jump.o | awk '\$7 == \"UND\" && \$8 { print \$8 }'"

cross() { aarch64-linux-gnu-gcc "$@"; }
if command -v aarch64-linux-gnu-gcc >/dev/null; then
	objects() {
		local into=$1 src
		shift
		mkdir "$into"
		for src; do
			cross "${flags[@]}" -isystem "$CUDA_INC" -Wall -Wextra -Werror \
				-Wno-format-truncation -c \
				-o "$into/$(tr / - <<<"${src#"$ROOT/"}").o" "$src" || return
		done
	}
	build() {
		objects hook "${sources[@]}" && objects parts "${parts[@]}" &&
			aarch64-linux-gnu-ar rcs parts.a parts/* &&
			cross -shared -Wl,--no-undefined -Wl,-Bsymbolic -Wl,-z,now \
				-Wl,-soname,libcuda.so.1 \
				-Wl,--version-script="$ROOT/hook/libcuda.map" \
				-o libcuda.so.1 hook/* parts.a -ldl -pthread
	}
	t "the whole interposer builds" build
	mkdir driver
	t "driver built" cross -shared -fPIC -DDRIVER -Wl,-soname,libcuda.so.1 \
		-o driver/libcuda.so.1 "$ROOT/tests/lint/jump.c"
	t "program built" cross -o jump "$ROOT/tests/lint/jump.c" ./libcuda.so.1 -Wl,-rpath,"$TMP"
	t "fingerprints built for this machine" "${CC:-cc}" "${flags[@]}" -Wall -Wextra -Werror \
		-o here "$ROOT/tests/lint/fingerprint.c"
	t "fingerprints built for aarch64" cross "${flags[@]}" -Wall -Wextra -Werror \
		-o there "$ROOT/tests/lint/fingerprint.c"
	if command -v qemu-aarch64 >/dev/null; then
		emulated() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }
		t "arguments arrive in every register and on the stack" prints "0 bad, errno 77" \
			emulated -E "FOUNDRY_DRIVER=$TMP/driver/libcuda.so.1" ./jump
		vectors() { emulated ./there 2>&1 >values | grep -x neon; }
		t "vectors of aarch64 give the values of plain C" vectors
		same() { ./here >here.txt 2>/dev/null && diff here.txt values; }
		t "and those of this machine" same
	fi
fi
t_done
