#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The README's commands and programs do what it says, in a copy of the tree after `make demo`.
. "$(dirname "$0")/../lib.sh"

mkdir build
ln -s "$ROOT/include" "$ROOT/api" .
ln -s "$BUILD"/libfoundry* "$BUILD/foundry" build/
"$BUILD/examples/vecadd" capture -s build/demo-store -m "$BUILD/sim/kernels.cubin" >/dev/null
t "the README's examples" python3 "$ROOT/tests/examples.py" run "$ROOT/README.md"

# The C program again, with warnings as errors, and with a name that the store does not have.
compile() {
	sed "s/\"vecadd\"/\"$1\"/" load.c >"$1.c"
	"${CC:-cc}" -Wall -Wextra -Werror "$1.c" -Iinclude build/libfoundry.so \
		-Wl,-rpath,"$PWD/build" -o "$1"
}
t "the C program compiles without warnings" compile vecadd
t "the C program runs" prints 249.75 ./vecadd
t "the C program compiles with another name" compile nobody
t "the C program reports a missing ref" fails "no ref 'nobody'" ./nobody
t_done
