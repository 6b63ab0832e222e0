#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests with names and facts that hold escape sequences, newlines and characters that reverse a
# line's direction. Every command shows them as text, none becomes a line of another kind, and
# output that is read back is exact.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
printf 'abcd' >w
cat >g <<'END'
foundry-graph 1
node 0 memset dst 0x500000000100 pitch 0 value 0x0 element 4 width 10 height 1
node 1 kernel 0 grid 391 1 1 block 256 1 1 shared 0 args 0000500000000000
node 2 kernel 0 grid 391 1 1 block 256 1 1 shared 0 args 0000500000000008
edge 0 1
edge 1 2
END
sed 's/0000500000000008/0000500000000010/; s/391 1 1/392 1 1/' g >g2
# hostile NAME COLOUR GRAPH: seals an image in which every name is hostile
hostile() {
	printf '%s\n' "fact fdry.gpu.arch sm%1b[${2}m" \
		"fact zz %1b]0;pwned%07%0afact_forged%20=%20yes%c2%9b31m%e2%80%aegr%c3%bc%c3%9f$2" \
		'content w' "tensor t%1b[2J%0atensor_forged$2 0 1" \
		"kernel k%1b]0;t%07%0aedge%200%202%0anode%22$2 CODE 8" \
		"graph 1 na%1b[31m%0ame%22];evil[label=%22$2 $3" |
		"$BUILD/tests/cli/store_seal" "$FOUNDRY_STORE" "$1" >"$1.id"
}
hostile a 31 g
hostile b 32 g2
hidden=$(printf '[\001-\010\013-\037\177]|\302[\200-\237]|\342\200[\250-\256]')
# clean COMMAND...: the command exits by itself, and its output is plain text alone
clean() {
	local rc=0
	"$@" >"$TMP/clean" 2>&1 || rc=$?
	cat -v "$TMP/clean"
	[ $rc -lt 126 ] || { echo "status $rc"; return 1; }
	! LC_ALL=C grep -Eaq -- "$hidden" "$TMP/clean"
}
# unforged REGEX COMMAND...: no line of its output matches
unforged() {
	local regex=$1
	shift
	"$@" >"$TMP/unforged" || [ $? = 1 ]
	! grep -Ean -- "$regex" "$TMP/unforged"
}
foundry-store graph a 1 >text
foundry-store graph a 1 -f dot >a.dot

for c in 'show a' 'show a --html' 'report a' 'show a --json' 'graph a 1' 'graph a 1 --json' \
	'graph a 1 -f dot' 'diff a b' \
	'diff a b --long' 'diff a b --json' ls \
	'ls --json' 'ls -l' du verify stat 'dump a' 'show nobody' "graph a 2"; do
	# shellcheck disable=SC2086 # words
	t "$c shows nothing but text" clean foundry-store $c
done
t "a hostile operand is shown as text" clean foundry-store show $'no\e[31mbody'
t "a store's hostile path is shown as text" clean foundry-store -s $'no\e[31mthing' ls
t "a hostile command is shown as text" clean foundry-store $'no\e[31mthing'
t "the text of a graph has the edges of the graph" prints "$(grep ^edge g)" grep ^edge text
t "the text of a graph has the nodes of the graph" prints 3 grep -c ^node text
t "show forges no fact" unforged '^fact_forged|^tensor_forged' foundry-store show a
t "diff forges no line" unforged '^(edge|node|fact_forged|tensor_forged)' foundry-store diff a b \
	--long
t "a picture has no more nodes and edges than the graph" prints "3 2" awk \
	'/^\t[0-9]+ \[/ { n++ } /->/ { e++ } END { print n, e }' a.dot
t "no name in a picture ends its quotes" unforged 'evil\[' sed -E 's/"([^"\\]|\\.)*"//g' a.dot
t "show prints printable letters unchanged" grep -q 'grüß31' <(foundry-store show a)
t "JSON has names exactly" json \
	'j["image"]["facts"]["zz"] == "\x1b]0;pwned\x07\nfact_forged = yes\x9b31m\u202egrüß31"' \
	foundry-store show a --json
t "the text of a graph gives the graph again" prints "$(foundry-store show a --json | python3 -c '
import json, sys; print(json.load(sys.stdin)["image"]["graphs"][0]["id"])')" bash -c \
	'{ echo "foundry-dump 1"; echo "object - graph"; echo text; cat text; echo end; } |
	foundry-store -s again undump --json |
	python3 -c "import json, sys; print(json.load(sys.stdin)[\"changed\"][0])"'
foundry-store dump >dumped
foundry-store -s other init >init
foundry-store -s other undump dumped >undumped
t "a dump that was read gives the same dump" cmp dumped <(foundry-store -s other dump)
t_done
