#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foundry-store dump and undump: text of a store, and the same store from it.
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
image=$(printf '%s\n' 'fact model 7' 'content x' 'content noise' 'kernel add CODE1 8' 'graph 1 one g' | "$BUILD/tests/cli/store_seal" s a/b)
foundry-store tag a/b other >/dev/null
loose=$("$store_image" s - noise)
objects() { foundry-store -s "$1" ls -O | cut -d' ' -f1 | LC_ALL=C sort; }

t "dump one object" prints "foundry-dump 1
object $(id_of x) chunk
bytes 1
78
end" foundry-store dump "$(id_of x)"
t "a graph is text" bash -c "foundry-store dump --reach a/b | sed -n '/^text/,/^end/p' | grep -v '^#' |
	diff - <(echo text; cat g; echo end)"
t "an image has links" prints "$(foundry-store dump --reach a/b | sed -n 's/^object \([0-9a-f]*\) [cgk].*/link \1/p' | LC_ALL=C sort)" \
	bash -c "foundry-store dump $image | grep '^link '"
t "and refs, as they were set" prints "ref a/b $image
ref other $image" bash -c "foundry-store dump $image | grep '^ref ' | sed 's/ identity .*//'"
t "only its own" bash -c "! foundry-store dump $(id_of x) | grep -q '^ref '"
t "without refs" bash -c "! foundry-store dump --no-refs $image | grep -q '^ref '"
t "lines are short" bash -c "test \$(foundry-store dump $(id_of noise) | grep -cE '^[0-9a-f]{64}$') = 3"
t "dump all" foundry-store dump -o all
t "it is the same twice" bash -c "foundry-store dump | cmp - all"
t "undump" prints "6 objects, 2 of them images; 2 refs" foundry-store -s t undump all
t "makes the same objects" prints "$(objects s)" objects t
t "and the same text" bash -c "foundry-store -s t dump | cmp - all"
t "and a sound store" exits 0 foundry-store -s t verify
t "refs too" prints "$(foundry-store ls -q)" foundry-store -s t ls -q
t "again is no change" foundry-store -s t undump all
t "from a pipe, as JSON" json "j == {'changed': [], 'dry_run': False, 'objects': 6, 'images': 2, 'refs': 2}" foundry-store undump --json -s p - <all
t "a loose object stays" bash -c "foundry-store dump $(id_of x) | foundry-store -s l undump - && foundry-store -s l show $(id_of x) >/dev/null"

# --- a dry run ---

t "a dry run names what a new place lacks" prints "$(objects s | sed 's/^/would store /')" \
	bash -c "foundry-store -s new undump -n all | grep -xE 'would store [0-9a-f]{64}' | LC_ALL=C sort"
t "and refs" prints "would set a/b to $image
would set other to $image
would store 6 of 6 objects, and set 2 refs" bash -c "foundry-store -s new undump -n all | tail -n 3"
t "and makes no store" test ! -e new
mkdir new
t "nor in an empty directory" bash -c "foundry-store -s new undump -nq all && rmdir new"
t "where no store would be made it fails" says_only 3 "not a store" foundry-store -s "$TMP" undump -n all
foundry-store dump "$(id_of x)" | foundry-store -s part undump -q
before=$(foundry-store -s part dump)
t "what is there counts as there" json "len(j['stored']) == 5 and '$(id_of x)' not in j['stored'] and j['dry_run'] and j['objects'] == 6 and
	j['set'] == [{'ref': 'a/b', 'id': '$image'}, {'ref': 'other', 'id': '$image'}]" foundry-store undump -s part -nj all
t "a store stays as it is" prints "$before" foundry-store -s part dump
t "of what is there nothing is told" prints "would store 0 of 6 objects, and set 2 refs" \
	bash -c "foundry-store undump -n all | grep -v '^would set'"
t "a ref that is so is set all the same" bash -c "foundry-store undump -n all | grep -qx 'would set a/b to $image'"
printf 'foundry-dump 1\nref z %s\n' "$loose" | foundry-store -s t undump -q
printf 'foundry-dump 1\nref z %s\n' "$image" >ref.txt
t "what a ref names is told" bash -c "foundry-store -s t undump -n ref.txt | grep -qx 'would set z to $image, was $loose'"
t "a ref of what the text brings" bash -c "foundry-store dump --reach $image | foundry-store -s new undump -n | grep -q '^would set other'"
printf 'foundry-dump 1\nobject %s %s\nbytes 1\n78\nend\n' "$(id_of x)" chunk - manifest | sed '6s/.*/# again/' >again.txt
printf 'ref z %s\n' "$(id_of x)" >>again.txt
t "a ref of what is an image at last" bash -c "foundry-store -s new undump -n again.txt | tail -n 1 | grep -q '^would store 1 of 2 objects, and set 1 ref$'"
t "a ref of what would not be there" says_only 3 "line 2: object $image is neither in the store nor" foundry-store -s new undump -n ref.txt
printf 'foundry-dump 1\nref z %s\n' "$(id_of x)" >ref.txt
t "a ref of what is no image" says_only 2 "line 2: .* is not an image" foundry-store undump -n ref.txt
printf 'foundry-dump 1\nobject %s chunk,graph\nbytes 1\n78\nend\n' "$(id_of x)" >kind.txt
t "another kind" prints "would store $(id_of x)
would store 1 of 1 object, and set 0 refs" foundry-store undump -n kind.txt
printf 'foundry-dump 1\nobject %s chunk\nlink %s\nbytes 1\n78\nend\n' "$(id_of x)" "$loose" >link.txt
t "another link" prints "would store $(id_of x)
would store 1 of 1 object, and set 0 refs" foundry-store undump -n link.txt
t "a link that would lead nowhere" says_only 3 "line 6: a link names object $loose" foundry-store -s new undump -n link.txt
(cat link.txt; sed 1d link.txt) >twice.txt
t "what comes twice is told once" bash -c "foundry-store undump -n twice.txt | tail -n 1 | grep -q '^would store 1 of 2 objects'"
cp -r t hurt
python3 -c "
d = open('hurt/data.mdb', 'rb').read()
b = open('noise', 'rb').read()
open('hurt/data.mdb', 'wb').write(d.replace(b, bytes(len(b))))"
t "damage would heal" prints "would store $(id_of noise)
would store 1 of 6 objects, and set 2 refs" bash -c "foundry-store -s hurt undump -n all | grep -v '^would set'"

# --- changed ---

foundry-store dump "$(foundry-store ls -O | awk '$2 == "graph" { print $1 }')" >graph.txt
sed 's/grid 391/grid 392/' graph.txt >changed.txt
t "a changed object has another id" says_only 2 "line [0-9]+: the object has the id [0-9a-f]{64}, not " foundry-store -s c undump changed.txt
sed -i 's/^object [0-9a-f]*/object -/' changed.txt
foundry-store undump -n changed.txt >planned
t "unless the text says so" bash -c "foundry-store undump changed.txt | grep -E '^stored [0-9a-f]{64}$' >id"
new=$(sed -n 's/^stored //p' id)
t "as a dry run had said" prints "would store $new
would store 1 of 1 object, and set 0 refs" cat planned
t "and says no more" prints "$new exists
would store 0 of 1 object, and set 0 refs" foundry-store undump -n changed.txt
t "and it is stored" bash -c "foundry-store dump \$(sed -n 's/^stored //p' id) | grep -q 'grid 392'"

# --- what is no dump ---

bad() { # TITLE TEXT REGEX
	printf 'foundry-dump 1\n%b' "$2" >bad.txt
	t "$1" says_only 2 "$3" foundry-store -s bad undump bad.txt
}
x=$(id_of x)
t "another file" bash -c "foundry-store -s bad undump g 2>&1 | grep -q 'first line'"
t "an empty file" says_only 2 "first line" foundry-store -s bad undump /dev/null
bad "no object" 'what\n' "line 2: an object or a ref should begin here, not 'what'"
bad "no id" 'object x chunk\n' "line 2: 'x' is not an id"
bad "no kind" "object $x\n" "line 2: an id or -, then kinds, must follow"
bad "another kind" "object $x thing\n" "line 2: 'thing' is not a kind"
bad "too few bytes" "object $x chunk\nbytes 2\n78\n" "line 4: there are 1 bytes; there should be 2|line 3"
bad "too many bytes" "object $x chunk\nbytes 1\n7878\nend\n" "line 4: there are 2 bytes; there should be 1"
bad "half a byte" "object $x chunk\nbytes 1\n7\nend\n" "line 4: this line must hold pairs of digits"
bad "no digits" "object $x chunk\nbytes 1\nzz\nend\n" "line 4: this line must hold pairs of digits"
bad "a number that is none" "object $x chunk\nbytes many\n" "line 3: 'many' is not a number of bytes"
bad "too large" "object $x chunk\nbytes 1073741825\n" "line 3: '1073741825' is not a number of bytes"
bad "no end" "object $x chunk\nbytes 1\n78\n" "line 4: the text ends within an object"
bad "a ref within an object" "object $x chunk\nref a\nbytes 1\n78\nend\n" "line 3: 'ref a' is not part of an object"
bad "a ref without an id" "ref a\n" "line 2: a ref's name and an id"
bad "a bad ref's controls" "ref a\\033[31mb $x\n" "line 2: a ref's name and an id"
bad "a word of controls" 'wh\033[31mat\n' "line 2: an object or a ref should begin here, not 'wh[\\]x1b[[]31mat'"
bad "a bad ref" "ref a//b $x\n" "line 2: a ref's name and an id"
bad "a bad identity" "ref a $x identity y\n" "line 2: an id must follow 'identity'"
bad "more behind a ref" "ref a $x pinned twice\n" "line 2: 'twice' is not part"
bad "a bad link" "object $x chunk\nlink y\n" "line 3: 'y' is not an id"
bad "something else" "object $x chunk\nsize 7\n" "line 3: 'size 7' is not part"
bad "a bad graph" "object - graph\ntext\nnode 0 empty\nend\n" "graph after line 3"
bad "a graph without an end" "object - graph\ntext\nfoundry-graph 1\n" "the text ends within an object"
printf 'foundry-dump 1\nobject - chunk\nlink %s\nbytes 1\n78\nend\n' "$loose" >bad.txt
t "a link to what is not there" says_only 3 "$loose" foundry-store -s bad undump bad.txt
printf 'foundry-dump 1\nref a %s\n' "$loose" >bad.txt
t "a ref of what is not there" says_only 3 "line 2: .*$loose" foundry-store -s bad undump bad.txt
t "a file that is not there" says_only 3 "cannot read nothing" foundry-store -s bad undump nothing
t "dump what is not there" says_only 3 "no ref 'nobody'" foundry-store dump nobody
t "dump is no JSON" exits 2 foundry-store dump --json
t "dump into a full disk" fails "cannot write" foundry-store dump -o /dev/full
t "nothing was left in the bad store" bash -c "test -z \"\$(foundry-store -s bad ls -O)\""
t_done
