#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The benchmark of content and its checks runs on the software driver, and prints each of its rows.
. "$(dirname "$0")/../lib.sh"

export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
t "the table" bash -c 'python3 "$ROOT/tests/bench/gpu/contents.py" --small --rounds 1 --dir . >out'
# has ROW: the table has the row, with a number that is not zero
has() { grep -q "^$1.* [0-9.]*[1-9][0-9.]* (" out; }
for row in "check, ms a GB" "load with the check / without" "seal, 1 % changed / all new" \
	"8 saves in turn / one" "content, warm / pinned" "content, warm and checked / pinned" \
	"content, cold / cat_cold" "restore / pinned"; do
	t "$row" has "$row"
done
t "a seal by another capture" grep -q "^seal by another capture / all new  *[0-9.]*\$" out
t_done
