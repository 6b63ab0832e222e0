#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Images of many objects: what a push knows without asking for each blob, and an index of several
# manifests, which skopeo copies, inspects and deletes.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

export FOUNDRY_STORE=$TMP/s
many=$("$BUILD/tests/cli/store_chunks" s many 100 1000)
"$BUILD/tests/cli/store_chunks" s fewer 90 1000 >/dev/null
registry_start main
registry_start other
at=oci+http://127.0.0.1:$main_port/m
asked() { grep -c "\"$1 /v2/m/$2" main.log; }
pushed() { json "$1" foundry-store push --json --private "${@:2}"; }

# --- what a push knows ---

t "a push creates a repository that does not exist" \
	pushed "j['objects_moved'] == 101" many "$at/one"
t "the first push asks for one blob alone" test "$(asked HEAD one/blobs)" = 1
t "a second push asks for no blob" pushed "j['objects_moved'] == 0 and j['requests'] <= 5" \
	many "$at/one"
t "an image is pushed that shares objects with another tag" pushed \
	"j['objects_moved'] == 1 and j['requests'] <= 20" fewer "$at/one:fewer"
# three pushes: the list; {}; {}, the list and the manifest
t "that push asks only for objects that the other tag lacks" test "$(asked HEAD one/blobs)" = 5
t "the first image can be pulled" foundry-store -s t pull "$at/one"
t "the second image can be pulled" foundry-store -s t pull "$at/one:fewer"
lose() {
	local lost
	lost=$(curl -s "http://127.0.0.1:$main_port/v2/m/one/manifests/latest" \
		-H "Accept: application/vnd.oci.image.manifest.v1+json" | python3 -c \
		'import json, sys; print(json.load(sys.stdin)["layers"][7]["digest"][7:])')
	rm main.data/docker/registry/v2/blobs/sha256/"${lost:0:2}/$lost/data"
}
lose
t "a pull fails if the registry has lost a blob" \
	says_only 3 "answered 404" foundry-store -s u pull "$at/one"
t "a push sends a lost blob again" pushed "j['objects_moved'] == 1" many "$at/one"
t "the image is whole after the lost blob was sent" foundry-store -s u pull "$at/one"
t "a push replaces the tag of another program's image" bash -c "
	curl -sSf -X PUT -H 'Content-Type: application/vnd.oci.image.index.v1+json' -d \
	'{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.index.v1+json\",
	\"manifests\": []}' http://127.0.0.1:$main_port/v2/m/one/manifests/foreign &&
	foundry-store push --private many $at/one:foreign &&
	foundry-store -s u pull $at/one:foreign"

# --- an index ---

export FOUNDRY_REGISTRY_LIBRARY=$BUILD/tests/libfoundry-registry-parts.so
t "push with an index works" pushed "j['objects_moved'] == 91" fewer "$at/parts"
t "a second push with an index sends nothing" pushed "j['objects_moved'] == 0" fewer "$at/parts"
t "a second push with an index asks for the empty blob alone" test "$(asked HEAD parts/blobs)" = 2
unset FOUNDRY_REGISTRY_LIBRARY
raw() { skopeo inspect --raw --tls-verify=false "docker://127.0.0.1:$1"; }
t "skopeo inspects the index: 23 manifests" bash -c "$(declare -f raw); raw $main_port/m/parts |
	python3 -c 'import json, sys; j = json.load(sys.stdin); assert len(j[\"manifests\"]) == 23'"
t "skopeo copies an index to another registry" skopeo --tmpdir "$TMP" copy -q --all \
	--src-tls-verify=false --dest-tls-verify=false "docker://127.0.0.1:$main_port/m/parts" \
	"docker://127.0.0.1:$other_port/c/parts"
parts() { raw "$1" | grep -o 'sha256:[0-9a-f]*'; }
t "the copy names the same manifests" cmp <(parts "$main_port/m/parts") \
	<(parts "$other_port/c/parts")
t "a copied index can be pulled" foundry-store -s v pull "oci+http://127.0.0.1:$other_port/c/parts"
t "an image pulled from a copied index is whole" foundry-store -s v verify
t "the exports of both stores are equal" cmp <(foundry-store export fewer) \
	<(foundry-store -s v export fewer)
t "a push mounts the objects of an index from another repository" \
	pushed "j['objects_mounted'] == 91 and
	j['objects_moved'] == 0" --mount m/parts fewer "$at/mounted"
t "skopeo deletes an index" skopeo delete --tls-verify=false "docker://127.0.0.1:$main_port/m/parts"
t "a pull of a deleted index fails" says_only 3 "answered 404" foundry-store -s v pull "$at/parts"
t "objects that the deleted index shared can be pulled" foundry-store -s w pull "$at/mounted"
t "they form the shared image" bash -c "foundry-store -s u ls --json | grep -q $many"

# --- the copy of an image, loaded ---

vecadd=$BUILD/examples/vecadd
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
"$vecadd" capture -s x -m "$BUILD/sim/kernels.cubin" >/dev/null
foundry-store -s x push -q --private vecadd "$at/images:vecadd"
t "skopeo copies an image of a kernel and a graph" skopeo --tmpdir "$TMP" copy -q \
	--src-tls-verify=false --dest-tls-verify=false \
	"docker://127.0.0.1:$main_port/m/images:vecadd" \
	"docker://127.0.0.1:$other_port/copied:vecadd"
foundry-store init y -q
t "the copy is fetched, loaded and launched" env \
	FOUNDRY_REGISTRY="oci+http://127.0.0.1:$other_port/copied" "$vecadd" load -s y
t_done
