#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The store's crash tests, in short: make crash runs them at length. Each is also seen to find what
# it looks for.
. "$(dirname "$0")/../lib.sh"

kill=$BUILD/tests/crash/kill
fast=/dev/shm
[ -w $fast ] || fast=$TMP

t "killed under load, nothing is lost" "$kill" -n 80 -d "$fast"
t "killed while captures are sealed" "$kill" -r -n 30 -w 2 -d "$fast"
t "success that was noted too early is found out" fails 'was told to be' "$kill" -e -n 60 -d "$fast"

power=$BUILD/tests/crash/power
t "power cuts, nothing is lost" "$power" -r 2 -o 4 -n 4 -x 8 -d "$fast"
t "a disk that forgets syncs is found out" fails 'fault: ' "$power" -b sync -r 4 -o 5 -n 4 -x 4 -d "$fast"
t "one that forgets syncs of meta pages" fails 'was told to be' "$power" -b meta -r 4 -o 12 -n 4 -x 4 -d "$fast"
t "one that forgets directories" fails 'fault: ' "$power" -b dir -r 16 -o 5 -n 4 -x 4 -d "$fast"

stress=$BUILD/tests/crash/stress
t "8 processes at once" "$stress" -w 8 -T 2 -d "$fast"
t "6 threads at once" "$stress" -w 6 -t -T 1 -d "$fast"
t_done
