#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# No script gives shellcheck anything to say.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

mapfile -t scripts < <(tree_files '*.sh' .ci/run .ci/setup tests/run tests/chroot/run)
for script in "${scripts[@]}"; do
	t "$script" shellcheck --source-path=SCRIPTDIR -x "$script"
done
t_done
