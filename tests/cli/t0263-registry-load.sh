#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Loads that fetch what the store lacks from the registry that FOUNDRY_REGISTRY names, through a
# pull-through cache as well, and many processes at once.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

vecadd=$BUILD/examples/vecadd
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
"$vecadd" capture -s s -m "$BUILD/sim/kernels.cubin" >/dev/null
registry_start main
export FOUNDRY_REGISTRY=oci+http://127.0.0.1:$main_port/images
gets() { grep -c "GET /v2/images/$1" main.log; }
# load STORE: loads vecadd from it, and makes the store first
load() { foundry-store init "$1" -q 2>/dev/null || true; "$vecadd" load -s "$1"; }

t "a load of an image that is nowhere names both reasons" fails \
	"vecadd.*and it cannot be fetched: the registry.*404" load none
t "push by name works" foundry-store -s s push --private vecadd
t "a load fetches the image" load one
t "a second load asks the registry for nothing" bash -c "n=\$(wc -l <main.log)
	'$vecadd' load -s one && [ \$n = \$(wc -l <main.log) ]"
t "the store is whole after the load" foundry-store -s one verify
t "without the variable nothing is fetched" fails "vecadd" env -u FOUNDRY_REGISTRY bash -c \
	"foundry-store init bare -q; '$vecadd' load -s bare"
t "a load names the registry that does not answer" \
	fails "vecadd.*and it cannot be fetched: .*cannot be reached" \
	env FOUNDRY_REGISTRY=oci+http://127.0.0.1:1/images FOUNDRY_REGISTRY_RETRIES=0 \
	"$vecadd" load -s none
t "a variable that names no registry is an error" fails "does not begin with oci://" \
	env FOUNDRY_REGISTRY=none "$vecadd" load -s none

# all COMMAND...: the command succeeds with each number from 1 to 8 behind it, all at once
all() {
	local i pids=()
	for i in {1..8}; do
		"$@" "$i" >"all.$i" 2>&1 &
		pids+=($!)
	done
	for i in "${!pids[@]}"; do wait "${pids[$i]}" || { cat "all.$((i + 1))"; return 1; }; done
}
shared() { "$vecadd" load -s shared; }
foundry-store init shared -q
before=$(gets manifests)
t "eight processes of a host load an image at once" all shared
t "eight processes of a host fetch it once" test "$(($(gets manifests) - before))" = 1
own() { load "own$1" && foundry-store -s "own$1" verify; }
t "eight hosts load an image at once" all own
registry_start cache proxy="http://127.0.0.1:$main_port"
own_cached() {
	FOUNDRY_REGISTRY=oci+http://127.0.0.1:$cache_port/images load "cached$1" &&
		foundry-store -s "cached$1" verify
}
t "a host loads through a pull-through cache" own_cached 0
sleep 1 # the cache stores what it passed on in the background
before=$(gets blobs)
t "eight hosts load through the cache at once" all own_cached
t "eight hosts get every blob from the cache" test "$(gets blobs)" = "$before"
t_done
