# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# store.sh - sourced by the tests of foundry-store, behind lib.sh: how a command ends, what it says,
# its JSON, and a terminal.
# shellcheck disable=SC2034 # for those who source this
store_image=$BUILD/tests/cli/store_image

# exits STATUS COMMAND...: it ends with this status
exits() {
	local want=$1 rc=0
	shift
	"$@" || rc=$?
	[ $rc = "$want" ] || { echo "status $rc, not $want"; return 1; }
}
# says_only STATUS REGEX COMMAND...: it fails with the status, prints nothing, and says one sentence
says_only() {
	local want=$1 regex=$2 rc=0
	shift 2
	"$@" >"$TMP/out" 2>"$TMP/err" || rc=$?
	cat "$TMP/out" "$TMP/err"
	[ $rc = "$want" ] || { echo "status $rc, not $want"; return 1; }
	[ ! -s "$TMP/out" ] && [ "$(wc -l <"$TMP/err")" = 1 ] && grep -Eq -- "^foundry-store: .*($regex)" "$TMP/err"
}
# json EXPRESSION COMMAND...: its output is JSON as documented, and this Python expression over j is
# true. The first word behind foundry-store is the command that the page is looked up for.
json() {
	local expr=$1
	shift
	"$@" | python3 "$ROOT/tests/cli/json_documented.py" "$ROOT/Documentation/api/store-json.rst" "$2" "$expr"
}
# on_terminal ANSWER COMMAND...: standard input, output and error are a terminal, on which ANSWER is
# typed
on_terminal() {
	python3 "$ROOT/tests/cli/on_terminal.py" "$@"
}
id_of() { sha256sum <"$1" | cut -c 1-64; }

# in_memory: FOUNDRY_STORE is a store in memory, where there is some: many seals wait for a disk,
# which tells nothing here
in_memory() {
	shm=$(mktemp -d /dev/shm/foundry-test-XXXXXX 2>/dev/null || mktemp -d)
	trap 'rm -rf "$shm"' EXIT
	export FOUNDRY_STORE=$shm/s
}
