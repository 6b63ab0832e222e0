#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foundry-store graph: a graph of an image as text, complete.
. "$(dirname "$0")/../lib.sh"

export FOUNDRY_STORE=$TMP/store
t "capture" "$BUILD/examples/vecadd" -m "$BUILD/sim/kernels.cubin" capture
t "the graph, whole" prints "foundry-graph 1
# 3 nodes, 2 edges, 1 kernels, 816 bytes
node 0 memset dst 0x4fda000c3800 pitch 0 value 0x0 element 4 width 100003 height 1
node 1 kernel 0 grid 391 1 1 block 256 1 1 shared 0 attr cluster_scheduling_policy 1 args 00004fda00000000 00004fda00061c00 00004fda000c3800 000186a3
node 2 memcpy src 0x4fda000c3800 src_pitch 400012 src_height 1 dst 0x4fda00125400 dst_pitch 400012 dst_height 1 width 400012 height 1 depth 1
edge 0 1
edge 1 2" foundry-store graph vecadd 1
t "a key that is not there" fails "no graph with key 2" foundry-store graph vecadd 2
t "a key that is none" fails "'one' is not a graph's key" foundry-store graph vecadd one
t "a negative key" fails "'-1' is not a graph's key|invalid option" foundry-store graph vecadd -1
t "an image that is not there" fails "no ref" foundry-store graph nobody 1
t "no key" fails "too few operands" foundry-store graph vecadd
t_done
