#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The code of kernels in the tree is the code that scripts make from their source. Other
# versions of nvcc give other bytes, so this test needs the version that made them.
. "$(dirname "$0")/../lib.sh"

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
made_by=$(sed -n 's|^// Cuda compilation tools, release [^,]*, ||p' \
	"$ROOT/graph/fingerprint/compute_75.ptx")
"$nvcc" --version 2>/dev/null | grep -qF "$made_by" || {
	echo "SKIP: no GPU compiler: nvcc $made_by"
	exit 77
}

same() {
	local file
	for file in "$ROOT"/graph/fingerprint/*.{cubin,ptx}; do
		cmp "$file" "$(basename "$file")" || return
	done
}
t "the script makes the kernel's code" "$ROOT/graph/fingerprint/make.sh" .
t "the code is the same as in the tree" same
t "the tree has no other code of the kernel" diff <(ls ./*.cubin ./*.ptx) \
	<(cd "$ROOT/graph/fingerprint" && ls ./*.cubin ./*.ptx)
mkdir heap
t "the script makes the code that finds the heap" "$ROOT/graph/heap/make.sh" heap
t "it is the same as in the tree" cmp "$ROOT/graph/heap/compute_75.ptx" heap/compute_75.ptx
t_done
