#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the test of tests/gpu/check.sh on the software driver: content that changes after it was
# verified.
here=$(cd "$(dirname "$0")" && pwd)
export FOUNDRY_TEST_CUBIN=${BUILD:-$here/../../build}/sim/kernels.cubin
exec bash "$here/../gpu/check.sh"
