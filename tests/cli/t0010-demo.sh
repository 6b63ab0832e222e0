#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the demo (`make demo`): one process captures, another loads, and the loader compares the
# numbers.
. "$(dirname "$0")/../lib.sh"

vecadd=$BUILD/examples/vecadd
cubin=$BUILD/sim/kernels.cubin

image_of() { sed -n 's/^image \([0-9a-f]\{64\}\).*/\1/p' "$1"; }

t "capture and seal" sh -c "'$vecadd' capture -s one -m '$cubin' >one.out"
t "the capture prints the image's id" test -n "$(image_of one.out)"
t "load in another process" sh -c "'$vecadd' load -s one >load.out"
t "the load names the same image" prints "$(image_of one.out)" image_of load.out
t "the loaded graph's numbers are right" grep -q 'every number is right$' load.out
t "a second load from the same store works" "$vecadd" load -s one
t "another process seals the same image" sh -c "'$vecadd' capture -s two -m '$cubin' >two.out"
t "the second store's image has the same id" prints "$(image_of one.out)" image_of two.out
t "the image is sealed again" sh -c "'$vecadd' capture -s one -m '$cubin' >again.out"
t "sealing it again adds nothing to the store" grep -q ', 0 at rest$' again.out
t "no store: an error" fails 'FDRY_E_NOSTORE' "$vecadd" load -s none
mkdir empty
t "an empty folder: an error" fails 'FDRY_E_NOSTORE' "$vecadd" load -s empty
t "no driver: an error that says what to do" fails 'FOUNDRY_DRIVER' env \
	FOUNDRY_DRIVER="$TMP/nothing" "$vecadd" load -s one
t "the whole demo" bash "$ROOT/api/examples/demo.sh"
t_done
