#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A registry that cannot mount a blob opens an upload instead. A push that asks several repositories
# uses the last of these uploads and cancels the others. No answer to that ends a push.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
# shellcheck source=registry.sh
. "$ROOT/tests/cli/registry.sh"

hostile_image
registry_start real
hostile_begin
fault

# uploads: the number of uploads that are open in the registry
uploads() { find real.data -path '*/_uploads/*' -name startedat | wc -l; }
# mount NAME REPOSITORY,...: pushes to the repository NAME; prints the numbers of blobs
mount() {
	timeout 60 foundry-store push --json --private --mount "$2" m/one "${at%/m/one}/$1" |
		python3 -c 'import json, sys
j = json.load(sys.stdin)
print(j["objects_mounted"], j["objects_moved"])'
}
# rejects FAULT: a push succeeds although each request to cancel an upload gets the fault
rejects() {
	rm -rf "real.data/docker/registry/v2/repositories/m/new"
	fault "DELETE uploads 99 $1"
	prints "0 3" mount m/new m/none,m/nothing
}

t "a push uploads what no repository has" prints "0 3" mount m/new m/none,m/nothing,m/nil
t "it asks all repositories for five blobs" test "$(asked 'POST.*from=m/n')" = 15
t "it opens no other upload" test "$(asked POST)" = 15
t "no upload is left open" prints 0 uploads
t "a push mounts what the last repository has" prints "3 0" mount m/next m/none,m/one
t "no upload is left open if the blobs are mounted" prints 0 uploads
fault
t "a push mounts what the first repository has" prints "3 0" mount m/third m/one,m/none
t "it cancels no upload" fails "^0$" asked DELETE

for what in "status 401" "status 403" "status 404" "status 405" "status 429,Retry-After:60" \
	"status 500" "status 307,Location:/v2/m/one/manifests/latest" drop "stall 0"; do
	t "an upload that cannot be cancelled ends no push: $what" rejects "$what"
	# libcurl itself sends a request again, up to five times, if an idle connection ends.
	least=5 most=5
	[ "$what" != drop ] || most=30
	# The server reads no request of a connection that it holds up, and may not see all.
	[ "$what" != "stall 0" ] || least=1
	t "it is asked for once: $what" \
		test "$(asked DELETE)" -ge "$least" -a "$(asked DELETE)" -le "$most"
	t "the other image is there: $what" fetch
done

touch bad/tokens
: >bad/asked
t "a push with tokens succeeds" rejects pass
rm -rf real.data/docker/registry/v2/repositories/m/new
fault
t "a push whose token does not allow to cancel succeeds" prints "0 3" mount m/new m/none,m/nothing
t "it asks for no token with the right to delete" fails "^0$" grep -c delete bad/asked
rm bad/tokens

# Only the registry itself is asked to delete something.
hostile_start else
rm -rf real.data/docker/registry/v2/repositories/m/new
fault "POST from=m/none 99 location http://127.0.0.1:$else_port/upload"
t "a push succeeds if uploads that it does not use are at another host" \
	prints "0 3" mount m/new m/none,m/nothing
t "the other host gets no request" test ! -e else/headers -o -z "$(grep DELETE else/headers)"
rm -rf real.data/docker/registry/v2/repositories/m/new
fault "POST from=m/none 99 status 202"
t "a push succeeds if an upload that it does not use has no address" \
	prints "0 3" mount m/new m/none,m/nothing
t_done
