#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of backing up and restoring a store while other processes seal and read.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

head -c 100000 /dev/urandom >content
for i in 1 2 3; do
	"$store_image" "$FOUNDRY_STORE" "kept/$i" content "$ROOT/tests/lib.sh" >/dev/null
	echo "$i" >>content
done

# A process writes and reads until the file stop exists, and adds a line to the file failed for each
# call that fails.
writer() {
	local i=0
	until [ -e stop ]; do
		i=$((i + 1))
		echo "$i" >new
		"$store_image" "$FOUNDRY_STORE" "new/$i" new >/dev/null || echo "seal $i" >>failed
		[ $((i % 4)) = 0 ] || continue
		foundry-store rm -y -q "new/$i" && foundry-store gc -y -q >/dev/null ||
			echo "gc $i" >>failed
	done
}
reader() {
	until [ -e stop ]; do
		foundry-store show kept/1 >/dev/null || echo show >>failed
	done
}
sound() { foundry-store "$@" verify | grep -q ' 0 faults found'; }
before=$(foundry-store ls 'kept/*' | awk '{ print $1, $2 }')

writer 2>>failed &
reader 2>>failed &
t "a backup beside a writer and a reader" foundry-store export --all -q -o backup.pack
t "a restore into a new store" foundry-store -s "$shm/new" import -q backup.pack
t "the restored store is sound" sound -s "$shm/new"
t "the restored store has every ref" prints "$before" bash -c \
	"foundry-store -s $shm/new ls 'kept/*' | awk '{ print \$1, \$2 }'"
foundry-store rm -y -q kept/2 kept/3 && foundry-store tag -q kept/1 kept/3
t "a restore into the same store beside them" foundry-store import -q backup.pack
t "the restore sets the refs as they were" prints "$before" bash -c \
	"foundry-store ls 'kept/*' | awk '{ print \$1, \$2 }'"
touch stop
wait
t "no call of the writer or the reader failed" prints "" bash -c 'sort failed | uniq -c'
t "the store beside writer and reader is sound" sound

# data.mdb itself
cp "$FOUNDRY_STORE/data.mdb" "$shm/data.mdb"
foundry-store rm -y -q kept/1 && foundry-store gc -y -q >/dev/null
cp "$shm/data.mdb" "$FOUNDRY_STORE/data.mdb.new" &&
	mv "$FOUNDRY_STORE/data.mdb.new" "$FOUNDRY_STORE/data.mdb"
t "a copy of data.mdb that is renamed into place has every ref" prints "$before" bash -c \
	"foundry-store ls 'kept/*' | awk '{ print \$1, \$2 }'"
t "the copy is sound" sound

foundry-store -s "$shm/none" init >/dev/null
t "export --all of an empty store" says_only 3 "has no refs" foundry-store -s "$shm/none" export \
	--all -o x
t "export of --all and a ref is wrong usage" exits 2 foundry-store export --all kept/1 -o x
t "export of neither --all nor a ref is wrong usage" exits 2 foundry-store export -o x
t_done
