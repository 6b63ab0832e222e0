#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store report and show --html: the page is well-formed, has no part from outside,
# shows what the image holds, and escapes every name. With --time it shows what a replay takes.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
seal() { "$BUILD/tests/cli/store_seal" "$FOUNDRY_STORE" "$1"; }
# graph NODES FORK: a chain with three parallel nodes after every FORK nodes
graph() {
	python3 - "$@" <<-'END'
	import sys
	n, fork = map(int, sys.argv[1:])
	print("foundry-graph 1")
	for i in range(n):
	    if i % 17 == 16:
	        print(f"node {i} memset dst 0x500000000100 pitch 0 value 0x0 element 4 width 10 "
	              "height 1")
	    else:
	        print(f"node {i} kernel {i % 3} grid 391 2 1 block 256 1 1 shared 0 args "
	              f"{i % 256:02x}00500000000000")
	edges, last, i = [], 0, 1
	while i < n:
	    if i % fork == 0 and i + 4 < n:
	        edges += [(last, i + k) for k in range(3)] + [(i + k, i + 3) for k in range(3)]
	        last, i = i + 3, i + 4
	    else:
	        edges.append((last, i))
	        last, i = i, i + 1
	for e in sorted(edges):
	    print("edge", *e)
	END
}
# page FILE EXPRESSION
page() { python3 "$ROOT/tests/cli/page.py" "$@"; }

graph 12 5 >g12
graph 300 11 >g300
graph 10000 37 >g10000
graph 10000 31 >g31
graph 10000 41 >g41
for i in {-1..99}; do
	[ "$i" -ge 0 ] || { echo 'foundry-graph 1' && continue; }
	printf 'node %d kernel 0 grid 1 1 1 block 1 1 1 shared 0 args %02x00500000000000\n' \
		"$i" "$i"
done >wide
seq 1 100000 >w
kernels=$(printf 'kernel %s CODE 8\n' _ZN2at6native13vector_kernelEv gemm soft_max)
printf '%s\n' 'fact fdry.gpu.arch sm_90' 'fact model llama' 'content w' 'tensor weight 0 1' \
	"$kernels" 'graph 1 small g12' 'graph 8 batch_8 g300' 'graph 9 again g300' \
	'graph 256 big g10000' 'graph 300 wide wide' | seal m/a >id
printf '%s\n' 'fact model other' 'content w' "$kernels" 'graph 1 - g12' | seal m/b >other
foundry-store report m/a -o page.html >said

t "the page is well-formed and loads nothing" page page.html "text.count('m/a') == 2"
t "report prints what it wrote" prints "wrote page.html: 5 graphs, 10712 nodes" cat said
t "a page of 10,000 nodes is small" test "$(stat -c %s page.html)" -lt 3000000
t "show --html prints the same page" cmp page.html <(foundry-store show m/a --html)
t "report without a file prints the page" cmp page.html <(foundry-store report m/a)
t "the page has figures and facts" \
	page page.html "all(w in text for w in ('sm_90', 'llama', '10712'))"
t "the page has the kernels, with short names" page page.html \
	"'at::native::vector_kernel' in text and 'soft_max' in text"
t "every node is drawn once" page page.html \
	"sum(a.get('class') == 'box' for _, a in tags) == 12 and
	sum(t == 'path' and a.get('class', '')[0] == 'f' for t, a in tags) == 300 + 10000 + 100"
t "an equal graph is not drawn again" page page.html "'the same as graph 8' in text"
t "nodes have a text" page page.html "'0: at::native::vector_kernel, 391x2 of 256' in text"
t "the page has the image that shares objects" page page.html \
	"'m/b' in text and '1 of 1 other images of the store share' in text"
printf '%s\n' 'fact a b' 'content id' | "$BUILD/tests/cli/store_seal" "$shm/alone" x >alone
foundry-store -s "$shm/alone" report x -o alone.html >said
t "the page of an image says that it has no graphs and no kernels" page alone.html \
	"'no graphs' in text and 'no kernels' in text and '0 of 0 other images' in text"
t "the page has dark colours" grep -q 'prefers-color-scheme: dark' page.html
t "the page has rules for printing" grep -q '@media print' page.html
t "report as JSON" json "j['graphs'] == 5 and j['nodes'] == j['drawn'] + 300 and
	j['page'] == 'again.html'" foundry-store report m/a -o again.html --json
t "JSON and the page on standard output are wrong usage" exits 2 foundry-store report m/a --json
t "report of an object that is not an image fails" fails 'there is no ref' foundry-store report \
	"$(id_of w | cut -c 1-12)"
t "a page with an audit is wrong usage" exits 2 foundry-store show m/a --html --audit
t "a report that fails leaves no file" bash -c \
	"! foundry-store report nobody -o none.html 2>err && [ ! -e none.html ]"
t "report to a full disk fails" exits 5 bash -c 'foundry-store report m/a >/dev/full'

# --- times ---

"$BUILD/examples/vecadd" -s "$shm/run" -m "$BUILD/sim/kernels.cubin" capture >captured
foundry-store -s "$shm/run" report vecadd --time -o times.html >said
t "the page has the times of graphs and kernels" page times.html "
	re.search(r'Graph 1, vecadd(\d+\.\d{4} ms){4}', text) and
	re.search(r'vecadd\d+\.\d{4} ms100\.0 %1\d+\.\d{4} ms', text) and
	'The software driver ran these kernels' in text"
t "the page leads to them" page times.html \
	"[a for t, a in tags if t == 'a' and a['href'] == '#times'] and 'id=\"times\"' in source"
t "other pages have no times" page page.html "'Times' not in text and 'external tensor' not in text"
t "an image that cannot be loaded here leaves no page" bash -c \
	'! foundry-store report m/a --time -o none.html 2>err && [ ! -e none.html ] && cat err'
t "and the message names the reason" grep -q 'does not state its kind of driver' err
t "only report has the option" exits 2 foundry-store show m/a --html --time

# --- limits ---

printf '%s\n' 'fact model large' "$kernels" 'content w' 'graph 1 - g10000' 'graph 2 - g31' \
	'graph 3 - g41' | seal big >big.id
foundry-store report big -o big.html >said
t "beyond 20,000 nodes, nodes have no text of their own" page big.html \
	"20000 < sum(t == 'path' for t, _ in tags) < 20100"
t "nodes without a text are drawn" test "$(grep -o 'h6v6h-6z' big.html | wc -l)" = 30000
t "a page of 30,000 nodes is small" test "$(stat -c %s big.html)" -lt 4000000

# --- hostile names ---

evil='</title></style><script>alert(1)</script><img%20src=x%20onerror=alert(1)>"%27&amp;'
printf '%s\n' "fact fdry.gpu.arch sm_<b>" "fact zz $evil%1b]0;pwned%07%e2%80%ae" 'content w' \
	"tensor t$evil 0 1" "kernel k$evil%0a CODE 8" "kernel kk CODE 8" "kernel kkk CODE 8" \
	"graph 1 g$evil%1b[31m g12" | seal evil >evil.id
foundry-store report evil -o evil.html >said
t "hostile names are shown as text" page evil.html "text.count('<script>alert(1)</script>') >= 4 and
	'onerror=alert(1)>' in text and '\x1b' not in text and '\u202e' not in text"
t "hostile names are in no attribute but titles" page evil.html \
	"not [v for _, a in tags for k, v in a.items() if k != 'title' and 'alert' in str(v)]"
t_done
