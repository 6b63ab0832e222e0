#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for FUZZ_SECONDS. An input that crashes a target stays in its folder: make
# a test of it. tests/fuzz/NAME/ may hold inputs to begin with; new ones are kept for the next run.
. "$(dirname "$0")/../lib.sh"

for fuzzer in "$BUILD"/tests/fuzz/*; do
	[[ -f $fuzzer && -x $fuzzer ]] || continue
	name=$(basename "$fuzzer")
	corpora=("$fuzzer.corpus")
	[ ! -d "$ROOT/tests/fuzz/$name" ] || corpora+=("$ROOT/tests/fuzz/$name")
	mkdir -p "${corpora[0]}"
	t "$name" "$fuzzer" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=25 -verbosity=0 \
		"${corpora[@]}"
done
t_done
