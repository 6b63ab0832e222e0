#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foundry-store, and a program that loads an image, with standard input, output or error closed:
# nothing that they say ends up in the store.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

head -c 100000 /dev/urandom >a
"$store_image" "$FOUNDRY_STORE" one a >/dev/null
"$store_image" "$FOUNDRY_STORE" two a >/dev/null
foundry-store export -q -o one.pack one

# without WHICH COMMAND...: these of 0, 1 and 2 are closed; its status counts for nothing but a
# signal
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

# Errors are said; what is said must not go to where LMDB keeps its pages.
for which in 0 1 2 012; do
	before=$(begin)
	for cmd in "rm nothing" "ls" "show one" "show nothing" "tag nothing x" "import nothing" "graph one 1" "diff one two" "nosuch" \
		"evict" "du" "stat" "complete"; do
		# shellcheck disable=SC2086
		t "$cmd without $which" without $which foundry-store $cmd
	done
	t "data.mdb begins as before, without $which" test "$(begin)" = "$before"
	for cmd in "tag one three" "rm three" "gc" "verify" "import one.pack" "export -o x.pack one" "dump -o x.dump"; do
		# shellcheck disable=SC2086
		t "$cmd without $which" without $which foundry-store $cmd
		t "and the store is sound" foundry-store verify -q
	done
	t "the pack is whole" cmp one.pack x.pack
	t "and the dump" bash -c "foundry-store dump | cmp - x.dump"
	rm -f x.pack x.dump
done
t "a list that nobody can read is an error" bash -c "! foundry-store ls >&-"
t "nothing goes into a pack but the pack" bash -c "foundry-store export one 2>&- | cmp - one.pack"

# The library, in a program of its own: a capture, and a load that checks every number.
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
vecadd() { "$BUILD/examples/vecadd" -s "$TMP/v" -m "$BUILD/sim/kernels.cubin" "$1" <&- >&- 2>&-; }
t "a capture with all of them closed" vecadd capture
t "its store is sound" foundry-store -s "$TMP/v" verify -q
t "a load gives the right numbers" vecadd load
t "and leaves it sound" foundry-store -s "$TMP/v" verify -q
t_done
