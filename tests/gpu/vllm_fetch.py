#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM that choose among the images of a name, and that fetch one from a registry.

    python3 tests/gpu/vllm_fetch.py [--limit SECONDS]

Two first starts with different numbers of sequences seal images of one name. A later start with the
first number loads the older image. Another later start has an empty store and empty caches, and
fetches the image from Debian's docker-registry. Both answer as the first start does, and neither
profiles, captures or compiles. All import side by side. The times say little.
"""
import os
import subprocess
import sys
import tempfile

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))


def push(store):
    """Send the image of the starts to the registry, as an operator does. Return whether that
    succeeded.
    """
    return not subprocess.call(["foundry-store", "-s", store, "push", "--private", "test"])


def loaded(start):
    """Return the id of the image that a start has loaded, as its log has it, or ""."""
    said = start.said()
    marker = "loaded 'test' ("
    return said[0].partition(marker)[2][:12] if len(said) == 1 and marker in said[0] else ""


def whole(folder, limit):
    """Return what is as it should be, as a list."""
    vllm_start.write_model(folder, vllm_start.QWEN3)
    begin = vllm_start.begin
    first = begin(limit, "first", "first", folder, place="here")
    other = begin(limit, "other", "first", folder, "--seqs", "31", gate=True, place="here")
    chooses = begin(limit, "chooses", "next", folder, gate=True, place="here")
    fetches = begin(limit, "fetches", "next", folder, gate=True, place="there")
    every = [first, other, chooses, fetches]
    try:
        wanted = first.result()
        good = [bool(wanted), push(os.path.join(folder, "here", "store"))]
        found = []
        for start in every[1:]:
            start.open()
            found.append(start.result())
    finally:
        for start in every:
            start.kill()
    ids = [loaded(start) for start in (chooses, fetches)]
    print(f"loaded: {ids}", flush=True)
    return [*good, *map(bool, found), bool(ids[0]), ids[0] == ids[1],
            *map(vllm_start.nothing_done, found[1:]),
            *vllm_start.equal_answers((wanted, *found[1:]), vllm_start.ASKED)]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    import engine_child
    import parts
    import registry_server
    parts.need("vllm")
    if not registry_server.PROGRAM:
        parts.skip(registry_server.MISSING)
    limit = engine_child.Limit(sys.argv[1:], 240)
    with tempfile.TemporaryDirectory() as folder:
        server, port = registry_server.start(folder)
        os.environ["FOUNDRY_REGISTRY"] = f"oci+http://127.0.0.1:{port}/images"
        try:
            good = whole(folder, limit)
        finally:
            server.kill()
            server.wait()
    parts.finish(good)


if __name__ == "__main__":
    main()
