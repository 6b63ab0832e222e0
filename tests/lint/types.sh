#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mypy --strict finds nothing in the types of the Python package and in a program that uses all of
# it, and it finds wrong uses.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

export MYPYPATH=api/python
strict() { mypy --strict --no-error-summary --cache-dir "$TMP/mypy" "$@"; }
# wrong CODE: mypy finds an error in the code, which begins in line 3
wrong()
{
	printf 'import foundry\n\n%s\n' "$1" >"$TMP/wrong.py"
	! strict "$TMP/wrong.py" >"$TMP/found" && grep -q '^[^:]*:[3-9]: error: ' "$TMP/found"
}

t "the types of the package" strict api/python/foundry/__init__.pyi \
	api/python/foundry/telemetry.pyi
t "a program that uses them" strict tests/lint/uses.py
t "an option of a wrong type" wrong 'foundry.load("name", threads="two")'
t "an attribute that a tensor lacks" wrong 'foundry.load("name")["x"].nobody'
t "a key of a wrong type" wrong 'foundry.load("name").graphs["x"]'
t "a progress that is none" wrong 'foundry.verify(progress=1.5)'
right() { ! wrong "$1"; }
t "a right use" right 'foundry.load("name", threads=2)["x"].shape'
t_done
