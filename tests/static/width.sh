#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# No line is wider than 100 columns; a tab fills up to the next multiple of 8.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

patterns=('*.c' '*.h' '*.def' '*.S' '*.awk' '*.map' '*.py' '*.pyi' '*.sh' '*.rst' '*.md'
	'GNUmakefile' '.ci/run' '.ci/setup' 'tests/run' 'tests/metrics' 'tests/frames'
	'tests/chroot/run' 'tests/chroot/wheel' 'tests/chroot/containers')

# wide FILE...: prints "file:line: text" for each wide line. Lines with a web address may be wide,
# and so may the first line of a HOOK, which scripts read. In rst files, rows of tables, which have
# two blanks between columns, and indented blocks, which show programs' output, may be wide.
wide() {
	python3 -c '
import re, sys
may = re.compile("HOOK\\(|.*https?://")
may_in_rst = re.compile("   |.*[^ ]  +[^ ]|=+( =+)+$")
for path in sys.argv[1:]:
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        for number, line in enumerate(f.read().split("\n"), 1):
            shown = line.expandtabs(8)
            if len(shown) > 100 and not may.match(shown) and not (
                    path.endswith(".rst") and may_in_rst.match(shown)):
                print(f"{path}:{number}: {ascii(shown)}")
' "$@"
}

all_wide() {
	local files
	mapfile -t files < <(tree_files "${patterns[@]}" | grep -v '^tests/golden/')
	wide "${files[@]}"
}

t "no line is wider than 100 columns" prints "" all_wide
printf '%100s\n\t%92s\n' x x >"$TMP/fits.c"
printf '%101s\n\t%93s\n' x x >"$TMP/wide.c"
t "lines of 100 columns are fine" prints "" wide "$TMP/fits.c"
t "this check finds wide lines" test "$(wide "$TMP/wide.c" | wc -l)" = 2
t_done
