#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# No line is wider than 100 columns; a tab fills up to the next multiple of 8.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

files=('*.c' '*.h' '*.def' '*.S' '*.awk' '*.map' '*.py' '*.pyi' '*.sh' '*.rst' '*.md'
	'GNUmakefile' '.ci/run' '.ci/setup' 'tests/run' 'tests/metrics' 'tests/frames'
	'tests/chroot/run')

# wide FILE: prints "file:line: text" for each wide line. Lines with a web address may be wide, and
# so may the first line of a HOOK, which scripts read. In rst files, rows of tables, which have two
# blanks between columns, and indented blocks, which show programs' output, may be wide.
wide() {
	local whole='https?://|^[0-9]+:HOOK\('
	[[ $1 != *.rst ]] || whole+='|^[0-9]+:(   |.*[^ ]  +[^ ]|=+( =+)+$)'
	expand -t 8 "$1" | LC_ALL=C.UTF-8 grep -nE '.{101}' | grep -vE "$whole" |
		sed "s|^|$1:|" || true
}

all_wide() {
	local file
	while IFS= read -r file; do
		wide "$file"
	done < <(tree_files "${files[@]}" | grep -v '^tests/golden/')
}

t "no line is wider than 100 columns" prints "" all_wide
printf '%100s\n\t%92s\n' x x >"$TMP/fits.c"
printf '%101s\n\t%93s\n' x x >"$TMP/wide.c"
t "lines of 100 columns are fine" prints "" wide "$TMP/fits.c"
t "this check finds wide lines" test "$(wide "$TMP/wide.c" | wc -l)" = 2
t_done
