# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# lib.sh - sourced first by every test script: checks, their count, and a folder to work in.
#
#	. "$(dirname "$0")/../lib.sh"
#	t "an unknown ref is refused" fails "no such" foundry-store show nobody
#	t_done
#
# The script starts in an empty folder, $TMP, which t_done removes if all checks passed. $ROOT is
# the tree, $BUILD the build folder (first in PATH). A failed check does not end the script. A
# command outside of t that fails ends it (set -e); then it prints no result, and the runner counts
# it as failed.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BUILD:-$ROOT/build}
NAME=$(basename "$0" .sh)
TMP=$BUILD/tests/tmp/$NAME
PATH=$BUILD:$PATH
export ROOT BUILD TMP PATH
checks=0 failures=0
rm -rf "$TMP" && mkdir -p "$TMP" && cd "$TMP"

# t TITLE COMMAND...: the command succeeds
t() {
	local title=$1 rc=0
	shift
	checks=$((checks + 1))
	"$@" >"$TMP/.t.out" 2>&1 || rc=$?
	if [ $rc != 0 ]; then
		failures=$((failures + 1))
		printf 'not ok: %s (status %d): %.100s\n' "$title" $rc "$*"
		sed -n '1,40s/^/    /p; 41s/.*/    .../p' "$TMP/.t.out"
	fi
}

# fails REGEX COMMAND...: the command exits with an error, no signal ends it, and its output matches
# REGEX
fails() {
	local regex=$1 rc=0 out
	shift
	out=$("$@" 2>&1) || rc=$?
	printf '%s\n' "$out"
	[ $rc != 0 ] || { echo "it succeeded"; return 1; }
	[ $rc -lt 126 ] || { echo "it ended with status $rc"; return 1; }
	grep -Eq -- "$regex" <<<"$out" || { echo "no line above matches '$regex'"; return 1; }
}

# prints TEXT COMMAND...: the command succeeds and prints exactly TEXT on standard output
prints() {
	local want=$1 got
	shift
	got=$("$@") || return
	diff <(printf '%s\n' "$want") <(printf '%s\n' "$got")
}

# tree_files PATTERN...: the source files that match, such as 'mm/*.c' (* matches folders, too)
tree_files() (
	cd "$ROOT"
	if [ -e .git ] && command -v git >/dev/null; then
		git ls-files -co --exclude-standard -- "$@"
	else
		for pattern; do
			find . -path './build*' -prune -o -path './.git' -prune -o \
				-type f -path "./$pattern" -printf '%P\n'
		done
	fi | sort -u | while IFS= read -r file; do
		[ ! -f "$file" ] || echo "$file"
	done
)

# side_by_side FUNCTION...: runs functions with checks at the same time, each in a subshell and a
# folder of its own, and counts their checks; for checks that wait more than they compute
side_run() {
	TMP=$TMP/$1 checks=0 failures=0
	mkdir "$TMP"
	cd "$TMP"
	"$1"
	echo "$checks $failures" >"$TMP/.t.count"
}
side_by_side() {
	local function count bad top=$TMP pids=()
	for function; do
		side_run "$function" >"$top/$function.out" 2>&1 &
		pids+=($!)
	done
	wait "${pids[@]}" || true
	for function; do
		cat "$top/$function.out"
		count=1 bad=1
		[ -e "$top/$function/.t.count" ] || echo "not ok: $function ended early"
		[ ! -e "$top/$function/.t.count" ] || read -r count bad <"$top/$function/.t.count"
		checks=$((checks + count)) failures=$((failures + bad))
	done
}

# t_skip REASON: ends the script, because this machine cannot run its tests
t_skip() {
	echo "SKIP: $1"
	exit 77
}

t_done() {
	echo "100%: Checks: $checks, Failures: $failures, Errors: 0"
	[ $failures = 0 ] || exit 1
	cd / && rm -rf "$TMP"
}
