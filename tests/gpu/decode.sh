#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the decoder on a GPU: every token and every logit of an image equals that of eager
# PyTorch, bit for bit. The prompts differ from those of the capture, and outputs and scratch are
# poisoned before. The image runs in Python and in C, with the weights inside and outside of it, and
# from code of torch.compile.
. "$(dirname "$0")/../lib.sh"

python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null ||
	t_skip "no GPU, or none with PyTorch and transformers"

export FOUNDRY_STORE=$TMP/store FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2
export PYTHONPATH=$ROOT/api/python
decode=(python3 "$ROOT/api/examples/decode.py")
prompts=("A tale of two cities" "Call me Ishmael")

# native VARIANT PROMPT OPTIONS...: digests of eager decoding into VARIANT.native
native() {
	local to=$1 prompt=$2
	shift 2
	"${decode[@]}" native --prompt "$prompt" --digest "$to.native" "$@" | tee "$to.native.out"
}

# python VARIANT PROMPT OPTIONS...: the image's digests from Python, which must be the same
python() {
	local as=$1 prompt=$2
	shift 2
	"${decode[@]}" load --poison --prompt "$prompt" --digest "$as.python" "$@" |
		tee "$as.python.out"
	grep -q 'transformers imported: False' "$as.python.out" && cmp "$as.native" "$as.python"
}

# c VARIANT PROMPT OPTIONS...: and from C
c() {
	local as=$1 prompt=$2
	shift 2
	"$BUILD/examples/decode" -x -p "$prompt" "$@" | tee "$as.c.out"
	grep -q '^torch mapped: no, python mapped: no$' "$as.c.out" &&
		sed -n 's/^digest //p' "$as.c.out" | cmp - "$as.native"
}

# distinct VARIANT: at least 50 different tokens were decoded
distinct() {
	[ "$(sed -n 's/^\([0-9]*\) distinct tokens.*/\1/p' "$1.native.out")" -ge 50 ]
}

# sliced FILE: at least 95 % of the kernels are slices
sliced() {
	awk '/^  kernels  / { n = $2 } /^  kernels_whole/ { w = $2 }
		END { exit !(n && w <= n * 0.05) }' "$1"
}

t "native decoding" native 0 "${prompts[0]}"
t "of another prompt" native 1 "${prompts[1]}"
t "at least 50 distinct tokens" distinct 0
t "the prompts differ" bash -c '! cmp -s 0.native 1.native'

t "capture with the weights" bash -c '"$@" | tee capture.out' - "${decode[@]}" capture
t "at least 95 % of the kernels are sliced" sliced capture.out
for i in 0 1; do
	t "Python gives the same bits, prompt $i" python $i "${prompts[$i]}"
	t "C gives the same bits, prompt $i" c $i "${prompts[$i]}"
done

external=(--weights external --weights-file weights.bin --ref external)
t "capture with external weights" "${decode[@]}" capture "${external[@]}"
t "a launch without weights is refused" fails "external tensor\(s\) have no content yet" \
	python3 -c 'import foundry; foundry.load("external").launch(1)'
cp 0.native external.native
t "Python fills the weights" python external "${prompts[0]}" "${external[@]}"
t "C fills the weights" c external "${prompts[0]}" -r external -w weights.bin
rm -f weights.bin

compiled=(--compile --ref compiled)
export TORCHINDUCTOR_CACHE_DIR=$TMP/inductor TRITON_CACHE_DIR=$TMP/triton
t "native, compiled" native compiled "${prompts[0]}" --compile
t "capture, compiled" "${decode[@]}" capture "${compiled[@]}"
t "Python gives the same bits, compiled" python compiled "${prompts[0]}" --ref compiled
t "C gives the same bits, compiled" c compiled "${prompts[0]}" -r compiled

# These lines, which no test compares, show times and sizes. 0.c is from the second load of the
# image in C, whose content was verified before.
for out in 0.native capture 0.python 0.c external.c; do
	printf '\n==== %s\n' $out
	grep -v '^digest' $out.out
done
foundry-store show qwen3-0.6b/decode | sed -n '1,/^reaches 1 manifest/p'
foundry-store ls
t_done
