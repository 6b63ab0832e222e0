#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Short runs of the store's crash tests; make crash runs them at length. Each test is also run with
# a fault that it must detect.
. "$(dirname "$0")/../lib.sh"

kill=$BUILD/tests/crash/kill
fast=/dev/shm
[ -w $fast ] || fast=$TMP

t "kills under load lose nothing" "$kill" -n 80 -d "$fast"
t "kills during seals lose nothing" "$kill" -r -n 30 -w 2 -d "$fast"
t "the test detects success that is noted too early" fails 'was reported as' "$kill" -e -n 60 -d \
	"$fast"

power=$BUILD/tests/crash/power
t "power cuts lose nothing" "$power" -r 2 -o 4 -n 4 -x 8 -d "$fast"
t "the test detects a disk that forgets syncs" fails 'fault: ' "$power" -b sync -r 4 -o 5 -n 4 -x \
	4 -d "$fast"
t "the test detects a disk that forgets syncs of meta pages" fails 'was reported as' "$power" -b \
	meta -r 4 -o 12 -n 4 -x 4 -d "$fast"
t "the test detects a disk that forgets directories" fails 'fault: ' "$power" -b dir -r 16 -o 5 -n \
	4 -x 4 -d "$fast"

stress=$BUILD/tests/crash/stress
t "8 processes at once" "$stress" -w 8 -T 2 -d "$fast"
t "6 threads at once" "$stress" -w 6 -t -T 1 -d "$fast"
t_done
