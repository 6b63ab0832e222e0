#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store, and of a program that loads an image, with standard input, output or error
# closed: nothing that they print is written into the store.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

head -c 100000 /dev/urandom >a
"$store_image" "$FOUNDRY_STORE" one a >/dev/null
"$store_image" "$FOUNDRY_STORE" two a >/dev/null
foundry-store export -q -o one.pack one

# without WHICH COMMAND...: runs the command with these of 0, 1 and 2 closed; it fails only if a
# signal ends the command
without() {
	local which=$1 rc=0
	shift
	case $which in
	0) "$@" <&- || rc=$? ;;
	1) "$@" >&- || rc=$? ;;
	2) "$@" 2>&- || rc=$? ;;
	012) "$@" <&- >&- 2>&- || rc=$? ;;
	esac
	[ $rc -lt 126 ] || { echo "status $rc"; return 1; }
}
begin() { head -c 4096 "$FOUNDRY_STORE/data.mdb" | sha256sum; }

# The commands print errors, and LMDB's file must not receive that output.
for which in 0 1 2 012; do
	before=$(begin)
	for cmd in "rm nothing" "ls" "show one" "show nothing" "tag nothing x" "import nothing" \
		"graph one 1" "diff one two" "nosuch" \
		"evict" "du" "stat" "complete"; do
		# shellcheck disable=SC2086
		t "$cmd without $which" without $which foundry-store $cmd
	done
	t "data.mdb begins as before, without $which" test "$(begin)" = "$before"
	for cmd in "tag one three" "rm three" "gc" "verify" "import one.pack" \
		"export -o x.pack one" "dump -o x.dump"; do
		# shellcheck disable=SC2086
		t "$cmd without $which" without $which foundry-store $cmd
		t "the store is sound after $cmd without $which" foundry-store verify -q
	done
	t "the pack written without $which is whole" cmp one.pack x.pack
	t "the dump written without $which is whole" bash -c "foundry-store dump | cmp - x.dump"
	rm -f x.pack x.dump
done
t "a list without an output is an error" bash -c "! foundry-store ls >&-"
t "a pack without standard error holds the pack alone" bash -c \
	"foundry-store export one 2>&- | cmp - one.pack"

# A program that uses the library: a capture, and a load that checks every number.
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
vecadd() { "$BUILD/examples/vecadd" -s "$TMP/v" -m "$BUILD/sim/kernels.cubin" "$1" <&- >&- 2>&-; }
t "a capture with all three closed" vecadd capture
t "the capture's store is sound" foundry-store -s "$TMP/v" verify -q
t "a load with all three closed gives the right numbers" vecadd load
t "the load leaves the store sound" foundry-store -s "$TMP/v" verify -q
t_done
