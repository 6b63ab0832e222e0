#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each layer includes and links only the layers below it: include < lib < arch < mm < graph
# hook < registry < image < run < api. The store needs lib alone, and the registry the store.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

# The folders whose headers each layer may include. Layers include headers of include/ under the
# names that users write.
declare -A may=(
	[include]="foundry"
	[lib]="foundry lib"
	[arch]="foundry lib arch"
	[mm]="foundry lib arch mm"
	[graph]="foundry lib arch mm graph"
	[store]="foundry lib store"
	[hook]="foundry lib arch mm hook"
	[registry]="foundry lib store registry"
	[image]="foundry foundry.h lib arch mm graph store hook registry image"
	[run]="foundry foundry.h lib arch mm graph store hook registry image run"
	[api]="foundry foundry.h lib arch mm graph store hook registry image run api"
)

# includes WHAT FILE...: prints lines "file:#include..." for headers that match WHAT
includes() {
	local what=$1
	shift
	[ $# = 0 ] || grep -HE "^[[:space:]]*#[[:space:]]*include[[:space:]]+$what" "$@" || true
}

# misplaced LAYER: prints headers that the layer's files include and may not
misplaced() {
	local files file line header
	mapfile -t files < <(tree_files "$1/*.c" "$1/*.h" "$1/*.def" "$1/*.S")
	while IFS=: read -r file line; do
		header=${line#*\"}
		header=${header%%\"*}
		[[ $header == */* || $header == foundry.h ]] ||
			echo "$file: \"$header\": write the path from the top folder"
		[[ " ${may[$1]} " == *" ${header%%/*} "* ]] ||
			echo "$file: \"$header\": not below $1"
	done < <(includes '"' "${files[@]}")
}

# includers WHAT PATTERN...: prints the files among these that include headers that match WHAT
includers() {
	local files
	mapfile -t files < <(tree_files "${@:2}")
	includes "$1" "${files[@]}" | cut -d: -f1 | sort -u
}

# linked_with NAME: prints the built files that need a library of that name at load time
linked_with() {
	local file
	find "$BUILD" -maxdepth 4 -type f ! -name '*.o' \( -name '*.so*' -o -perm -u+x \) ! -path \
		'*/tests/tmp/*' |
		while IFS= read -r file; do
			readelf -d "$file" 2>/dev/null | grep -q "NEEDED.*\[$1" && echo "$file"
		done || true
}

# shipped_with NAME: the same without tests
shipped_with() { linked_with "$1" | grep -v '/tests/'; }

for layer in include lib arch mm graph store hook registry image run api; do
	t "$layer includes only the layers below it" prints "" misplaced "$layer"
done
if [ -e store/lmdb.c ]; then
	# Tests include it, too: they make environments that are no stores, and compare with LMDB
	# alone.
	t "ten files include LMDB" prints "$(printf \
		'store/db.c\nstore/db_error.c\nstore/env_copy.c\nstore/env_info.c\nstore/env_map.c
store/env_open.c\nstore/lmdb.c\nstore/view.c\nstore/view_check.c\nstore/walk.c')" \
		includers '"store/db[.]h' '[!t]*.c' '[!t]*.h'
	t "they include it through one header" prints store/db.h includers '[<"]lmdb[.]h' \
		'[!t]*.c' '[!t]*.h'
fi
t "no layer uses symbols of one above, and no files of a folder need each other" prints "" \
	python3 tests/static/cycles.py "$BUILD/obj" lib arch mm 'graph|store|hook' registry \
	image run api
t "the store includes no header of CUDA" prints "" includers '[<"]cuda' 'store/*.c' 'store/*.h'
t "no file includes the CUDA runtime" prints "" includers '[<"]cuda_runtime' '*.c' '*.h'
t "only the interposer's twin is linked with libcuda" prints "$BUILD/foundry/hook/libcuda.so" \
	linked_with 'libcuda[.]so'
t "only libfoundry-registry.so is linked with libcurl and libjansson" prints \
	"$BUILD/libfoundry-registry.so.0.2" shipped_with 'lib\(curl\|jansson\)[.]so'
t "this check finds linked libraries" fails "libfoundry.so" prints "" linked_with libcrypto
t_done
