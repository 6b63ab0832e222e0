#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests on a GPU that a load detects content that changed in the store after it was verified: the
# load is refused, or the content is repaired if the store's folder has a pack. FOUNDRY_TEST_CUBIN
# runs the test on the software driver.
. "$(dirname "$0")/../lib.sh"

[ -n "${FOUNDRY_TEST_CUBIN:-}" ] || nvidia-smi -L >/dev/null 2>&1 || t_skip "no GPU"
vecadd=$BUILD/examples/vecadd
store=$PWD/store

cat >flip.py <<'PY'
"""Flips one bit of vector b in data.mdb, and keeps the record of verified objects valid."""
import os, struct, sys
store, bit = sys.argv[1], int(sys.argv[2])
want = struct.pack("<64f", *(0.25 * (i % 1000) for i in range(1000, 1064)))
with open(store + "/verified", "rb") as f:
    notes = bytearray(f.read())
with open(store + "/data.mdb", "r+b") as f:
    bytes_ = f.read()
    at = bytes_.find(want)
    assert at >= 0, "vector b is not in the store"
    while at >= 0:
        f.seek(at + bit // 8)
        f.write(bytes([bytes_[at + bit // 8] ^ 1 << bit % 8]))
        at = bytes_.find(want, at + 4000)
notes[72:80] = struct.pack("<Q", os.stat(store + "/data.mdb").st_ctime_ns)
with open(store + "/verified", "r+b") as f:
    f.write(notes)
PY

t "capture" "$vecadd" -s store ${FOUNDRY_TEST_CUBIN:+-m "$FOUNDRY_TEST_CUBIN"} capture
t "export a pack" sh -c 'mkdir packs && "$1" -s store export vecadd >packs/one' - foundry-store
t "load" sh -c '"$1" -s store load | grep -q "every number is right"' - "$vecadd"
t "load what was verified" sh -c '"$1" -s store load | grep -q "every number is right"' - "$vecadd"
t "verify --fast" sh -c 'foundry-store -s store verify --fast | grep -q "0 faults found; [1-9]"'
t "flip a bit" python3 flip.py "$store" 777
t "the load is refused" fails 'is damaged in the store' "$vecadd" -s store load
t "and so is the next, by its hash" fails 'do not match' "$vecadd" -s store load
t "verify --fast finds it" sh -c \
	'foundry-store -s store verify --fast >out
	test $? = 1 && grep -q "do not match its id" out'
t "as JSON" sh -c \
	'foundry-store -s store verify --fast --json >out
	test $? = 1 && python3 -c "import json
j = json.load(open(\"out\")); assert j[\"damaged\"] == 1 and j[\"compared\"] > 0"'
t "put a pack into the store" mv packs store/
t "the load is repaired" sh -c '"$1" -s store load | grep -q "every number is right"' - "$vecadd"
t "load it again" sh -c '"$1" -s store load | grep -q "every number is right"' - "$vecadd"
t "flip another bit" python3 flip.py "$store" 1999
t "the load is repaired at once" sh -c '"$1" -s store load | grep -q "every number is right"' - \
	"$vecadd"
t "the store is sound" foundry-store -s store verify
t_done
