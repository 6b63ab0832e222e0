#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Set-up where something is missing: it installs where it may, else says in one line what to run.
# The machine is a folder of stand-ins and of a few real tools, and nothing else is in PATH.
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
fake apt-get "echo \"\$*\" >>'$TMP/apt.log'" "case \"\$*\" in *update) touch '$TMP/lists'; exit;; esac" \
	"test -e '$TMP/lists' && touch '$TMP/installed'"
fake sudo "echo sudo >>'$TMP/apt.log'" 'shift; exec "$@"'
fake python3 'case "$*" in' \
	"*download*) exit \$(cat '$TMP/offline') ;;" \
	"*zipfile*) mkdir -p '$TMP/b/cuda.tmp/wheel/x/include'; touch '$TMP/b/cuda.tmp/wheel/x/include/cuda.h' ;;" \
	'esac'

touch installed
t "nothing missing: silent" prints "" setup 1000
t "and nothing is installed" test ! -e apt.log

reset lists
t "root: installs what is missing" setup 0
t "only that" grep -q 'install -y --no-install-recommends liblmdb-dev$' apt.log
t "root needs no sudo" not grep sudo apt.log
t "a second time: silent" prints "" setup 0

reset
t "no package lists: fetches them" setup 0
t "and then installs" prints $'install -y\nupdate\ninstall -y' grep -oE 'install -y|update' apt.log

reset lists
t "sudo that asks nothing is used" setup 1000
t "for the installing too" prints 2 grep -c sudo apt.log

reset lists
fake apt-get 'exit 1'
t "a failing package manager is an error" fails "could not install liblmdb-dev" setup 0
fake apt-get 'exit 0'
t "so is one that does not help" fails "does not find it: liblmdb-dev" setup 0

fake sudo 'exit 1'
t "may not install: one line says what to run" \
	fails '^setup: missing: liblmdb-dev. Run: sudo apt-get install liblmdb-dev$' setup 1000
rm bin/sudo
t "no sudo at all: the same" fails 'Run: sudo apt-get install liblmdb-dev$' setup 1000
rm bin/apt-get
t "no apt-get: names what is missing" fails "missing: liblmdb-dev. Install" setup 0

touch installed
echo 0 >offline
t "no CUDA headers: fetched" setup 1000 CUDA_PLACES="$TMP/none $TMP/b/cuda"
t "to where make looks" test -e b/cuda/include/cuda.h
echo 1 >offline
t "there already: works offline" prints "" setup 1000 CUDA_PLACES="$TMP/none $TMP/b/cuda"
t "none and offline: says what to do" fails 'no CUDA headers. Run make with CUDA_HOME=' setup 1000 CUDA_PLACES="$TMP/none"
t_done
