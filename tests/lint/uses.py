# SPDX-License-Identifier: Apache-2.0
"""How programs use the package, for type checkers: types.sh runs mypy --strict on it.

It is never run. Each function is one use, and assert_type() says what a program gets.
"""
from __future__ import annotations

import sys
from typing import Any, Mapping

import foundry

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


def times() -> None:
    with foundry.load("name") as image:
        for graph in image.kernel_times(1, 2):
            assert_type(graph.left_out, "str | None")
            assert_type(graph.kernels[0].ms, float)
            assert_type(graph.launch_ms, float)


def errors() -> None:
    try:
        foundry.load("name")
    except foundry.NotFoundError as missing:
        assert_type(missing.code, int)
        as_file: FileNotFoundError = missing
        as_error: foundry.Error = missing
        print(as_file, as_error)
    except (foundry.MismatchError, foundry.DamagedError) as e:
        print(e.name, e.errno)
    for cls in (foundry.NoKeyError, foundry.OutOfMemoryError, foundry.BusyError,
                foundry.AccessError, foundry.NetworkError, foundry.FullError,
                foundry.InvalidError, foundry.InternalError, foundry.UntrustedError):
        print(issubclass(cls, foundry.Error))


def images(image: foundry.Image) -> None:
    assert_type(image["x"], foundry.Tensor)
    assert_type(image.tensors["x"], foundry.Tensor)
    assert_type(image.tensors(), list[foundry.Tensor])
    assert_type(image.graphs[1], foundry.Graph)
    assert_type(image.graphs(), dict[int, str])
    assert_type(image.facts["model"], str)
    assert_type(image.facts.get("model"), "str | None")
    assert_type(list(image), list[str])
    assert_type(len(image), int)
    assert_type("x" in image, bool)
    as_mapping: Mapping[str, str] = image.facts
    print(as_mapping, image.keys())
    for graph in image.graphs.values():
        graph.build()
        graph.launch(stream=0)
    image.write("x", b"1234", wait=False)
    assert_type(image.read("x"), bytearray)
    out = bytearray(4)
    assert_type(image.read("x", out=out), bytearray)
    assert_type(image.report().total_ms, float)


def stores() -> None:
    with foundry.Store("path", create=True) as store:
        for ref in store.refs():
            assert_type(ref, foundry.Ref)
            assert_type(ref.used, int)
        for stored in store.images():
            assert_type(stored, foundry.StoredImage)
            assert_type(stored.refs, list[str])
            assert_type(stored.facts, dict[str, str])
            assert_type(stored.requirements.mapped_bytes, int)
        store.remove("name")
        assert_type(store.export(None, "pack", progress=True), foundry.Pack)
        assert_type(store.gc(progress=lambda phase, done, total: False), foundry.Collection)


def bars(capture: foundry.Capture, tqdm: Any) -> None:
    capture.seal("store", "name", progress=True)
    capture.seal("store", "name", progress=tqdm)
    capture.seal("store", "name", progress=lambda phase, done, total, ms: print(phase, done))
    with foundry.load("name", progress=True) as image:
        print(image)
    foundry.verify("store", progress=print)


def starts() -> None:
    def build(capture: foundry.Capture) -> str:
        with capture.graph(1):
            pass
        return "model"

    start = foundry.load_or_capture("name", capture=build, facts={"revision": 7}, progress=True)
    if start.image is not None:
        assert_type(start.image, foundry.Image)
    print(start.captured, start.identity, [unused.why for unused in start.unused])


def slots(image: foundry.Image) -> None:
    with foundry.Slots(upload="always") as table:
        table.install_image(1, image, 7)
        assert_type(table.replay(1), bool)
        assert_type(list(table), list[int])
        assert_type(table.stats().launch.p50_ns, int)


def telemetry() -> None:
    assert_type(foundry.telemetry.snapshot(), "dict[str, int | float]")
    assert_type(foundry.telemetry.text(), str)
    assert_type(foundry.variables()[0].name, str)
