#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store diff, each with one of the differences that two images can have.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
head -c 9000 /dev/zero | tr '\0' a >w
head -c 500 /dev/zero | tr '\0' q >q
cat >g <<'END'
foundry-graph 1
node 0 memset dst 0x500000000100 pitch 0 value 0x0 element 4 width 10 height 1
node 1 kernel 0 grid 391 1 1 block 256 1 1 shared 0 args 0000500000000000
node 2 kernel 1 grid 1 1 1 block 32 1 1 shared 0 args 0000500000000008
edge 0 1
edge 1 2
END
cat >image <<'END'
fact model 7
fact rank 0
content w
tensor w 0 2250
kernel add CODE1 8
kernel mul CODE2 8
graph 1 one g
graph 3 three g
END
# seal NAME [SED]: seals the base image, changed by the sed script
seal() { sed "${2:-}" image | "$BUILD/tests/cli/store_seal" "$FOUNDRY_STORE" "$1"; }
# graph NAME SED: seals the base image with graph 3 changed by the sed script
graph() {
	sed "$2" g >"g-$1"
	seal "$1" "s/^graph 3 three g/graph 3 three g-$1/"
}
# compared NAME EXPRESSION: the image differs from the base, and the expression over the document j
# is true
compared() {
	local rc=0
	foundry-store diff --json base "$1" >"$1.json" || rc=$?
	[ $rc = 1 ] || { echo "status $rc"; return 1; }
	python3 "$ROOT/tests/cli/json_documented.py" "$ROOT/Documentation/api/store-json.rst" diff \
		"not j['same'] and ($2)" <"$1.json"
}
# differs NAME EXPRESSION: there is one difference d, and the expression over it is true
differs() {
	compared "$1" "len(j['differences']) == 1 and (lambda d: $2)(j['differences'][0])"
}

base=$(seal base)
t "an image compared with itself is equal" exits 0 foundry-store diff base "$base"
t "an equal image's diff prints only that" prints "--- $base base
+++ $base base
0 differences" foundry-store diff base base
t "an equal image's diff as JSON" json \
	"j['same'] and j['differences'] == [] and j['a'] == j['b'] == '$base'" foundry-store diff \
	--json base base

seal fact 's/rank 0/rank 1/' >/dev/null
t "a changed fact" differs fact \
	"(d['part'], d['what'], d['name'], d['a'], d['b']) ==
		('identity', 'changed', 'rank', '= 0', '= 1')"
seal nofact '/rank/d' >/dev/null
t "a removed fact" differs nofact \
	"(d['part'], d['what'], d['name'], d['a']) == ('identity', 'removed', 'rank', '= 0') and
		'b' not in d"
seal morefact 's/^fact rank 0/&\nfact zone x/' >/dev/null
t "an added fact" differs morefact "(d['what'], d['name'], d['b']) == ('added', 'zone', '= x')"
seal tensor 's/2250/2249/' >/dev/null
t "a changed shape of a tensor" differs tensor \
	"d['part'] == 'tensors' and d['what'] == 'changed' and '2250:1' in d['a'] and
		'2249:1' in d['b']"
seal notensor '/^tensor/d' >/dev/null
t "a removed tensor" differs notensor \
	"(d['part'], d['what'], d['name']) == ('tensors', 'removed', 'w')"

cp w w2
printf XYZ | dd of=w2 bs=1 seek=5000 conv=notrunc status=none
seal content 's/content w/content w2/' >/dev/null
t "changed bytes of content" differs content \
	"(d['part'], d['name'], d['bytes'], d['b']) ==
		('content', '0x500000001388', 3, '3 of 3 bytes differ')"
t "changed bytes of content name their tensor" bash -c \
	"foundry-store diff base content | grep -qx '    in tensor w'"
head -c 8000 w >w3
seal shorter 's/content w/content w3/' >/dev/null
t "a shorter chunk: its missing bytes count as zeros" differs shorter \
	"(d['part'], d['name'], d['bytes']) == ('content', '0x500000001f40', 1000)"
{ cat w; head -c 1000 /dev/zero; } >w4
seal longer 's/content w/content w4/' >/dev/null
t "zeros at the end are no difference" prints \
	"0 differences, except the order of kernels, chunk borders or names" \
	bash -c "foundry-store diff base longer | tail -n 1"
t "images that differ in zeros at the end are not the same" exits 1 foundry-store diff -q base \
	longer
seal more 's/^content w/&\ncontent q/' >/dev/null
t "an added segment with content" compared more \
	"[(d['part'], d.get('bytes')) for d in j['differences']] ==
		[('segments', None), ('content', 500)]"

seal code 's/CODE2/CODE3/' >/dev/null
t "a kernel's changed code" bash -c \
	"foundry-store diff base code >code.txt; test \$? = 1 && grep -A2 -x kernels code.txt |
		grep -c '^[-+] mul ' | grep -qx 2"
t "changed code is reported at the nodes that call it" bash -c \
	"grep -c '    node 2 mul: the kernel, mul' code.txt | grep -qx 2"
sed 's/kernel 0/kernel X/; s/kernel 1/kernel 0/; s/kernel X/kernel 1/' g >g-order
seal order '/^kernel add/d; s/^kernel mul.*/&\nkernel add CODE1 8/; s/ g$/ g-order/' >/dev/null
t "another order of kernels is no difference" compared order "j['differences'] == []"

graph arguments s/0000500000000008/0000500000000010/ >/dev/null
t "a changed argument" differs arguments \
	"(d['part'], d['name'], d['arguments'], d['launches'], d['edges_added']) ==
		('graphs', 'graph 3', 1, 0, 0)"
t "a changed argument names its bytes" bash -c \
	"foundry-store diff base arguments |
		grep -qx '    node 2 mul: arguments, bytes 0 to 0: 08, 10'"
graph launch 's/grid 391/grid 392/' >/dev/null
t "a changed launch configuration" differs launch "d['launches'] == 1 and d['arguments'] == 0"
graph kernel 's/^node 1 kernel 0/node 1 kernel 1/' >/dev/null
t "a node's changed kernel" differs kernel "d['kernels'] == 1"
graph attribute 's/ args 0000500000000008/ attr priority 1&/' >/dev/null
t "a changed attribute" differs attribute "d['attributes'] == 1"
graph operation 's/width 10/width 11/' >/dev/null
t "a changed memset" differs operation "d['operations'] == 1"
graph kind 's/^node 0 .*/node 0 empty/' >/dev/null
t "a node's changed kind" differs kind "d['kinds'] == 1"
graph edges 's/^edge 1 2/edge 0 2/' >/dev/null
t "changed edges" differs edges "(d['edges_removed'], d['edges_added'], d['kinds']) == (1, 1, 0)"
graph nodes '/^node 2/d; /^edge 1 2/d' >/dev/null
t "a removed node" differs nodes \
	"d['a'] == \"'three' 3 nodes\" and d['b'] == \"'three' 2 nodes\" and
		d['edges_removed'] == 1"
seal name 's/three/drei/' >/dev/null
t "a changed name of a graph" differs name \
	"d['a'].startswith(\"'three'\") and d['b'].startswith(\"'drei'\")"
seal nograph '/^graph 3/d' >/dev/null
t "a removed graph" differs nograph \
	"(d['part'], d['what'], d['name']) == ('graphs', 'removed', 'graph 3')"
{
	echo 'foundry-graph 1'
	for i in $(seq 0 19); do
		printf 'node %d kernel 0 grid 1 1 1 block 32 1 1 shared 0 ' "$i"
		printf 'args 00005000000000%02x\n' "$i"
	done
} >many
seal many 's/three g/three many/' >/dev/null
sed 's/grid 1/grid 2/' many >many2
seal many2 's/three g/three many2/' >/dev/null
t "diff prints eight changed nodes" bash -c \
	"foundry-store diff many many2 | grep -c '^    node ' | grep -qx 8"
t "diff --long prints every changed node" bash -c \
	"foundry-store diff -l many many2 | grep -c '^    node ' | grep -qx 20"

python3 -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<4Q", 0x500000000010, 0x50000000ffff, 7, 0x500000700000))' >p
seal pointers 's/^content w/content w\ncontent p/' >/dev/null
foundry-store show --audit pointers >audit
t "the audit counts words of arguments" grep -qx \
	'audit of the arguments of graph 1: 2 inside the image' audit
t "the audit counts words of content" grep -qxE \
	'audit of content: 2 inside.*, 1 to memory of the region that .*, [0-9]+ are no pointers' \
	audit
t "the audit lists words that point outside" grep -qx \
	'audit: the word of content at 0x[0-9a-f]* is 0x500000700000, which the image .*' \
	audit
t "the audit as JSON" bash -c "foundry-store show --audit --json pointers >a.json
	python3 '$ROOT/tests/cli/json_documented.py' '$ROOT/Documentation/api/store-json.rst' show \
		\"j['audit']['graphs'][0]['inside'] == 2 and
			j['audit']['content']['outside'] == 1\" \
		<a.json"
t "a seal stores the audit" bash -c "'$BUILD/examples/vecadd' capture -s sealed \
	-m '$BUILD/sim/kernels.cubin' >/dev/null && foundry-store show -s sealed --audit vecadd |
	grep -qx 'audit of the arguments of graph 1: 3 inside the image'"
t "show without --audit has no audit" bash -c "! foundry-store show pointers | grep -q audit"
graph away s/0000500000000008/0000570000000008/ >/dev/null
t "diff --audit compares targets" bash -c "foundry-store diff --audit base away >away.txt
	test \$? = 1 && grep -qx -- '- arguments of graph 3 2 inside the image' away.txt &&
	grep -qx -- '+ arguments of graph 3 1 inside the image, 1 are no pointers' away.txt"
t "diff without --audit does not" bash -c \
	"! foundry-store diff base away | grep -q '^[-+] arguments of'"

t "diff of an unknown ref" says_only 3 "no ref 'nobody'" foundry-store diff base nobody
t "diff of a chunk is refused" says_only 2 "is not an image but a chunk" foundry-store diff base \
	"$(id_of w)"
t "diff of one image is wrong usage" exits 2 foundry-store diff base
t "diff --quiet prints nothing" prints "" bash -c "foundry-store diff -q base code; printf '\n'"
t_done
