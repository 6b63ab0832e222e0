#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store ls, du and stat: the store's contents and their sizes.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
for i in 1 2 3 4; do
	seq $i 10000 >f$i # the files differ, and each is longer than a page
done
a=$("$store_image" s m/a f1 f2)
b=$("$store_image" s m/b f2 f3)
foundry-store tag m/a other >loose
"$store_image" s - f4 >loose
stored() {
	foundry-store ls -O | awk -v ids="$*" \
		'BEGIN { split(ids, want);
			for (i in want) ok[want[i]] = 1 } $1 in ok { s += $4 } END { print s }'
}
f1=$(id_of f1) f2=$(id_of f2) f3=$(id_of f3)
all_a=$(stored "$a" "$f1" "$f2") own_a=$(stored "$a" "$f1") all_b=$(stored "$b" "$f2" "$f3") \
	own_b=$(stored "$b" "$f3")

# --- ls ---

t "ls: size and unshared size of each ref" json \
	"[(r['ref'], r['stored'], r['unique_stored'], r['unique_objects'],
		r['broken']) for r in j['refs']] ==
	[('m/a', $all_a, $own_a, 2, False), ('m/b', $all_b, $own_b, 2, False), ('other', $all_a,
	$own_a, 2, False)]" foundry-store ls --json
t "ls: refs that match a pattern" prints "$(printf 'm/a\nm/b')" foundry-store ls -q 'm/*'
t "ls: several patterns" prints "$(printf 'm/b\nother')" foundry-store ls -q 'o*r' 'm/[b-z]'
t "ls: no ref matches" prints "" foundry-store ls -q nothing
t "ls: in reverse" prints "$(printf 'other\nm/b\nm/a')" foundry-store ls -qr
t "ls: by size, equal ones by name" json \
	"[r['stored'] for r in j['refs']] ==
		sorted((r['stored'] for r in j['refs']), reverse=True) and
	[r['ref'] for r in j['refs'] if r['id'] == '$a'] == ['m/a', 'other']" foundry-store ls \
		--json --sort size
t "ls: by unshared size" json \
	"[r['unique_stored'] for r in j['refs']] ==
		sorted((r['unique_stored'] for r in j['refs']), reverse=True)" \
	foundry-store ls --json --sort unique
t "ls: by number of graphs" foundry-store ls --sort graphs
t "ls: an unknown sort key is an error" fails "cannot be sorted by 'age'" foundry-store ls --sort \
	age
t "ls: an unknown sort key is wrong usage" exits 2 foundry-store ls --sort age
t "ls: patterns with --objects are wrong usage" exits 2 foundry-store ls --objects x
t "ls --long" bash -c \
	"foundry-store ls -l |
		grep -qE '^m/a +${a:0:12} +- +0 +0 +3( +[0-9.]+ KiB){4}( +[0-9]+ s ago){2}$'"
t "ls --long: the header" bash -c \
	"foundry-store ls -l | head -n 1 | grep -qx 'NAME   IMAGE         GPU      GRAPHS    \
NODES  OBJECTS    UNPACKED        SIZE      UNIQUE      SHARED  CREATED       USED'"
t "ls: no colours in a pipe" bash -c "! foundry-store ls | grep -q \$'\033'"
t "ls: colours on a terminal" bash -c \
	"python3 '$ROOT/tests/cli/on_terminal.py' '' foundry-store ls |
		grep -q \$'\033\[33m${a:0:12}\033\[0m'"
t "ls: no colours with NO_COLOR" bash -c \
	"! NO_COLOR=1 python3 '$ROOT/tests/cli/on_terminal.py' '' foundry-store ls |
		grep -q \$'\033\[3'"

# One name can have two images, for two GPUs.
for sm in 80 90; do
	id=$(printf '%s\n' "fact fdry.gpu.arch sm_$sm" 'content f1' |
		"$BUILD/tests/cli/store_seal" multi -)
	foundry-store -s multi tag "$id" both >/dev/null
done
t "ls: a name that holds two images, the newer first" prints \
	"$(printf 'both sm_90 0\nboth sm_80 0')" \
	bash -c "foundry-store -s multi ls | awk 'NR > 1 { print \$1, \$3, \$4 }'"
t "ls --quiet: a name of two images is printed once" prints both foundry-store -s multi ls -q
times_and_store_off() {
	foundry-store -s "$1" ls --json | grep -vE '"(store|created|used)"' | sed 's/,$//'
}
export -f times_and_store_off
t "dump and undump keep the order of a name's images" bash -c \
	"foundry-store -s multi dump | foundry-store -s again undump -q &&
	diff <(times_and_store_off multi) <(times_and_store_off again)"
t "objects that two images of a name share are not unique to either" bash -c \
	"FOUNDRY_STORE=multi foundry-store du --json both |
	python3 -c 'import json, sys
assert [r[\"shared\"][\"objects\"] for r in json.load(sys.stdin)[\"refs\"]] == [1, 1]'"
which() { foundry-store -s multi du | grep -oE ' both:[0-9a-f]{8}$'; }
t "du prints the id of each image of a name" bash -c \
	"test \$(foundry-store -s multi du | grep -oE ' both:[0-9a-f]{8}\$' | sort -u | wc -l) = 2"
t "other commands accept the form that du prints" foundry-store -s multi show -q \
	"$(which | head -n 1 | tr -d ' ')"

# --- du ---

t "du as JSON" json \
	"[(r['ref'], r['unique']['stored'], r['shared']['stored'],
		r['all']['stored']) for r in j['refs']] ==
	[('m/a', $own_a, $(stored "$f2"), $all_a), ('m/b', $own_b, $(stored \
		"$f2"), $all_b), ('other', $own_a, $(stored "$f2"), $all_a)] and
	j['shared']['objects'] == 1 and j['shared']['stored'] == $(stored \
		"$f2") and j['loose']['objects'] == 2 and
	j['all']['objects'] == 7 and j['loose']['stored'] + $own_a + $own_b + $(stored \
		"$f2") == j['all']['stored']" foundry-store du --json
t "du" bash -c "foundry-store du | sed -n '1p; 3p' | sed -E 's/ +/ /g' | tr '\n' ';' |
	grep -qE '^ UNIQUE SHARED SIZE NAME; [0-9.]+ KiB [0-9.]+ KiB [0-9.]+ KiB m/b;$'"
t "du prints the size that no ref reaches" bash -c \
	"foundry-store du | grep -qE '^ +[0-9.]+ KiB that no ref reaches'"
t "du of one ref" json "[r['ref'] for r in j['refs']] == ['m/b'] and j['all']['objects'] == 7" \
	foundry-store du --json m/b
t "du of an unknown ref" says_only 3 "no ref 'nobody'" foundry-store du nobody
t "gc removes the bytes that du counts as unique" bash -c "
	foundry-store gc -q && foundry-store rm -q m/a other && foundry-store gc --json |
	python3 -c 'import json, sys; assert json.load(sys.stdin)[\"dead_stored\"] == $own_a'"

# --- stat ---

t "stat as JSON" json \
	"j['refs'] == 1 and j['kinds']['chunk']['objects'] == 2 and
		j['kinds']['manifest']['objects'] == 1 and
	j['kinds']['all']['objects'] == 3 and j['kinds']['all']['stored'] == $all_b and
	j['file']['readers'] == 0 and
	j['file']['bytes'] == $(stat -c %s \
		s/data.mdb) and 0 < j['file']['free_pages'] < j['file']['pages'] and
	j['file']['longest_run'] <= j['file']['free_pages'] and
	0 <= j['file']['fragmentation'] < 100" foundry-store stat --json
t "stat" bash -c "foundry-store stat | grep -qE '^chunk +2 +[0-9.]+ KiB +[0-9.]+ KiB 100.0 %$'"

# --- beside damage, on read-only media ---

if [ "$(id -u)" != 0 ]; then
	chmod a-w s s/*
	t "ls of a read-only store" foundry-store ls
	t "tag in a read-only store fails" says_only 6 "" foundry-store tag m/b x
	chmod u+w s s/*
fi
cp -r s broken
python3 - broken/data.mdb "$f2" <<-'END'
	import sys
	data = bytearray(open(sys.argv[1], "rb").read())
	oid = bytes.fromhex(sys.argv[2])
	at = data.find(oid)  # as a key, or a link
	while at >= 0:
	    data[at + 8] ^= 1
	    at = data.find(oid, at + 1)
	open(sys.argv[1], "wb").write(data)
END
FOUNDRY_STORE=$TMP/broken
t "ls as JSON marks broken refs" json "[r['broken'] for r in j['refs']] == [True]" foundry-store \
	ls --json
t_done
