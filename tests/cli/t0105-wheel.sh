#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the wheel: it is built without a network and installed in a virtual environment. There it
# captures, seals and loads a workload by its own library, on its own software driver.
. "$(dirname "$0")/../lib.sh"
python3 -m pip --version >/dev/null 2>&1 || t_skip "no pip"
python3 -c 'import venv' 2>/dev/null || t_skip "no venv"

unset FOUNDRY_LIBRARY FOUNDRY_HOOK FOUNDRY_DRIVER FOUNDRY_STORE LD_PRELOAD LD_LIBRARY_PATH \
	PYTHONPATH PYTHONPYCACHEPREFIX
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONFIG_FILE=/dev/null \
	PIP_CACHE_DIR=$TMP/cache
export XDG_CACHE_HOME=$TMP/xdg HOME=$TMP/home

# build: packs what make has built, without the copy of the tree that pip would make
build() {
	python3 -m pip wheel -q --no-deps --config-settings "build=$BUILD" -w wheels "$ROOT" &&
		ls wheels/*.whl
}
# names: the files of the wheel: the program, the libraries and the package
names() { python3 -m zipfile -l "$wheel" | awk 'NR > 1 { print $1 }'; }
has() { names | grep -qx "$1"; }

t "the wheel is built" build
wheel=$(ls wheels/foundry-*-py3-none-*linux_*.whl)
# A manylinux tag promises that the wheel needs only libraries that every Linux has. If it needs
# others, its tag must be linux_*, which promises nothing.
tag_is_true() {
	if readelf -d "$BUILD/libfoundry.so.0.2" | grep NEEDED |
		grep -qvE '\[(libc|libm|libdl|libpthread|ld-linux[^]]*)[.]so'; then
		[[ $wheel == *-linux_* ]]
	else
		[[ $wheel == *-manylinux_2_* ]]
	fi
}
t "the wheel's tag matches the libraries that it needs" tag_is_true
t "the wheel's version is the library's" \
	prints "$(foundry-store --version | grep -oE '[0-9]+[.][0-9.]+')" \
	sed -E 's/^[^-]*-([0-9.]*)-.*/\1/' <<<"${wheel##*/}"
for name in __init__.py __init__.pyi py.typed vllm/__init__.py sglang/__init__.py \
	lib/libfoundry.so.0.2 lib/foundry/hook/libcuda.so.1 lib/foundry/hook/libcuda.so \
	lib/foundry/sim/libcuda.so.1; do
	t "the wheel holds $name" has "foundry/$name"
done
again() {
	mkdir -p again && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$ROOT/api/packaging python3 -c \
		'import backend, sys
print(backend.build_wheel("again", {"build": sys.argv[1]}))' "$BUILD" && cmp "$wheel" again/*.whl
}
t "a second build gives the same wheel" again

# pip_in ...: the machine's pip installs into the environment
pip_in() { python3 -m pip --python env/bin/python "$@"; }
t "a virtual environment is made" python3 -m venv --without-pip env
t "the wheel is installed without a network" pip_in install -q --no-deps "$wheel"
t "every file matches the wheel's record" env/bin/python - <<'PY'
import base64, hashlib, importlib.metadata
for f in importlib.metadata.files("foundry"):
    if f.hash:
        digest = hashlib.sha256(f.locate().read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == f.hash.value, f
PY
t "foundry-store is installed" env/bin/foundry-store --version
lib=$(env/bin/python -c \
	'import foundry, os; print(os.path.join(os.path.dirname(foundry.__file__), "lib"))')
t "Python imports the installed package" test "${lib#"$TMP/env/"}" != "$lib"
export FOUNDRY_DRIVER=$lib/foundry/sim/libcuda.so.1
t "the package loads the wheel's library" prints "$lib/libfoundry.so.0.2" env/bin/python -c \
	'from foundry import _lib; print(_lib.path())'

# vLLM finds the plug-in; the interposer is in place before a program of an engine imports torch.
t "vLLM finds the plug-in" prints "foundry.vllm:register" env/bin/python -c '
import importlib.metadata
print(*(e.value for e in importlib.metadata.entry_points(group="vllm.general_plugins")))'
t "SGLang finds the plug-in" prints "foundry.sglang:register" env/bin/python -c '
import importlib.metadata
print(*(e.value for e in importlib.metadata.entry_points(group="sglang.srt.plugins")))'
loaded() {
	FOUNDRY_SGLANG=$1 env/bin/python -c 'print("libcuda" in open("/proc/self/maps").read())'
}
t "a start of an engine has the interposer" prints "True" loaded 1
t "other programs do not have the interposer" prints "False" loaded ""
t "the value 0 of the variable turns it off" prints "False" loaded 0

# A program of the tree seals the example's workload; the wheel alone loads it.
t "an image is sealed" "$BUILD/examples/vecadd" -s "$TMP/store" -m "$BUILD/sim/kernels.cubin" \
	capture
cat >load.py <<'PY'
import array, foundry
with foundry.load("vecadd", store="store") as image:
    n = image["a"].nbytes // 4
    image.write("a", array.array("f", range(n)))
    image.launch(1)
    out = memoryview(image.read("out")).cast("f")
    b = out[0]
    with foundry.Slots() as slots:
        slots.install_image(1, image, 1)
        image.write("a", array.array("f", [2.5] * n))
        print(slots.replay(1), slots.replay(2), image.read("out") != bytes(4 * n), n)
PY
t "the installed package loads and launches the image" \
	prints "True False True 100003" env/bin/python load.py
t "foundry-store of the wheel lists the image" sh -c \
	"FOUNDRY_STORE=store env/bin/foundry-store ls | grep vecadd"
gone() { pip_in uninstall -qy foundry && [ ! -e "$lib" ] && [ ! -e env/bin/foundry-store ]; }
t "uninstall removes every file" gone

# The package's syntax must work in the oldest Python that it supports.
t "Python 3.9 reads every file of the package" env/bin/python - "$ROOT/api/python/foundry" <<'PY'
import ast, pathlib, sys
for f in pathlib.Path(sys.argv[1]).rglob("*.py"):
    ast.parse(f.read_text(), f.name, feature_version=(3, 9))
PY
t_done
