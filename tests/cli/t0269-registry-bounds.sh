#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Limits of what a registry can make a client do: how often it logs in, how long it waits for a
# token, which host sees its certificate. Also log-ins that a missing helper should know.
# shellcheck disable=SC2154,SC2094 # hostile_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

files=()
for i in {1..40}; do
	head -c 20000 /dev/urandom >"f$i"
	files+=("f$i")
done
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=1 FOUNDRY_REGISTRY_TIMEOUT=2
"$store_image" s m/one "${files[@]}" >/dev/null
slow="blobs/sha256:$(id_of f20)"
registry_start real

begin() {
	servers_own
	hostile_start bad "127.0.0.1:$real_port"
	at=oci+http://127.0.0.1:$bad_port/m/one
	fault
}

# --- progress ---

# shows REGEX: the words of a pull on a terminal, one line each
shows() {
	python3 "$ROOT/tests/cli/on_terminal.py" "" foundry-store -s t pull "$at" | tr '\r' '\n' |
		grep -E "$1"
}
progress() {
	fault "GET $slow 1 drip 0.2"
	rm -rf t
	t "pull shows bytes and objects" shows "KiB of .*, object [0-9]+ of 4[01]"
	rm -rf t
	fault "GET $slow 1 drip 0.2"
	t "pull shows the rate and the time left" shows "of 4[01], [0-9.]+ [KM]iB/s, [0-9]+ s left"
}

# --- redirects of many blobs ---

# The image's tag was removed: the registry has its blobs, and no manifest names them.
redirects() {
	fault
	t "an image is removed for the next tests" foundry-store unpush "$at"
	fault "HEAD blobs/sha256: 99999 redirect http://127.0.0.1:$real_port"
	t "a push works if the registry redirects each question for a blob" python3 -c '
import sys
import foundry
foundry.Store(sys.argv[1]).push("m/one", sys.argv[2], private=True, requests=2)' \
		"$FOUNDRY_STORE" "$at"
	t "the push asked for every blob" test "$(asked "HEAD .*blobs/sha256")" -gt 40
}

# --- log-ins without end ---

tokens_endless() {
	touch bad/tokens
	fault "GET blobs/sha256 99999 expire"
	rm -rf t
	t "a registry that refuses every token is an error" says_only 6 "answered 401" \
		timeout 20 foundry-store -s t pull "$at"
	t "a refused request is repeated only a few times" test "$(asked "GET.*blobs")" -lt 100
}

# --- tokens that never come ---

# Each byte comes within the time-out, and the answer never ends.
tokens_never() {
	begin
	fault "GET /token 99 trickle"
	: >bad/tokens
	start=$SECONDS
	t "a token that comes a byte at a time is an error" says_only 9 \
		"tokens cannot be reached: .*(timed out|Timeout)" \
		timeout 60 foundry-store -s t pull "$at"
	t "a pull does not wait for such a token" test $((SECONDS - start)) -lt 25
}

# --- a helper that is not there ---

anonymous() { foundry-store -s t pull "$at" 2>&1 && foundry-store -s t verify; }
warned() { FOUNDRY_LOG=warn foundry-store -s t pull "$at" 2>&1 | grep "$1"; }
helper_absent() {
	echo '{"credsStore": "absent"}' >"$HOME/.docker/config.json"
	fault
	: >bad/tokens
	rm -rf t
	t "without the helper an image is pulled from an open registry" anonymous
	rm -rf t
	t "the log warns of the missing helper" \
		warned "warn: .*docker-credential-absent is not in PATH"
	fault "GET /token 9 status 401"
	: >bad/tokens
	rm -rf t
	t "a refusal names the helper" says_only 6 "tokens answered 401.*docker-credential-absent" \
		foundry-store -s t pull "$at"
	rm bad/tokens "$HOME/.docker/config.json"
}

# --- the client's certificate ---

certificate() {
	tls_hostile named "127.0.0.1:$real_port"
	tls_hostile other "127.0.0.1:$real_port"
	export FOUNDRY_REGISTRY_CA=$TMP/ca.crt FOUNDRY_REGISTRY_CERT=$TMP/client.crt
	export FOUNDRY_REGISTRY_KEY=$TMP/client.key
	echo "GET blobs 99 redirect https://127.0.0.1:$other_port" >named/faults
	: >named/headers
	: >other/headers
	rm -rf t
	t "blobs come from another host" foundry-store -s t pull "oci://127.0.0.1:$named_port/m/one"
	t "the registry saw the certificate" grep -q "GET .*manifests.* client$" named/headers
	t "the other host got requests" grep -q "GET .*blobs" other/headers
	t "the other host did not see the certificate" bash -c "! grep -q 'client$' other/headers"
}

# Each of the others begins with what the one before has left.
others() {
	begin
	t "an image is pushed for the next tests" foundry-store push --private m/one "$at"
	progress
	redirects
	tokens_endless
	helper_absent
	certificate
}

side_by_side others tokens_never
t_done
