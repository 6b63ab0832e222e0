#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The checker shellcheck reports nothing for any script. SC2016 is off: single quotes that keep a
# dollar sign are intended. SC2094 is off: tr reads no file.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t scripts < <(tree_files '*.sh' .ci/run .ci/setup tests/run tests/chroot/{run,wheel})
for script in "${scripts[@]}"; do
	t "$script" shellcheck --source-path=SCRIPTDIR -e SC2016,SC2094 -x "$script"
done
t_done
