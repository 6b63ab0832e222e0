#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of .ci/setup on a machine that lacks something: it installs that if it has the right to, and
# otherwise prints one line with the command to run. PATH holds one folder, with stand-ins and a few
# real tools.
. "$(dirname "$0")/../lib.sh"

mkdir bin cuda cuda/include
touch cuda/include/cuda.h
for tool in bash sh env cat dirname mkdir rm mv find tail touch grep true; do
	ln -s "$(type -P $tool)" bin/
done

# fake NAME LINE...: a program of that name
fake() {
	printf '%s\n' '#!/bin/sh' "${@:2}" >"bin/$1"
	chmod +x "bin/$1"
}

# setup UID [VARIABLE=value...]: set-up as that user
setup() {
	fake id "echo $1"
	env PATH="$TMP/bin" CC=cc CUDA_PLACES="$TMP/cuda" "${@:2}" "$ROOT/.ci/setup" "$TMP/b"
}

# reset [lists]: liblmdb is not installed; the machine has package lists or not
reset() {
	rm -f installed lists apt.log
	[ "${1:-}" != lists ] || touch lists
}

not() { ! "$@"; }

fake pkg-config
fake gcc
fake cc "grep -q lmdb || exit 0; test -e '$TMP/installed'"
fake apt-get "echo \"\$*\" >>'$TMP/apt.log'" \
	"case \"\$*\" in *update) touch '$TMP/lists'; exit;; esac" \
	"test -e '$TMP/lists' && touch '$TMP/installed'"
fake sudo "echo sudo >>'$TMP/apt.log'" 'shift; exec "$@"'
fake python3 'case "$*" in' \
	"*download*) exit \$(cat '$TMP/offline') ;;" \
	"*zipfile*) mkdir -p '$TMP/b/cuda.tmp/wheel/x/include';
		touch '$TMP/b/cuda.tmp/wheel/x/include/cuda.h' ;;" \
	'esac'

touch installed
t "nothing missing: prints nothing" prints "" setup 1000
t "nothing missing: installs nothing" test ! -e apt.log

reset lists
t "root: installs what is missing" setup 0
t "root: installs nothing else" grep -q 'install -y --no-install-recommends liblmdb-dev$' apt.log
t "root needs no sudo" not grep sudo apt.log
t "root, a second time: prints nothing" prints "" setup 0

reset
t "no package lists: fetches them first" setup 0
t "no package lists: installs after it fetched them" prints $'install -y\nupdate\ninstall -y' grep \
	-oE 'install -y|update' apt.log

reset lists
t "sudo that needs no password is used" setup 1000
t "sudo is used for both commands" prints 2 grep -c sudo apt.log

reset lists
fake apt-get 'exit 1'
t "a failing package manager is an error" fails "could not install liblmdb-dev" setup 0
fake apt-get 'exit 0'
t "a package that remains missing is an error" fails "does not find it: liblmdb-dev" setup 0

fake sudo 'exit 1'
t "no right to install: one line says what to run" \
	fails '^setup: missing: liblmdb-dev. Run: sudo apt-get install liblmdb-dev$' setup 1000
rm bin/sudo
t "no sudo: one line says what to run" fails 'Run: sudo apt-get install liblmdb-dev$' setup 1000
rm bin/apt-get
t "no apt-get: names the missing package" fails "missing: liblmdb-dev. Install" setup 0

touch installed
echo 0 >offline
t "missing CUDA headers are fetched" setup 1000 CUDA_PLACES="$TMP/none $TMP/b/cuda"
t "CUDA headers are fetched into the folder in which make looks" test -e b/cuda/include/cuda.h
echo 1 >offline
t "present headers need no network" prints "" setup 1000 CUDA_PLACES="$TMP/none $TMP/b/cuda"
t "no headers and no network: says what to do" fails 'no CUDA headers. Run make with CUDA_HOME=' \
	setup 1000 CUDA_PLACES="$TMP/none"
t_done
