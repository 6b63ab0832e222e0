#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rules for the symbols that built objects define, export and call.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

exported() {
	nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}
defined() {
	nm -g --defined-only "$BUILD/libfoundry.a" 2>/dev/null | awk 'NF == 3 { print $3 }' |
		sort -u
}
mapped() {
	sed -n '/^global:/,/^local:/s/^[[:space:]]*\([a-z0-9_]*\);.*/\1/p' api/libfoundry.map |
		sort -u
}
# Prints names that a parenthesis follows, without those in comments and macros.
declared() {
	printf '#include <%s>\n' foundry.h foundry/run.h | "${CC:-cc}" -E -P -Iinclude -x c - |
		grep -oE '\bfdry_[a-z0-9_]+[[:space:]]*\(' | tr -d ' (' | sort -u
}
# without REGEX FILE: prints the lines that do not match
without() { grep -vE "$1" "$2" || true; }

# Functions that libraries may not call: they print, end the process, overrun or guess.
banned='strcpy|strcat|strncpy|strncat|stpcpy|sprintf|vsprintf|gets|scanf|sscanf|fscanf'
banned+='|printf|vprintf|puts|putchar|perror|err|errx|warn|warnx|abort|exit|_exit|_Exit|quick_exit'
banned+='|system|popen|atoi|atol|atoll|atof|strtok|rand|srand|tmpnam|mktemp|alloca|signal|setenv'
banned+='|putenv'

# calls REGEX: prints "object: symbol" for undefined symbols of the layers' objects that match
calls() {
	local src objects=()
	while IFS= read -r src; do
		objects+=("$BUILD/obj/${src%.c}.o")
	done < <(tree_files '*.c' |
		grep -E '^(lib|arch|mm|graph|store|hook|registry|image|run|api)/' |
		grep -vE '^api/(cmd|examples)/')
	nm -A -u "${objects[@]}" | sed -nE \
		"s|^$BUILD/obj/||; s/__(.*)_chk\$/\1/; s/^([^:]*):.* ($1)\$/\1: \2/p"
}

mapped >"$TMP/mapped"
declared >"$TMP/declared"
defined >"$TMP/defined"
exported "$BUILD/libfoundry.so" >"$TMP/exported"

t "every global name of the library begins with fdry_" prints "" without \
	'^(fdry_|__asan_|__odr_asan)' "$TMP/defined"
t "the map has the functions that the public headers declare, and no others" diff "$TMP/declared" \
	"$TMP/mapped"
t "the headers declare something" test -s "$TMP/declared"
t "the shared library exports only the map" prints "" comm -23 "$TMP/exported" "$TMP/mapped"
if grep -qx fdry_image_load "$TMP/defined"; then
	t "the shared library exports the whole map" prints "" comm -13 "$TMP/exported" \
		"$TMP/mapped"
fi
for so in hook sim; do
	[ -e "$BUILD/foundry/$so/libcuda.so.1" ] || continue
	exported "$BUILD/foundry/$so/libcuda.so.1" >"$TMP/$so"
	t "the $so libcuda exports the driver's names" prints "" without '^(cu|fdry_(hook|sim)_)' \
		"$TMP/$so"
	t "the $so libcuda exports over 100 names" test "$(wc -l <"$TMP/$so")" -gt 100
done
# Child processes do the work that damaged pages may crash, and they end by _exit(). The driver
# reads the place of its cache of compiled code from the environment alone.
t "the layers call no banned function" prints "run/jit.o: setenv
store/verify.o: _exit" calls "$banned"
t "nothing serves tests alone, and what no other file needs is static" \
	python3 tests/static/unused.py "$BUILD/obj" api/libfoundry.map
t "a function that is not needed would be found" fails "image/context.c: fdry_image_refresh" \
	python3 tests/static/unused.py "$BUILD/obj" /dev/null
t "only the log uses standard output and error" prints "lib/log.o: stderr" calls 'stdout|stderr'
t_done
