#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Faults of registries and networks. Each is an error with a clear message or is repaired, and the
# store stays sound. A server in front of Debian's docker-registry causes the faults.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

hostile_image

repeated() {
	servers_own
	hostile_begin pushed
	t "pull works through the server" fetch
	fault "GET $blob 1 drop"
	t "a connection that breaks is opened again" fetch
	fault "GET $blob 2 cut 300000"
	t "a download continues behind the bytes that came" fetch
	t "the repeated request asked for the rest alone" grep -q "$blob.*bytes=300000-" bad/headers
	fault "GET $blob 1 cut 300000" "GET $blob 1 norange"
	t "a download begins anew if the server ignores the range" fetch
	fault "GET $blob 1 cut 300000" "GET $blob 1 status 416"
	t "a download begins anew if the server has no such range" fetch
	fault "GET $blob 1 unended"
	t "a download that breaks off behind its last byte begins anew" fetch
	fault "GET $blob 1 flip"
	t "a blob with other bytes is fetched once more" fetch
	for status in 408 429 500 502 503 504; do
		fault "GET $blob 2 status $status"
		t "status $status is repeated" fetch
	done
	fault "GET $blob 1 status 429,Retry-After:2"
	start=$SECONDS
	t "a pull succeeds after a status with Retry-After" fetch
	t "the pull waited as long as Retry-After asks" test $((SECONDS - start)) -ge 2
}

stalled() {
	servers_own
	hostile_begin pushed
	fault "GET $blob 1 stall 100000"
	t "a stalled download is ended and continued" fetch
	fault "GET $blob 1 drip 0.5"
	t "a slow download succeeds" fetch
	t "a slow download takes one request" test "$(asked "GET.*$blob")" = 1
}

stalled_always() {
	servers_own
	hostile_begin pushed
	fault "GET $blob 9 stall 0"
	t "a download that always stalls fails" refuses 9 "too slow|broke off"
}

pushes() {
	for what in "PUT uploads 2 drop" "POST uploads 2 status 503" "PUT uploads 2 status 500" \
		"HEAD blobs 2 drop" "PUT uploads 1 status 404" "PUT manifests 1 status 502" \
		"PUT manifests 1 code DIGEST_INVALID"; do
		rm -rf real.data/docker
		fault "$what"
		t "a push with $what succeeds" push
	done
	fault
	t "an image pushed with faults is whole" fetch
	rm -rf real.data/docker
	fault "PUT uploads 99 status 500"
	t "an upload that always fails is an error" says_only 9 "answered 500 to PUT" \
		foundry-store push --private m/one "$at"
	rm -rf real.data/docker
	fault "PUT uploads 99 chatty"
	t "a push ignores long texts in successful answers" push
}

refused() {
	servers_own
	hostile_begin pushed
	fault "GET $blob 9 drop"
	t "a connection that always breaks is an error" \
		refuses 9 "cannot be reached, or a transfer broke off"
	fault "GET $blob 9 flip"
	t "a blob with other bytes is refused" refuses 7 "sent other bytes than ${blob#blobs/}"
	fault "GET $blob 9 shorter"
	t "a blob that is too short is refused" refuses 7 "sent other bytes"
	fault "GET $blob 9 longer"
	t "a blob that is too long is refused" refuses 7 "sent more than 900000 bytes"
	fault "GET manifests 9 flip"
	t "a manifest that is not JSON is refused" refuses 7 "is no JSON document|does not match"
	fault "GET manifests 9 digest"
	t "a wrong digest in the header is refused" refuses 7 \
		"does not match the digest that the registry states"
	fault "GET $blob 9 status 403"
	t "status 403 is an error" refuses 6 "answered 403 to GET .*TEST: a fault.*right"
	fault "GET $blob 9 status 404"
	t "status 404 is an error" refuses 3 "answered 404"
	fault "GET $blob 9 status 500"
	t "status 500 is an error" refuses 9 "answered 500.*log"
	fault "GET $blob 9 status 429,Retry-After:4000"
	t "a request to wait for an hour is an error" refuses 9 "asks to wait for 4000 seconds"
	fault "GET $blob 99 redirect http://127.0.0.1:$bad_port"
	t "a redirect without end is an error" refuses 9 "redirects without end"
	fault "GET $blob 9 redirect ftp://127.0.0.1"
	t "a redirect to another protocol is refused" refuses 9 "not HTTPS"
}

pushes_refused() {
	while IFS='|' read -r what status regex; do
		rm -rf real.data/docker
		fault "$what"
		t "a push with $what fails" says_only "$status" "$regex" \
			foundry-store push --private m/one "$at"
		t "the store is sound after a push with $what" foundry-store verify
	done <<-'END'
	POST uploads 9 status 403|6|answered 403 to POST .*TEST: a fault.*ask for the right
	PUT uploads 9 status 413|9|answered 413 to PUT .*limit for one request is too small
	PUT manifests 9 status 403|6|answered 403 to PUT .*ask for the right
	PUT manifests 9 status 400|9|answered 400 to PUT .*TEST: a fault
	PUT manifests 9 code DIGEST_INVALID|9|answered 400 to PUT .*DIGEST_INVALID
	PUT manifests 9 digest|7|has stored another manifest than was sent
	END
}

# Damaged on the registry's disk.
damaged() {
	local id=${blob#blobs/sha256:}
	local file=real.data/docker/registry/v2/blobs/sha256/${id:0:2}/$id/data
	fault
	push >/dev/null
	cp "$file" whole
	printf x | dd of="$file" bs=1 seek=450000 conv=notrunc status=none
	t "a blob that is corrupted on the server is refused" says_only 7 \
		"sent other bytes than sha256:$id; delete them there and push again" fetch
	head -c 450000 whole >"$file"
	t "a blob that is shorter on the server is refused" says_only 7 "sent other bytes" fetch
	: >"$file"
	t "a blob that is empty on the server is refused" says_only 7 "sent other bytes" fetch
	rm "$file"
	t "a blob that is missing on the server is an error" says_only 3 "answered 404" fetch
	t "a push sends the missing blob again" push
	t "the image is whole after that push" fetch
}

# Another host gets no credentials.
hosts() {
	hostile_start else
	log_in "127.0.0.1:$bad_port"
	touch bad/tokens
	fault "GET $blob 9 redirect http://127.0.0.1:$else_port"
	: >else/headers
	t "a redirect to another host is followed" says_only 7 "sent other bytes|sent more" \
		foundry-store -s t2 pull "$at"
	t "the registry got the token" grep -q "manifests.*Bearer token" bad/headers
	t "the other host got no token" bash -c \
		"grep -q '$blob - ' else/headers && ! grep -q Bearer else/headers"
	asked="GET /token.service=test&scope=repository%3Am%2Fone%3Apull&.*"
	t "the server of tokens got the password" grep -q \
		"${asked}user Basic dXNlcjpzZWNyZXQ=" bad/asked
	rm bad/tokens
	hostile_start cdn "127.0.0.1:$real_port"
	echo "GET $blob 1 cut 300000" >cdn/faults
	fault "GET $blob 9 redirect http://127.0.0.1:$cdn_port"
	t "a redirected download that breaks off is continued" fetch
	t "it is continued at the registry, since a redirect may hold for one try" test \
		"$(asked "GET .*$blob")" = 2
	t "it is continued behind the bytes that came" grep -q "$blob - bytes=[1-9]" cdn/headers
	touch bad/tokens
	fault "POST uploads 9 location http://127.0.0.1:$else_port/upload"
	: >else/headers
	rm -rf real.data/docker
	t "an upload to another host sends no token" bash -c \
		"foundry-store push --private m/one $at;
		grep -q 'PUT /upload.* - ' else/headers && ! grep -q Bearer else/headers"
}

tokens() {
	log_in "127.0.0.1:$bad_port"
	touch bad/tokens
	fault
	rm -rf real.data/docker
	t "a push with tokens works" push
	rm -rf real.data/docker
	fault "PUT uploads 2 expire"
	t "tokens may expire in the middle of a push" push
	fault "GET $blob 1 expire"
	t "tokens may expire in the middle of a pull" fetch
	: >bad/tokens
	fault
	t "an expired token is replaced" fetch
	fault "GET /token 9 status 401"
	: >bad/tokens
	t "a server of tokens that refuses is an error" \
		refuses 6 "tokens answered 401 .TEST: a fault.*log in"
	: >bad/tokens
	fault "GET /token 1 status 503"
	t "a server of tokens that is busy is asked again" fetch
	printf '{"auths": {"127.0.0.1:%s": {"auth": "dXNlcg==", "identitytoken": "refresh-me"}}}' \
		"$bad_port" >"$HOME/.docker/config.json"
	: >bad/tokens
	: >bad/asked
	t "a pull with a refresh token works" fetch
	t "the refresh token was posted" grep -q \
		"POST /token - .*grant_type=refresh_token.*refresh_token=refresh-me" bad/asked
}

dead() {
	registry_stop real
	t "a registry that does not answer is an error" \
		says_only 9 "500|502|cannot be reached|broke off" foundry-store -s t pull "$at:x"
}

# These change the registry and have one of their own.
changes() {
	servers_own
	real_port=
	registry_start real
	hostile_begin
	pushes
	pushes_refused
	damaged
	hosts
	tokens
	dead
}

registry_start real
at=oci+http://127.0.0.1:$real_port/m/one
t "an image is pushed for the next tests" push
side_by_side repeated stalled stalled_always refused changes
t_done
