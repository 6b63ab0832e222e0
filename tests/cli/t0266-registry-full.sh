#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Pulls that do not fit: into a store with a limit, a limit on the size of files, and a small file
# system. Each has a clear message, leaves the store and its images sound, and succeeds with space.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

export FOUNDRY_REGISTRY_RETRIES=0
"$BUILD/tests/cli/store_chunks" s m/large 24 300000 >/dev/null
"$BUILD/tests/cli/store_chunks" s m/small 2 300000 7 >/dev/null
registry_start main
at=oci+http://127.0.0.1:$main_port/m
for name in small large; do foundry-store -s s push -q --private m/$name "$at/$name"; done

# full STORE REGEX COMMAND...: the pull by COMMAND fails, and the store has the small image alone
full() {
	local store=$1 regex=$2
	shift 2
	says_only 5 "$regex" "$@" || return
	foundry-store -s "$store" verify || return
	[ "$(foundry-store -s "$store" ls -q | wc -l)" = 1 ] || { echo "it set a ref"; return 1; }
}

# --- a limit of the store ---

t "an image that fits is pulled" foundry-store -s t pull "$at/small"
foundry-store -s t pin m/small
foundry-store -s t limit 2M >/dev/null
t "a pull that exceeds the store's limit fails" full t "the limit is 2097152" \
	foundry-store -s t pull "$at/large"
foundry-store -s t limit none >/dev/null
t "the pull succeeds without the limit" foundry-store -s t pull "$at/large"
t "the store is sound after the pull without the limit" foundry-store -s t verify

# --- a limit on the size of files ---

t "an image that fits is pulled into a second store" foundry-store -s u pull "$at/small"
t "a pull that exceeds the limit on a file's size fails" \
	full u "file size limit is reached; raise it" bash -c \
	"trap '' XFSZ; ulimit -f 3000; foundry-store -s u pull $at/large"
t "the pull succeeds without the limit on a file's size" foundry-store -s u pull "$at/large"
t "the store is sound after the pull without the limit on a file's size" foundry-store -s u verify

# --- a small file system ---

# mounted COMMAND...: in a mount namespace with a file system of 4 MiB at disk/
mounted() {
	# shellcheck disable=SC2016
	unshare $own_users -m bash -c 'mount -t tmpfs -o size=4m none disk && "$@"' - "$@"
}
in_disk() {
	foundry-store -s disk/v pull "$at/small" &&
		full disk/v "the disk is full; free space" \
			foundry-store -s disk/v pull "$at/large" &&
		mount -o remount,size=64m disk &&
		foundry-store -s disk/v pull "$at/large" && foundry-store -s disk/v verify
}
mkdir disk
own_users=
[ "$(id -u)" = 0 ] || own_users=-r
if mounted true 2>/dev/null; then
	export -f in_disk full says_only
	export at
	t "a pull into a full file system fails, and succeeds when that has grown" \
		mounted bash -c in_disk
else
	echo "no file system can be mounted here; the limit on the size of files was tested alone"
fi
t_done
