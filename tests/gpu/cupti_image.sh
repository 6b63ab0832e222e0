#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The code in an image is the code that ran in the capturing process. CUPTI records the cubin of
# every module that is loaded while small decoders are captured under the interposer. One of these
# cubins must have the code of every kernel in their images, byte for byte.
. "$(dirname "$0")/../lib.sh"

python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null ||
	t_skip "no GPU, or none with PyTorch and transformers"

export FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2 PYTHONPATH=$ROOT/api/python
# The CUPTI that PyTorch brings with it.
CUPTI=$(python3 -c 'import glob, os, site
print(next(iter(p for s in site.getsitepackages()
                for p in glob.glob(os.path.join(s, "nvidia", "*", "lib", "libcupti.so*"))), ""))')
export CUPTI
t "the part that is injected" "${CC:-cc}" -shared -fPIC -O2 -I "$ROOT" -o dump.so \
	"$ROOT/tests/gpu/inject/cupti_dump.c" -ldl

# captured FAMILY: records every module that is loaded, and compares
captured() {
	mkdir -p "cubins.$1"
	CUPTI_DUMP=$TMP/cubins.$1 CUDA_INJECTION64_PATH=$TMP/dump.so python3 \
		"$ROOT/tests/gpu/second_model.py" capture "$1" "$TMP/store"
	"$BUILD/tests/gpu/cupti_image" "$TMP/store" "$1" "cubins.$1" | tee "$1.out"
	rm -rf "cubins.$1"
}

for family in qwen3 qwen3_moe; do
	t "$family: its code is what ran" captured $family
	cat "$family.out" 2>/dev/null || true
done
t_done
