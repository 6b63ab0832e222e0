#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make.sh [FILE] - writes libabigail's description of the built library's exports and public types
# into FILE, by default SONAME.abi in this folder. Run it once for each version, at its release;
# tests/lint/abi.sh compares later builds with it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
lib=${BUILD:-$root/build}/libfoundry.so
soname=$(readelf -d "$lib" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
abidw --headers-dir "$root/include" --headers-dir "$root/include/foundry" --headers-dir "$root/include/foundry/run" --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path \
	--no-elf-needed --no-show-locs --out-file "${1:-$root/tests/golden/abi/$soname.abi}" "$lib"
