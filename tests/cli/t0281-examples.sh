#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the examples: those in C++ and Rust load what vecadd sealed; those in Python print a
# sentence if there is no GPU. tests/gpu/examples.py runs them on one.
. "$(dirname "$0")/../lib.sh"

examples=$ROOT/api/examples
"$BUILD/examples/vecadd" capture -s store -m "$BUILD/sim/kernels.cubin" >capture.out

# long: prints examples of more than 60 lines; decode and vecadd are programs of their own kind
long() {
	wc -l "$examples"/*.{py,cc,rs} | awk '$1 > 60 && !/decode[.]py|total/ { print $2 }'
}

t "each example has 60 lines at most" prints "" long
if command -v c++ >/dev/null; then
	t "the example in C++ compiles" c++ -std=c++17 -Wall -Wextra -Werror -I"$ROOT/include" \
		-I"${CUDA_INC:-/usr/local/cuda/include}" "$examples/load.cc" \
		"$BUILD/libfoundry.so.0.2" -Wl,-rpath,"$BUILD" -o load
	t "the example in C++ loads the image" prints "100003 numbers are right" ./load store
	t "the example in C++ reports errors" fails "there is no store" ./load none
fi
if command -v rustc >/dev/null && rustc --version >/dev/null 2>&1; then
	ln -s "$BUILD/libfoundry.so.0.2" libfoundry.so
	t "the example in Rust compiles" rustc --edition 2021 "$examples/load.rs" -L . \
		-C link-arg=-Wl,-rpath,"$BUILD" -o load-rust
	t "the example in Rust loads the image" prints "100003 numbers are right" ./load-rust store
	t "the example in Rust reports errors" fails "there is no store" ./load-rust none
fi
export PYTHONPATH=$ROOT/api/python FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2 CUDA_VISIBLE_DEVICES=
for each in classify generate unet encode cupy_graph; do
	t "$each says that it needs a GPU" fails "no GPU" python3 "$examples/$each.py"
done
for each in unet encode cupy_graph; do
	t "$each has help" sh -c "python3 '$examples/$each.py' --help >help.out"
done

cat >cells.py <<'PY'
"""Runs the code of a notebook, cell by cell, and checks that it is that of its script."""
import json, sys
book = json.load(open(sys.argv[1], encoding="utf-8"))
assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
cells = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
lines = [line for line in open(sys.argv[2], encoding="utf-8") if not line.startswith("#")]
assert "".join("".join(cells).split()) == "".join("".join(lines).split()), "other code"
assert len(cells) > 1 and book["cells"][0]["cell_type"] == "markdown"
names = {"__name__": "__main__"}
for cell in cells:
    exec(cell, names)
PY
t "examples become notebooks" python3 "$ROOT/Documentation/_ext/notebooks.py" books
t "two examples become notebooks" \
	test "$(echo books/*)" = "books/classify.ipynb books/generate.ipynb"
for each in classify generate; do
	t "the notebook $each says that it needs a GPU" \
		fails "no GPU" python3 cells.py books/$each.ipynb "$examples/$each.py"
done
t_done
