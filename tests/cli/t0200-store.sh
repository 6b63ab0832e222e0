#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store, command by command: its output and its exit status.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
# --- usage ---

t "--help succeeds" foundry-store --help
t "--version prints the version" prints "foundry-store 0.2.0" foundry-store --version
t "an option without a command is wrong usage" exits 2 foundry-store -q
t "an unknown command is wrong usage" exits 2 foundry-store frob
t "an unknown option is wrong usage" exits 2 foundry-store --frob ls
t "an option of another command is wrong usage" exits 2 foundry-store ls --dry-run
t "too few operands are wrong usage" exits 2 foundry-store tag x
t "too many operands are wrong usage" exits 2 foundry-store stat x
t "an unknown command's error names the help" fails 'see foundry-store --help' foundry-store frob
t "a wrong operand's error names the command's help" fails 'see foundry-store help tag' \
	foundry-store tag x

# --- no store ---

t "no store: ls fails" says_only 3 'there is no store at' foundry-store ls
t "no store: ls makes none" test ! -e s
for command in "show x" "verify" "tag x y" "rm x" gc; do
	# shellcheck disable=SC2086 # words are meant
	t "$command without a store" says_only 3 'there is no store at' foundry-store $command
done
mkdir empty
t "an empty directory is not a store" says_only 3 'is not a store' foundry-store -s empty ls
t "an empty path is refused" says_only 2 'path is empty' foundry-store -s '' ls
t "an empty FOUNDRY_STORE is refused" says_only 2 'FOUNDRY_STORE is set but empty' env \
	FOUNDRY_STORE= foundry-store ls
t "without any place for a store, an error names FOUNDRY_STORE" says_only 2 'set FOUNDRY_STORE' \
	env -u FOUNDRY_STORE -u XDG_CACHE_HOME -u HOME foundry-store ls
mkdir -m 777 open && "$store_image" good - >/dev/null && cp good/data.mdb open/ && chmod 777 open
t "a directory that everybody may write is refused" says_only 6 'chmod o-w' foundry-store -s open ls

# --- images ---

head -c 5000 /dev/zero | tr '\0' a >a
head -c 300000 /dev/zero | tr '\0' b >b
head -c 1000 /dev/zero | tr '\0' c >c
one=$("$store_image" s model/one a b)
two=$("$store_image" s two b c)
loose=$("$store_image" s - c)

t "ls" prints "NAME       IMAGE         GPU      GRAPHS SIZE UNIQUE CREATED USED
model/one  ${one:0:12}  -             0 N KiB N KiB N s ago N s ago
two        ${two:0:12}  -             0 N KiB N KiB N s ago N s ago" bash -c \
	"foundry-store ls | sed -E 's/ +[0-9.]+ (KiB|s)/ N \1/g;
		s/ +(SIZE|CREATED|USED|UNIQUE)/ \1/g'"
t "ls as JSON" json \
	"[(r['ref'], r['id'], r['objects'], r['broken']) for r in j['refs']] ==
		[('model/one', '$one', 3, False), ('two', '$two', 3,
		False)]" foundry-store ls --json
t "ls --objects" bash -c \
	"foundry-store ls --objects | awk '{ print \$1, \$2, \$5 }' | LC_ALL=C sort |
		diff <(printf '%s\n' \
	'$one manifest 2' '$two manifest 2' '$loose manifest 1' '$(id_of a) chunk 0' '$(id_of \
	b) chunk 0' '$(id_of c) chunk 0' | LC_ALL=C sort) -"
t "ls --objects as JSON" json \
	"sum(o['bytes'] for o in j['objects'] if o['kind'] == 'chunk') == 306000 and
		len(j['objects']) == 6" foundry-store ls -Oj
show=$(foundry-store show model/one)
t "show begins with kind, id and ref" test "$(head -n 2 <<<"$show")" = "manifest $one
ref model/one"
t "show prints what a load needs" grep -qx \
	"needs 2097152 bytes of device memory at 0x500000000000, 305000 of them copied; \
about 0 more for 0 graphs with 0 nodes, 0 for 0 kernels" <<<"$show"
t "show prints what the image reaches" grep -qx 'reaches 2 chunks: 297.9 KiB, stored in 297.9 KiB' \
	<<<"$show"
t "show prints the image's segments" grep -q '^segment 0x500000000000 1048576 content$' <<<"$show"
t "show says how much content is in tensors" grep -qx \
	'content of tensors 0, of other memory 305000' <<<"$show"
t "show says where other content is" grep -qx \
	'content in no tensor 0x500000000000 5000 of 1048576' <<<"$show"
t "show by id" prints "$show" foundry-store show "$one"
t "show by the beginning of the id" prints "$show" foundry-store show "${one:0:8}"
t "show a chunk" prints "chunk $(id_of c)
size 1000, stored 1000, links 0
reaches 1 chunk: 1000 B, stored in 1000 B" foundry-store show "$(id_of c)"
t "show as JSON" json \
	"j['id'] == '$one' and j['refs'] == ['model/one'] and
		j['reaches']['chunk']['objects'] == 2 and 'region' in j['text']" \
	foundry-store show --json model/one
t "show an unknown ref" says_only 3 "no ref 'model/two'" foundry-store show model/two
t "show an unknown id" says_only 3 "no object" foundry-store show "$(printf '%064d' 0)"
t "show a bad name" says_only 2 "not a ref's name" foundry-store show 'a b'
t "verify" prints "6 objects (300.7 KiB) and 2 refs checked, 0 faults found" \
	bash -c "foundry-store verify | sed 's/([0-9.]* KiB)/(300.7 KiB)/'"
t "verify as JSON" json \
	"j['objects'] == 6 and j['refs'] == 2 and j['findings'] == [] and j['damaged'] == 0" \
	foundry-store verify --json

# --- names ---

t "tag" prints "three is $loose" foundry-store tag "${loose:0:10}" three
t "tag of a ref to itself changes nothing" prints "three is $loose" foundry-store tag three three
t "tag of a used name prints the old image" prints "three is $two, was $loose" foundry-store tag \
	two three
t "tag as JSON" json "j['tagged'] == [{'ref': 'three', 'id': '$two', 'was': '$two'}]" \
	foundry-store tag two three --json
t "tag with a bad name" says_only 2 "part of it is empty" foundry-store tag two a//b
t "tag a chunk" says_only 2 "is not an image but a chunk" foundry-store tag "$(id_of a)" x
t "tag of an unknown ref" says_only 3 "no ref 'nothing'" foundry-store tag nothing x
t "rm" prints "removed three, which was $two" foundry-store rm three
t "rm of an unknown ref" says_only 3 "no ref 'three'" foundry-store rm three
t "rm with one unknown ref removes the others" bash -c \
	"foundry-store tag two x && foundry-store tag two y && ! foundry-store rm x nothing y &&
		foundry-store ls --json | grep -c ref\\\" | grep -qx 2"
t "rm as JSON" bash -c \
	"foundry-store tag two x >/dev/null && foundry-store rm -j x |
		python3 -c \"import json, sys
assert json.load(sys.stdin)['removed'] == [{'ref': 'x', 'id': '$two'}]\""

# --- collecting ---

t "gc --dry-run" bash -c \
	"foundry-store gc --dry-run | grep -qE '^would remove 1 object, [0-9]+ B at rest; 5 stay$'"
t "gc --dry-run removes nothing" bash -c "foundry-store ls -O | wc -l | grep -qx 6"
t "gc" bash -c "foundry-store gc | grep -qE '^removed 1 object, [0-9]+ B at rest; 5 stay$'"
t "a second gc removes nothing" prints "removed 0 objects, 0 B at rest; 5 stay" foundry-store gc
t "gc after rm, as JSON" bash -c "foundry-store rm two >/dev/null"
t "gc keeps objects that another ref needs" json \
	"j['dead'] == 2 and j['live'] == 3 and not j['dry_run']" foundry-store gc -j
t "a collected object is gone" says_only 3 "no object" foundry-store show "$(id_of c)"
t "a kept image is whole" prints "$show" foundry-store show model/one
t "verify after gc" exits 0 foundry-store verify

# --- damage ---

flip() { # FILE OFFSET
	printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
cp -r s damaged
at=$(grep -aboE 'a{5000}' damaged/data.mdb)
at=${at%%:*}
flip damaged/data.mdb $((at + 100))
t "verify finds damage" exits 1 foundry-store -s damaged verify
t "verify names the object and the ref" prints "$(id_of a)
ref 'model/one' cannot be loaded" bash -c "foundry-store -s damaged verify | grep -oE \"^$(id_of \
	a)|ref 'model/one' cannot be loaded\""
t "verify of damage as JSON" bash -c \
	"foundry-store -s damaged verify -j >report; test \$? = 1 &&
		python3 -c \"import json; j = json.load(open('report'))
assert j['damaged'] == 1 and len(j['findings']) == 2
assert j['findings'][0]['id'] == '$(id_of a)'\""
t "sealing again repairs a damaged object" bash -c \
	"'$store_image' damaged model/one a b && foundry-store -s damaged verify"
cp -r s short
truncate -s 20000 short/data.mdb
t "a truncated store is refused" says_only 7 'cut short: data.mdb has 20000 of' foundry-store -s \
	short ls
t "verify refuses a truncated store" says_only 7 'cut short' foundry-store -s short verify
echo "no store at all" >short/data.mdb
t "a file that is not a store is refused" says_only 3 "does not begin as a store's" foundry-store \
	-s short ls

t "output that cannot be written" fails 'cannot write the output' bash -c \
	'foundry-store ls >/dev/full'
t_done
