#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh - vecadd captured in one process, loaded in another (`make demo`).
#
# Uses FOUNDRY_DRIVER where it is set, else the machine's GPU, else the software driver, and says
# which. Fails if a number differs from a plain computation.
set -euo pipefail
build=${BUILD:-build}
store=$build/demo-store
vecadd=$build/examples/vecadd
capture=(capture -s "$store")

if [ -n "${FOUNDRY_DRIVER:-}" ]; then
	echo "driver: $FOUNDRY_DRIVER (FOUNDRY_DRIVER)"
elif [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
	echo "driver: libcuda.so.1 of this machine"
else
	export FOUNDRY_DRIVER=$build/foundry/sim/libcuda.so.1
	echo "driver: the software driver, as there is no GPU"
fi
# The software driver's device code is a shared object.
if [[ ${FOUNDRY_DRIVER:-} == */sim/libcuda.so.1 ]]; then
	capture+=(-m "$build/sim/kernels.cubin")
fi

rm -rf "$store"
echo "capturing:"
"$vecadd" "${capture[@]}"
echo "loading, in another process:"
"$vecadd" load -s "$store"
