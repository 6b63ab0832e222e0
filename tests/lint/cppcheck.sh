#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cppcheck finds no error, no leak and no questionable code. A line that it is wrong about says so in a comment.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

clean() {
	cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --language=c -j "$(nproc)" -D_GNU_SOURCE -DNDEBUG \
		--enable=warning,portability --suppress=missingIncludeSystem -I. -Iarch/include --max-configs=1 "$@"
}

for layer in arch mm graph store hook api; do
	mapfile -t files < <(tree_files "$layer/*.c")
	[ "${#files[@]}" = 0 ] || t "$layer" clean "${files[@]}"
done
t_done
