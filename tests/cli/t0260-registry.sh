#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Images in a container registry: Debian's docker-registry with TLS and passwords, on the loopback
# interface.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 1000000 /dev/zero | tr '\0' a >a
head -c 900000 /dev/urandom >b
head -c 900000 /dev/urandom >c
export FOUNDRY_STORE=$TMP/s
one=$("$store_image" s model/one a b)
two=$("$store_image" s model/two b c)
registry_start main tls auth
main=127.0.0.1:$main_port
at=oci://$main/models
refs() { foundry-store -s "$1" ls | awk 'NR > 1 { print $2, $1 }'; }
# sizes NAME: the number of the registry's blobs
blobs() { find "$TMP/main.data" -path '*/blobs/sha256/*/data' | wc -l; }

# --- trust and credentials ---

t "a certificate of an unknown authority is refused" says_only 9 \
	"no secure connection.*FOUNDRY_REGISTRY_CA" foundry-store push --private model/one "$at/one"
export FOUNDRY_REGISTRY_CA=$TMP/ca.crt
t "a registry with a password needs a log-in" says_only 6 "asks for a password; log in" \
	foundry-store push --private model/one "$at/one"
log_in "$main" user:wrong
t "a wrong password is refused" says_only 6 "answered 401.*log in" \
	foundry-store push --private model/one "$at/one"
t "refused pushes store nothing" test ! -e main.data/docker
log_in "$main"

# --- there and back ---

t "content that no tensor declares constant is refused" says_only 6 \
	"carries 1[0-9]{6} bytes that no tensor declares constant.*--private" \
	foundry-store push model/one "$at/one"
t "push sends every object" prints "pushed 3 of 3 objects, 1.8 MiB of 1.8 MiB" bash -c \
	"foundry-store push --private model/one $at/one | sed 's/, as .*//'"
t "a second push sends nothing" json "j['objects_moved'] == 0 and j['bytes_moved'] == 0 and
	j['objects'] == 3 and j['requests'] <= 8" \
	foundry-store push --json --private model/one "$at/one"
t "a second image sends only objects that the repository lacks" json "j['objects_moved'] == 2" \
	foundry-store push --json --private model/two "$at/one:two"
before=$(blobs)
t "a push mounts objects from another repository" json "j['objects_mounted'] == 3 and
	j['objects_moved'] == 0" \
	foundry-store push --json --private --mount "models/none,models/one" model/one "$at/mounted"
t "a mount adds no blob" test "$(blobs)" = "$before"
t "pull stores the image under its name" \
	prints "model/one is $one" bash -c "foundry-store -s t pull $at/one | grep -v ^pulled"
t "the pulled store is sound" exits 0 foundry-store -s t verify
t "the exports of both stores are equal" cmp <(foundry-store export model/one) \
	<(foundry-store -s t export model/one)
t "a second pull moves nothing" json "j['objects_moved'] == 0 and j['requests'] <= 4" \
	foundry-store pull -s t --json "$at/one"
t "a second model fetches only objects that the store lacks" json "j['objects_moved'] == 2 and
	900000 < j['bytes_moved'] < 910000" foundry-store pull -s t --json "$at/one:two"
t "the second model is the pushed image" prints "$(refs s)" refs t
digest=$(foundry-store -s t pull --json "$at/one" | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["digest"])')
t "a pull by digest accepts another name" prints "other/name is $one" bash -c \
	"foundry-store -s u pull $at/one@sha256:$digest other/name | grep -v ^pulled"
t "a pull without names sets none" bash -c \
	"foundry-store -s u pull --no-refs $at/one:two | grep -q '$two has no name'"
t "pull prints the image that had the name before" prints "model/one is $two, was $one" bash -c \
	"foundry-store -s t pull $at/one:two model/one | grep -v ^pulled"

# --- what is not there ---

t "a pull of an unknown tag fails" \
	says_only 3 "answered 404.*check the name" foundry-store -s t pull "$at/one:none"
t "a pull of an unknown repository fails" \
	says_only 3 "answered 404" foundry-store -s t pull "$at/none"
t "a push of an unknown image fails" \
	says_only 3 "model/none" foundry-store push model/none "$at/one"
t "a pull of a name without oci:// is wrong usage" \
	says_only 2 "does not begin with oci://" foundry-store -s t pull "$main/x"
t "a name without oci:// makes no store" \
	says_only 2 "does not begin with oci://" foundry-store -s w pull "$main/x"
t "a name with a wrong port makes no store" \
	says_only 2 "its port a number from 1 to 65535" foundry-store -s w \
	pull oci://127.0.0.1:65536/x
t "a pull to an invalid ref makes no store" \
	says_only 2 "w w" foundry-store -s w pull "$at/one" "w w"
t "there is no store after these errors" test ! -e w
t "a push to a digest is refused" \
	says_only 2 "push to a tag" foundry-store push --private model/one "$at/one@sha256:$digest"
t "plain HTTP to a server with TLS fails" says_only 9 "400" \
	foundry-store -s t pull "oci+http://$main/models/one"
FOUNDRY_REGISTRY_RETRIES=0 t "nobody listens" says_only 9 "cannot be reached" \
	foundry-store -s t pull oci://127.0.0.1:1/x/y

# --- what other programs make of it ---

copy() { skopeo --tmpdir "$TMP" copy -q --src-cert-dir certs --dest-cert-dir certs \
	--src-creds user:secret --dest-tls-verify=false "$@"; }
mkdir certs && cp ca.crt certs/
registry_start other
t "skopeo inspects an image" bash -c "skopeo inspect --raw --cert-dir certs --creds user:secret \
	docker://$main/models/one | grep -q application/vnd.foundry.image.v1"
t "skopeo copies an image to another registry" copy --dest-tls-verify=false \
	"docker://$main/models/one" "docker://127.0.0.1:$other_port/copied/one"
t "a copied image can be pulled" prints "model/one is $one" bash -c "foundry-store -s v pull \
	oci+http://127.0.0.1:$other_port/copied/one | grep -v ^pulled"
t "a copied image has every object" exits 0 foundry-store -s v verify
t "a pull without TLS needs --plain-http" says_only 9 "no secure connection|wrong version" \
	foundry-store -s v pull "oci://127.0.0.1:$other_port/copied/one"
t "a pull with --plain-http uses HTTP" foundry-store -s v pull --plain-http \
	"oci://127.0.0.1:$other_port/copied/one"

# --- certificates of clients, credentials of other tools ---

registry_start strict tls client
strict=127.0.0.1:$strict_port
FOUNDRY_REGISTRY_RETRIES=0 t "a client without a certificate, where one is wanted" \
	says_only 9 "certificate required|cannot be reached" \
	foundry-store push --private model/one "oci://$strict/m/one"
mkdir -p "$HOME/.config/containers/certs.d/$strict"
cp ca.crt "$HOME/.config/containers/certs.d/$strict/"
cp client.crt "$HOME/.config/containers/certs.d/$strict/client.cert"
cp client.key "$HOME/.config/containers/certs.d/$strict/"
t "the certificates of the folder certs.d are used" \
	env -u FOUNDRY_REGISTRY_CA foundry-store push --private model/one "oci://$strict/m/one"
t "the certificates that variables name are used" env FOUNDRY_REGISTRY_CERT="$TMP/client.crt" \
	FOUNDRY_REGISTRY_KEY="$TMP/client.key" foundry-store -s v pull "oci://$strict/m/one"
t "a variable that names no file is refused" says_only 2 "_CA is 'none', which cannot be read" \
	env FOUNDRY_REGISTRY_CA=none foundry-store -s v pull "$at/one"

rm "$HOME/.docker/config.json"
mkdir -p run/containers bin
printf '{"auths": {"%s/models": {"auth": "%s"}, "%s": {"auth": "%s"}}}' "$main" \
	"$(printf user:secret | base64)" "$main" "$(printf user:wrong | base64)" \
	>run/containers/auth.json
t "the longest path of Podman's file counts" env XDG_RUNTIME_DIR="$TMP/run" \
	foundry-store -s v pull "$at/one"
t "REGISTRY_AUTH_FILE names the only file" env REGISTRY_AUTH_FILE="$TMP/run/containers/auth.json" \
	foundry-store -s v pull "$at/one"
cat >bin/docker-credential-test <<'END'
#!/bin/sh
read -r host
[ "$1" = get ] && case $host in
127.*) echo '{"ServerURL": "x", "Username": "user", "Secret": "secret"}' ;;
*) echo "credentials not found in native keychain"; exit 1 ;;
esac
END
chmod +x bin/docker-credential-test
PATH=$TMP/bin:$PATH
echo '{"credsStore": "test"}' >"$HOME/.docker/config.json"
t "credentials of a credential helper are used" foundry-store -s v pull "$at/one"
printf '{"credHelpers": {"%s": "absent"}}' "$main" >"$HOME/.docker/config.json"
absent() { foundry-store -s v pull "$at/one" 2>&1; }
t "a helper that PATH does not have is named" fails \
	"asks for a password.*helper docker-credential-absent is not in PATH" absent
echo '{"auths": ' >"$HOME/.docker/config.json"
t "a configuration that is not JSON is refused" says_only 7 "config.json is no JSON document" \
	foundry-store -s v pull "$at/one"
log_in "$main"

# --- without the library that speaks with registries ---

t "a missing libfoundry-registry.so is named" says_only 9 "registries need libfoundry-registry.so" \
	env FOUNDRY_REGISTRY_LIBRARY=/none.so foundry-store -s v pull "$at/one"
t_done
