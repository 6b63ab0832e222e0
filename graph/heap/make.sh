#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make.sh [FOLDER]: make the PTX of heap.cu, in this folder or another one.
#
# The version of the PTX is the oldest one for compute capability 7.5, so that each driver that
# Foundry supports compiles it: nvcc writes its own version, which older drivers refuse.
# It was made with CUDA 13.0's nvcc. If you change heap.cu, run this script and commit the result.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=$(cd "${1:-$here}" && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

"$nvcc" -ptx -rdc=true -arch=compute_75 "$here/heap.cu" -o "$to/compute_75.ptx"
sed -i 's/[[:space:]]*$//; s/^[.]version .*/.version 6.3/' "$to/compute_75.ptx"
