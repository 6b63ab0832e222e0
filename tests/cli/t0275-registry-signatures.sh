#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Signatures of images in a registry: Ed25519 and ECDSA P-256, policies, and skopeo, which verifies
# them independently.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 90000 /dev/urandom >a
head -c 50000 /dev/urandom >b
export FOUNDRY_STORE=$TMP/s
"$store_image" s m/one a >/dev/null
"$store_image" s m/two b >/dev/null
registry_start main
host=127.0.0.1:$main_port
at=oci+http://$host/models/one
digest_of() { foundry-store -s d pull --json "$1" | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["digest"])'; }

# keys_make NAME ALGORITHM...: makes NAME.pem and NAME.pub
keys_make() {
	openssl genpkey -algorithm "${@:2}" -out "$1.pem" 2>/dev/null
	openssl pkey -in "$1.pem" -pubout -out "$1.pub"
}
keys_make team ED25519
keys_make p256 EC -pkeyopt ec_paramgen_curve:P-256
keys_make other ED25519
keys_make p384 EC -pkeyopt ec_paramgen_curve:P-384
keys_make rsa RSA
openssl genpkey -algorithm ED25519 -aes256 -pass pass:secret -out locked.pem

# policy RULE [NAME RULE]...: writes policy.json, whose first rule is the default
policy() {
	local default=$1 names=
	shift
	while [ $# -gt 0 ]; do
		names+="${names:+, }\"$1\": $2"
		shift 2
	done
	printf '{"version": 1, "default": %s, "names": {%s}}\n' "$default" "$names" >policy.json
}
# pulls [NAME]: a pull into a new store under the policy succeeds
pulls() { rm -rf t; foundry-store -s t pull --policy policy.json "${1:-$at}" &&
	foundry-store -s t verify; }
# refuses REGEX [NAME]: a pull into a new store is refused with one sentence, names nothing
# and fetches no object
refuses() {
	rm -rf t
	says_only 6 "$1" foundry-store -s t pull --policy policy.json "${2:-$at}" || return
	[ -z "$(foundry-store -s t ls -q)" ] || { echo "it set a ref"; return 1; }
	[ -z "$(foundry-store -s t ls -qO)" ] || { echo "it stored objects"; return 1; }
}
team='{"keys": ["team.pub"]}'
accept='"accept"'
push() { foundry-store push --private -q "$@"; }

# --- signing ---

t "push signs with a key of Ed25519" push m/one "$at" --sign-key team.pem
digest=$(digest_of "$at")
manifest() { curl -s -H "Accept: application/vnd.oci.image.$2.v1+json" \
	"http://$host/v2/models/one/manifests/$1"; }
manifest "sha256-$digest.sig" manifest >sig.json
# member EXPRESSION: of sig.json, as j
member() { python3 -c "import json, sys; j = json.load(open('sig.json')); print($1)"; }
t "the signature is a referrer of the image" prints "sha256:$digest" member \
	'j["subject"]["digest"]'
t "the index of referrers lists the signature" grep -q \
	"$(sha256sum <sig.json | cut -c 1-64).*artifact.sig.v1+json" \
	<(manifest "sha256-$digest" index)
payload_check() {
	curl -s "http://$host/v2/models/one/blobs/$(member 'j["layers"][0]["digest"]')" >payload
	member 'j["layers"][0]["annotations"]["dev.cosignproject.cosign/signature"]' |
		base64 -d >signature
	openssl pkeyutl -verify -pubin -inkey team.pub -rawin -in payload -sigfile signature
}
t "openssl verifies the signature" payload_check
t "the payload names the image and its place" prints "True" python3 -c "import json
p = json.load(open('payload'))['critical']
print(p == {'identity': {'docker-reference': '$host/models/one:latest'},
	'image': {'docker-manifest-digest': 'sha256:$digest'},
	'type': 'cosign container image signature'})"
t "a second push changes nothing" push m/one "$at" --sign-key team.pem
t "the image has one signature after two pushes" \
	cmp sig.json <(manifest "sha256-$digest.sig" manifest)
t "sign adds a signature with a key of ECDSA" json "j['digest'] == '$digest'" \
	foundry-store sign --json m/one "$at" --sign-key p256.pem
t "sign works again with the key of ECDSA" foundry-store sign m/one "$at" --sign-key p256.pem
manifest "sha256-$digest.sig" manifest >sig.json
t "the image has two signatures then" prints 2 member 'len(j["layers"])'
t "the index lists their one manifest" prints "1" python3 -c \
	'import json, sys; print(len(json.load(sys.stdin)["manifests"]))' \
	< <(manifest "sha256-$digest" index)

# --- policies ---

policy "$team"
t "a key of Ed25519 is accepted" pulls
policy '{"keys": ["p256.pub"]}'
t "a key of ECDSA is accepted" pulls
policy '{"keys": ["other.pub", "'"$TMP"'/team.pub"]}'
t "one of several keys is enough" pulls
t "the variable names the policy" env FOUNDRY_POLICY=policy.json foundry-store -s t pull "$at"
t "a pull by digest accepts the signature" pulls "$at@sha256:$digest"
policy '{"keys": ["other.pub"]}'
t "a signature by a key that the policy lacks is refused" refuses \
	"asks for a signature of $host/models/one:latest by other.pub, and none of its 2 signatures"
policy '{"keys": ["other.pub", "rsa.pub"]}'
t "a policy with an RSA key is refused" says_only 2 "rsa.pub is no public key.*Ed25519 or" \
	foundry-store -s t pull --policy policy.json "$at"
policy '"reject"'
t "the rule reject refuses signed images, too" refuses "rejects every image of $host/models/one"
policy '"reject"' "$host/models" "$team"
t "a rule for a folder counts" pulls
policy "$accept" "$host/models" "$accept" "$host/models/one" '"reject"'
t "the rule with the longest name counts" refuses "rejects every image"
policy "$accept" "$host/models/one:latest" '"reject"'
t "a rule for a tag has the longest name" refuses "rejects every image"
policy "$accept" "$host/model" '"reject"' "$host/models/on" '"reject"' 127.0.0.1 '"reject"'
t "a rule for a part of a name does not count" pulls
policy "$accept" "$host" '"reject"'
t "a rule for a host counts" refuses "rejects every image"

push m/two "$at:two"
policy "$team"
t "an unsigned image is refused" \
	refuses "by team.pub, and the registry has no signature of it; sign it" "$at:two"
t "an unsigned image is refused by digest, too" \
	refuses "no signature" "$at@sha256:$(digest_of "$at:two")"
policy "$accept"
t "an unsigned image is accepted by a policy that accepts it" pulls "$at:two"
policy "$team"
foundry-store sign -q m/two "$at:two" --sign-key other.pem
t "an image signed with another key is refused" \
	refuses "by team.pub, and none of its 1 signatures" "$at:two"
t "sign prints the digest that it signed" prints "signed sha256:$(digest_of "$at:two")" \
	foundry-store sign m/two "$at:two" --sign-key team.pem
t "the image is accepted after it was signed" pulls "$at:two"

# --- another name ---

retag() {
	manifest "$1" manifest >retag.json
	curl -sf -X PUT --data-binary @retag.json -o /dev/null \
		-H "Content-Type: application/vnd.oci.image.manifest.v1+json" \
		"http://$host/v2/$3/manifests/$2"
}
retag two prod models/one
t "a signed image under another tag is refused" refuses \
	"of $host/models/one:prod by team.pub, and it has one for $host/models/one:two alone" \
	"$at:prod"
policy '{"keys": ["team.pub"], "identity": "repository"}'
t "a policy can accept other tags" pulls "$at:prod"
# the same artifact with its signatures in another repository
push m/one "oci+http://$host/mirror/one"
for tag in "sha256-$digest.sig" "sha256-$digest"; do
	kind=manifest
	[ "$tag" != "sha256-$digest" ] || kind=index
	curl -s -X POST -o /dev/null "http://$host/v2/mirror/one/blobs/uploads/?mount=$(
		member 'j["layers"][0]["digest"]')&from=models/one"
	curl -s -X POST -o /dev/null "http://$host/v2/mirror/one/blobs/uploads/?mount=$(
		member 'j["layers"][1]["digest"]')&from=models/one"
	manifest "$tag" $kind >copied
	curl -sf -X PUT --data-binary @copied -o /dev/null \
		-H "Content-Type: application/vnd.oci.image.$kind.v1+json" \
		"http://$host/v2/mirror/one/manifests/$tag"
done
policy "$team"
mirror=oci+http://$host/mirror/one
t "a signed image in another repository is refused" refuses \
	"it has one for $host/models/one:latest alone" "$mirror"
policy '"reject"' "$host/mirror" \
	"{\"keys\": [\"team.pub\"], \"signedAs\": \"$host/models\"}"
t "a policy accepts a mirror whose images are signed as the origin's" pulls "$mirror"
retag latest x mirror/one
t "a policy for a mirror accepts the same tag alone" \
	refuses "$host/models/one:x by team.pub, and it has one for" "$mirror:x"

# --- what sign refuses ---

t "sign refuses an image that the registry lacks" says_only 3 "404" \
	foundry-store sign m/one "$at:none" --sign-key team.pem
t "sign refuses an image that is not the one in the store" \
	says_only 7 "has sha256:.*not the image in the" \
	foundry-store sign m/one "$at:two" --sign-key team.pem
t "sign without a key is wrong usage" says_only 2 "no key is named" foundry-store sign m/one "$at"
t "sign uses the key that the variable names" \
	env FOUNDRY_SIGN_KEY=team.pem foundry-store sign m/one "$at"
t "sign refuses a key that does not exist" says_only 2 "the key none.pem does not exist" \
	foundry-store sign m/one "$at" --sign-key none.pem
head -c 100 a >short
for key in team.pub rsa.pem p384.pem locked.pem short; do
	t "sign refuses $key, which is no private key" \
		says_only 2 "$key is no private key without a passphrase" \
		foundry-store sign m/one "$at" --sign-key $key </dev/null
done
t "a push with a wrong key sends nothing" says_only 2 "is no private key" \
	foundry-store push --private m/one "oci+http://$host/none" --sign-key short
t "that push made no repository" says_only 3 "404" foundry-store -s t pull "oci+http://$host/none"
t "sign by digest works" foundry-store sign m/one "$at@sha256:$digest" --sign-key other.pem
policy '{"keys": ["other.pub"]}'
t "a signature by digest counts for the digest" pulls "$at@sha256:$digest"
t "a signature by digest does not count for a tag" refuses "it has one for $host/models/one alone"

# --- Python ---

cat >signs.py <<'END'
import pathlib
import sys
import foundry

at, digest = sys.argv[1:]
with foundry.Store("s") as s:
    assert s.push("m/two", at + ":python", private=True, sign_key="team.pem").objects == 2
    assert s.sign("m/one", at, sign_key=pathlib.Path("team.pem")).id == digest
    try:
        s.sign(["m/two"], at, sign_key="team.pem")
        raise SystemExit("it signed another image")
    except foundry.Error as e:
        assert e.name == "FDRY_E_CORRUPT", e.name
with foundry.Store("py", create=True) as t:
    assert t.pull(at + ":python", policy=b"policy.json").objects_moved == 2
    try:
        t.pull(at + ":python", "other/name", policy="others.json")
        raise SystemExit("it pulled")
    except foundry.Error as e:
        assert e.name == "FDRY_E_UNSIGNED" and "by other.pub" in str(e), e
END
policy '{"keys": ["other.pub"]}'
mv policy.json others.json
policy "$team"
t "Python signs, and applies policies" python3 signs.py "$at" "$digest"

# --- what is no policy ---

while IFS='|' read -r text regex; do
	printf '%s\n' "$text" >policy.json
	t "a policy is refused: $text" \
		says_only 2 "the policy policy.json cannot be used: .*($regex)" \
		foundry-store -s t pull --policy policy.json "$at"
done <<'END'
|JSON
[]|JSON
{"version": 1}|a rule is
{"version": 2, "default": "accept"}|version
{"default": "accept"}|version
{"version": 1, "default": "accept", "default": "reject"}|twice
{"version": 1, "default": "allow"}|a rule is
{"version": 1, "default": "accept", "name": {}}|members
{"version": 1, "default": "accept", "names": []}|names
{"version": 1, "default": "accept", "names": {"oci://h/x": "reject"}}|a name is
{"version": 1, "default": "accept", "names": {"h/X": "reject"}}|a name is
{"version": 1, "default": "accept", "names": {"h/x@sha256:12": "reject"}}|a name is
{"version": 1, "default": "accept", "names": {"": "reject"}}|a name is
{"version": 1, "default": "accept", "names": {"h": {}}}|keys
{"version": 1, "default": {"keys": []}}|keys
{"version": 1, "default": {"keys": [""]}}|keys
{"version": 1, "default": {"keys": "team.pub"}}|keys
{"version": 1, "default": {"keys": ["team.pub"], "key": 1}}|a rule is
{"version": 1, "default": {"keys": ["team.pub"], "identity": "any"}}|identity
{"version": 1, "default": {"keys": ["team.pub"], "signedAs": 1}}|default has no .signedAs
{"version": 1, "default": "accept", "names": {"h/x": {"keys": ["k"], "signedAs": 1}}}|signedAs
{"version": 1, "default": "accept", "names": {"h/x:t": {"keys": ["k"], "signedAs": "g"}}}|for a tag
END
t "a policy that does not exist is refused" says_only 2 "the policy none.json .*does not exist" \
	foundry-store -s t pull --policy none.json "$at"
policy '{"keys": ["none.pub"]}'
t "a policy with a key that does not exist is refused" \
	says_only 2 "the key none.pub does not exist" \
	foundry-store -s t pull --policy policy.json "$at"
t_done
