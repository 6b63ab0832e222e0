#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make.sh [FOLDER]: make the cubins and the PTX of fingerprint.cu, in this folder or another one.
#
# They were made with CUDA 13.0's nvcc; other versions give other bytes. Whoever changes
# fingerprint.cu or lib/fingerprint_mix.h runs this script and commits what it makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=$(cd "${1:-$here}" && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

cd "$here/../.."
for arch in 80 86 89 90 100 120; do
	"$nvcc" -I. -cubin -arch="sm_$arch" graph/fingerprint/fingerprint.cu -o "$to/sm_$arch.cubin"
done
"$nvcc" -I. -ptx -arch=compute_75 graph/fingerprint/fingerprint.cu -o "$to/compute_75.ptx"
