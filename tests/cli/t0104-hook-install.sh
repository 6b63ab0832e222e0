#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the installed tree: under any prefix, the interposer and the software driver lie where
# ldconfig never looks. It would make one of them the machine's libcuda.so.1. The installed files
# work.
. "$(dirname "$0")/../lib.sh"

command -v ldconfig >/dev/null || PATH=$PATH:/usr/sbin:/sbin
unset FOUNDRY_LIBRARY FOUNDRY_HOOK LD_PRELOAD LD_LIBRARY_PATH

# install_to ROOT VARIABLE=VALUE...: runs make install without another build
install_to() {
	make -s -o all -C "$ROOT" BUILD="$BUILD" CC="$CC" CUDA_HOME="$CUDA_INC/.." \
		DESTDIR="$TMP/$1" "${@:2}" install
}

# cache ROOT DIR...: makes ldconfig's cache of a machine that scans these folders besides its
# defaults
cache() {
	mkdir -p "$1/etc"
	printf '%s\n' "${@:2}" >"$1/etc/ld.so.conf"
	ldconfig -r "$TMP/$1" && ldconfig -r "$TMP/$1" -p
}
# Links that ldconfig made are files too.
listed() {
	cache "$@" >"$1.cache" || return
	find "$1" ! -path '*/foundry/hook/*' ! -path '*/foundry/sim/*' -name 'libcuda*'
	sed -n 's/.*\(libcuda.*\)/\1/p' "$1.cache"
}

for to in usr:/usr/lib local:/usr/local/lib multi:/usr/lib/x86_64-linux-gnu; do
	name=${to%%:*} lib=${to#*:}
	prefix=/usr
	[ "$name" != local ] || prefix=/usr/local
	t "install, $lib" install_to "$name" PREFIX=$prefix LIBDIR="$lib" \
		PYTHONDIR=$prefix/lib/python3/dist-packages
	t "the interposer and its twin are there, $lib" test -s \
		"$name$lib/foundry/hook/libcuda.so.1" -a -s "$name$lib/foundry/hook/libcuda.so"
	t "ldconfig finds no libcuda, $lib" prints "" listed "$name" /usr/local/lib \
		/usr/lib/x86_64-linux-gnu "$lib"
	t "ldconfig finds libfoundry, $lib" grep -q \
		"libfoundry.so.0.2 .*=> $lib/libfoundry.so.0.2" "$name.cache"
done
t "this check sees an interposer that ldconfig finds" fails \
	"libcuda.so.1.* => /usr/lib/foundry/hook/libcuda.so.1" sh -c \
	"mkdir -p usr/etc && echo /usr/lib/foundry/hook >usr/etc/ld.so.conf &&
		ldconfig -r '$TMP/usr' && ldconfig -r '$TMP/usr' -p; exit 1"

# In the installed tree the package finds its library, and the library its interposer.
export PYTHONPATH=$TMP/usr/usr/lib/python3/dist-packages
ln -sfn "$TMP/usr/usr/lib" "$PYTHONPATH/foundry/lib" # there DESTDIR is the machine's root
t "the library finds its interposer" prints "$TMP/usr/usr/lib/foundry/hook/libcuda.so.1" \
	python3 -c 'from foundry.activate import interposer; print(interposer())'
t "run works as installed" prints "0 True" python3 -m foundry run -c 'import ctypes
c = ctypes.CDLL("libcuda.so")
print(c.cuInit(0), hasattr(c, "fdry_hook_table"))'
t "vLLM finds the plug-in as installed" prints "foundry.vllm:register" python3 -c '
import importlib.metadata
print(*(e.value for e in importlib.metadata.entry_points(group="vllm.general_plugins")))'
t "SGLang finds the plug-in as installed" prints "foundry.sglang:register" python3 -c '
import importlib.metadata
print(*(e.value for e in importlib.metadata.entry_points(group="sglang.srt.plugins")))'
# imported VARIABLE=VALUE: is foundry imported when Python starts with the variable?
imported() {
	env "$1" python3 -S -c 'import site, sys
site.addsitedir(sys.argv[1])
print("foundry" in sys.modules)' "$PYTHONPATH"
}
t "with the variable, each Python puts the interposer in place" prints "True" \
	imported FOUNDRY_VLLM=name
t "with the variable of SGLang, each Python puts the interposer in place" \
	prints "True" imported FOUNDRY_SGLANG=name
t "without the variables, no Python puts the interposer in place" \
	prints "False" imported FOUNDRY_VLLM=0
t "uninstall" make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$TMP/local" PREFIX=/usr/local \
	PYTHONDIR=/usr/local/lib/python3/dist-packages uninstall
t "uninstall leaves no interposer" prints "" find local -name 'libcuda*'
t "uninstall leaves no file" prints "" sh -c "find local ! -type d | grep foundry || true"
t_done
