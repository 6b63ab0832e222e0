#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Documentation names only files, pages and limits that exist.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t pages < <(tree_files 'Documentation/*.rst')
index=Documentation/index.rst

# unlisted: prints pages that the index does not list
unlisted() {
	local page name
	for page in "${pages[@]}"; do
		name=${page#Documentation/}
		[ "$page" = $index ] || grep -qx "   ${name%.rst}" $index || echo "$page"
	done
}

# listed_missing: prints pages that the index lists and that do not exist
listed_missing() {
	grep -oE '^   [a-z]+/[a-z0-9-]+$' $index | while read -r name; do
		[ -e "Documentation/$name.rst" ] || echo "$name"
	done
}

# dead_paths: prints files of the tree that pages name in full and that do not exist; a path with
# capitals stands for other paths
dead_paths() {
	local file path folders='include|lib|arch|mm|graph|store|hook|image|run|api'

	folders+='|tests|Documentation|[.]ci'
	{
		grep -HoE '``('"$folders"')/[A-Za-z0-9_./-]+``' README.md "${pages[@]}"
		grep -HoE '\]\([A-Za-z][A-Za-z0-9_./-]+\)' README.md SECURITY.md CHANGELOG.md
	} | while IFS=: read -r file path; do
		path=$(tr -d '`]()*' <<<"$path")
		[[ -e ${path%/} || $path =~ [A-Z]{3} ]] || echo "$file: $path"
	done
}

# limits_wrong: prints values in limits.rst that differ from those of the headers
limits_wrong() {
	{
		printf '#include "%s"\n' image/manifest_format.h \
			graph/{format,kernel,elf,fatbin,host}.h store/{store,pack}.h
		sed -nE \
		's/^``(FDRY_[A-Z_]+)`` +``([^`]+)`` .*/_Static_assert((\1) == (\2), "\1");/p' \
		Documentation/format/limits.rst
	} >"$TMP/limits.c"
	[ "$(grep -c _Static_assert "$TMP/limits.c")" -gt 20 ] || echo "no table of limits"
	"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -fsyntax-only -I. -Iinclude -isystem "$CUDA_INC" \
		"$TMP/limits.c" 2>&1
}

# dead_tests: prints tests that pages name by file and name and that the file does not have
dead_tests() {
	local test name

	grep -hoE '``tests/[A-Za-z0-9_./-]+`` ``[A-Za-z0-9_]+``' "${pages[@]}" | sort -u |
		tr -d '\`' | while read -r test name; do
		grep -qw -- "$name" "$test" || echo "$test: $name"
	done
}

# codes_wrong: prints the error codes that the page of errors does not have exactly once
codes_wrong() {
	diff <(sed -nE 's/^FDRY_ERRCODE\([0-9]+, ([A-Z0-9_]+),.*/FDRY_E_\1/p' \
		include/foundry/errcode.def | sort) \
		<(sed -n 's/^[.][.] errcode:: //p' Documentation/help/errors.rst | sort)
}

# headers_wrong: prints the public headers that the reference does not have exactly once
headers_wrong() {
	diff <(tree_files 'include/*.h' | sed 's|^include/||' | sort) \
		<(sed -n 's/^[.][.] header:: //p' Documentation/api/*.rst | sort)
}

# names_wrong: prints names of the Python package that its reference does not have exactly once
names_wrong() {
	diff <(FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2 PYTHONPATH=api/python python3 -c \
		'import foundry; print(*foundry.__all__, sep="\n")' | sort) \
		<(sed -nE 's/^[.][.] auto(function|class|exception|module|data):: foundry[.]//p' \
			Documentation/api/python.rst | sort)
}

# tables_wrapped: prints lines in which the rule of a table follows other text, as after a program
# has wrapped a table like a paragraph
tables_wrapped() { grep -nE '[^= ] ={20,}' "${pages[@]}" || true; }

t "tables are tables" prints "" tables_wrapped
t "the page of errors has every code" prints "" codes_wrong
t "the reference of C has every header" prints "" headers_wrong
t "the reference of Python has every name" prints "" names_wrong
t "tests that pages name exist" prints "" dead_tests
t "pages name tests" test \
	"$(grep -coE '``tests/[a-z_/]+[.]c`` ``' Documentation/process/faults.rst)" -gt 30
t "limits are those of the headers" prints "" limits_wrong
t "the index leads to every page" prints "" unlisted
t "the index names no missing page" prints "" listed_missing
t "files that pages name exist" prints "" dead_paths
t_done
