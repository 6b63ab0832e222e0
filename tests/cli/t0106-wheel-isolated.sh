#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of a wheel built as pip builds it by default: in an isolated environment, which has no pip,
# and on a machine without CUDA's headers. A folder stands in for the package index, and a
# substitute for make uses the files that are built already.
. "$(dirname "$0")/../lib.sh"
python3 -m pip --version >/dev/null 2>&1 || t_skip "no pip"

export PIP_NO_INDEX=1 PIP_FIND_LINKS=$TMP/index PIP_DISABLE_PIP_VERSION_CHECK=1 \
	PIP_CONFIG_FILE=/dev/null PIP_CACHE_DIR=$TMP/cache
export PYTHONDONTWRITEBYTECODE=1
unset PYTHONPYCACHEPREFIX PYTHONPATH

mkdir src bin index cuda cuda/include
(cd "$ROOT" && tree_files GNUmakefile '.ci/*' 'api/*' 'Documentation/man/*' pyproject.toml \
	README.md LICENSE | tar -c -T -) | tar -C src -x
touch cuda/include/cuda.h

# The index has one package, the headers, under the name that .ci/setup uses.
python3 - index <<'PY'
import sys, zipfile
info = "nvidia_cuda_runtime-13.0.99.dist-info"
files = {
    "nvidia/cu13/include/cuda.h": "// the index's\n",
    "nvidia/cu13/include/crt/host.h": "",
    f"{info}/METADATA": "Metadata-Version: 2.1\nName: nvidia-cuda-runtime\nVersion: 13.0.99\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                     "Tag: py3-none-any\n",
}
with zipfile.ZipFile(sys.argv[1] + "/nvidia_cuda_runtime-13.0.99-py3-none-any.whl", "w") as z:
    for name, text in files.items():
        z.writestr(name, text)
    z.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
PY

# The substitute for make hides this machine's headers; a build notes which headers it would use.
real_make=$(command -v make)
cat >bin/make <<END
#!/bin/sh
make() { "$real_make" "\$@" 'cuda_places=\$(EXTRA) \$(BUILD)/cuda build/cuda'; }
case " \$* " in
*" cuda-home "*) make "\$@" && exit ;;
esac
make -s --no-print-directory -C "$TMP/src" "BUILD=$TMP/src/build-wheel" cuda-home >"$TMP/home"
grep -q . "$TMP/home" || { echo "no cuda.h"; exit 1; } >&2
mkdir -p "$TMP/src/build-wheel" &&
	cp -rL "$BUILD/libfoundry.so.0.2" "$BUILD/libfoundry-registry.so.0.2" "$BUILD/foundry" \
		"$BUILD/foundry-store" "$TMP/src/build-wheel/"
END
chmod +x bin/make
export PATH=$TMP/bin:$PATH

# wheel: builds the wheel again, in isolation
wheel() {
	rm -rf wheels home
	python3 -m pip wheel -q --no-deps -w wheels "$@" ./src && ls wheels/foundry-*.whl
}
# requires SETTINGS: prints the packages that the build requires of pip
requires() {
	PYTHONPATH=src/api/packaging python3 -c \
		"import backend; print(*backend.get_requires_for_build_wheel($1))"
}

t "without headers, the build requires their package" prints "nvidia-cuda-runtime==13.0.*" \
	requires "{}"
t "with headers, the build requires no package" prints "" requires "{'make': 'EXTRA=$TMP/cuda'}"
t "with a built tree, the build requires no package" prints "" requires "{'build': '$BUILD'}"

t "the wheel is built without headers on the machine" wheel
t "the build used the headers that pip installed" prints "$TMP/src/build-wheel/cuda" cat home
t "the headers are those of the index" prints "// the index's" cat \
	src/build-wheel/cuda/include/cuda.h
t "the headers' folders are copied, too" test -e src/build-wheel/cuda/include/crt/host.h
t "no temporary folder is left" test ! -e src/build-wheel/cuda.tmp
mv index no-index
t "the next build finds the headers" wheel

t "make clean removes the build folder" bash -c \
	"'$real_make' -s -C src BUILD=build clean && [ ! -e src/build-wheel ]"

t "if no headers exist anywhere, pip names their package" fails 'nvidia-cuda-runtime==13[.]0' wheel
mkdir -p src/build && cp -r cuda src/build/
t "the wheel's build uses headers that make fetched" wheel
t "the build uses these headers in their place" prints "$PWD/src/build/cuda" cat home
rm -rf src/build src/build-wheel

mkdir no-make && ln -s "$(python3 -c 'import sys; print(sys.executable)')" no-make/python3
t "without make, one sentence says so" env PATH="$TMP/no-make" python3 - <<'PY'
import sys
sys.path.insert(0, "src/api/packaging")
import backend
try:
    backend.get_requires_for_build_wheel()
except SystemExit as e:
    assert "built with make, which is not installed" in str(e), e
else:
    sys.exit("it succeeded")
PY
t_done
