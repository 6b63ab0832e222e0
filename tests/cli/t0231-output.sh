#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The output file of export, dump or graph appears only when it is whole. A command that is
# interrupted, killed or stopped by a limit leaves nothing. A FIFO in the store's folder does not
# make any command wait.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

head -c 3000000 /dev/urandom >big
head -c 1000 /dev/urandom >small
"$store_image" "$FOUNDRY_STORE" big big small >/dev/null
"$store_image" "$FOUNDRY_STORE" small small >/dev/null
mkdir made

# interrupted SIGNAL COMMAND...: sends the signal as soon as the command has opened its output file
interrupted() {
	local sig=$1 pid rc=0
	shift
	"$@" &
	pid=$!
	until { readlink "/proc/$pid/fd"/* 2>/dev/null || true; } | grep -q "$TMP/made/" ||
		! kill -0 $pid 2>/dev/null; do :; done
	kill -s "$sig" $pid 2>/dev/null || true
	wait $pid || rc=$?
	[ $rc = 0 ] || [ $rc -gt 128 ] || { echo "status $rc"; return 1; }
}
# only FILE...: the folder holds these files and no others
only() { diff <(printf '%s\n' "$@" | sort) <(ls -A made); }

echo before >made/c.pack
echo before >made/c.dump
# The signal may arrive before or after the command's end: the file is as before, or whole.
foundry-store export -q -o whole.pack big
foundry-store dump -q -o whole.dump
# ended HOW SIGNAL...: runs export and dump, each with HOW before it, and ends them by each of the
# signals
ended() {
	local how=$1 sig kind cmd what
	shift
	for sig; do
		for kind in pack dump; do
			cmd=export what=big
			[ $kind = pack ] || cmd=dump what=
			echo before >made/c.$kind
			# shellcheck disable=SC2086
			t "$how $cmd ended by SIG$sig" interrupted "$sig" $how foundry-store $cmd \
				-q -o "$TMP/made/c.$kind" $what
			t "$how $cmd ended by SIG$sig leaves no other file" only c.pack c.dump
			t "its file after $how and SIG$sig is as before, or whole" bash -c \
				"grep -qx before made/c.$kind || cmp made/c.$kind whole.$kind"
		done
	done
}
ended "" INT TERM HUP
# kill -9 leaves nothing if the file system supports files without a name (O_TMPFILE).
if python3 -c 'import os; os.close(os.open("made", os.O_TMPFILE | os.O_RDWR))' 2>no; then
	ended "" KILL
fi
# Without /proc, a file without a name cannot get one later. The file has a temporary name then,
# which an interrupted command removes.
printf '#!/bin/sh\nmount -t tmpfs none /proc && exec "$@"\n' >without_proc
chmod +x without_proc
if unshare -rm ./without_proc true 2>no; then
	ended "unshare -rm ./without_proc" INT TERM HUP
	t "a pack without /proc" unshare -rm ./without_proc foundry-store export -q -o made/c.pack \
		big
	t "a pack written without /proc is whole" cmp made/c.pack whole.pack
	t "a pack written without /proc leaves no other file" only c.pack c.dump
fi

# --- the limit on a file's length ---

limited() { (ulimit -f "$1" && shift && exec "$@"); }
t "a pack beyond the limit fails" says_only 5 'cannot write' limited 100 foundry-store export -o \
	made/c.pack big
t "a dump beyond the limit fails" says_only 5 'cannot write' limited 100 foundry-store dump -o \
	made/c.dump
t "failed commands leave no file" only c.pack c.dump
t "a dump to standard output beyond the limit fails" exits 5 limited 100 bash -c \
	"foundry-store dump >long"
t "an import beyond the limit fails" fails 'limit' limited 100 foundry-store -s "$TMP/s2" import \
	whole.pack
t "the store is sound" foundry-store verify -q

# --- links and names ---

ln -s c.pack made/link
t "export through a link replaces the link's target" bash -c \
	"foundry-store export -q -o made/link big && test -L made/link &&
		cmp made/c.pack whole.pack"
t "export to a folder that is missing is refused" says_only 2 'cannot write' foundry-store export \
	-o made/no/x.pack big
t "a pack's mode obeys the umask" bash -c \
	"umask 027; foundry-store export -q -o made/m.pack small &&
		test \$(stat -c %a made/m.pack) = 640"
t "export writes to a device in place" bash -c \
	"foundry-store export -q -o /dev/null small && test -c /dev/null"
rm -f made/*

# --- a FIFO instead of a file ---

for name in used verified .claim-0000000000000000 leases/0123456789abcdef; do
	rm -f "$FOUNDRY_STORE/$name"
	mkfifo "$FOUNDRY_STORE/$name"
	for cmd in "ls" "show small" "gc -n" "gc -y" "evict -y --free 1" "tag small x" "verify"; do
		# shellcheck disable=SC2086
		t "$cmd beside a FIFO $name ends" timeout 60 bash -c \
			'rc=0; "$@" </dev/null || rc=$?; test $rc -lt 124' - foundry-store $cmd
	done
	rm -f "$FOUNDRY_STORE/$name"
done
t "the store is sound" foundry-store verify -q
t_done
