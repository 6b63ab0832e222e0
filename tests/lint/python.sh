#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pyflakes finds nothing in any Python file.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t files < <(tree_files '*.py')
t "Python files" pyflakes3 "${files[@]}"
t "there are some" test "${#files[@]}" -gt 5
t_done
