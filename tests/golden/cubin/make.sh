#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the cubins and fatbins of this folder from its .cu and .ptx files. CUDA 13.0's tools made
# them; other versions give other bytes, with which the tests succeed, too.
#
# The cubins named after NVRTC and Triton need NVRTC=libnvrtc.so.13 (by default the loader finds it)
# and a python3 with Triton (PYTHON).
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=${TMPDIR:-/tmp}/foundry-golden # compilers write the folder's name into what they make
export TRITON_DISABLE_LINE_INFO=1

rm -rf "$work"
mkdir "$work"
cp -- *.cu *.ptx *.py "$work"
cd "$work"

for file in plain vars calls shared syscalls; do
	for arch in 80 90; do
		nvcc -cubin -arch="sm_$arch" "$file.cu" -o "$file.$arch.cubin"
	done
done
for arch in 80 90 90a; do
	nvcc -cubin -arch="sm_$arch" who.cu -o "who.$arch.cubin"
done
nvcc -cubin -lineinfo -arch=sm_90a plain.cu -o plain.90a.cubin
for file in vars shared syscalls; do
	nvcc -cubin -arch=sm_100 "$file.cu" -o "$file.100.cubin"
done
nvcc -cubin -arch=sm_90 large.cu -o large.90.cubin
nvcc -cubin -arch=sm_90 conditions.cu -o conditions.90.cubin
nvcc -cubin -arch=sm_90 heap.cu -o heap.90.cubin

for arch in 80 90; do
	ptxas -arch="sm_$arch" references.ptx -o "references.$arch.cubin"
done

# Relocatable device code: the objects, and the linker's result.
nvcc -cubin -rdc=true -arch=sm_90 who.cu -o who.rel.cubin
for file in vars calls syscalls launches; do
	nvcc -cubin -rdc=true -arch=sm_90 "$file.cu" -o "$file.rel.cubin"
done
nvlink -arch=sm_90 vars.rel.cubin calls.rel.cubin syscalls.rel.cubin -o linked.90.cubin
rm vars.rel.cubin calls.rel.cubin syscalls.rel.cubin
nvcc -cubin -rdc=true -arch=sm_90 tables.cu -o tables.rel.cubin
nvlink -arch=sm_90 tables.rel.cubin -o tables.90.cubin
nvcc -cubin -rdc=true -arch=sm_90 -DUNTABLED tables.cu -o tables.rel.cubin
nvlink -arch=sm_90 tables.rel.cubin -o untabled.90.cubin
rm tables.rel.cubin

# Fatbins: several architectures, PTX, and each compression.
gencode=(-gencode "arch=compute_80,code=sm_80" -gencode "arch=compute_90,code=sm_90"
	-gencode "arch=compute_90a,code=sm_90a" -gencode "arch=compute_100f,code=sm_100f"
	-gencode "arch=compute_80,code=compute_80")
nvcc -fatbin --compress-mode=none "${gencode[@]}" plain.cu -o plain.none.fatbin
nvcc -fatbin --compress-mode=speed -Xfatbin -compress-all "${gencode[@]}" plain.cu -o plain.lz4.fatbin
nvcc -fatbin --compress-mode=size "${gencode[@]}" plain.cu -o plain.zstd.fatbin

python3 nvrtc.py vars.cu sm_90a vars.nvrtc.cubin
"${PYTHON:-python3}" triton_axpy.py axpy.triton.cubin

cp -- *.cubin *.fatbin "$here"
rm -r "$work"
