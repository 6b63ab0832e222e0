#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Mirrors are asked before the registry, and for nothing but digests. One that is down, stale or
# lying costs time, and nothing else; credentials go to their own host alone.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 900000 /dev/urandom >a
head -c 500000 /dev/urandom >b
head -c 700000 /dev/urandom >c
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=2 FOUNDRY_REGISTRY_TIMEOUT=2
"$store_image" s m/one a b >/dev/null
"$store_image" s m/two a c >/dev/null
registry_start real
registry_start near
hostile_start bad "127.0.0.1:$real_port"    # the registry itself, whose requests are noted
hostile_start mirror "127.0.0.1:$near_port" # before the mirror, likewise
hostile_start mirror2 "127.0.0.1:$near_port"
at=oci+http://127.0.0.1:$bad_port/m/one
fault
: >mirror/faults
push() { foundry-store push --private -q "$@"; }
push m/one "$at"
push m/one "oci+http://127.0.0.1:$near_port/cached/one"

export FOUNDRY_REGISTRY_MIRRORS=mirrors.json
# mirrors PREFIX LOCATION...
mirrors() {
	local prefix=$1 list=
	shift
	for location; do list+="${list:+, }{\"location\": \"$location\"}"; done
	printf '{"version": 1, "registries": [{"prefix": "%s", "mirrors": [%s]}]}\n' \
		"$prefix" "$list" >mirrors.json
}
blobs() { grep -c "GET /v2/.*/blobs/" "$1/headers"; }
# pulled FROM: the pull succeeds, and takes that many blobs of the registry itself
pulled() {
	rm -rf t
	: >bad/headers
	: >mirror/headers
	: >mirror2/headers
	timeout 60 foundry-store -s t pull "${2:-$at}" && foundry-store -s t verify || return
	[ "$(blobs bad)" = "$1" ] || { cat bad/headers; return 1; }
}
near=oci+http://127.0.0.1:$mirror_port/cached

# --- whole mirrors ---

mirrors "127.0.0.1:$bad_port/m" "$near"
t "everything comes from a mirror that has it" pulled 0
t "the registry is asked for the tag alone" prints "HEAD /v2/m/one/manifests/latest" \
	cut -d ' ' -f 1,2 bad/headers
digest=$(sha256sum <(curl -sf -H "Accept: application/vnd.oci.image.manifest.v1+json" \
	"http://127.0.0.1:$real_port/v2/m/one/manifests/latest") | cut -c 1-64)
t "a pull by digest asks the registry for nothing" pulled 0 "$at@sha256:$digest"
t "no request of that pull went to the registry" test ! -s bad/headers
mirrors "127.0.0.1:$bad_port" "oci+http://127.0.0.1:$mirror_port"
curl -s "http://127.0.0.1:$near_port/v2/" >/dev/null
t "a mirror of a whole host keeps the repository's name" pulled 4
mirrors "127.0.0.1:$bad_port/m/on" "$near"
t "a prefix that ends within a name counts for no repository" pulled 4
t "the mirror of that prefix is not asked" test ! -s mirror/headers
mirrors "127.0.0.1:$bad_port/m" "oci+http://127.0.0.1:1/x" "$near"
t "the second mirror is asked if the first is down" pulled 0
mirrors "127.0.0.1:$bad_port/m" "oci+http://127.0.0.1:1/x"
t "the registry is asked if all mirrors are down" pulled 4
push m/two "$at:two"
mirrors "127.0.0.1:$bad_port/m" "$near"
t "pushes go to the registry" test "$(grep -c "^[A-Z]* /v2/cached" mirror/headers)" = 0

# --- stale, lying and slow ones ---

t "a mirror without the new image delivers what it has" pulled 3 "$at:two"
t "that is one object" test "$(grep -c "GET /v2/cached/one/blobs/sha256:$(id_of a)" \
	mirror/headers)" = 1
push m/two "oci+http://127.0.0.1:$near_port/cached/one"
t "a mirror with another image under the tag is no obstacle" pulled 0
t "the image is that of the registry" bash -c "foundry-store -s t ls -q | grep -qx m/one"
mirror_fault() { printf '%s\n' "$@" >mirror/faults; }
mirror_fault "GET blobs/sha256:$(id_of a) 99 flip"
t "an object with other bytes is fetched from the registry" pulled 1
mirror_fault "GET manifests 99 flip"
t "a manifest with other bytes is fetched from the registry" pulled 0
mirror_fault "GET blobs 99 cut 1000"
t "transfers that a mirror cuts continue at the registry" pulled 2
mirror_fault "GET blobs/sha256:$(id_of a) 99 stall 1000"
start=$SECONDS
t "a pull succeeds beside a mirror that stalls" pulled 1
t "that pull waits for the time-outs at most" test $((SECONDS - start)) -lt 40
for status in 401 403 404 429 500 503; do
	mirror_fault "GET /v2/ 99 status $status"
	t "a pull succeeds beside a mirror that answers $status" pulled 4
done
mirror_fault "GET blobs 99 status 429 3600"
start=$SECONDS
t "a pull succeeds beside a mirror that asks to wait for an hour" pulled 4
t "that pull does not wait" test $((SECONDS - start)) -lt 5
mirror_fault "GET blobs 99 drop"
t "a pull succeeds beside a mirror that closes connections" pulled 4
mirrors "127.0.0.1:$bad_port/m" "oci+http://127.0.0.1:1/x" "$near" \
	"oci+http://127.0.0.1:$mirror2_port/cached"
t "a third mirror is asked if two fail" pulled 0
mirror_fault "GET /v2/ 999 status 404"
t "the error is the registry's if no place has the image" says_only 3 \
	"the registry 127.0.0.1:$bad_port answered 404" foundry-store -s t pull "$at:none"
mirror_fault

# --- a load, and credentials ---

mirrors "127.0.0.1:$bad_port/m" "$near"
printf '{"auths": {"127.0.0.1:%s": {"auth": "%s"}}}\n' "$bad_port" \
	"$(printf user:secret | base64)" >"$HOME/.docker/config.json"
printf 'x\n' >mirror/tokens
# both ask for tokens, which all users get
printf 'x\n' >bad/tokens
t "a mirror and a registry ask for tokens" pulled 0
t "the password went to the registry" grep -q "GET /token.*Basic" bad/headers
t "the password did not go to the mirror" fails "^0" grep -c "Basic" mirror/headers
rm bad/tokens
rm mirror/tokens
cp mirrors.json kept.json
mkdir -p "$HOME/.config/foundry"
cp mirrors.json "$HOME/.config/foundry/mirrors.json"
t "the file in the user's configuration is read" env -u FOUNDRY_REGISTRY_MIRRORS bash -c "
	: >bad/headers; rm -rf t; foundry-store -s t pull $at && ! grep -q blobs bad/headers"

# --- the client's certificate ---

certificate() {
	tls_hostile own "127.0.0.1:$real_port"
	tls_hostile near_tls "127.0.0.1:$near_port"
	mirrors "127.0.0.1:$own_port/m" "oci://127.0.0.1:$near_tls_port/cached"
	: >own/headers
	: >near_tls/headers
	rm -rf t
	FOUNDRY_REGISTRY_CA=$TMP/ca.crt FOUNDRY_REGISTRY_CERT=$TMP/client.crt \
		FOUNDRY_REGISTRY_KEY=$TMP/client.key foundry-store -s t pull \
		"oci://127.0.0.1:$own_port/m/one"
}
t "a registry and a mirror use TLS and a client's certificate" certificate
t "the registry saw the certificate" grep -q "HEAD .*manifests.* client$" own/headers
t "the mirror got requests" grep -q "GET .*blobs" near_tls/headers
t "the mirror did not see the certificate" bash -c "! grep -q 'client$' near_tls/headers"

# --- files that are wrong ---

while IFS='|' read -r text regex; do
	printf '%s\n' "$text" >mirrors.json
	t "a file of mirrors is refused: $text" \
		says_only 2 "the mirrors in mirrors.json cannot be used: .*$regex" \
		foundry-store -s t pull "$at"
done <<'END2'
|JSON
[]|JSON
{"version": 1}|registries
{"version": 2, "registries": []}|version
{"version": 1, "registries": [], "more": 1}|members
{"version": 1, "registries": [{}]}|prefix
{"version": 1, "registries": [{"prefix": "", "mirrors": []}]}|prefix
{"version": 1, "registries": [{"prefix": "h/X", "mirrors": []}]}|prefix
{"version": 1, "registries": [{"prefix": "h/x:tag", "mirrors": []}]}|prefix
{"version": 1, "registries": [{"prefix": "h", "mirrors": {}}]}|mirrors
{"version": 1, "registries": [{"prefix": "h", "mirrors": [{}]}]}|location
{"version": 1, "registries": [{"prefix": "h", "mirrors": [{"location": "h/x"}]}]}|location
{"version": 1, "registries": [{"prefix": "h", "mirrors": [{"location": "oci://h/x:y"}]}]}|location
{"version": 1, "registries": [{"prefix": "h", "mirrors": [{"location": "oci://h", "x": 1}]}]}|mirror
END2
rm mirrors.json
t "a file that the variable names must exist" \
	says_only 2 "mirrors.json cannot be used: it does not exist" foundry-store -s t pull "$at"
t_done
