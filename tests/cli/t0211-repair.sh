#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foundry-store verify and repair of a store with a damaged object: what is said, what comes back.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
head -c 200000 /dev/urandom >a
{ printf 'what is damaged'; head -c 50000 /dev/zero; } >b
"$store_image" s one a >/dev/null
two=$("$store_image" s two a b)
bad=$(id_of b)
foundry-store export -o good.pack two
cp -r s whole

# damage: other bytes where the object lies, which is stored plain
damage() {
	python3 - "$1/data.mdb" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    at = f.read().index(b"what is damaged")
    f.seek(at)
    f.write(b"WHAT")
PY
}
# found COMMAND...: it ends well, having found something
found() { exits 1 foundry-store "$@"; }
damage s

t "verify names the object and the ref" bash -c "foundry-store verify >out; test \$? = 1 &&
	grep -q '^$bad: object $bad is damaged' out && grep -q \"^$two: ref 'two.*cannot be loaded\" out && ! grep -q 'one' out"
t "verify as JSON" json "[f['kind'] for f in j['findings']] == ['damaged', 'ref'] and j['findings'][0]['id'] == '$bad' and j['damaged'] == 1" \
	found verify --json
t "verify --fast hashes what has no fingerprint" bash -c "foundry-store verify --fast >out; test \$? = 1 &&
	grep -q '^$bad: object $bad is damaged' out && grep -q '0 objects (0 B) by fingerprints' out"
t "a dry run finds a source" prints "$bad: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded (nothing was written)" \
	bash -c "foundry-store repair -n good.pack | grep -v 'ref .two'"
t "and writes nothing" exits 1 foundry-store verify
t "without a source it goes into quarantine" bash -c "foundry-store repair >out; test \$? = 1 && cat out &&
	grep -q '^$bad: damaged and nowhere to be had' out && grep -q \"^ref 'two' cannot be loaded\" out"
t "where verify still finds it" bash -c "foundry-store verify | grep -q 'in quarantine'"
t "an export refuses" says_only 7 'in quarantine' foundry-store export -o x.pack two
t "the other image is well" bash -c "foundry-store export -o y.pack one"
t "from another store it comes back" prints "$bad: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded" foundry-store repair whole
t "and all is well" exits 0 foundry-store verify
damage s
t "from a pack, as JSON" json "j['events'] == [{'event': 'back', 'id': '$bad'}] and j['back'] == 1 and j['damaged'] == 1" \
	foundry-store repair --json good.pack
t "all is well again" exits 0 foundry-store verify
t "nothing to do" prints "0 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded" foundry-store repair good.pack
damage s
t "no such source" says_only 3 'cannot open the source none' foundry-store repair none
t "half a pack" bash -c "head -c 1000 good.pack >half; foundry-store repair half 2>&1 | grep -q 'source half: the pack ends early'"
t "neither changed anything" bash -c "foundry-store verify | grep -q '^$bad: object $bad is damaged'"
t_done
