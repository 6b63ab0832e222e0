#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One program makes the same graph object on a GPU and on the software driver, byte for byte. Only
# the code of its kernel differs.
. "$(dirname "$0")/../lib.sh"

nvidia-smi -L >/dev/null 2>&1 || t_skip "no GPU"
vecadd=$BUILD/examples/vecadd

# graph_id STORE: the object's id, as far as show prints it
graph_id() {
	foundry-store --store "$1" show vecadd | sed -n 's/^graph 1 .* //p'
}

t "capture on the GPU" "$vecadd" -s gpu capture
t "capture on the software driver" env FOUNDRY_DRIVER="$BUILD/foundry/sim/libcuda.so.1" \
	"$vecadd" -s sim -m "$BUILD/sim/kernels.cubin" capture
t "the same text" prints "$(foundry-store --store sim graph vecadd 1)" foundry-store --store gpu \
	graph vecadd 1
t "the same object" prints "$(graph_id sim)" graph_id gpu
t "the GPU refuses the software driver's image" fails \
	"another kind of driver: software there, nvidia here" \
	"$vecadd" -s sim load
t_done
