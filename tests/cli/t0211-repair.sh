#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store verify and repair on a store with a damaged object: the output, and the
# objects that are restored.
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

# damage: overwrites bytes of the object in data.mdb, where it is stored uncompressed
damage() {
	python3 - "$1/data.mdb" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    at = f.read().index(b"what is damaged")
    f.seek(at)
    f.write(b"WHAT")
PY
}
# found COMMAND...: the command succeeds and reports a finding
found() { exits 1 foundry-store "$@"; }
damage s

t "verify names the object and the ref" bash -c "foundry-store verify >out; test \$? = 1 &&
	grep -q '^$bad: object $bad is damaged' out &&
	grep -q \"^$two: ref 'two.*cannot be loaded\" out && ! grep -q 'one' out"
t "verify as JSON" json \
	"[f['kind'] for f in j['findings']] == ['damaged', 'ref'] and
		j['findings'][0]['id'] == '$bad' and j['damaged'] == 1" \
	found verify --json
t "verify --fast hashes what has no fingerprint" bash -c \
	"foundry-store verify --fast >out; test \$? = 1 &&
	grep -q '^$bad: object $bad is damaged' out &&
	grep -q '0 objects (0 B) by fingerprints' out"
t "repair --dry-run finds a source" prints "$bad: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded (nothing was written)" \
	bash -c "foundry-store repair -n good.pack | grep -v 'ref .two'"
t "repair --dry-run writes nothing" exits 1 foundry-store verify
t "repair without a source puts the object into quarantine" bash -c \
	"foundry-store repair >out; test \$? = 1 && cat out &&
	grep -q '^$bad: damaged, and no source has it' out &&
	grep -q \"^ref 'two' cannot be loaded\" out"
t "verify reports an object in quarantine" bash -c "foundry-store verify | grep -q 'in quarantine'"
t "export refuses an image with an object in quarantine" says_only 7 'in quarantine' foundry-store \
	export -o x.pack two
t "export of the other image works" bash -c "foundry-store export -o y.pack one"
t "repair restores the object from another store" prints "$bad: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded" foundry-store repair whole
t "the store repaired from a store is sound" exits 0 foundry-store verify
damage s
t "repair restores the object from a pack, as JSON" json \
	"j['events'] == [{'event': 'back', 'id': '$bad'}] and j['back'] == 1 and
		j['damaged'] == 1" \
	foundry-store repair --json good.pack
t "the store repaired from a pack is sound" exits 0 foundry-store verify
t "repair of a sound store does nothing" prints \
	"0 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded" foundry-store repair \
	good.pack
damage s
t "repair with a missing source" says_only 3 'cannot open the source none' foundry-store repair none
t "repair with half a pack" bash -c \
	"head -c 1000 good.pack >half; foundry-store repair half 2>&1 |
		grep -q 'source half: the pack ends early'"
t "failed repairs change nothing" bash -c \
	"foundry-store verify | grep -q '^$bad: object $bad is damaged'"
t_done
