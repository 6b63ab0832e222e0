#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The interposer finds device code by its handle, however the program loaded it, and also after the
# memory, library or file that it came from is gone. The driver of these tests accepts any code.
. "$(dirname "$0")/../lib.sh"

src=$ROOT/tests/cli/hook
hook=$BUILD/foundry/hook/libcuda.so.1
unset FOUNDRY_LOG LD_PRELOAD LD_LIBRARY_PATH

$CC -shared -fPIC -O1 -Wl,-soname,libcuda.so.1 -o libcuda.so.1 "$src/code_driver.c"

# A library with device code as nvcc writes it: the fatbin is read-only, its wrapper is writable.
cat >plugin.c <<'END'
static const unsigned char fatbin[16 + 48]
	__attribute__((aligned(8))) = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16,  0,	48, 0,
					0,    0,    0,	  0,	0, 0, 'f', 'a', 't' };
unsigned char writable[16 + 48]
	__attribute__((aligned(8))) = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0,   48,
					0,    0,    0,	  0,	0, 0, 0,  'r', 'w' };
struct {
	unsigned magic, version;
	const void *data;
	void *name;
} wrapper = { 0x466243b1, 1, fatbin, 0 }, over_writable = { 0x466243b1, 2, writable, 0 };
const char ptx[] = "// a library's PTX";
END
$CC -shared -fPIC -O1 -o plugin.so plugin.c
cp plugin.so again.so

$CC -std=gnu11 -g -I"$ROOT" -I"$ROOT/include" -isystem "$CUDA_INC" \
	"$src/code_probe.c" -o probe -ldl
export FOUNDRY_DRIVER=$TMP/libcuda.so.1

t "code in memory that is freed later" prints "0 bad" ./probe memory "$hook"
t "code from the linker" prints "0 bad" ./probe linker "$hook"
t "code from the linker with its options" prints "0 bad" ./probe options "$hook"
t "code in a library that is closed later" prints "0 bad" ./probe library "$hook" "$TMP/plugin.so"
t "code in a library loaded by a relative path" prints "0 bad" ./probe library "$hook" ./plugin.so
t "only code that is needed keeps a library loaded" prints "0 bad" ./probe untouched "$hook" \
	"$TMP/again.so"
t "code in files that are rewritten and removed later" prints "0 bad" ./probe files "$hook"
t_done
