#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store pin, unpin, limit and evict, and of single images of a name.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
for i in 1 2 3; do
	head -c 200000 /dev/urandom >"f$i"
	eval "id$i=\$(\"$store_image\" s name/$i f$i)"
done
# shellcheck disable=SC2154 # eval sets them
true "$id1 $id2 $id3"

t "limit" bash -c "foundry-store limit | grep -qE '^[0-9.]+ KiB in use, no limit$'"
t "limit SIZE" bash -c \
	"foundry-store limit 550K |
	grep -qE '^[0-9.]+ KiB of 550.0 KiB in use; foundry-store evict removes the excess$'"
t "limit as JSON" json "j['limit'] == 550 * 1024 and j['used'] > 600000" foundry-store limit --json
t "a limit of 0 is refused" says_only 2 "holds nothing" foundry-store limit 0
t "a limit that is no size is refused" says_only 2 "the limit" foundry-store limit much
t "stat prints the limit" bash -c \
	"foundry-store stat | grep -qE '^in use +[0-9.]+ [KM]iB of [0-9.]+ [KM]iB,
		beyond which images are evicted$'"
t "stat as JSON, too" json "j['used'] > j['limit'] > 0" foundry-store stat --json
t "evict --dry-run names the image" bash -c \
	"foundry-store evict --dry-run |
		grep -qE '^would evict name/1, which is $id1, last used [0-9]{4}-'"
t "evict --dry-run removes nothing" foundry-store show -q name/1
t "pin" prints "name/1 is pinned: $id1" foundry-store pin name/1
t "ls marks a pinned ref" bash -c "foundry-store ls | grep -q 'name/1 .*pinned'"
t "dump and undump keep pins" bash -c \
	"foundry-store dump | foundry-store -s other undump -q && foundry-store -s other ls |
		grep -q 'name/1 .*pinned' &&
	! foundry-store -s other ls | grep -q 'name/2 .*pinned'"
t "evict keeps a pinned ref" bash -c "foundry-store evict -n | grep -q '^would evict name/2, '"
t "evict as JSON" json \
	"[e['ref'] for e in j['evicted']] == ['name/2'] and j['dry_run'] and
		j['before'] > j['limit'] >= j['after']" foundry-store evict -nj
t "evict" bash -c "foundry-store evict | grep -q '^evicted name/2, which was $id2, '"
t "the evicted image is gone" says_only 3 "no object" foundry-store show "$id2"
t "the other images are whole" foundry-store verify
t "a second evict removes nothing" bash -c "foundry-store evict | grep -qE '^evicted 0 images; '"
t "unpin as JSON" json "[(r['ref'], r['pinned']) for r in j['refs']] == [('name/1', False)]" \
	foundry-store unpin --json name/1
t "pin of an unknown ref" says_only 3 "no ref 'nobody'" foundry-store pin nobody
t "evict asks on a terminal" exits 8 on_terminal n foundry-store evict 1K
t "evict to 0 bytes is refused" says_only 2 "holds nothing" foundry-store evict 0
t "evict to less than a byte is refused" says_only 2 "holds nothing" foundry-store evict 0.5
t "evict SIZE" bash -c "foundry-store evict 300K | grep -q '^evicted name/1, '"
t "limit none" bash -c "foundry-store limit none | grep -q 'no limit'"
t "evict without a limit" says_only 2 "has no limit" foundry-store evict

# --- an error on the way ---

# A library in front of LMDB, whose commits fail from number FAIL_AT on
cat >fail.c <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <errno.h>
	#include <stdlib.h>

	void mdb_txn_abort(void *txn);
	int mdb_txn_commit(void *txn)
	{
		int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "mdb_txn_commit");
		const char *at = getenv("FAIL_AT");
		static int nr;

		if (!at || ++nr < atoi(at))
			return real(txn);
		mdb_txn_abort(txn);
		return EIO;
	}
END
$CC -shared -fPIC -o fail.so fail.c
# failing COMMAND AT WORDS...: foundry-store COMMAND fails, if its commits do from number AT on
failing() {
	local command=$1 at=$2
	shift 2
	! FAIL_AT=$at LD_PRELOAD=$TMP/fail.so foundry-store "$command" "$@"
}
for i in 1 2; do "$store_image" e "name/$i" "f$i" >/dev/null; done
# FOUNDRY_STORE names another store
before=$(foundry-store -s e stat --json |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["used"])')
t "an error before anything is removed: the sizes" json \
	"j['evicted'] == [] and j['limit'] == 102400 and not j['collected'] and
		j['before'] == j['after'] == $before and j['error']['status'] == 9" \
	failing evict 2 -j 100K -s e
t "no ref was removed" bash -c "foundry-store -s e ls | grep -c name/ | grep -qx 2"
t "an error when refs are removed: the refs and the sizes" json \
	"[e['ref'] for e in j['evicted']] == ['name/1', 'name/2'] and j['limit'] == 102400 and
		j['before'] == $before >= j['after'] > 100000 and not j['collected'] and
		j['error']['status'] == 9" \
	failing evict 3 -j 100K -s e
t "the refs are gone" bash -c "! foundry-store -s e ls | grep name/"
t "the next collection frees the space" bash -c "foundry-store -s e gc | grep -q '^removed '"
t "without a store there are no sizes" json "list(j) == ['error']" \
	failing evict 1 -j 100K -s nowhere

# --- a name with two images ---

a=$("$store_image" s pair f1)
b=$(STORE_IMAGE_FACT=rank=1 "$store_image" s pair f2)
t "ls lists both images of a name" bash -c \
	"foundry-store ls 'pair*' | grep -c ' ${a:0:12} \| ${b:0:12} ' | grep -qx 2"
t "show of a name shows its newest image" bash -c "foundry-store show pair | grep -q '$b'"
t "NAME:DIGITS names one image" bash -c "foundry-store show pair:${a:0:6} | grep -q '$a'"
t "tag copies both images of a name" bash -c "foundry-store tag pair copy | wc -l | grep -qx 2"
t "tag as JSON" json "sorted(t['id'] for t in j['tagged']) == sorted(['$a', '$b'])" foundry-store \
	tag pair copy --json
t "rm NAME:DIGITS removes one image" prints "removed pair, which was $a" foundry-store rm \
	"pair:${a:0:8}"
t "the name's other image stays" bash -c "foundry-store ls -j 'pair' | grep -q '$b'"
t "NAME:DIGITS without such an image" says_only 3 "no image of 'pair'" foundry-store rm \
	"pair:${a:0:8}"
t "NAME:DIGITS with too few digits" says_only 2 "behind the colon" foundry-store rm pair:ab
t "rm of a name removes all its images" bash -c "foundry-store rm copy | wc -l | grep -qx 2"
t_done
