#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the runner: a suite that does not print that it passed counts as failed in the total.
. "$(dirname "$0")/../lib.sh"
unset RESULTS # the total of the run that tests them must not include these runs

# suite NAME LINE...: a test script that runs these lines
suite() {
	local name=$1
	shift
	printf '%s\n' "$@" >"$name.sh"
}

# total WANT [OPTION|NAME...]: running these suites prints WANT as its last line
total() {
	local want=$1 out
	shift
	out=$("$ROOT/tests/run" "${@/#suite:/$TMP/}") || true
	printf '%s\n' "$out"
	[ "$(tail -n 1 <<<"$out")" = "$want" ]
}

run() { "$ROOT/tests/run" "${@/#suite:/$TMP/}"; }

suite good 'echo "100%: Checks: 3, Failures: 0, Errors: 0"'
suite bad 'echo WHY; echo "33%: Checks: 3, Failures: 1, Errors: 1"; exit 1'
suite softbad 'echo "50%: Checks: 2, Failures: 1, Errors: 0"'
suite silent 'true'
suite liar 'echo "100%: Checks: 3, Failures: 0, Errors: 0"; exit 1'
suite killed 'kill -SEGV $$'
suite slow 'echo "100%: Checks: 1, Failures: 0, Errors: 0"; sleep 20'
suite nogpu 'echo "SKIP: no GPU (no device node)"; exit 77'
suite noverifier 'echo "SKIP: no verifier"; exit 77'
suite lazy 'echo "SKIP: not today"; exit 77'
suite mute 'exit 77'
suite partly 'echo "SKIP: no GPU here"; echo "100%: Checks: 2, Failures: 0, Errors: 0"'

t "a suite whose checks pass succeeds" run suite:good.sh
t "its checks are counted" total "3 passed, 0 failed, 0 skipped" suite:good.sh
t "failures and errors are counted" total "1 passed, 2 failed, 0 skipped" suite:bad.sh
t "a failing suite fails the run" fails "WHY" run suite:good.sh suite:bad.sh
t "failures count without an exit status" fails "1 passed, 1 failed" run suite:softbad.sh
t "no result is a failure" fails "silent: no result" run suite:silent.sh
t "a suite beside a silent one is counted" total "3 passed, 1 failed, 0 skipped" suite:silent.sh \
	suite:good.sh
t "an exit status other than 0 without failures is a failure" total \
	"2 passed, 1 failed, 0 skipped" suite:liar.sh
t "a crash is a failure" fails "exit status 139" run suite:killed.sh
t "a suite beyond the time limit is a failure" fails "took more than 1 s" run -t 1 suite:slow.sh
t "a missing GPU is a skip" total "3 passed, 0 failed, 1 skipped" suite:good.sh suite:nogpu.sh
t "so is a missing verifier" total "3 passed, 0 failed, 1 skipped" suite:good.sh \
	suite:noverifier.sh
t "the skip's reason is printed" prints "skipped: no GPU (no device node)" \
	sh -c "'$ROOT/tests/run' '$TMP/nogpu.sh' | grep -o 'skipped: no GPU ([a-z ]*)'"
t "a run whose suites all skip succeeds" run suite:nogpu.sh
t "a skip for another reason is a failure" total "0 passed, 1 failed, 1 skipped" \
	suite:lazy.sh
t "a skip without a reason is a failure" fails "without a reason" run suite:mute.sh
t "a check skipped within a suite is counted as skipped" total "2 passed, 0 failed, 1 skipped" \
	suite:partly.sh
t "a prefix without a test is a failure" fails "^no test begins with 'nosuch'$" run -m goo -m \
	nosuch suite:good.sh suite:bad.sh
t "with such a prefix no test runs" prints "no test begins with 'nosuch'" sh -c \
	"'$ROOT/tests/run' -m goo -m nosuch '$TMP/good.sh' || true"
t "a run without tests is a failure" fails "0 passed" run
printf '#!/bin/sh\nsleep 0.3; exit 3\n' >good && chmod +x good
t "a program beside a script of its name is judged by itself" total \
	"3 passed, 1 failed, 0 skipped" -j 2 suite:good suite:good.sh
t "a prefix selects tests" total "3 passed, 0 failed, 0 skipped" -m goo suite:good.sh suite:bad.sh
t "each line begins with its number and the total" prints $'[ 1/10]\n[10/10]' bash -c \
	"'$ROOT/tests/run' -j 1 '$TMP'/good.sh{,,,,,,,,,} | grep -oE '\[[ 0-9]+/[0-9]+\]' |
		sed -n '1p; 10p'"
t "failed tests are named at the end" fails '^failed: bad silent$' run -j 1 suite:bad.sh \
	suite:good.sh suite:silent.sh
# The second test waits until the first one's line is printed.
suite patient "until grep -q 'ok .*good ' '$TMP/lines'; do sleep 0.01; done;
	echo '100%: Checks: 1, Failures: 0, Errors: 0'"
t "a test is printed as soon as it has ended" sh -c \
	"'$ROOT/tests/run' -j 2 -t 20 '$TMP/good.sh' '$TMP/patient.sh' >'$TMP/lines'"
t "results are written to the file that RESULTS names" sh -c \
	"RESULTS='$TMP/res' '$ROOT/tests/run' '$TMP/good.sh' && grep -qx 'good 3 0 0' '$TMP/res'"
t_done
