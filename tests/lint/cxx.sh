#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The public headers compile as C++, and the result links with the library.
. "$(dirname "$0")/../lib.sh"

printf '%s\n' '#include <foundry.h>' '#include <foundry/run.h>' \
	'int main() { return fdry_error_errno(0); }' >use.cc
for std in 11 17 20; do
	t "C++$std" c++ -std=c++$std -Wall -Wextra -Wpedantic -Werror -I"$ROOT/include" \
		-c -o use$std.o use.cc
done
t "linked" c++ -o use use11.o "$BUILD/libfoundry.so" -Wl,-rpath,"$BUILD"
t "the program runs" ./use
t_done
