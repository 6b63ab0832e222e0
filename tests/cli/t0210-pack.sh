#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store export and import: files, pipes, output, and what a failure leaves.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"

head -c 300000 /dev/zero | tr '\0' a >a
head -c 50000 /dev/urandom >b
export FOUNDRY_STORE=$TMP/s
one=$("$store_image" s model/one a b)
two=$("$store_image" s two b)
refs() { foundry-store -s "$1" ls | awk 'NR > 1 { print $2, $1 }'; }

# --- there and back ---

t "export to a file" prints "exported 3 objects (N KiB) as N KiB" \
	bash -c "foundry-store export -o one.pack model/one | sed -E 's/[0-9.]+ KiB/N KiB/g'"
t "the file has the usual mode" test "$(stat -c %a one.pack)" = \
	"$(printf '%o' $((0666 & ~$(umask))))"
t "import makes a store" prints "model/one is $one
imported 3 of 3 objects, N KiB of N KiB" bash -c \
	"foundry-store -s t import one.pack | sed -E 's/[0-9.]+ KiB/N KiB/g'"
t "the imported store is sound" exits 0 foundry-store -s t verify
t "export and import work through a pipe" bash -c \
	"set -o pipefail; foundry-store export model/one two | foundry-store -s u import -"
t "the pipe carries all refs" prints "$(refs s)" refs u
t "a second import stores nothing" prints "model/one is $one
imported 0 of 3 objects, 0 B of N KiB" bash -c \
	"foundry-store -s t import <one.pack | sed -E 's/[0-9.]+ KiB/N KiB/g'"
t "an export of the imported store gives the same pack" cmp one.pack \
	<(foundry-store -s t export model/one)
t "the operands' order does not change the pack" cmp <(foundry-store export two model/one) \
	<(foundry-store -s u export model/one two model/one)
t "export writes to a device in place" bash -c \
	"foundry-store export -o /dev/null two && test -c /dev/null"

# --- names ---

t "export of an id warns that it has no name" prints \
	"$two has no name; name it with tag, or the next gc removes it" \
	bash -c "foundry-store export '${two:0:10}' | foundry-store -s v import | grep -v ^imported"
t "export --no-refs leaves names out" bash -c \
	"foundry-store export --no-refs two | foundry-store -s v import | grep -q 'has no name'"
t "import --no-refs sets no names" bash -c \
	"foundry-store export two | foundry-store -s v import --no-refs | grep -q 'has no name'"
t "neither import set a name" prints "" refs v
foundry-store -s v import one.pack >/dev/null
foundry-store -s v tag "$two" model/one >/dev/null
t "import prints the image that a name had before" prints "model/one is $one, was $two" bash -c \
	"foundry-store -s v import one.pack | grep -v ^imported"

# --- JSON ---

t "export as JSON" json "j['images'] == 1 and j['objects'] == 3 and j['packed'] == $(stat -c %s \
	one.pack)" \
	foundry-store export -j -o again.pack model/one
t "export --plain as JSON" json "j['packed'] > j['bytes'] > 350000" foundry-store export --plain \
	-j -o plain.pack model/one
t "import as JSON" json \
	"j['objects_new'] == 0 and j['images'] == [{'id': '$one', 'ref': 'model/one'}] and
		not j['dry_run']" \
	foundry-store import --json plain.pack
t "import --dry-run as JSON" json \
	"j['objects_new'] == 3 and j['stored_new'] == 0 and j['dry_run']" \
	foundry-store import -s empty -nj one.pack
t "import --dry-run makes no store" test ! -e empty
foundry-store init -q empty
t "import --dry-run writes nothing to a store" bash -c \
	"foundry-store import -s empty -nq one.pack && test -z \"\$(foundry-store -s empty ls -O)\""
t "export to standard output with --json is refused" fails 'cannot both be on standard output' \
	foundry-store export --json two
t "import --quiet prints nothing" prints "" foundry-store import -q one.pack

# --- failures ---

t "export of an unknown ref" says_only 3 "no ref 'three'" foundry-store export three
t "export of a chunk is refused" says_only 2 "is not an image but a chunk" foundry-store export \
	"$(id_of a)"
t "export to a missing folder" says_only 2 'cannot write no/where' foundry-store export -o \
	no/where two
t "import of a missing file" says_only 3 'cannot read none.pack' foundry-store import none.pack
t "import of a file that is no pack" says_only 7 'not a pack' foundry-store import b
t "import of an empty pipe" says_only 7 'ends early' bash -c ": | foundry-store import"
t "import of a file that is not a pack makes no store" bash -c \
	"! foundry-store -s x import </dev/null 2>/dev/null && ! foundry-store -s x import b \
		2>/dev/null && test ! -e x"
# state: what the store t has, without the ages that ls prints
state() { foundry-store -s t ls | awk '{ print $1, $2 }' && foundry-store -s t gc -n; }
before=$(state)
head -c 40000 one.pack >half.pack
printf '%s' half >kept.pack
t "import of half a pack" says_only 7 'ends early' foundry-store -s w import half.pack
t "half a pack sets no ref" prints "" refs w
t "gc removes the objects of half a pack" bash -c \
	"foundry-store -s w gc -y && test \"\$(foundry-store -s w ls -O)\" = ''"
sed 's/aaaa/aaab/' plain.pack >bad.pack
t "import of a damaged pack" says_only 7 'does not match its id' foundry-store -s w import bad.pack
cat one.pack b >more.pack
t "data after the pack is refused" fails 'data follows' foundry-store -s w import more.pack
foundry-store rm two >/dev/null
t "a failed export leaves an old file alone" says_only 3 "no ref 'two'" foundry-store export -o \
	kept.pack two
t "the old file has its content" prints half cat kept.pack
t "a failed export leaves no other file" prints "" bash -c "ls kept.pack?* 2>/dev/null || true"
t "failed imports leave the other store as before" prints "$before" state
t "export refuses to write to a terminal" bash -c \
	"python3 '$ROOT/tests/cli/on_terminal.py' '' foundry-store export model/one |
		grep -q 'not written to a terminal'"
t_done
