#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make.sh TREE - what version 0.1 wrote: a store, a pack and a saved graph, into this folder.
#
# TREE is a checkout of commit ed8a391 in which `make` has run. Every later version loads these
# files or refuses them by name (tests/python/test_golden.py), so they are never made again from a
# later version: ids of images depend on the compiler that made the software driver's kernels.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BUILD=$PWD/build PYTHONPATH=$PWD/api/python PYTHONDONTWRITEBYTECODE=1
export FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0 FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
store=$work/store
fs() { "$BUILD/foundry-store" -q -s "$store" "$@"; }

# Images: content and an input, weights outside, memory with room, host memory, random numbers.
for kind in external room host; do
	python3 tests/python/test_roundtrip.py child "$store" $kind
	[ $kind = host ] || fs tag adder $kind
done
python3 tests/python/test_roundtrip.py child "$store"
for layout in eager capture; do
	python3 tests/python/test_generators.py child "$store" $layout
	fs tag draws draws-$layout
done
fs rm -y draws
fs pin adder
fs limit 64M
fs gc -y
fs export -o "$work/images.pack" adder external room host draws-eager draws-capture

# A graph saved by file, with the store beside it.
mkdir "$work/saved"
(
	cd "$work/saved"
	env -u FOUNDRY_STORE HOME="$work" PYTHONPATH="tests:$OLDPWD/tests/python/stand_in:$PYTHONPATH" python3 - <<'P'
import foundry as fdry
import torch

fdry.set_allocation_region(0x500000000000, "1GB")
a = torch.full((100, 100), 2.0)
b = torch.full((100, 100), 3.0)
graph = fdry.CUDAGraph()
with fdry.graph(graph):
    c = a + b
graph.save("graph.json", output_tensors=[c, a])
P
)

rm -rf "${here:?}"/{store,saved,images.pack}
mkdir -p "$here/store" "$here/saved/foundry-store"
cp "$store/data.mdb" "$here/store/"
cp "$work/images.pack" "$here/"
cp "$work/saved/graph.json" "$here/saved/"
cp "$work/saved/foundry-store/data.mdb" "$here/saved/foundry-store/"
