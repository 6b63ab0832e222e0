#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The commands that the README and the manual show, word by word, in a store that has the images
# that they name. A registry of the loopback interface takes the place of theirs, this machine that
# of another host, and a real id that of the manual's.
# shellcheck disable=SC2154 # registry_start sets main_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/registry.sh"

registry_start main tls
export FOUNDRY_REGISTRY_CA=$TMP/ca.crt
export FOUNDRY_STORE=$TMP/store FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
export PYTHONPATH=$ROOT/tests/python/stand_in:$ROOT/api/python
export FOUNDRY_LIBRARY=$BUILD/libfoundry.so.0.2

cat >seal.py <<'PY'
import sys
import foundry
import torch
ref, value = sys.argv[1:]
with foundry.Capture() as capture:
    x, y = torch.full((100,), float(value)), torch.full((100,), 0.0)
    with capture.graph(8):
        y.copy_(x)
    capture.tensor("x", x, use="const")
    capture.tensor("y", y, use="output")
    capture.seal(ref=ref)
PY
python3 seal.py linear 1
python3 seal.py linear-old 2
for name in prod/decode prod/decode@h200 old/decode; do
	foundry-store tag linear $name >/dev/null
done
id=$(foundry-store ls linear | awk 'NR == 2 { print substr($2, 1, 8) }')
mkdir bin
printf '#!/bin/sh\nshift\nFOUNDRY_STORE=%s/there exec "$@"\n' "$TMP" >bin/ssh
chmod +x bin/ssh
PATH=$TMP/bin:$PATH

# The block of the README that begins with this command, and the manual's examples
of_readme() { awk -v begin="$1" 'index($0, begin) == 1 { on = 1 } on && /^```/ { exit } on' \
	"$ROOT/README.md"; }
of_manual() {
	awk '/^[.]SH EXAMPLES/ { on = 1; next } on && /^[.]fi/ { exit } on && !/^[.]/' \
		"$ROOT/Documentation/man/foundry-store.1" | sed 's/\\-/-/g'
}
# run_all COMMANDS: each in a shell of its own. diff has the status 1, since its images differ.
run_all() {
	local line rc
	while IFS= read -r line; do
		line=${line//registry.example.com/127.0.0.1:$main_port}
		line=${line//1f0c9a2b/$id}
		rc=0
		bash -euo pipefail -c "$line" || rc=$?
		[[ $line != "foundry-store diff "* ]] || [ $rc != 1 ] || rc=0
		[ $rc = 0 ] || { echo "status $rc: $line"; return 1; }
	done <"$1"
}

of_readme 'foundry-store ls' >readme
of_manual >manual
t "the README has eight commands" prints 8 sh -c 'wc -l <readme'
t "the manual has nine" prints 9 sh -c 'wc -l <manual'
t "the README's commands work" run_all readme
t "the manual's commands work" run_all manual
t "the report is a page" grep -q '</html>' page.html
t "the other host has the image" sh -c "foundry-store -s there ls | grep prod/decode@h200"
t "the backup has all images" foundry-store -s restored import backup.pack
t_done
