#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A registry that dies at each request of a push and of a pull: in the middle of the request or its
# answer, or after it but before the answer. Each time the message is clear, the store is sound, and
# the same command succeeds when the registry is back. Images here have an index.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

for name in a b c; do head -c 20000 /dev/urandom >$name; done
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=0
export FOUNDRY_REGISTRY_LIBRARY=$BUILD/tests/libfoundry-registry-parts.so
"$store_image" s m/one a b c >/dev/null
registry_start real
hostile_start bad "127.0.0.1:$real_port"
at=oci+http://127.0.0.1:$bad_port/m/one
is_gone="(cannot be reached, or a transfer broke off|answered 50[0-9])"
fault

# --- every request ---

# down_at N WHEN: the registry goes down at request number N + 1
down_at() { fault "* . $1 pass" "* . 1 down $2"; }
gone() { says_only 9 "$is_gone" "$@"; }
push_again() {
	gone foundry-store push --private m/one "$at" || return
	foundry-store verify || return
	fault
	push && fetch
}
pull_again() {
	rm -rf t
	gone foundry-store -s t pull "$at" || return
	foundry-store -s t verify || return
	[ -z "$(foundry-store -s t ls -q)" ] || { echo "it set a ref"; return 1; }
	fault
	foundry-store -s t pull "$at" && foundry-store -s t verify
}
# every NAME PREPARE COMMAND...: the command at each of the requests that NAME has
every() {
	local name=$1 prepare=$2 n=0 when total
	shift 2
	$prepare
	fault
	$name
	total=$(wc -l <bad/headers)
	for when in half after; do
		for ((n = 0; n < total; n++)); do
			$prepare
			down_at $n $when
			t "$name succeeds after the registry died $when request $n of $total" \
				"${name}_again"
		done
	done
	t "$name makes the expected number of requests: $total" test "$total" "$@"
}
empty() { rm -rf real.data/docker; }
push() { foundry-store push -q --private m/one "$at"; }
pull() { rm -rf t; foundry-store -s t pull -q "$at"; }
# one to greet, and the tag; HEAD, POST and PUT of three chunks, the manifest, the list and {}; two
# manifests and the index
every push empty = 23
# the index, two manifests, the list, four objects
every pull true = 8

# --- the real registry, killed ---

# killed NAME METHOD REGEX: NAME while the registry is killed at the first such request
killed() {
	local name=$1
	registry_start real
	[ "$name" = pull ] || empty
	[ "$name" != pull ] || { fault; push; }
	fault "$2 $3 1 kill $real_pid"
	if [ "$name" = push ]; then
		gone foundry-store push --private m/one "$at"
	else
		rm -rf t
		gone foundry-store -s t pull "$at" && foundry-store -s t verify
	fi || return
	wait "$real_pid" 2>/dev/null || true
	registry_start real
	fault
	push && fetch
}
registry_stop real
for stage in "GET /v2/$" "HEAD blobs" "POST uploads" "PUT uploads" "PUT manifests/sha256" \
	"PUT manifests/latest"; do
	# shellcheck disable=SC2086 # two words
	t "a push succeeds after the registry was killed at $stage" killed push $stage
	registry_stop real
done
for stage in "GET manifests/latest" "GET manifests/sha256" "GET blobs"; do
	# shellcheck disable=SC2086
	t "a pull succeeds after the registry was killed at $stage" killed pull $stage
	registry_stop real
done
t_done
