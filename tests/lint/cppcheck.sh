#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cppcheck finds no error and no questionable code, by those of its checks that suit this code.
# Compilers and sanitizers find leaks and unset variables: cppcheck follows neither storage that a
# struct passes on nor functions that a table calls.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

clean() {
	cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --language=c \
		-j "$(nproc)" -D_GNU_SOURCE -DNDEBUG -D__x86_64__ \
		--enable=warning,portability \
		--suppress={missingIncludeSystem,memleak,uninitvar,uninitStructMember} \
		--suppress={legacyUninitvar,constStatement,returnDanglingLifetime} \
		--suppress=identicalConditionAfterEarlyExit \
		-I. -Iinclude --max-configs=1 "$@"
}

for layer in include lib arch mm graph store registry hook image run api; do
	mapfile -t files < <(tree_files "$layer/*.c")
	[ "${#files[@]}" = 0 ] || t "$layer" clean "${files[@]}"
done
t_done
