#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What export, dump and graph write appears when it is whole: nothing is left of a command that was
# interrupted, killed or met a limit. A FIFO in the store's folder keeps no command waiting.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

head -c 3000000 /dev/urandom >big
head -c 1000 /dev/urandom >small
"$store_image" "$FOUNDRY_STORE" big big small >/dev/null
"$store_image" "$FOUNDRY_STORE" small small >/dev/null
mkdir made

# interrupted SIGNAL COMMAND...: the command gets the signal as soon as it has opened what it writes
interrupted() {
	local sig=$1 pid rc=0
	shift
	"$@" &
	pid=$!
	until { readlink "/proc/$pid/fd"/* 2>/dev/null || true; } | grep -q "$TMP/made/" || ! kill -0 $pid 2>/dev/null; do :; done
	kill -s "$sig" $pid 2>/dev/null || true
	wait $pid || rc=$?
	[ $rc = 0 ] || [ $rc -gt 128 ] || { echo "status $rc"; return 1; }
}
# only FILE...: nothing else lies in the folder
only() { diff <(printf '%s\n' "$@" | sort) <(ls -A made); }

echo before >made/c.pack
echo before >made/c.dump
# Whether the signal or the end comes first: the file is as it was, or whole.
foundry-store export -q -o whole.pack big
foundry-store dump -q -o whole.dump
# ended HOW SIGNAL...: the commands, begun by these words, end by each of the signals
ended() {
	local how=$1 sig kind cmd what
	shift
	for sig; do
		for kind in pack dump; do
			cmd=export what=big
			[ $kind = pack ] || cmd=dump what=
			echo before >made/c.$kind
			# shellcheck disable=SC2086
			t "$how $cmd ended by SIG$sig" interrupted "$sig" $how foundry-store $cmd -q -o "$TMP/made/c.$kind" $what
			t "leaves no other file" only c.pack c.dump
			t "and its own is as it was, or whole" bash -c "grep -qx before made/c.$kind || cmp made/c.$kind whole.$kind"
		done
	done
}
ended "" INT TERM HUP
# kill -9 leaves nothing if the file system knows files without a name.
if python3 -c 'import os; os.close(os.open("made", os.O_TMPFILE | os.O_RDWR))' 2>no; then
	ended "" KILL
fi
# Without /proc a file cannot get a name later on: it has another one, which an interrupted command
# removes.
printf '#!/bin/sh\nmount -t tmpfs none /proc && exec "$@"\n' >without_proc
chmod +x without_proc
if unshare -rm ./without_proc true 2>no; then
	ended "unshare -rm ./without_proc" INT TERM HUP
	t "a pack without /proc" unshare -rm ./without_proc foundry-store export -q -o made/c.pack big
	t "is whole" cmp made/c.pack whole.pack
	t "and alone" only c.pack c.dump
fi

# --- the limit on a file's length ---

limited() { (ulimit -f "$1" && shift && exec "$@"); }
t "a pack that becomes too long" says_only 5 'cannot write' limited 100 foundry-store export -o made/c.pack big
t "a dump" says_only 5 'cannot write' limited 100 foundry-store dump -o made/c.dump
t "nothing is left of them" only c.pack c.dump
t "a dump on standard output" exits 5 limited 100 bash -c "foundry-store dump >long"
t "an import that does not fit" fails 'limit' limited 100 foundry-store -s "$TMP/s2" import whole.pack
t "the store is sound" foundry-store verify -q

# --- links and names ---

ln -s c.pack made/link
t "a link leads to the file that is replaced" bash -c "foundry-store export -q -o made/link big && test -L made/link && cmp made/c.pack whole.pack"
t "a name of the folder alone is refused" says_only 2 'cannot write' foundry-store export -o made/no/x.pack big
t "the mode is the umask's" bash -c "umask 027; foundry-store export -q -o made/m.pack small && test \$(stat -c %a made/m.pack) = 640"
t "a device is written in place" bash -c "foundry-store export -q -o /dev/null small && test -c /dev/null"
rm -f made/*

# --- a FIFO instead of a file ---

for name in used verified .claim-0000000000000000 leases/0123456789abcdef; do
	rm -f "$FOUNDRY_STORE/$name"
	mkfifo "$FOUNDRY_STORE/$name"
	for cmd in "ls" "show small" "gc -n" "gc -y" "evict -y --free 1" "tag small x" "verify"; do
		# shellcheck disable=SC2086
		t "$cmd beside a FIFO $name ends" timeout 60 bash -c 'rc=0; "$@" </dev/null || rc=$?; test $rc -lt 124' - foundry-store $cmd
	done
	rm -f "$FOUNDRY_STORE/$name"
done
t "the store is sound" foundry-store verify -q
t_done
