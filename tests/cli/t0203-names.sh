#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foundry-store: what names an object, questions on a terminal, and what a quiet or dry run prints.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
"$BUILD/tests/cli/store_many" "$FOUNDRY_STORE" 700
foundry-store ls -O >objects

# twice KIND: four digits with which ids of this kind, and no others, begin more than once
twice() {
	awk -v kind="$1" '{ p = substr($1, 1, 4); n[p]++; if ($2 != kind) other[p] = 1 }
		END { for (p in n) if (n[p] > 1 && !other[p]) print p }' objects | sort | sed -n 1p
}
of_images=$(twice manifest) of_chunks=$(twice chunk)
listed=$(grep "^$of_images" objects | awk '{ print substr($1, 1, 16), $2 }' | LC_ALL=C sort | paste -sd, | sed 's/,/, /g')
t "there are such ids" test -n "$of_images" -a -n "$of_chunks"
t "an abbreviation that fits several images lists them" \
	says_only 3 "several ids begin with '$of_images': $listed; type more digits" foundry-store show "$of_images"
t "also for a command that wants an image" says_only 3 "several ids begin with '$of_images': $listed" foundry-store tag "$of_images" x
t "of several chunks" says_only 3 "several ids begin with '$of_chunks': [0-9a-f]{16} chunk, " foundry-store show "$of_chunks"
t "chunks do not stand in the way of an image" says_only 3 "no ref '$of_chunks', and no image" foundry-store tag "$of_chunks" x
chunk=$(awk '$2 == "chunk" { print $1 }' objects | sed -n 1p)
t "one more digit is enough" bash -c "foundry-store show ${chunk:0:12} | grep -qx 'chunk $chunk'"
t "three digits are too few" says_only 3 "no ref '${chunk:0:3}'" foundry-store show "${chunk:0:3}"
t "a chunk is no image" says_only 2 "is not an image but a chunk" foundry-store graph "$chunk" 1
echo x >x
"$store_image" "$FOUNDRY_STORE" "$of_images" x >/dev/null
t "a ref goes before ids" bash -c "foundry-store show $of_images | sed -n 2p | grep -qx 'ref $of_images'"

# --- names that are none ---

for name in /a a/ a//b ../a a/.. . "a b" a:b ä "$(printf 'a%.0s' {1..256})"; do
	t "tag: no name '${name:0:20}'" says_only 2 "name|operand" foundry-store tag many/9 "$name"
done
controls=$(printf 'a\033[31m\007')
t "tag: no controls" says_only 2 "'a[\\]x1b[[]31m[\\]x07' is not a ref's name" foundry-store tag many/9 "$controls"
t "show: no controls" says_only 2 "'a[\\]x1b[[]31m[\\]x07' is not a ref's name" foundry-store show "$controls"
t "another directory: no controls" says_only 3 "there is no store at a[\\]x1b[[]31m[\\]x07" foundry-store ls -s "$controls"
t "and nothing was named" bash -c "foundry-store ls -j | python3 -c '
import json, sys
assert all(r[\"ref\"].startswith(\"many/\") or len(r[\"ref\"]) == 4 for r in json.load(sys.stdin)[\"refs\"])'"

# --- questions ---

t "rm asks on a terminal" exits 8 on_terminal n foundry-store rm many/1
t "and says what it would do" bash -c "python3 '$ROOT/tests/cli/on_terminal.py' no foundry-store rm many/1 many/2 | grep -q 'Remove many/1 (.*), many/2 (.*)?'"
t "no is no" foundry-store show -q many/1
t "yes is yes" on_terminal y foundry-store rm many/1
t "and it is done" says_only 3 "no ref 'many/1'" foundry-store show many/1
t "--yes does not ask" on_terminal "" foundry-store rm --yes many/2
t "no terminal, no question" prints "removed many/3, which was $(foundry-store ls -j | python3 -c "
import json, sys
print(next(r['id'] for r in json.load(sys.stdin)['refs'] if r['ref'] == 'many/3'))")" foundry-store rm many/3
t "gc asks as well" exits 8 on_terminal x foundry-store gc
t "--dry-run does not ask" on_terminal "" foundry-store gc --dry-run
t "rm --dry-run removes nothing" bash -c "foundry-store rm -n many/4 | grep -q '^would remove many/4, which is ' && foundry-store show many/4 >/dev/null"
t "rm --dry-run knows what is not there" says_only 3 "no ref 'nobody'" foundry-store rm -n nobody
t "rm --quiet says nothing" prints "" bash -c "foundry-store rm -q many/4; printf '\n'"
t "gc --quiet says nothing" prints "" bash -c "foundry-store gc -q; printf '\n'"
t "rm --dry-run as JSON" json "j['dry_run'] and [r['ref'] for r in j['removed']] == ['many/5']" foundry-store rm --dry-run --json many/5

# --- an empty store, and one that cannot be written ---

FOUNDRY_STORE=$TMP/empty
"$BUILD/tests/cli/store_many" empty 0
t "ls of an empty store" prints "NAME  IMAGE         GPU      GRAPHS        SIZE      UNIQUE" foundry-store ls
t "as JSON" json "j['refs'] == []" foundry-store ls --json
t "gc of an empty store" prints "removed 0 objects, 0 B at rest; 0 stay" foundry-store gc
t "verify of an empty store" prints "0 objects (0 B) and 0 refs checked, 0 faults found" foundry-store verify
t_done
