#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Objects that are damaged in the store come from the registry that FOUNDRY_REGISTRY names, for a
# load and for foundry-store repair. A registry that does not help is named with the reason, and
# nothing changes in the store.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

vecadd=$BUILD/examples/vecadd
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1 FOUNDRY_REGISTRY_RETRIES=2
"$vecadd" capture -s s -m "$BUILD/sim/kernels.cubin" >/dev/null
registry_start main
hostile_start bad "127.0.0.1:$main_port"
plain=oci+http://127.0.0.1:$main_port/images
export FOUNDRY_REGISTRY=oci+http://127.0.0.1:$bad_port/images
fault
foundry-store push -s s --private -q vecadd
chunk=$(foundry-store ls -s s --objects --json | python3 -c 'import json, sys
print(max((o["bytes"], o["id"]) for o in json.load(sys.stdin)["objects"]
          if o["kind"] == "chunk")[1])')
blob=$TMP/main.data/docker/registry/v2/blobs/sha256/${chunk:0:2}/$chunk/data

# flip chunk|packed: flips a bit of the largest chunk, or one of each compressed object, in data.mdb
flip() {
	python3 - s/data.mdb "$blob" "$1" <<'END'
import sys

with open(sys.argv[1], "r+b") as f, open(sys.argv[2], "rb") as blob:
    file = f.read()
    what, offset = (blob.read(), 4000) if sys.argv[3] == "chunk" else (b"\x28\xb5\x2f\xfd", 20)
    at = file.find(what)
    assert at >= 0
    while at >= 0:
        f.seek(at + offset)
        f.write(bytes([file[at + offset] ^ 1]))
        at = file.find(what, at + 1)
END
}
load() { "$vecadd" load -s s; }
loads() { load && foundry-store -s s verify; }
blobs() { grep -c "GET /v2/images/blobs/" bad/headers; }
# unchanged COMMAND...: the command succeeds and leaves data.mdb as it is
unchanged() {
	local before
	before=$(sha256sum <s/data.mdb)
	"$@" && [ "$(sha256sum <s/data.mdb)" = "$before" ]
}
# refuses REGEX: a load fails with this reason of the registry behind that of the store
refuses() {
	unchanged fails "vecadd: .*damaged.*foundry-store repair.*; the registry [^ ]* of \
FOUNDRY_REGISTRY .*$1" load
}
t "the image loads" loads

# --- loads ---

flip chunk
t "without a registry the load is refused" fails "is damaged" env -u FOUNDRY_REGISTRY \
	"$vecadd" load -s s
t "without a registry the message names none" bash -c \
	"! env -u FOUNDRY_REGISTRY '$vecadd' load -s s 2>&1 | grep registry"
: >bad/headers
t "a load gets a damaged chunk from the registry" loads
t "that is one request, for the chunk" prints "GET /v2/images/blobs/sha256:$chunk" \
	cut -d ' ' -f 1,2 bad/headers
t "a second load asks the registry for nothing" bash -c "'$vecadd' load -s s &&
	[ \$(wc -l <bad/headers) = 1 ]"
flip packed
t "a load gets a damaged manifest, kernels and graphs from the registry" loads
flip chunk
env -u FOUNDRY_REGISTRY foundry-store repair -s s >/dev/null || true
t "a load gets a chunk in quarantine from the registry" loads
flip chunk
fault "GET blobs/sha256:$chunk 1 status 503"
t "a failure that passes is no obstacle" loads
flip chunk
fault "GET blobs/sha256:$chunk 1 cut 5000"
t "a transfer that breaks off goes on" loads
fault
all() {
	local i pids=()
	for i in {1..8}; do
		load >"all.$i" 2>&1 &
		pids+=($!)
	done
	for i in "${!pids[@]}"; do wait "${pids[$i]}" || { cat "all.$((i + 1))"; return 1; }; done
	foundry-store -s s verify
}
flip chunk
t "eight processes load a damaged image at once" all

# --- sources that come before ---

: >bad/headers
mkdir s/packs
foundry-store export -s s -q -o s/packs/one vecadd
flip chunk
t "a pack in the store comes first" loads
flip packed
t "a pack brings back a manifest, kernels and graphs" loads
mv s/packs/one elsewhere
flip chunk
t "a pack of FOUNDRY_REPAIR comes first" env FOUNDRY_REPAIR=elsewhere "$vecadd" load -s s
t "the registry was not asked" test ! -s bad/headers
head -c 900 elsewhere >s/packs/half
flip chunk
t "the registry is asked if a pack cannot be read" loads
rm s/packs/half

# --- registries that do not help ---

flip chunk
FOUNDRY_REGISTRY=oci+http://127.0.0.1:1/images t "a registry that cannot be reached" \
	refuses "does not help: the registry.*cannot be reached"
FOUNDRY_REGISTRY=${plain%images}others t "a repository without the chunk" \
	refuses "was asked, and does not have it"
FOUNDRY_REGISTRY=none t "a variable that names no registry" refuses "does not begin with oci://"
FOUNDRY_REGISTRY=$plain:tag t "a variable with a tag" refuses "the tag has 1 to 128 letters"
FOUNDRY_REGISTRY_LIBRARY=/none t "no library that speaks with registries" \
	refuses "registries need libfoundry-registry"
fault "GET blobs/sha256:$chunk 99 status 403"
t "a registry that refuses" refuses "does not help: the registry.*answered 403"
cp "$blob" good.blob
python3 - "$blob" <<'END'
import sys

with open(sys.argv[1], "r+b") as f:
    f.seek(9)
    f.write(b"other")
END
fault
t "a registry whose chunk is damaged" refuses "has other bytes in its place"
rm "$blob"
t "a registry whose chunk is gone" refuses "does not have it"
cp good.blob "$blob"
head -c 100 /dev/zero >>"$blob"
t "a registry whose chunk is longer" \
	refuses "has other bytes in its place"
cp good.blob "$blob"
t "the load goes on as soon as the registry helps" loads

# --- foundry-store repair ---

repair() { foundry-store repair -s s "$@"; }
flip chunk
t "repair --dry-run asks the registry" prints "$chunk: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded (nothing was written)" \
	unchanged bash -c "foundry-store repair -s s -n | grep -v 'ref .vecadd'"
t "repair brings the chunk back" prints "$chunk: brought back
1 brought back, 0 in quarantine, 0 missing; 0 refs cannot be loaded" repair
mv elsewhere s/packs/one
flip chunk
: >bad/headers
t "repair asks packs in the store before" bash -c "foundry-store repair -s s | grep '^1 brought'"
mv s/packs/one elsewhere
flip chunk
t "repair asks FOUNDRY_REPAIR before" bash -c \
	"FOUNDRY_REPAIR=/none:elsewhere foundry-store repair -s s | grep '^1 brought'"
t "repair did not ask the registry" test ! -s bad/headers
flip packed
flip chunk
fault "GET blobs/sha256:$chunk 99 status 404"
t "repair brings back what the registry has, and names the rest with the reason" bash -c \
	"foundry-store repair -s s >out; test \$? = 1 && cat out &&
	grep -q '^$chunk: damaged, .* put into quarantine; the registry.*does not have it' out &&
	grep -Eq '^[2-9] brought back, 1 in quarantine, 0 missing; 1 ref' out"
fault
t "a later repair ends the quarantine" bash -c "foundry-store repair -s s &&
	foundry-store verify -s s"

# --- policies ---

# The store has recorded the ids of its objects, so their bytes are not less trusted than before.
flip chunk
echo '{"version": 1, "default": "reject"}' >policy.json
t "a policy is about images, not about bytes that the store has recorded" \
	env FOUNDRY_POLICY=policy.json "$vecadd" load -s s
t_done
