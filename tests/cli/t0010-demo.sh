#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` runs: capture in one process, load in another, numbers compared by the loader.
. "$(dirname "$0")/../lib.sh"

vecadd=$BUILD/examples/vecadd
cubin=$BUILD/sim/kernels.cubin

image_of() { sed -n 's/^image \([0-9a-f]\{64\}\).*/\1/p' "$1"; }

t "capture and seal" sh -c "'$vecadd' capture -s one -m '$cubin' >one.out"
t "an image has an id" test -n "$(image_of one.out)"
t "load in another process" sh -c "'$vecadd' load -s one >load.out"
t "the same image" prints "$(image_of one.out)" image_of load.out
t "its numbers are right" grep -q 'every number is right$' load.out
t "and again, from the same store" "$vecadd" load -s one
t "another process seals the same image" sh -c "'$vecadd' capture -s two -m '$cubin' >two.out"
t "with the same id" prints "$(image_of one.out)" image_of two.out
t "sealing it again" sh -c "'$vecadd' capture -s one -m '$cubin' >again.out"
t "adds nothing to the store" grep -q ', 0 at rest$' again.out
t "no store: an error" fails 'FDRY_E_NOSTORE' "$vecadd" load -s none
mkdir empty
t "an empty folder: an error" fails 'FDRY_E_NOSTORE' "$vecadd" load -s empty
t "no driver: an error that says what to do" fails 'FOUNDRY_DRIVER' env FOUNDRY_DRIVER="$TMP/nothing" "$vecadd" load -s one
t "the whole demo" bash "$ROOT/api/examples/demo.sh"
t_done
