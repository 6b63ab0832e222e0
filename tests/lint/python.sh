#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pyflakes reports nothing for any Python file, and the package's stubs have every name.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t files < <(tree_files '*.py')
t "Python files" pyflakes3 "${files[@]}"
t "the package's types are complete" python3 tests/python/test_stubs.py complete
t "there are over five Python files" test "${#files[@]}" -gt 5
t_done
