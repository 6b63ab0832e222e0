#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for FUZZ_SECONDS, JOBS of them at a time. An input that crashes a target
# stays in the target's folder in $TMP: make a test of it. tests/fuzz/NAME/ may hold inputs to begin
# with; new ones are kept for the next run.
. "$(dirname "$0")/../lib.sh"

# Each target works in a folder of its own, where a crashing input stays.
fuzz() {
	local fuzzer=$1 name corpora
	name=$(basename "$fuzzer")
	corpora=("$fuzzer.corpus")
	[ ! -d "$ROOT/tests/fuzz/$name" ] || corpora+=("$ROOT/tests/fuzz/$name")
	mkdir -p "${corpora[0]}" "$TMP/$name"
	cd "$TMP/$name"
	"$fuzzer" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=25 -verbosity=0 "${corpora[@]}"
}

ended() { cat "$TMP/$1.out" && [ "$(cat "$TMP/$1.rc")" = 0 ]; }

jobs_max=${JOBS:-$(nproc)} names=()
for fuzzer in "$BUILD"/tests/fuzz/*; do
	[[ -f $fuzzer && -x $fuzzer ]] || continue
	name=$(basename "$fuzzer")
	names+=("$name")
	while [ "$(jobs -r | wc -l)" -ge "$jobs_max" ]; do
		wait -n || true
	done
	{
		rc=0
		(fuzz "$fuzzer") >"$TMP/$name.out" 2>&1 || rc=$?
		echo $rc >"$TMP/$name.rc"
	} &
done
wait
for name in "${names[@]}"; do
	t "$name" ended "$name"
done
t_done
