#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pyflakes finds nothing in any Python file; the stubs of the package leave nothing out.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t files < <(tree_files '*.py')
t "Python files" pyflakes3 "${files[@]}"
t "the package's types are complete" python3 tests/python/test_stubs.py complete
t "there are some" test "${#files[@]}" -gt 5
t_done
