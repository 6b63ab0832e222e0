#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store compact: the file shrinks, nothing is lost, and a store in use is refused.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
for i in 1 2 3; do
	head -c 3000000 /dev/urandom >"f$i"
done
"$store_image" "$FOUNDRY_STORE" m/a f1 f2 >id
"$store_image" "$FOUNDRY_STORE" m/b f3 >id
"$store_image" "$FOUNDRY_STORE" m/c f1 >id
data=$FOUNDRY_STORE/data.mdb
foundry-store rm -q m/b
foundry-store gc -q
foundry-store pin -q m/a
foundry-store limit -q 100M
foundry-store dump >before.dump
foundry-store ls --json >before.ls
size() { stat -c %b "$data"; }
same() { # the store holds what it held before
	foundry-store verify -q && foundry-store dump | cmp - before.dump &&
		foundry-store ls --json | cmp - before.ls
}

# --- in use ---

coproc python3 -c 'import foundry, os
store = foundry.Store(os.environ["FOUNDRY_STORE"])
print(os.getpid(), flush=True)
input()'
read -r pid <&"${COPROC[0]}"
before=$(stat -c '%i %s' "$data")
t "a store in use is refused, with the process" says_only 4 \
	"other processes have the store .* open: $pid; stop them, and try again" \
	foundry-store compact
t "the refusal changed nothing" prints "$before" stat -c '%i %s' "$data"
echo >&"${COPROC[1]}"
wait "$pid" || true

# --- compacting ---

had=$(size)
t "compact prints both sizes" bash -c "foundry-store compact |
	grep -Eqx 'data.mdb has [0-9.]+ MiB on disk, had [0-9.]+ MiB'"
t "the file is smaller by the freed objects" test "$(size)" -lt $((had - 1500))
t "compact loses nothing and keeps pins" same
t "the limit stays" json "j['limit'] == 100 << 20 and j['file']['free_pages'] < 10" \
	foundry-store stat --json
t "the file has its mode" prints 600 stat -c %a "$data"
t "no file is left over" prints "" find "$FOUNDRY_STORE" -name '.*' -type f
t "it can be compacted again, as JSON" json "0 < j['after'] <= j['before']" foundry-store compact \
	--json
t "a second compact loses nothing" same
t "the store can be written" "$store_image" "$FOUNDRY_STORE" m/d f3
foundry-store rm -q m/d
t "--quiet prints nothing" prints "" foundry-store compact -q

# --- failures ---

foundry-store gc -q
before=$(stat -c '%i %s' "$data")
t "compact fails if the new file may not be so large" \
	exits 5 bash -c 'ulimit -f 2000; foundry-store compact'
t "the failed compact keeps the old file" prints "$before" stat -c '%i %s' "$data"
t "the failed compact leaves no other file" prints "" find "$FOUNDRY_STORE" -name '.*' -type f
t "the failed compact loses nothing" same
t "compact of a directory without a store fails" says_only 3 "" foundry-store -s "$shm/none" compact
cp -r "$FOUNDRY_STORE" "$shm/damaged"
python3 - "$shm/damaged/data.mdb" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(0)
    f.write(b"\xa5" * 9000)
END
t "compact of a damaged store fails" fails "" foundry-store -s "$shm/damaged" compact

# --- beside other processes ---

fails=0
for i in {1..8}; do
	foundry-store compact -q 2>>err & compact=$!
	foundry-store ls -q >names 2>>err & list=$!
	"$store_image" "$FOUNDRY_STORE" "new/$i" f3 >id 2>>err & seal=$!
	for p in $compact $list $seal; do
		rc=0
		wait "$p" || rc=$?
		[ $rc = 0 ] || [ $rc = 4 ] || [ "$p" = $seal ] || fails=$((fails + 1))
	done
done
t "beside compact, other commands work or say what to do" prints 0 echo "$fails"
t "the store is sound after commands beside compact" foundry-store verify -q
foundry-store ls -q 'new/*' | while read -r name; do foundry-store rm -q "$name"; done
foundry-store gc -q
names() { grep -E '^(ref|object)' | sort; }
foundry-store dump | names >after
t "nothing is lost beside other processes" cmp after <(names <before.dump)
t_done
