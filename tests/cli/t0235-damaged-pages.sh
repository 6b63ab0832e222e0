#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests with damaged pages of data.mdb: every command exits with a documented status and one message
# of foundry-store, and no message of verify advises to run verify.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"
in_memory

"$store_image" "$FOUNDRY_STORE" m "$ROOT/tests/lib.sh" >/dev/null
cp "$FOUNDRY_STORE/data.mdb" "$shm/sound"
foundry-store export m -o "$shm/pack" -q

# damaged: overwrites each page of a tree, and both meta pages, in several ways; prints each
# unexpected result
damaged() {
	python3 - "$shm/sound" "$FOUNDRY_STORE" "$shm" <<'P'
import os, struct, subprocess, sys

sound, store, tmp = open(sys.argv[1], "rb").read(), sys.argv[2], sys.argv[3]
PAGE, BRANCH, LEAF, META = 4096, 1, 2, 8
commands = (["ls"], ["show", "m"], ["verify"], ["gc", "--yes"], ["stat"], ["tag", "-q", "m", "x/1"],
            ["import", "-q", tmp + "/pack"])


def kind(i):
    number, flags = struct.unpack_from("<Q2xH", sound, i * PAGE)
    return flags if number == i else 0


def run(command, spoiled):
    for name in ("lock.mdb", "verified", "used", "data.mdb"):
        if os.path.exists(store + "/" + name):
            os.unlink(store + "/" + name)
    with open(os.open(store + "/data.mdb", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(spoiled)
    return subprocess.run(["foundry-store", *command], capture_output=True, text=True,
	errors="replace", timeout=60)


trees = [i for i in range(len(sound) // PAGE) if kind(i) in (BRANCH, LEAF, META)]
refused = 0
for i in trees:
    for spoil in (bytes(PAGE), b"\xff" * PAGE, sound[trees[-1] * PAGE:(trees[-1] + 1) * PAGE]):
        spoiled = sound[:i * PAGE] + spoil + sound[(i + 1) * PAGE:]
        for command in commands:
            r = run(command, spoiled)
            lines = r.stderr.splitlines()
            refused += r.returncode in (3, 7)
            if r.returncode not in (0, 1, 3, 7):
                print(command, "page", i, "status", r.returncode, lines[-1:])
            elif r.returncode in (3, 7) and (len(lines) != 1 or
	not lines[0].startswith("foundry-store: ") or ";" not in lines[0]):
                print(command, "page", i, "says", lines)
            if "MDB_" in r.stderr or (command == ["verify"] and
	"foundry-store verify" in r.stderr + r.stdout):
                print(command, "page", i, "says", lines, r.stdout)
if refused < len(trees):
    print("only", refused, "of", len(trees), "were refused")
P
}
t "every command says what is damaged" prints "" damaged
t_done
