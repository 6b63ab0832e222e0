#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# skopeo verifies images of Foundry under a policy that rejects all others: signatures of OpenPGP,
# which Debian's skopeo takes, and those of Foundry, which it finds and is built not to verify.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"
command -v gpg >/dev/null || t_skip "no gpg; run .ci/setup build ci"

head -c 90000 /dev/urandom >a
export FOUNDRY_STORE=$TMP/s
one=$("$store_image" s m/one a)
openssl genpkey -algorithm ED25519 -out ed25519.pem 2>/dev/null
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out p256.pem 2>/dev/null
for key in ed25519 p256; do openssl pkey -in $key.pem -pubout -out $key.pub; done
registry_start main
host=127.0.0.1:$main_port
at=oci+http://$host/models/one
for key in ed25519 p256; do
	foundry-store push --private -q m/one "$at" --sign-key $key.pem
done
digest=$(foundry-store -s d pull --json "$at" | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["digest"])')

# policy REQUIREMENT: of images of this registry; all others are rejected
policy() {
	printf '{"default": [{"type": "reject"}], "transports": {"docker": {"%s": [%s]}}}' \
		"$host" "$1" >policy.json
}
mkdir -p registries.d lookaside
printf 'docker: {"%s": {use-sigstore-attachments: true, lookaside: "file://%s"}}\n' "$host" \
	"$TMP/lookaside" >registries.d/test.yaml
copy() {
	rm -rf copied
	skopeo --policy policy.json --registries.d registries.d --tmpdir . copy -q \
		--src-tls-verify=false "docker://$host/models/one:$1" dir:copied
}

# --- signatures of Foundry ---

# verified KEY: skopeo verifies the signature, or finds both and says that it is built without that
verified() {
	local rc=0 said
	policy '{"type": "sigstoreSigned", "keyPath": "'"$TMP/$1.pub"'"}'
	said=$(copy latest 2>&1) || rc=$?
	echo "$said"
	[ $rc = 0 ] || [ "$(grep -o 'Debian-local change: sigstore disabled' <<<"$said" |
		wc -l)" = 2 ]
}
t "skopeo finds a signature with a key of Ed25519" verified ed25519
t "skopeo finds a signature with a key of ECDSA" verified p256
foundry-store push --private -q m/one "$at:unsigned" --no-refs
t "an unsigned image is rejected" fails "signature was required, but no signature exists" \
	copy unsigned

# --- signatures of OpenPGP ---

export GNUPGHOME=$TMP/gpg
mkdir -m 700 gpg
gpg_stop() { gpgconf --kill gpg-agent; registry_stop_all; }
trap gpg_stop EXIT
for key in team other; do
	gpg --batch -q --pinentry-mode loopback --passphrase '' --quick-gen-key \
		"$key <$key@example.com>" ed25519 sign never 2>/dev/null
	gpg --export "$key@example.com" >$key.gpg
done
# requires KEY
requires() { policy '{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "'"$TMP/$1.gpg"'"}'; }
requires team
t "an image without a signature of OpenPGP is rejected" \
	fails "signature was required, but no signature exists" copy latest
curl -sf -H "Accept: application/vnd.oci.image.manifest.v1+json" \
	"http://$host/v2/models/one/manifests/latest" >manifest.json
place=$TMP/lookaside/models/one@sha256=$digest
mkdir -p "$place"
t "skopeo signs the manifest" skopeo standalone-sign manifest.json "$host/models/one:latest" \
	team@example.com -o "$place/signature-1"
t "skopeo verifies its signature with a key of Ed25519" copy latest
t "skopeo copies the signed image" cmp manifest.json copied/manifest.json
requires other
t "another key is rejected" fails "Source image rejected: Invalid GPG signature" copy latest
requires team
cp -r "$place" "$TMP/lookaside/models/one@sha256=$(curl -sf \
	-H "Accept: application/vnd.oci.image.manifest.v1+json" \
	"http://$host/v2/models/one/manifests/unsigned" | sha256sum | cut -c 1-64)"
t "a signature of another image is rejected" fails \
	"Signature for digest|None of the|does not match" copy unsigned
t "the image is $one" prints "m/one is $one" bash -c "foundry-store -s v pull $at | grep -v ^pulled"
t_done
