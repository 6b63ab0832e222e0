#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The usual verifiers of container signatures, cosign and a skopeo that is built for it, accept what
# we sign and refuse all else; and a policy of ours accepts what cosign has signed.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"
PATH=$BUILD/verifiers/bin:$PATH
command -v cosign >/dev/null || t_skip "no verifier: there is no cosign; see .ci/verifiers"

head -c 90000 /dev/urandom >a
head -c 50000 /dev/urandom >b
export FOUNDRY_STORE=$TMP/s COSIGN_PASSWORD='' DOCKER_CONFIG=$HOME/.docker
"$store_image" s m/one a >/dev/null
"$store_image" s m/two b >/dev/null
keys_make() {
	openssl genpkey -algorithm "${@:2}" -out "$1.pem" 2>/dev/null
	openssl pkey -in "$1.pem" -pubout -out "$1.pub"
}
keys_make ed25519 ED25519
keys_make p256 EC -pkeyopt ec_paramgen_curve:P-256
keys_make other EC -pkeyopt ec_paramgen_curve:P-256
registry_start main
registry_start copy
host=127.0.0.1:$main_port
repo=models/one
at=oci+http://$host/$repo
push() { foundry-store push --private -q "$@"; }
push m/one "$at:ed25519" --sign-key ed25519.pem
push m/one "$at:p256" --sign-key p256.pem
push m/two "$at:unsigned"

# --- the verifiers ---

# The transparency log that cosign asks for by default is a service of others.
cosign_verifies() {
	cosign verify --key "$1.pub" --insecure-ignore-tlog=true --allow-http-registry \
		"${3:-$host}/$repo:$2"
}
mkdir -p registries.d
printf 'docker: {"%s": {use-sigstore-attachments: true}}\n' "$host" >registries.d/test.yaml
# skopeo_verifies KEY TAG [DESTINATION [MEMBER]]: skopeo copies under a policy that rejects others
skopeo_verifies() {
	printf '{"default": [{"type": "reject"}], "transports": {"docker": {"%s": [%s]}}}' \
		"$host" '{"type": "sigstoreSigned", "keyPath": "'"$TMP/$1.pub"'"'"${4:-}"'}' \
		>policy.json
	rm -rf copied
	skopeo --policy policy.json --registries.d registries.d --tmpdir . copy -q --all \
		--src-tls-verify=false --dest-tls-verify=false "docker://$host/$repo:$2" \
		"${3:-dir:copied}"
}
if skopeo_verifies p256 p256 2>&1 | grep -q "sigstore disabled"; then
	t_skip "no verifier: skopeo is built without the code to verify signatures"
fi

for key in ed25519 p256; do
	t "cosign verifies $key" cosign_verifies $key $key
	t "skopeo verifies $key" skopeo_verifies $key $key
	t "cosign refuses another key than $key" fails "no matching signatures|invalid signature" \
		cosign_verifies other $key
	t "skopeo refuses another key than $key" fails "Source image rejected" \
		skopeo_verifies other $key
done
t "cosign refuses an unsigned image" fails "no signatures found" cosign_verifies p256 unsigned
t "skopeo refuses an unsigned image" fails "signature was required, but no signature exists" \
	skopeo_verifies p256 unsigned

# --- changed signatures ---

type="Content-Type: application/vnd.oci.image.manifest.v1+json"
manifest() { curl -sf -H "Accept: ${type#*: }" "http://$host/v2/$repo/manifests/$1"; }
put() {
	curl -sSf -X PUT -H "$type" --data-binary @"$1" -o /dev/null \
		"http://$host/v2/$repo/manifests/$2"
}
tag_of() { echo "sha256-$(manifest "$1" | sha256sum | cut -c 1-64).sig"; }
signatures=$(tag_of p256)
manifest "$signatures" >good.json
# change EXPRESSION: the signature manifest, as j, is changed and stored in place of the good one
change() {
	python3 -c "import base64, json; j = json.load(open('good.json'))
name = 'dev.cosignproject.cosign/signature'
$1
json.dump(j, open('bad.json', 'w'))"
	put bad.json "$signatures"
}
# refused TAG REGEX: by both
refused() {
	fails "($2)" cosign_verifies p256 "$1" &&
		fails "Source image rejected: .*($2)" skopeo_verifies p256 "$1"
}
change "
for layer in j['layers']:
	a = layer['annotations']
	raw = bytearray(base64.b64decode(a[name]))
	raw[-1] ^= 1
	a[name] = base64.b64encode(raw).decode()"
t "a changed signature is refused by both" refused p256 "invalid signature"
put good.json "$(tag_of unsigned)"
t "a signature of another image is refused by both" refused unsigned "(d|D)igest"
put good.json "$signatures"
t "the unchanged signature is accepted again" skopeo_verifies p256 p256
manifest p256 >image.json
put image.json prod
t "skopeo refuses the image under another tag" fails "rejected|identity|does not match" \
	skopeo_verifies p256 prod
t "skopeo accepts the other tag if its policy compares the repository alone" \
	skopeo_verifies p256 prod dir:copied ', "signedIdentity": {"type": "matchRepository"}'
t "cosign does not compare tags" cosign_verifies p256 prod

# --- copies with their signatures ---

other=127.0.0.1:$copy_port
printf 'docker: {"%s": {use-sigstore-attachments: true}, "%s": {%s}}\n' "$host" "$other" \
	"use-sigstore-attachments: true" >registries.d/test.yaml
t "skopeo copies image and signature" skopeo_verifies p256 p256 "docker://$other/$repo:p256"
t "cosign verifies the copy" cosign_verifies p256 p256 "$other"
printf '{"version": 1, "default": {"keys": ["p256.pub"]}, "names": {"%s": %s}}' "$other" \
	'{"keys": ["p256.pub"], "signedAs": "'"$host"'"}' >ours.json
t "a policy of ours accepts the copy" foundry-store -s u pull --policy ours.json \
	"oci+http://$other/$repo:p256"

# --- what cosign signs ---

push m/two "$at:theirs"
cosign generate-key-pair --output-key-prefix theirs 2>/dev/null
t "cosign signs an image" cosign sign --key theirs.key --tlog-upload=false -y \
	--allow-http-registry "$host/$repo:theirs"
printf '{"version": 1, "default": {"keys": ["theirs.pub"], "identity": "repository"}}' >ours.json
t "a policy of ours accepts an image that cosign signed" \
	foundry-store -s u pull --policy ours.json "$at:theirs"
t "a policy that compares tags refuses it: cosign does not sign the tag" \
	says_only 6 "one for $host/$repo alone" env FOUNDRY_POLICY= foundry-store -s u pull \
	--policy <(printf '{"version": 1, "default": {"keys": ["%s/theirs.pub"]}}' "$TMP") \
	"$at:theirs"

# --- an index ---

"$BUILD/tests/cli/store_chunks" s many 90 1000 >/dev/null
FOUNDRY_REGISTRY_LIBRARY=$BUILD/tests/libfoundry-registry-parts.so \
	push many "$at:many" --sign-key p256.pem
t "cosign verifies an index" cosign_verifies p256 many
t "skopeo refuses the index: it asks for a signature of each manifest" fails \
	"rejected" skopeo_verifies p256 many
t_done
