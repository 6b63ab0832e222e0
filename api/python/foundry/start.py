# SPDX-License-Identifier: Apache-2.0
"""Start a workload: load its image if there is one; otherwise capture it."""
import ctypes
import warnings

from . import _lib, _parameters
from ._lib import Error, lib
from .capture import Capture, base_for_name, seal_callback
from .identity import NOT_COMPARED, identify
from .image import Image, load_options
from .store import Store

_STRICT, _NOWAIT = 1, 2
_FACT_MAX = 4095
_WAIT_MAX = (1 << 32) - 1  # milliseconds: 49 days


class Unused:
    """An image that load_or_capture() looked for and does not use.

    name: the ref that was asked for. id: "" if there is no image. field, wanted, found: the fact
    that differs, its value here and its value in the image; else "". why: a message. error: the
    name of the error's code, such as "FDRY_E_IDENTITY".
    """

    def __init__(self, raw):
        for name in ("name", "id", "field", "wanted", "found", "why"):
            setattr(self, name, _lib.sentence(getattr(raw, name)) if name == "why"
                    else getattr(raw, name).decode(errors="replace"))
        self.error = lib.fdry_error_name(raw.code).decode()

    def __repr__(self):
        return f"<Unused {_lib.shown(self.name)}: {_lib.shown(self.why)}>"


class Start:
    """How a workload started; str() of it is the report.

    image: the loaded Image; None if the workload was captured. captured: whether it was. value:
    what the capture function returned. name, id: of the image that was loaded or sealed.
    seal_error: the Error of a failed seal, else None; `capture` is then the paused Capture, to seal
    again or to end. unused: a list of Unused. identity: an Identity, which lists what was compared
    with images and what could not be. warning: a message if the image has parameters that no fact
    covers, else "".
    """

    def __init__(self, raw, device, taken):
        self.image = Image(_lib.IMAGE(raw.image), device, taken.load) if raw.image else None
        self.captured = bool(raw.captured)
        self.value = taken.value
        self.name, self.id = raw.name.decode(), raw.id.decode()
        self.seal_error = (Error(raw.seal_code, _lib.sentence(raw.seal_why))
                           if raw.seal_code else None)
        self.capture = taken.capture if raw.capture else None
        self._kept = taken.capture  # which keeps its graphs alive
        self.unused = [Unused(u) for u in raw.unused[:raw.nunused]]
        for name in ("load_ms", "wait_ms", "capture_ms", "seal_ms"):
            setattr(self, name, getattr(raw, name))
        self._text = _lib.sentence(raw.text)
        self.identity, self.warning = taken.identity, taken.warning

    def _repr_html_(self):
        from . import _show
        return _show.start(self)

    def __repr__(self):
        return f"<Start {self.name}: {'captured' if self.captured else 'loaded'} {self.id[:12]}>"

    def __str__(self):
        return "\n".join([self._text.rstrip("\n"), *self.identity.lines(),
                          *([f"warning: {self.warning}"] if self.warning else [])])


class _Taken:
    """One call of the capture function: its Capture, and what it returned or raised."""

    def __init__(self, function, device, load, identity, progress):
        self.progress = progress
        self.function, self.device, self.load, self.identity = function, device, load, identity
        self.capture = self.value = None
        self.base, self.warning = 0, ""
        self.callback = _lib.Callback(_lib.CAPTURE_FN, function and self.run, failed=1, waits=True)
        self.ctrl_c = _lib.CtrlC()
        self.stop = _lib.stop(self.callback, raised=self.ctrl_c)

    def run(self, _, handle):
        self.capture = Capture.adopt(handle, self.device)
        try:
            self.value = self.function(self.capture)
            self.state()
            self.capture._report_to(self.progress)
        finally:
            self.capture._handle.suspend()
            self.ctrl_c.forget()
        return 0

    def state(self):
        """State facts for people and strict loads: the parameters in the image, and the names that
        could not be compared.
        """
        if not self.identity.automatic:
            return
        parameters = _parameters.of_capture(self.capture.named, self.base, self.capture.offset)
        missing = "; ".join(f"{name}: {why}" for name, why in self.identity.not_compared)
        for key, value in ((_parameters.FACT, parameters), (NOT_COMPARED, missing)):
            if value:
                self.capture.fact(key, value.encode()[:_FACT_MAX].decode(errors="ignore"))
        self.look(parameters)

    def look(self, parameters):
        """Check that facts identify the parameters that an image holds."""
        if parameters and self.identity.automatic and not _parameters.covered(self.identity.facts):
            self.warning = (
                f"the image holds parameters as content ({parameters}), and no fact identifies "
                "them; give one, such as facts={'revision': ...}, or name them external")

    def settle(self, kept):
        """Note that the library has ended the capture, unless it returned it."""
        if self.capture:
            self.capture.settle(kept)


def load_or_capture(ref, capture=None, facts=None, strict=False, store=None, seal_as=None, wait=600,
                    device=0, base=0, size=0, preallocate=0, identity="auto", *, progress=None,
                    **options):
    """Load the image `ref`, or else capture and seal it. Returns a Start.

        def build(capture):
            model = make_model()
            with capture.graph(1):
                y = model(x)
            capture.tensor("x", x); capture.tensor("y", y, use="output")
            return model

        start = foundry.load_or_capture("my-model", capture=build, facts={"revision": "7"})

    ref: a name, or several, the best first. capture: a function that is called with a Capture,
    which has begun and has the facts. The function allocates, captures and names; it does not end
    the Capture. If it raises, load_or_capture() raises the same, and nothing is kept. facts: {key:
    value} that the image must have; a new image states them.

    identity: "auto": the image must also match what identify() finds out about `capture`, so that
    an image of older code is not loaded. If the image has parameters as content and no fact says
    which, this warns. "manual": only the facts are compared. strict: never capture; raise the
    reason, which may be parameters that no fact covers.

    store: a Store or a path, which is created if it does not exist (None: the default store).
    seal_as: the ref of a new image (None: the first ref). wait: seconds to wait for another process
    that captures the same; 0: do not wait. Ctrl-C ends the wait and, unless the program handles
    signals in its own way, a fetch from a registry. device, base, size, preallocate: as for
    Capture; the base follows from the name. Other options are those of load(). progress also gets
    the phases of the seal, if there is one, as Capture.seal() reports them.

    Import foundry before torch. Otherwise nothing can be captured (FDRY_E_LATE), but images load.
    """
    names = [ref] if isinstance(ref, str) else list(ref)
    raw_names = (ctypes.c_char_p * len(names))(*map(_lib.text, names))
    if identity not in ("auto", "manual"):
        raise ValueError(f"identity must be 'auto' or 'manual', not {identity!r}")
    found = identify(capture, facts, automatic=identity == "auto")
    load = load_options(facts=found.facts, device=device, progress=progress, **options)
    place = _lib.CaptureOpts(sz=ctypes.sizeof(_lib.CaptureOpts), device=device, base=base,
                             size=size, preallocate=preallocate)
    taken = _Taken(capture, device, load, found, seal_callback(progress, names[0]))
    taken.base = base or base_for_name(names[0] if seal_as is None else seal_as)
    opts = _lib.StartOpts(sz=ctypes.sizeof(_lib.StartOpts), names=raw_names, nnames=len(names),
                          ref=_lib.text(seal_as) if seal_as is not None else None,
                          load=ctypes.pointer(load), capture=ctypes.pointer(place),
                          flags=(_STRICT if strict else 0) | (0 if wait else _NOWAIT),
                          wait_ms=max(1, int(min(wait * 1000, _WAIT_MAX))), fn=taken.callback.fn,
                          stop=taken.stop.fn)
    store = store if isinstance(store, Store) else Store(store, create=not strict)
    return _checked(_start(store, opts, device, taken), taken, strict)


def _start(store, opts, device, taken):
    raw = ctypes.POINTER(_lib.StartReport)()
    try:
        with taken.load.calls, taken.progress, taken.callback, taken.stop, taken.ctrl_c:
            lib.fdry_load_or_capture(store._handle, ctypes.byref(opts), ctypes.byref(raw))
    except BaseException:
        if raw:  # the start succeeded, but progress() raised
            _lib.Handle(_lib.IMAGE(raw.contents.image)).close()
            _lib.Handle(_lib.CAPTURE(raw.contents.capture)).close()
            lib.fdry_start_report_free(raw)
        taken.settle(False)
        raise
    taken.settle(raw.contents.capture)
    try:
        return Start(raw.contents, device, taken)
    finally:
        lib.fdry_start_report_free(raw)


def _checked(start, taken, strict):
    """Check that facts cover the parameters of a start's image. Otherwise warn, or if strict,
    raise.
    """
    if start.image:
        taken.look(_parameters.of_image(start.image))
        start.warning = taken.warning
    if start.warning and strict:
        start.image.close()
        raise Error(_lib.IDENTITY, f"'{start.name}': {start.warning}")
    if start.warning:
        warnings.warn(f"'{start.name}': {start.warning}", stacklevel=3)
    return start
