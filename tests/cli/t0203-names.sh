#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store: the names of objects, questions on a terminal, and the output of quiet and
# dry runs.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
"$BUILD/tests/cli/store_many" "$FOUNDRY_STORE" 700
foundry-store ls -O >objects

# twice KIND: prints four digits with which several ids of this kind begin, and none of another kind
twice() {
	awk -v kind="$1" '{ p = substr($1, 1, 4); n[p]++; if ($2 != kind) other[p] = 1 }
		END { for (p in n) if (n[p] > 1 && !other[p]) print p }' objects | sort | sed -n 1p
}
of_images=$(twice manifest) of_chunks=$(twice chunk)
listed=$(grep "^$of_images" objects | awk '{ print substr($1, 1, 16), $2 }' | LC_ALL=C sort |
	paste -sd, | sed 's/,/, /g')
t "some ids share their first four digits" test -n "$of_images" -a -n "$of_chunks"
t "an error lists the images whose ids begin with an ambiguous prefix" \
	says_only 3 "several ids begin with '$of_images': $listed; type more digits" foundry-store \
	show "$of_images"
t "a command with an image operand lists them, too" says_only 3 \
	"several ids begin with '$of_images': $listed" foundry-store tag "$of_images" x
t "an error lists the chunks of an ambiguous prefix" says_only 3 \
	"several ids begin with '$of_chunks': [0-9a-f]{16} chunk, " foundry-store show "$of_chunks"
t "chunks do not make an image's prefix ambiguous" says_only 3 "no ref '$of_chunks', and no image" \
	foundry-store tag "$of_chunks" x
chunk=$(awk '$2 == "chunk" { print $1 }' objects | sed -n 1p)
t "one more digit is enough" bash -c "foundry-store show ${chunk:0:12} | grep -qx 'chunk $chunk'"
t "three digits are too few" says_only 3 "no ref '${chunk:0:3}'" foundry-store show "${chunk:0:3}"
t "graph refuses a chunk" says_only 2 "is not an image but a chunk" foundry-store graph "$chunk" 1
echo x >x
"$store_image" "$FOUNDRY_STORE" "$of_images" x >/dev/null
t "a ref has precedence over ids" bash -c \
	"foundry-store show $of_images | sed -n 2p | grep -qx 'ref $of_images'"

# --- invalid names ---

for name in /a a/ a//b ../a a/.. . "a b" a:b ä "$(printf 'a%.0s' {1..256})"; do
	t "tag refuses the name '${name:0:20}'" says_only 2 "name|operand" foundry-store tag \
		many/9 "$name"
done
controls=$(printf 'a\033[31m\007')
t "tag shows control characters escaped" says_only 2 "'a[\\]x1b[[]31m[\\]x07' is not a ref's name" \
	foundry-store tag many/9 "$controls"
t "show shows control characters escaped" says_only 2 \
	"'a[\\]x1b[[]31m[\\]x07' is not a ref's name" foundry-store show "$controls"
t "a store's path shows control characters escaped" says_only 3 \
	"there is no store at a[\\]x1b[[]31m[\\]x07" foundry-store ls -s "$controls"
t "refused names leave no ref" bash -c "foundry-store ls -j | python3 -c '
import json, sys
assert all(r[\"ref\"].startswith(\"many/\") or
	len(r[\"ref\"]) == 4 for r in json.load(sys.stdin)[\"refs\"])'"

# --- questions ---

t "rm asks on a terminal" exits 8 on_terminal n foundry-store rm many/1
t "rm's question names the refs" bash -c \
	"python3 '$ROOT/tests/cli/on_terminal.py' no foundry-store rm many/1 many/2 |
		grep -q 'Remove many/1 (.*), many/2 (.*)?'"
t "rm removes nothing if the answer is no" foundry-store show -q many/1
t "rm succeeds if the answer is yes" on_terminal y foundry-store rm many/1
t "the ref is removed if the answer is yes" says_only 3 "no ref 'many/1'" foundry-store show many/1
t "--yes does not ask" on_terminal "" foundry-store rm --yes many/2
t "rm without a terminal does not ask" prints "removed many/3, which was $(foundry-store ls -j |
	python3 -c "
import json, sys
print(next(r['id'] for r in json.load(sys.stdin)['refs'] if r['ref'] == 'many/3'))")" \
	foundry-store rm many/3
t "gc asks on a terminal" exits 8 on_terminal x foundry-store gc
t "--dry-run does not ask" on_terminal "" foundry-store gc --dry-run
t "rm --dry-run removes nothing" bash -c \
	"foundry-store rm -n many/4 | grep -q '^would remove many/4, which is ' &&
		foundry-store show many/4 >/dev/null"
t "rm --dry-run of an unknown ref" says_only 3 "no ref 'nobody'" foundry-store rm -n nobody
t "rm --quiet prints nothing" prints "" bash -c "foundry-store rm -q many/4; printf '\n'"
t "gc --quiet prints nothing" prints "" bash -c "foundry-store gc -q; printf '\n'"
t "rm --dry-run as JSON" json "j['dry_run'] and [r['ref'] for r in j['removed']] == ['many/5']" \
	foundry-store rm --dry-run --json many/5

# --- an empty store ---

FOUNDRY_STORE=$TMP/empty
"$BUILD/tests/cli/store_many" empty 0
t "ls of an empty store" prints \
	"NAME  IMAGE         GPU      GRAPHS        SIZE      UNIQUE  CREATED       USED" \
	foundry-store ls
t "ls of an empty store as JSON" json "j['refs'] == []" foundry-store ls --json
t "gc of an empty store" prints "removed 0 objects, 0 B at rest; 0 stay" foundry-store gc
t "verify of an empty store" prints "0 objects (0 B) and 0 refs checked, 0 faults found" \
	foundry-store verify
t_done
