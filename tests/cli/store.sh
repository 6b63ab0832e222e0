# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# store.sh - sourced by the tests of foundry-store, after lib.sh: checks of a command's exit status,
# messages and JSON, and a terminal.
# shellcheck disable=SC2034 # the scripts that source this use it
store_image=$BUILD/tests/cli/store_image

# exits STATUS COMMAND...: the command exits with this status
exits() {
	local want=$1 rc=0
	shift
	"$@" || rc=$?
	[ $rc = "$want" ] || { echo "status $rc, not $want"; return 1; }
}
# says_only STATUS REGEX COMMAND...: the command fails with the status, prints nothing on standard
# output, and prints one message
says_only() {
	local want=$1 regex=$2 rc=0
	shift 2
	"$@" >"$TMP/out" 2>"$TMP/err" || rc=$?
	cat "$TMP/out" "$TMP/err"
	[ $rc = "$want" ] || { echo "status $rc, not $want"; return 1; }
	[ ! -s "$TMP/out" ] && [ "$(wc -l <"$TMP/err")" = 1 ] &&
		grep -Eq -- "^foundry-store: .*($regex)" "$TMP/err"
}
# json EXPRESSION COMMAND...: the output is JSON as documented, and this Python expression over j is
# true. The first word after foundry-store names the command's section of the page.
json() {
	local expr=$1
	shift
	"$@" | python3 "$ROOT/tests/cli/json_documented.py" \
		"$ROOT/Documentation/api/store-json.rst" "$2" "$expr"
}
# on_terminal ANSWER COMMAND...: runs the command with a terminal as standard input, output and
# error, and types ANSWER on it
on_terminal() {
	python3 "$ROOT/tests/cli/on_terminal.py" "$@"
}
id_of() { sha256sum <"$1" | cut -c 1-64; }

# in_memory: sets FOUNDRY_STORE to a store in memory, if the machine has /dev/shm: many seals would
# wait for a disk, which these tests do not examine
in_memory() {
	shm=$(mktemp -d /dev/shm/foundry-test-XXXXXX 2>/dev/null || mktemp -d)
	trap 'rm -rf "$shm"' EXIT
	export FOUNDRY_STORE=$shm/s
}
