#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A push whose upload of one blob is lost, as by copies of a registry that do not share uploads,
# while other uploads are on their way: it asks which blobs are there, and sends the others again.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
# shellcheck source=registry.sh
. "$ROOT/tests/cli/registry.sh"

push() { timeout 40 foundry-store push --private m/one "$at"; }

hostile_image
for f in c d e f g h; do head -c 600000 /dev/urandom >$f; done
registry_start real
hostile_start bad "127.0.0.1:$real_port"
at=oci+http://127.0.0.1:$bad_port/m/one
fault
t "an image is pushed" push
"$store_image" s m/one a b c d e f g h >/dev/null
fault "PUT uploads.*$(id_of c) 4 status 404" "PUT uploads 99 until $TMP/go"
(
	sleep 3
	touch "$TMP/go"
) &
t "a push with new blobs ends, although an upload of one was lost" push
foundry-store -s t init >/dev/null
t "all blobs are there" foundry-store -s t pull "$at"
t_done
