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
t "C++ compiles" c++ -std=c++17 -Wall -Wextra -Werror -I"$ROOT/include" \
	-I"${CUDA_INC:-/usr/local/cuda/include}" "$examples/load.cc" \
	"$BUILD/libfoundry.so.0.2" -Wl,-rpath,"$BUILD" -o load
t "C++ loads" prints "100003 numbers are right" ./load store
t "C++ reports errors" fails "there is no store" ./load none
if command -v rustc >/dev/null && rustc --version >/dev/null 2>&1; then
	ln -s "$BUILD/libfoundry.so.0.2" libfoundry.so
	t "Rust compiles" rustc --edition 2021 "$examples/load.rs" -L . \
		-C link-arg=-Wl,-rpath,"$BUILD" -o load-rust
	t "Rust loads" prints "100003 numbers are right" ./load-rust store
	t "Rust reports errors" fails "there is no store" ./load-rust none
fi
export PYTHONPATH=$ROOT/api/python FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2 CUDA_VISIBLE_DEVICES=
for each in classify unet encode cupy_graph; do
	t "$each needs a GPU" fails "no GPU" python3 "$examples/$each.py" --store none
	t "$each has help" sh -c "python3 '$examples/$each.py' --help >help.out"
done
t_done
