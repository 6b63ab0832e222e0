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
t "from a pipe, as JSON" json "j == {'changed': [], 'objects': 6, 'images': 2, 'refs': 2}" foundry-store undump --json -s p - <all
t "a loose object stays" bash -c "foundry-store dump $(id_of x) | foundry-store -s l undump - && foundry-store -s l show $(id_of x) >/dev/null"

# --- changed ---

foundry-store dump "$(foundry-store ls -O | awk '$2 == "graph" { print $1 }')" >graph.txt
sed 's/grid 391/grid 392/' graph.txt >changed.txt
t "a changed object has another id" says_only 2 "line [0-9]+: the object has the id [0-9a-f]{64} and not " foundry-store -s c undump changed.txt
sed -i 's/^object [0-9a-f]*/object -/' changed.txt
t "unless the text says so" bash -c "foundry-store undump changed.txt | grep -E '^stored [0-9a-f]{64}$' >id"
t "and it is stored" bash -c "foundry-store dump \$(sed -n 's/^stored //p' id) | grep -q 'grid 392'"

# --- what is no dump ---

bad() { # TITLE TEXT REGEX
	printf 'foundry-dump 1\n%b' "$2" >bad.txt
	t "$1" says_only 2 "$3" foundry-store -s bad undump bad.txt
}
x=$(id_of x)
t "another file" bash -c "foundry-store -s bad undump g 2>&1 | grep -q 'first line'"
t "an empty file" says_only 2 "first line" foundry-store -s bad undump /dev/null
bad "no object" 'what\n' "line 2: 'what' stands where an object or a ref should begin"
bad "no id" 'object x chunk\n' "line 2: 'x' is not an id"
bad "no kind" "object $x\n" "line 2: an id, or -, and kinds"
bad "another kind" "object $x thing\n" "line 2: 'thing' is no kind"
bad "too few bytes" "object $x chunk\nbytes 2\n78\n" "line 4: there are 1 bytes and should be 2|line 3"
bad "too many bytes" "object $x chunk\nbytes 1\n7878\nend\n" "line 4: there are 2 bytes and should be 1"
bad "half a byte" "object $x chunk\nbytes 1\n7\nend\n" "line 4: pairs of digits"
bad "no digits" "object $x chunk\nbytes 1\nzz\nend\n" "line 4: pairs of digits"
bad "a number that is none" "object $x chunk\nbytes many\n" "line 3: 'many' is not a number of bytes"
bad "too large" "object $x chunk\nbytes 1073741825\n" "line 3: '1073741825' is not a number of bytes"
bad "no end" "object $x chunk\nbytes 1\n78\n" "line 4: the text ends within an object"
bad "a ref within an object" "object $x chunk\nref a\nbytes 1\n78\nend\n" "line 3: 'ref a' has no place in an object"
bad "a ref without an id" "ref a\n" "line 2: a ref's name and an id"
bad "a bad ref's controls" "ref a\\033[31mb $x\n" "line 2: a ref's name and an id"
bad "a word of controls" 'wh\033[31mat\n' "line 2: 'wh[?][[]31mat' stands where"
bad "a bad ref" "ref a//b $x\n" "line 2: a ref's name and an id"
bad "a bad identity" "ref a $x identity y\n" "line 2: an id should stand behind 'identity'"
bad "more behind a ref" "ref a $x pinned twice\n" "line 2: 'twice' has no place"
bad "a bad link" "object $x chunk\nlink y\n" "line 3: 'y' is not an id"
bad "something else" "object $x chunk\nsize 7\n" "line 3: 'size 7' has no place"
bad "a bad graph" "object - graph\ntext\nnode 0 empty\nend\n" "graph behind line 3"
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
