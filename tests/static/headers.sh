#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone, the public ones without CUDA; tests/lint/cxx.sh compiles them as C++.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"
CC=${CC:-cc}
strict=(-Wall -Wextra -Werror -fsyntax-only)

# compiles LANGUAGE HEADER FLAG...: compiles a file that includes the header alone
compiles() { echo "#include \"$2\"" | $CC -x "$1" "${strict[@]}" "${@:3}" -; }

while IFS= read -r header; do
	t "$header alone" compiles c "$header" -std=gnu11 -D_GNU_SOURCE -I. -Iinclude \
		"-I$BUILD/gen" -isystem "$CUDA_INC"
done < <(tree_files '*.h' | grep -v '^tests/')

# Users see only this folder, in the tree and installed.
public=(-Iinclude -Wpedantic)
for header in foundry.h foundry/run.h; do
	t "$header as installed, strict C11" compiles c "$header" -std=c11 "${public[@]}"
	printf "#include <%s>\\n" cuda.h "$header" >"$TMP/both.c"
	t "$header beside cuda.h" "$CC" "${strict[@]}" "${public[@]}" -isystem "$CUDA_INC" \
		"$TMP/both.c"
done
t_done
