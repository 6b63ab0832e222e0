#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The README's examples do what it says, with the image of the demo.
. "$(dirname "$0")/../lib.sh"

# block LANGUAGE N: prints the README's Nth block of code in that language
block() {
	awk -v lang="$1" -v n="$2" \
		'/^```/ { inside = 0 } inside; $0 == "```" lang { inside = ++seen == n }' \
		"$ROOT/README.md"
}

block c 1 >load.c
block python 1 >load.py
block python 2 >capture.py

# compile SOURCE PROGRAM: runs the README's own command from the top folder, with warnings
compile() {
	sed -n "s|^    cc \(load[.]c -I\)|${CC:-cc} -Wall -Wextra -Werror \1|
		s|load[.]c|$PWD/$1|; s|-o load|-o $PWD/$2|; s|\$PWD/build|$BUILD|;
		s|build/lib|$BUILD/lib|; /^${CC:-cc} .*-I/p" "$ROOT/README.md" >"$2.sh"
	(script=$PWD/$2.sh && cd "$ROOT" && bash -e "$script")
}

mkdir build
"$BUILD/examples/vecadd" capture -s build/demo-store -m "$BUILD/sim/kernels.cubin" >/dev/null
t "the C program compiles" compile load.c load
t "the C program runs" prints 249.75 ./load
sed 's/"vecadd"/"nobody"/' load.c >nobody.c
compile nobody.c nobody
t "the C program reports a missing ref" fails "no ref 'nobody'" ./nobody
t "the Python program runs" prints 249.75 python3 load.py
t "the capturing program is Python" python3 -m py_compile capture.py
t_done
