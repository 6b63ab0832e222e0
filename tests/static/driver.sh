#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The lists of driver functions agree with CUDA's headers. Each name has a version of the listed
# number, for which cudaTypedefs.h has a type, and the listed symbol is that version's symbol.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

# matches LIST: compiles a C file that compares each entry of the list with its type
matches() {
	cat >"$TMP/list.c" <<-EOF
		#include <cuda.h>
		#include <cudaTypedefs.h>
		#define FDRY_DRIVER_FN(symbol, name, since) \
			_Static_assert(__builtin_types_compatible_p(PFN_##name##_v##since, \
				__typeof__(&symbol)), #symbol);
		#include "$1"
	EOF
	"${CC:-cc}" -fsyntax-only -Wall -Werror -I. -isystem "$CUDA_INC" "$TMP/list.c"
}

# entries LIST: prints the list's entries, each on one line
entries() { sed -z 's/,\n\t/, /g' "$1"; }

# hooks_match: the same for the interposer's list, whose entries have parameters and stream
# variants. It has versions so old that the headers declare them only for the driver's own use.
hooks_match() {
	cat >"$TMP/hooks.c" <<-EOF
		#define __CUDA_API_VERSION_INTERNAL
		#include <cuda.h>
		#include <cudaTypedefs.h>
		#define HOOK(symbol, name, since, stream, params) \\
			stream(#symbol, PFN_##name##_v##since, params)
		#define ANY(text, type, params) \\
			_Static_assert(__builtin_types_compatible_p(type, CUresult (*)params), \\
				text);
		#define LEGACY(text, type, params) ANY(text, type, params)
		#define PER_THREAD(text, type, params) ANY(text, type##_ptsz, params)
		#include "hook/hooks.def"
	EOF
	"${CC:-cc}" -fsyntax-only -Wall -Werror -I. -isystem "$CUDA_INC" "$TMP/hooks.c"
}

# unhooked: prints versions and variants of hooked names that the headers have and the list lacks
unhooked() {
	sed -nE \
		's/^HOOK\(\w+, ([A-Za-z0-9]+), ([0-9]+), (ANY|LEGACY|PER_THREAD),.*/\1_v\2 \3/p' \
		hook/hooks.def | sed 's/ PER_THREAD$/_ptsz/; s/ .*//' | sort -u >"$TMP/hooked"
	sed 's/_v[0-9].*//' "$TMP/hooked" | sort -u | while IFS= read -r name; do
		grep -oE "\\*PFN_${name}_v[0-9]+(_pts[zd])?\)" "$CUDA_INC/cudaTypedefs.h" |
			tr -d '*)' | sed 's/^PFN_//'
	done | sort -u | comm -23 - "$TMP/hooked"
}

# exports_match: the same for the software driver's exports; it declares functions that the headers
# have dropped
exports_match() {
	cat >"$TMP/exports.c" <<-EOF
		#include "arch/sim/sim.h"
		#include <cudaTypedefs.h>
		#define SIM_FN(symbol, name, since, kind) \\
			_Static_assert(__builtin_types_compatible_p(PFN_##name##_v##since, \\
				__typeof__(&symbol)), #symbol);
		#include "arch/sim/entry.def"
	EOF
	"${CC:-cc}" -fsyntax-only -std=gnu11 -D_GNU_SOURCE -Wall -Werror -I. -isystem "$CUDA_INC" \
		"$TMP/exports.c"
}

# variants: prints "name suffix" for each stream variant that the software driver exports.
# variants_known prints those of the headers.
variants() {
	entries arch/sim/entry.def | sed -nE \
		's/^SIM_FN\([A-Za-z0-9_]+, ([A-Za-z0-9]+), [0-9]+, (PTSZ|PTDS)\)/\1 \2/p' | sort -u
}
variants_known() {
	entries arch/sim/entry.def | sed -nE 's/^SIM_FN\([A-Za-z0-9_]+, ([A-Za-z0-9]+), .*/\1/p' |
		sort -u >"$TMP/names"
	grep -oE '\*PFN_[A-Za-z0-9]+_v[0-9]+_pt[sd][sz]' "$CUDA_INC/cudaTypedefs.h" |
		sed -E 's/^\*PFN_([A-Za-z0-9]+)_v[0-9]+_(.*)/\1 \U\2/' | sort -u |
		join - "$TMP/names"
}

grep -oE '^FDRY_DRIVER_FN\([A-Za-z0-9_]+' arch/driver.def | cut -d'(' -f2 >"$TMP/symbols"
t "arch/driver.def: versions and symbols" matches arch/driver.def
t "arch/driver.def: no function twice" prints "" sh -c "sort '$TMP/symbols' | uniq -d"
t "arch/driver.def has over 50 functions" test "$(wc -l <"$TMP/symbols")" -gt 50
t "the least driver has all these functions, and an older one lacks some" prints \
	"$(entries arch/driver.def | grep -oE '^FDRY_DRIVER_FN\(.*\)' | grep -oE '[0-9]+\)$' |
	tr -d ')' | sort -n | tail -n 1)" \
	sed -nE 's/^#define FDRY_DRIVER_LEAST ([0-9]+)$/\1/p' arch/driver.h
t "hook/hooks.def: versions and parameters" hooks_match
t "hook/hooks.def: every version and variant" prints "" unhooked
t "arch/sim/entry.def: versions and symbols" exports_match
variants_known >"$TMP/known"
t "arch/sim/entry.def: every stream variant" prints "$(cat "$TMP/known")" variants
t "arch/sim/entry.def: some variants" test "$(wc -l <"$TMP/known")" -gt 20
t_done
