#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store graph, which prints a graph of an image as complete text or as a picture.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/store
t "an image is captured" "$BUILD/examples/vecadd" -m "$BUILD/sim/kernels.cubin" capture
t "graph prints the whole graph" prints "foundry-graph 1
# 3 nodes, 2 edges, 1 kernels, 816 bytes
# kernel 0 is vecadd
node 0 memset dst 0x4fda000c3800 pitch 0 value 0x0 element 4 width 100003 height 1
node 1 kernel 0 grid 391 1 1 block 256 1 1 shared 0 attr cluster_scheduling_policy 1 \
args 00004fda00000000 00004fda00061c00 00004fda000c3800 000186a3
node 2 memcpy src 0x4fda000c3800 src_pitch 400012 src_height 1 \
dst 0x4fda00125400 dst_pitch 400012 dst_height 1 width 400012 height 1 depth 1
edge 0 1
edge 1 2" foundry-store graph vecadd 1
t "the graph as JSON" json \
	"j['key'] == 1 and j['nodes'] == 3 and j['text'].startswith('foundry-graph 1\\n') and
		j['text'].endswith('edge 1 2\\n')" \
	foundry-store graph --json vecadd 1
t "the graph as a picture in Graphviz's language" prints 'digraph "vecadd" {
	node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=10]
	0 [fillcolor="#fdbf6f", label="0: memset\n400012 bytes at 0x4fda000c3800"]
	1 [fillcolor="#a6cee3", label="1: vecadd\n391 x 1 x 1 blocks of 256 x 1 x 1"]
	2 [fillcolor="#b2df8a", label="2: memcpy\n400012 bytes"]
	0 -> 1
	1 -> 2
}' foundry-store graph --format dot vecadd 1
t "the picture as JSON" json "j['dot'].startswith('digraph') and 'text' not in j" foundry-store \
	graph --json -f dot vecadd 1
t "the graph in a file" bash -c \
	"foundry-store graph vecadd 1 -o g && foundry-store graph vecadd 1 | cmp - g"
t "a file that cannot be written" says_only 2 "cannot write none/g" foundry-store graph vecadd 1 \
	-o none/g
t "an unknown format is wrong usage" exits 2 foundry-store graph vecadd 1 -f png
t "SVG with --json is wrong usage" exits 2 foundry-store graph vecadd 1 -f svg --json
mkdir bin none.d
cat >bin/dot <<'END'
#!/bin/sh
[ "$*" = -Tsvg ] && echo "<svg/>" && cat
END
chmod +x bin/dot
t "SVG is the output of dot" prints "<svg/>
$(foundry-store graph vecadd 1 -f dot)" env PATH="$TMP/bin:$PATH" foundry-store graph vecadd 1 -f \
	svg
t "SVG in a file" bash -c \
	"PATH=$TMP/bin:\$PATH foundry-store graph vecadd 1 -f svg -o g.svg && head -n 1 g.svg |
		grep -qx '<svg/>'"
echo 'exit 1' >>bin/dot
t "a dot that fails is an error" fails "dot failed" env PATH="$TMP/bin:$PATH" foundry-store graph \
	vecadd 1 -f svg -o bad.svg
t "a dot that fails leaves no file" test ! -e bad.svg
t "a missing dot is an error" says_only 9 "the program dot" env PATH="$TMP/none.d" \
	"$BUILD/foundry-store" graph vecadd 1 -f svg
if command -v dot >/dev/null; then
	t "the real dot draws SVG" bash -c "foundry-store graph vecadd 1 -f svg | grep -q '<svg '"
fi
t "show says how kernels are stored" bash -c \
	"foundry-store show vecadd | grep -qE '^kernels 1, [01] of them sliced'"
t "show as JSON has the image's parts" json \
	"j['image']['facts']['fdry.gpu.driver'] == 'software' and
	[g['nodes'] for g in j['image']['graphs']] == [3] and
	[k['name'] for k in j['image']['kernels']] == ['vecadd'] and
	{t['name'] for t in j['image']['tensors']} == {'a', 'out'} and
	sum(s['bytes'] for s in j['image']['segments'] if s['role'] == 'content') ==
	j['image']['memory']['content']" foundry-store show --json vecadd
foundry-store import -q "$ROOT/tests/golden/store-0.1/images.pack"
t "show as JSON has the capacity of a tensor" json \
	"{t['name']: t.get('capacity') for t in j['image']['tensors']}['kv'] == 64 << 20" \
	foundry-store show --json room
t "a key without a graph" fails "no graph with key 2" foundry-store graph vecadd 2
t "a key that is no number" fails "'one' is not a graph's key" foundry-store graph vecadd one
t "a negative key" fails "there is no option -1" foundry-store graph vecadd -1
t "an unknown ref" fails "no ref" foundry-store graph nobody 1
t "no key" fails "graph needs IMAGE KEY" foundry-store graph vecadd
t_done
