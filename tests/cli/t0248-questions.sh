#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store on a terminal: a question names what would be removed and its size, and
# text is printed without a progress line.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
seq 1 3000 >f1
seq 2 30000 >f2
a=$("$store_image" s m/a f1)
b=$("$store_image" s m/b f2)
on_terminal="python3 $ROOT/tests/cli/on_terminal.py" # for other shells
for i in $(seq 12); do
	foundry-store tag m/b "many/$i" >/dev/null
done

# asked TEXT COMMAND...: the command asks this, and does nothing if the answer is no
asked() {
	local want=$1 before out
	shift
	before=$(foundry-store ls -q; foundry-store ls -O)
	out=$(on_terminal n "$@") && { echo "it was done: $out"; return 1; }
	printf '%s\n' "$out"
	grep -qF -- "$want" <<<"$out" && [ "$before" = \
		"$(foundry-store ls -q; foundry-store ls -O)" ]
}

t "rm's question names the ref and its image" asked \
	"Remove m/a (${a:0:12})? The next gc removes objects that no other ref reaches. [y/N] " \
	foundry-store rm m/a
t "rm's question names several refs" asked "Remove m/a (${a:0:12}), m/b (${b:0:12})? The" \
	foundry-store rm m/a m/b
t "rm's question names at most ten refs" bash -c "$on_terminal n foundry-store rm many/{1..12} |
	grep -q 'Remove many/1 (${b:0:12}), .*many/10 (${b:0:12}) and 2 more?'"
t "rm of an unknown ref does not ask" bash -c \
	"$on_terminal '' foundry-store rm nobody | grep -q \"no ref 'nobody'\""
t "a declined question has a JSON document" bash -c \
	"$on_terminal n foundry-store rm --json m/a | grep -q '\"status\": 8'"

t "gc with nothing to remove does not ask" bash -c \
	"$on_terminal '' foundry-store gc | grep -q 'removed 0 objects'"
foundry-store rm m/a >/dev/null
size=$(foundry-store gc -n | sed -nE 's/^would remove 2 objects, (.*) at rest;.*/\1/p')
t "gc's question names the number and size of objects" asked \
	"Remove 2 objects that no ref reaches, $size at rest? [y/N] " foundry-store gc
t "gc removes them if the answer is yes" bash -c \
	"$on_terminal y foundry-store gc | grep -q 'removed 2 objects'"

t "evict's question names the images and their size" bash -c "
	$on_terminal n foundry-store evict 50K |
		grep -qE 'Evict .*m/b \(${b:0:12}\).* and
		3 more, which makes about 1[0-9]{2}[.][0-9] KiB free\? \[y/N\]'"
t "evict to a limit that holds does not ask" bash -c \
	"$on_terminal '' foundry-store evict 1G | grep -q '^evicted 0 images'"
t "evict without a limit does not ask" bash -c \
	"$on_terminal '' foundry-store evict | grep -q 'has no limit'"

t "dump to a terminal prints no progress" bash -c \
	"diff <(foundry-store dump) <($on_terminal '' foundry-store dump | tr -d '\r')"
t "dump into a file shows its progress" bash -c \
	"$on_terminal '' foundry-store dump -o out | grep -q 'objects \['"
t_done
