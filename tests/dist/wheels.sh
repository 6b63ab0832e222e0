#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of `make dist`. It builds the wheels twice, in folders with different names, and takes some
# minutes; `make check-dist` runs it. ARCHITECTURES=x86_64 leaves aarch64 out.
. "$(dirname "$0")/../lib.sh"
python3 -m pip --version >/dev/null 2>&1 || t_skip "no pip"
"$ROOT/.ci/setup" "$BUILD" dist || t_skip "no cmake, perl or dpkg-source"

unset FOUNDRY_LIBRARY FOUNDRY_HOOK FOUNDRY_DRIVER FOUNDRY_STORE LD_PRELOAD LD_LIBRARY_PATH \
	PYTHONPATH PYTHONPYCACHEPREFIX
export XDG_CACHE_HOME=$TMP/xdg HOME=$TMP/home PYTHONDONTWRITEBYTECODE=1
# What was fetched once serves every run.
sources=$BUILD-dist/sources
mkdir -p "$sources"
read -ra architectures <<<"${ARCHITECTURES:-x86_64 aarch64}"
CUDA_HOME=$(make -s --no-print-directory -C "$ROOT" BUILD="$BUILD" cuda-home)
export CUDA_HOME

python3 - "$ROOT/api/packaging" "$sources" 2>fetch.log <<'PY' ||
import sys
sys.path.insert(0, sys.argv[1])
import sources
for name, (file, sha256) in sources.pinned().items():
    sources.fetch(name, file, sha256, sys.argv[2])
PY
	t_skip "no sources: $(tail -n 1 fetch.log)"

# built FOLDER: the wheels, from the sources that are there already
built() {
	mkdir -p "$1/sources" && cp -a "$sources"/*.* "$1/sources/" &&
		python3 "$ROOT/api/packaging/dist.py" "$1" "${architectures[@]}"
}
# needs FILE...: the shared libraries that any of the files needs, but for glibc's
needs() {
	for file; do readelf -d "$file"; done | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' |
		grep -vE '^(lib(c|m|dl|pthread)|ld-linux.*|libcuda)[.]so' || true
}
# glibc FILE...: the newest glibc that any of the files needs is 2.28 or older
glibc() {
	local newest
	newest=$(for file; do readelf --dyn-syms -W "$file"; done |
		grep -oE 'GLIBC_2[.][0-9]+' | sort -Vu | tail -n 1)
	echo "$newest" && [ "${newest#GLIBC_2.}" -le 28 ]
}

# visible FILE: the symbols that it exports
visible() {
	readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $8 != "Name" && NF == 8 { print $8 }'
}

t "the wheels are built" built "$TMP/one"
t "and once more, in another folder" built "$TMP/other-folder"
t "they are the same, byte for byte" diff -r one/dist other-folder/dist
for arch in "${architectures[@]}"; do
	wheel=$(ls one/dist/foundry-*-py3-none-manylinux_2_*_"$arch".whl)
	t "$arch: the tag promises glibc 2.28 or older" test "$(sed -E \
		's/.*manylinux_2_([0-9]+)_.*/\1/' <<<"$wheel")" -le 28
	python3 -m zipfile -e "$wheel" "files-$arch"
	mapfile -t elf < <(find "files-$arch" -type f -exec sh -c \
		'head -c 4 "$1" | grep -q ELF' - {} \; -print)
	t "$arch: there are six programs and libraries" test "${#elf[@]}" = 6
	t "$arch: they need nothing but glibc" prints "" needs "${elf[@]}"
	t "$arch: and none newer than 2.28" glibc "${elf[@]}"
	for name in lmdb zstandard lz4 awscrt curl openssl nghttp2 jansson; do
		t "$arch: the license of $name is there" sh -c \
			"test -s files-$arch/*.dist-info/licenses/$name"
	done
	t "$arch: libcrypto's functions are not visible" sh -c \
		"! readelf --dyn-syms -W files-$arch/foundry/lib/libfoundry.so.0.2 |
			grep -v UND | grep -qE ' (EVP|SHA|OPENSSL|mdb|ZSTD|LZ4)_'"
	t "$arch: the client of registries has one visible name" prints fdry_registry_client \
		visible "files-$arch/foundry/lib/libfoundry-registry.so.0.2"
	t "$arch: no path of this machine is in a file" fails "" grep -rqF "$TMP" "files-$arch"
done

if python3 -m venv auditwheel 2>venv.log &&
	auditwheel/bin/pip install -q auditwheel requests 2>>venv.log; then
	PYTHONPATH=$(echo "$TMP"/auditwheel/lib/python3*/site-packages)
	for arch in "${architectures[@]}"; do
		wheel=$(ls one/dist/*_"$arch".whl)
		tag=$(sed -E 's/.*-(manylinux_[a-z0-9_]+)[.]whl/\1/' <<<"$wheel")
		consistent() {
			auditwheel/bin/auditwheel show "$wheel" | tr -s ' \n' ' ' |
				grep -q "is consistent with the following platform tag: \"$tag\""
		}
		t "$arch: auditwheel agrees with the tag" consistent
	done
fi

# The wheel of this machine, in an environment that has nothing else, without a network
[ "$(uname -m)" = x86_64 ] || t_done
export PIP_NO_INDEX=1
t "an environment" python3 -m venv --without-pip env
t "pip installs the wheel" python3 -m pip --python env/bin/python install -q \
	one/dist/foundry-*_x86_64.whl
lib=$(env/bin/python -c 'import foundry, os; print(os.path.dirname(foundry.__file__))')/lib
export FOUNDRY_DRIVER=$lib/foundry/sim/libcuda.so.1 FOUNDRY_STORE=$TMP/store
t "the manual page and the completion are installed" ls env/share/man/man1/foundry-store.1 \
	env/share/bash-completion/completions/foundry-store \
	env/share/zsh/site-functions/_foundry-store \
	env/share/fish/vendor_completions.d/foundry-store.fish
t "doctor finds no fault" env/bin/python -m foundry doctor
t "a library with other libraries seals an image" "$BUILD/examples/vecadd" -s "$FOUNDRY_STORE" \
	-m "$BUILD/sim/kernels.cubin" capture
t "the wheel's program verifies it" env/bin/foundry-store verify
cat >load.py <<'PY'
import hashlib, ssl
ssl.create_default_context()
import foundry
with foundry.load("vecadd") as image:
    image.launch(1)
assert "libcrypto" not in open("/proc/self/maps").read() or ssl.OPENSSL_VERSION
print(hashlib.sha256(b"abc").hexdigest()[:8], len(ssl.create_default_context().get_ciphers()) > 0)
PY
t "the wheel loads it, beside Python's ssl" prints "ba7816bf True" env/bin/python load.py
t "the wheel writes" env/bin/foundry-store tag vecadd other
t "and the other library reads it" foundry-store verify

# The wheel's client of registries. These tests run the library with the build's own program.
client=$lib/libfoundry-registry.so.0.2
registry_tests() {
	PYTHONPATH=$ROOT/api/python FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2 \
		FOUNDRY_REGISTRY_LIBRARY=$client bash "$ROOT/tests/cli/$1.sh"
}
if command -v docker-registry >/dev/null; then
	for each in t0260-registry t0261-registry-faults t0262-registry-documents \
		t0264-registry-hostile t0275-registry-signatures t0277-registry-untrusted; do
		t "the wheel's client of registries: $each" registry_tests "$each"
	done
	# In one process with Python's ssl, and with requests if it could be fetched.
	wheel_in_python() {
		. "$ROOT/tests/cli/registry.sh"
		cd "$TMP" && registry_start main tls
		# shellcheck disable=SC2154 # registry_start sets it
		PYTHONPATH=${PYTHONPATH:-} env/bin/python "$ROOT/tests/dist/beside_ssl.py" \
			"127.0.0.1:$main_port" ca.crt && registry_stop_all
	}
	t "push and pull beside Python's ssl and requests" wheel_in_python
fi

# aarch64 under emulation, if this machine has an emulator and that architecture's glibc
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -n "$emulator" ] && [ -d files-aarch64 ] && [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ]; then
	program=$(echo files-aarch64/foundry-*.data/scripts/foundry-store)
	chmod +x "$program"
	emulated() { "$emulator" -L /usr/aarch64-linux-gnu "$program" "$@"; }
	t "aarch64: the program runs" emulated --version
	t "aarch64: it reads the store" emulated verify
	t "aarch64: it prints what the other one prints" prints "$(foundry-store show vecadd)" \
		emulated show vecadd
	# The library is opened by its path; the program lies in another folder than when installed.
	emulated_registry() {
		. "$ROOT/tests/cli/registry.sh"
		cd "$TMP" && registry_start main tls
		export FOUNDRY_REGISTRY_CA=$TMP/ca.crt at=oci://127.0.0.1:$main_port/model:1
		foundry-store push --private vecadd "$at" &&
			FOUNDRY_REGISTRY_LIBRARY=$TMP/files-aarch64/foundry/lib/${client##*/} \
				emulated -s pulled pull "$at" && emulated -s pulled verify
		local rc=$?
		registry_stop_all
		return $rc
	}
	! command -v docker-registry >/dev/null ||
		t "aarch64: it pulls from a registry with TLS" emulated_registry
fi
t_done
