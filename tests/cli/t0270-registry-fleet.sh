#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The simulation of many hosts that start at once: its table beside numbers that can be computed.
. "$(dirname "$0")/../lib.sh"

fleet() {
	python3 "$ROOT/tests/bench/registry_fleet.py" --hosts 40 --per-cache 10 --per-site 20 \
		--image 1 --blocks 4 --spread 0 --launch 2 "$@"
}
# the origin sends a GiB a second
fleet --origin-gbit 8.589934592 --origin-cores 1000 --up-gbit 100 --host-gbit 100 --pull 100000 \
	--cache-gbit 1000 --cache-cores 1000 >table
cat table
# row TITLE IMAGES: the row has this number of images
row() { grep -q "^$1 *$2 " table; }
# takes TITLE SECONDS: until all hosts can launch
takes() { grep -q "^$1 .* $2\$" table; }
t "without a cache each host fetches an image" row "no cache" 40
t "without a cache the origin's link limits the time" takes "no cache" 42
t "empty caches fetch more than one for each host" row "caches, empty, all hosts at once" 68
t "if one host of each cache begins, each cache fetches two images" \
	row "caches, empty, one host of each first" 8
t "caches that fetch once fetch one image each" row "caches that fetch once, all hosts at once" 4
t "caches that fetch once are limited by the origin, too" \
	takes "caches that fetch once, all hosts at once" 6
t "a cache for each site fetches one image for each site" \
	row "the same, behind a cache of each site" 2
t "the same options print the same table" cmp <(fleet --spread 3) <(fleet --spread 3)
t "another seed prints another one" bash -c "! cmp -s <($(declare -f fleet); fleet --spread 9) \
	<($(declare -f fleet); fleet --spread 9 --seed 2)"
t_done
