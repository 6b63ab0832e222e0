#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The start pages do what they say, word by word, in an empty folder: with a source archive and a
# wheel of this build, without a network, on the software driver. So do the references of Python and
# of the engines.
. "$(dirname "$0")/../lib.sh"
python3 -m pip --version >/dev/null 2>&1 || t_skip "no pip"
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
examples=$ROOT/tests/examples.py
start=$ROOT/Documentation/start

# The archive unpacks as a link to the tree, so `make install` finds everything built.
ln -s "$ROOT" foundry-0.2.0
tar czf foundry-0.2.0.tar.gz foundry-0.2.0
PIP_CACHE_DIR=$TMP/cache python3 -m pip wheel -q --no-deps --no-build-isolation \
	--config-settings "build=$BUILD" -w "$TMP" "$ROOT"

# The page of C selects the software driver itself.
driver=FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1

# Machines may have no ensurepip: a virtual environment gets a pip that is the machine's.
mkdir bin
cat >bin/python3 <<SH
#!/bin/bash
[ "\$1 \$2" = "-m venv" ] || exec "$(command -v python3)" "\$@"
"$(command -v python3)" -m venv --without-pip "\$3"
printf '#!/bin/sh\nexec "%s" -m pip --python "%s" "\$@"\n' "$(command -v python3)" \\
	"\$PWD/\$3/bin/python" >"\$3/bin/pip"
chmod +x "\$3/bin/pip"
SH
# The tree is built: make installs it and builds nothing.
printf '#!/bin/sh\nexec "%s" -o all "$@"\n' "$(command -v make)" >bin/make
chmod +x bin/python3 bin/make
read -ra clean <<<"env -i HOME=$TMP/home LANG=C.UTF-8 PIP_NO_INDEX=1 BUILD=$BUILD CC=${CC:-cc} \
	PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=$TMP/cache \
	PATH=$TMP/bin:${PATH#"$BUILD":} SETUP=:"
[ -z "${CUDA_HOME:-}" ] || clean+=("CUDA_HOME=$CUDA_HOME")

# follow PAGE: in a folder of its own, with what a reader has there
follow() (
	local page=$1 folder
	folder=$(basename "$page" .rst)
	mkdir "$folder" && cp -P foundry-0.2.0.tar.gz ./*.whl "$folder"
	cd "$folder" || return
	# the environment that has the engine
	[ "$folder" != engines ] || "${clean[@]}" python3 -m venv env || return
	"${clean[@]}" python3 "$examples" run "$page"
)

t "the page of C" follow "$start/c.rst"
clean+=("$driver")
t "the page of PyTorch" follow "$start/pytorch.rst"
# The page of the engines goes on with the image of a server that started: here of another workload.
env "$driver" "$BUILD/examples/vecadd" capture -s "$TMP/home/.cache/foundry/store" -m \
	"$BUILD/sim/kernels.cubin" >/dev/null
foundry-store -s "$TMP/home/.cache/foundry/store" tag vecadd qwen3
foundry-store -s "$TMP/home/.cache/foundry/store" rm vecadd
t "the page of the engines" follow "$start/engines.rst"
# References show parts of a longer work: the images that they name are there, and a small library
# is in torch's place.
there=(env "$driver" "FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2" "HOME=$TMP/home"
	"FOUNDRY_STORE=$TMP/home/.cache/foundry/store"
	"PYTHONPATH=$ROOT/tests/python/stand_in:$ROOT/api/python")
cat >model.py <<'PY'
import foundry
import torch
with foundry.Capture() as capture:
    x, y = torch.full((4,), 1.0), torch.full((4,), 0.0)
    with capture.graph(1):
        y.copy_(x)
    capture.tensor("x", x, use="input")
    capture.tensor("y", y, use="output")
    capture.fact("model", "m")
    capture.seal(ref="my-model")
PY
t "an image for the references" "${there[@]}" python3 model.py
foundry-store -s "$TMP/home/.cache/foundry/store" tag my-model qwen3
reference() (
	mkdir "$1" && cd "$1" || return
	"${there[@]}" python3 "$examples" run "$ROOT/Documentation/api/$1.rst"
)
for page in python torch-graphs vllm sglang; do
	t "the examples of the page api/$page" reference $page
done

t "no start page is left out" prints "c.rst engines.rst pytorch.rst" \
	sh -c "cd '$start' && echo *.rst"
mapfile -t pages < <(tree_files 'Documentation/*.rst' README.md)
cd "$ROOT"
t "blocks of all pages are correct syntax" env CUDA_INC="${CUDA_INC:-/usr/local/cuda/include}" \
	python3 "$examples" check "${pages[@]}"
t_done
