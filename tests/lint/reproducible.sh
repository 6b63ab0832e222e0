#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A copy of the tree in another folder, built by itself, results in the same wheel and the same
# source archive, byte for byte: no path, time or order of files is in them. `make check-dist`
# compares the portable wheels in the same way, which takes too long for each change.
. "$(dirname "$0")/../lib.sh"

unset MAKEFLAGS MAKELEVEL CFLAGS
export PYTHONDONTWRITEBYTECODE=1
cuda=$(make -s --no-print-directory -C "$ROOT" BUILD="$BUILD" cuda-home)
mkdir "the other folder"
(cd "$ROOT" && tree_files '*' '.*' | tar -c -T - | tar -C "$TMP/the other folder" -x)

# packed TREE BUILD FOLDER: the wheel and the archive of a tree
packed() {
	mkdir -p "$3" && PYTHONPATH=$1/api/packaging python3 -c 'import backend, sys
print(backend.build_wheel(sys.argv[1], {"build": sys.argv[2]}))
print(backend.build_sdist(sys.argv[1]))' "$3" "$2"
}
# make cannot build in a folder whose name has a blank, so the build folder lies beside the copy.
build() {
	make -s -C "the other folder" -j"$(nproc)" BUILD="$TMP/else" CUDA_HOME="$cuda" SETUP=: all
}
t "the copy is built" build
t "a wheel and an archive of the tree" packed "$ROOT" "$BUILD" "$TMP/one"
t "of the copy" packed "$TMP/the other folder" "$TMP/else" "$TMP/two"
t "they are equal" diff -r one two
t "no path of this machine is in the wheel" fails "" sh -c "
	python3 -m zipfile -e one/*.whl files && grep -rlF -e '$ROOT' -e '$TMP' files"
t_done
