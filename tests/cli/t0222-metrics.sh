#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store metrics: a strict parser reads the store's gauges, and their numbers are
# right.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
# shows "NAME [LABEL=VALUE] NUMBER"...: the parser found these lines
shows() {
	local line
	foundry-store metrics | python3 "$ROOT/tests/python/prometheus.py" >shown || return 1
	for line; do
		grep -qxF -- "$line" shown || { echo "not there: $line"; cat shown; return 1; }
	done
}

t "no store: an error, and no numbers" says_only 3 "there is no store" foundry-store metrics
echo one >a
echo two >b
"$store_image" s one a >/dev/null
"$store_image" s two b >/dev/null
t "the gauges show refs, pins and objects" shows "foundry_store_refs 2" \
	"foundry_store_pinned_refs 0" "foundry_store_objects kind=manifest 2" \
	"foundry_store_limit_bytes 0" "foundry_store_quarantined_objects 0" "foundry_store_leases 0"
foundry-store pin one
foundry-store limit 64M
foundry-store rm --yes two && foundry-store gc --yes
t "the gauges follow pins, limits and removals" shows "foundry_store_refs 1" \
	"foundry_store_pinned_refs 1" "foundry_store_objects kind=manifest 1" \
	"foundry_store_limit_bytes 67108864"
t "the gauges equal the numbers of stat" shows \
	"foundry_store_file_bytes $(foundry-store stat --json | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["file"]["bytes"])')"
t "each line names the store" prints "" bash -c \
	"foundry-store metrics | grep -v '^#' | grep -vF 'store=\"$TMP/s\"' || true"
t_done
