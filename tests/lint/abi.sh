#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests two promises about the public interface.
#
# A program that was built against an earlier library of this SONAME works with this one: no
# exported symbol and no public type has changed. New functions are allowed, and a struct may become
# longer at its end, because it begins with its size (sz). A change that breaks this needs a new
# SONAME, and then tests/golden/abi/make.sh writes the new version's description.
#
# A program for version 0.1 needs only the new names in Documentation/api/renamed.rst: the same test
# succeeds with the description of 0.1 after these names are replaced in it.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

soname=$(readelf -d "$BUILD/libfoundry.so" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
golden=tests/golden/abi/$soname.abi
first=tests/golden/abi/libfoundry.so.0.abi

cat >"$TMP/grown.suppr" <<'E2'
[suppress_type]
type_kind = struct
name_regexp = ^fdry_
has_data_member_inserted_at = end

# No header has their members; abidw describes them nevertheless.
[suppress_type]
type_kind = struct
name_regexp = ^fdry_(image|capture)$
E2

changes() { abidiff --no-added-syms --no-show-locs --suppr "$TMP/grown.suppr" "$1" "$2"; }
renamed() { python3 tests/golden/abi/renamed.py "$@"; }

# The comparison must detect a removed function and a changed parameter, or its success means
# nothing.
sed '/<elf-symbol name=.fdry_store_open./d' "$golden" >"$TMP/more.abi"
sed 's/<parameter type-id=.[^ ]*. name=.key.\/>//' "$golden" >"$TMP/other.abi"

bash tests/golden/abi/make.sh "$TMP/now.abi"
t "the description has functions" test "$(grep -c '<function-decl' "$golden")" -gt 100
t "nothing public was removed or changed" changes "$golden" "$TMP/now.abi"
t "a removed function is detected" fails "fdry_store_open" changes "$golden" "$TMP/more.abi"
t "a changed function is detected" fails "fdry_image_launch" changes "$golden" "$TMP/other.abi"

renamed "$first" "$TMP/now.abi" >"$TMP/first.abi"
t "version 0.1 had functions" test "$(grep -c '<function-decl' "$TMP/first.abi")" -gt 100
t "apart from the names in the tables, nothing of version 0.1 was removed or changed" \
	changes "$TMP/first.abi" "$TMP/now.abi"
t "a name that the tables lack is detected" \
	fails "fdry_slots_create" changes "$first" "$TMP/now.abi"
t "a row for a function that 0.1 lacks is detected" \
	fails "fdry_slots_create.. was no function" \
	renamed "$TMP/now.abi" "$TMP/now.abi"
t_done
