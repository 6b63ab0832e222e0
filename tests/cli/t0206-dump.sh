#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store dump, which prints a store as text, and undump, which makes the same store
# from it.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
printf x >x
head -c 100 /dev/urandom >noise
cat >g <<'END'
foundry-graph 1
node 0 empty
node 1 kernel 0 grid 391 1 1 block 256 1 1 shared 0 args 0000500000000000
edge 0 1
END
image=$(printf '%s\n' 'fact model 7' 'content x' 'content noise' 'kernel add CODE1 8' \
	'graph 1 one g' | "$BUILD/tests/cli/store_seal" s a/b)
foundry-store tag a/b other >/dev/null
loose=$("$store_image" s - noise)
objects() { foundry-store -s "$1" ls -O | cut -d' ' -f1 | LC_ALL=C sort; }

t "undump of a file that is not a dump makes no store" bash -c \
	"! foundry-store -s n undump x 2>/dev/null && test ! -e n"
t "dump one object" prints "foundry-dump 1
object $(id_of x) chunk
bytes 1
78
end" foundry-store dump "$(id_of x)"
t "a graph is dumped as text" bash -c \
	"foundry-store dump --reach a/b | sed -n '/^text/,/^end/p' | grep -v '^#' |
	diff - <(echo text; cat g; echo end)"
t "an image is dumped with its links" prints "$(foundry-store dump --reach a/b |
	sed -n 's/^object \([0-9a-f]*\) [cgk].*/link \1/p' | LC_ALL=C sort)" \
	bash -c "foundry-store dump $image | grep '^link '"
t "an image is dumped with its refs, in the order in which they were set" prints "ref a/b $image
ref other $image" bash -c "foundry-store dump $image | grep '^ref ' | sed 's/ identity .*//'"
t "dump of a chunk has no refs" bash -c "! foundry-store dump $(id_of x) | grep -q '^ref '"
t "dump --no-refs has no refs" bash -c "! foundry-store dump --no-refs $image | grep -q '^ref '"
t "lines of bytes have 64 digits" bash -c "test \$(foundry-store dump $(id_of \
	noise) | grep -cE '^[0-9a-f]{64}$') = 3"
t "dump of the whole store" foundry-store dump -o all
t "two dumps are equal" bash -c "foundry-store dump | cmp - all"
t "undump prints what it stored" prints "6 objects, 2 of them images; 2 refs" foundry-store -s t \
	undump all
t "undump makes the same objects" prints "$(objects s)" objects t
t "the undumped store gives the same dump" bash -c "foundry-store -s t dump | cmp - all"
t "the undumped store is sound" exits 0 foundry-store -s t verify
t "the undumped store has the same refs" prints "$(foundry-store ls -q)" foundry-store -s t ls -q
t "a second undump changes nothing" foundry-store -s t undump all
t "undump from a pipe, as JSON" json \
	"j == {'changed': [], 'dry_run': False, 'objects': 6, 'images': 2, 'refs': 2}" \
	foundry-store undump --json -s p - <all
t "undump keeps an object without a ref" bash -c \
	"foundry-store dump $(id_of \
	x) | foundry-store -s l undump - && foundry-store -s l show $(id_of x) >/dev/null"

# --- a dry run ---

t "a dry run lists the objects that a new store would get" prints \
	"$(objects s | sed 's/^/would store /')" \
	bash -c "foundry-store -s new undump -n all | grep -xE 'would store [0-9a-f]{64}' |
		LC_ALL=C sort"
t "a dry run lists the refs that it would set" prints "would set a/b to $image
would set other to $image
would store 6 of 6 objects, and set 2 refs" bash -c "foundry-store -s new undump -n all | tail -n 3"
t "a dry run makes no store" test ! -e new
mkdir new
t "a dry run makes no store in an empty directory" bash -c \
	"foundry-store -s new undump -nq all && rmdir new"
t "a dry run fails if undump would make no store" says_only 3 "not a store" foundry-store -s \
	"$TMP" undump -n all
foundry-store dump "$(id_of x)" | foundry-store -s part undump -q
before=$(foundry-store -s part dump)
t "a dry run does not list objects that the store has" json \
	"len(j['stored']) == 5 and '$(id_of \
	x)' not in j['stored'] and j['dry_run'] and j['objects'] == 6 and
	j['set'] == [{'ref': 'a/b', 'id': '$image'}, {'ref': 'other', 'id': '$image'}]" \
		foundry-store undump -s part -nj all
t "a dry run does not change the store" prints "$before" foundry-store -s part dump
t "a dry run prints only changes" prints "would store 0 of 6 objects, and set 2 refs" \
	bash -c "foundry-store undump -n all | grep -v '^would set'"
t "a dry run lists refs that would not change" bash -c \
	"foundry-store undump -n all | grep -qx 'would set a/b to $image'"
printf 'foundry-dump 1\nref z %s\n' "$loose" | foundry-store -s t undump -q
printf 'foundry-dump 1\nref z %s\n' "$image" >ref.txt
t "a dry run prints the image that a ref named before" bash -c \
	"foundry-store -s t undump -n ref.txt | grep -qx 'would set z to $image, was $loose'"
t "a dry run accepts a ref to an image of the dump" bash -c \
	"foundry-store dump --reach $image | foundry-store -s new undump -n |
		grep -q '^would set other'"
printf 'foundry-dump 1\nobject %s %s\nbytes 1\n78\nend\n' "$(id_of x)" chunk - manifest |
	sed '6s/.*/# again/' >again.txt
printf 'ref z %s\n' "$(id_of x)" >>again.txt
t "a dry run accepts a ref to an object whose last kind is an image" bash -c \
	"foundry-store -s new undump -n again.txt | tail -n 1 |
		grep -q '^would store 1 of 2 objects, and set 1 ref$'"
t "a dry run refuses a ref to a missing object" says_only 3 \
	"line 2: object $image is neither in the store nor" foundry-store -s new undump -n ref.txt
printf 'foundry-dump 1\nref z %s\n' "$(id_of x)" >ref.txt
t "a dry run refuses a ref to a chunk" says_only 2 "line 2: .* is not an image" foundry-store \
	undump -n ref.txt
printf 'foundry-dump 1\nobject %s chunk,graph\nbytes 1\n78\nend\n' "$(id_of x)" >kind.txt
t "a dry run lists an object with another kind" prints "would store $(id_of x)
would store 1 of 1 object, and set 0 refs" foundry-store undump -n kind.txt
printf 'foundry-dump 1\nobject %s chunk\nlink %s\nbytes 1\n78\nend\n' "$(id_of x)" "$loose" \
	>link.txt
t "a dry run lists an object with another link" prints "would store $(id_of x)
would store 1 of 1 object, and set 0 refs" foundry-store undump -n link.txt
t "a dry run refuses a link to a missing object" says_only 3 "line 6: a link names object $loose" \
	foundry-store -s new undump -n link.txt
(cat link.txt; sed 1d link.txt) >twice.txt
t "a dry run lists an object once that the dump has twice" bash -c \
	"foundry-store undump -n twice.txt | tail -n 1 | grep -q '^would store 1 of 2 objects'"
cp -r t hurt
python3 -c "
d = open('hurt/data.mdb', 'rb').read()
b = open('noise', 'rb').read()
open('hurt/data.mdb', 'wb').write(d.replace(b, bytes(len(b))))"
t "a dry run lists a damaged object that undump would repair" prints "would store $(id_of noise)
would store 1 of 6 objects, and set 2 refs" bash -c \
	"foundry-store -s hurt undump -n all | grep -v '^would set'"

# --- changed ---

foundry-store dump "$(foundry-store ls -O | awk '$2 == "graph" { print $1 }')" >graph.txt
sed 's/grid 391/grid 392/' graph.txt >changed.txt
t "a changed object has another id" says_only 2 \
	"line [0-9]+: the object has the id [0-9a-f]{64}, not " foundry-store -s c undump \
	changed.txt
sed -i 's/^object [0-9a-f]*/object -/' changed.txt
foundry-store undump -n changed.txt >planned
t "an object without an id in the dump gets a new one" bash -c \
	"foundry-store undump changed.txt | grep -E '^stored [0-9a-f]{64}$' >id"
new=$(sed -n 's/^stored //p' id)
t "the dry run before printed the same id" prints "would store $new
would store 1 of 1 object, and set 0 refs" cat planned
t "a second dry run says that the object exists" prints "$new exists
would store 0 of 1 object, and set 0 refs" foundry-store undump -n changed.txt
t "the changed object is stored" bash -c \
	"foundry-store dump \$(sed -n 's/^stored //p' id) | grep -q 'grid 392'"

# --- invalid dumps ---

bad() { # TITLE TEXT REGEX
	printf 'foundry-dump 1\n%b' "$2" >bad.txt
	t "$1" says_only 2 "$3" foundry-store -s bad undump bad.txt
}
x=$(id_of x)
t "undump of a file that is not a dump fails" \
	bash -c "foundry-store -s bad undump g 2>&1 | grep -q 'first line'"
t "undump of an empty file fails" says_only 2 "first line" foundry-store -s bad undump /dev/null
bad "a line that begins neither an object nor a ref" 'what\n' \
	"line 2: an object or a ref should begin here, not 'what'"
bad "a word that is no id" 'object x chunk\n' "line 2: 'x' is not an id"
bad "an object without a kind" "object $x\n" "line 2: an id or -, then kinds, must follow"
bad "an unknown kind" "object $x thing\n" "line 2: 'thing' is not a kind"
bad "too few bytes" "object $x chunk\nbytes 2\n78\n" \
	"line 4: there are 1 bytes; there should be 2|line 3"
bad "too many bytes" "object $x chunk\nbytes 1\n7878\nend\n" \
	"line 4: there are 2 bytes; there should be 1"
bad "half a byte" "object $x chunk\nbytes 1\n7\nend\n" "line 4: this line must hold pairs of digits"
bad "bytes that are no digits" "object $x chunk\nbytes 1\nzz\nend\n" \
	"line 4: this line must hold pairs of digits"
bad "a length that is no number" "object $x chunk\nbytes many\n" \
	"line 3: 'many' is not a number of bytes"
bad "a length beyond the limit" "object $x chunk\nbytes 1073741825\n" \
	"line 3: '1073741825' is not a number of bytes"
bad "an object without an end" "object $x chunk\nbytes 1\n78\n" \
	"line 4: the text ends within an object"
bad "a ref within an object" "object $x chunk\nref a\nbytes 1\n78\nend\n" \
	"line 3: 'ref a' is not part of an object"
bad "a ref without an id" "ref a\n" "line 2: a ref's name and an id"
bad "a ref's name with control characters" "ref a\\033[31mb $x\n" "line 2: a ref's name and an id"
bad "a word of control characters" 'wh\033[31mat\n' \
	"line 2: an object or a ref should begin here, not 'wh[\\]x1b[[]31mat'"
bad "a ref's bad name" "ref a//b $x\n" "line 2: a ref's name and an id"
bad "a bad identity" "ref a $x identity y\n" "line 2: an id must follow 'identity'"
bad "an unknown word after a ref" "ref a $x pinned twice\n" "line 2: 'twice' is not part"
bad "a bad link" "object $x chunk\nlink y\n" "line 3: 'y' is not an id"
bad "an unknown line within an object" "object $x chunk\nsize 7\n" "line 3: 'size 7' is not part"
bad "a bad graph" "object - graph\ntext\nnode 0 empty\nend\n" "graph after line 3"
bad "a graph without an end" "object - graph\ntext\nfoundry-graph 1\n" \
	"the text ends within an object"
printf 'foundry-dump 1\nobject - chunk\nlink %s\nbytes 1\n78\nend\n' "$loose" >bad.txt
t "undump of a link to a missing object fails" \
	says_only 3 "$loose" foundry-store -s bad undump bad.txt
printf 'foundry-dump 1\nref a %s\n' "$loose" >bad.txt
t "undump of a ref to a missing object fails" \
	says_only 3 "line 2: .*$loose" foundry-store -s bad undump bad.txt
t "undump of a missing file fails" \
	says_only 3 "cannot read nothing" foundry-store -s bad undump nothing
t "dump of an unknown ref fails" says_only 3 "no ref 'nobody'" foundry-store dump nobody
t "dump with --json is wrong usage" exits 2 foundry-store dump --json
t "dump to a full disk fails" fails "cannot write" foundry-store dump -o /dev/full
t "failed undumps leave no object" bash -c "test -z \"\$(foundry-store -s bad ls -O)\""
t_done
