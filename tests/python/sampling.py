# SPDX-License-Identifier: Apache-2.0
"""A profile of the main thread by samples.

cProfile of Python 3.12 adds up the calls of all threads as if they were one, and makes each call
slower. Here another thread looks every millisecond where the main thread is.
"""
import collections
import contextlib
import os
import sys
import threading
import time

EVERY = 0.001  # seconds
PARTS = 3      # of a file's path are shown


class Call:
    """The seconds of calls of a function from one place, and the calls that it made."""

    def __init__(self):
        self.seconds, self.calls = 0.0, collections.defaultdict(Call)

    def add(self, places, seconds):
        """Add seconds to the calls of the functions at `places`, each of which called the next."""
        call = self
        for place in places:
            call = call.calls[place]
            call.seconds += seconds

    def lines(self, least):
        """Yield a line for each call of at least `least` seconds, behind that of its caller."""
        left = [(0, "", self)]
        while left:
            depth, place, call = left.pop()
            if place:
                yield f"{1000 * call.seconds:9.1f}  {' ' * depth}{place}"
            left += sorted(((depth + 1, place, each) for place, each in call.calls.items()
                            if each.seconds >= least), key=lambda each: each[2].seconds)


class Samples(threading.Thread):
    """The seconds of the main thread: at each line (`alone`), in each function and what it calls
    (`total`), and the same by callers (`calls`). A sample counts as long as it took since the one
    before, because while other threads hold the interpreter's lock there are fewer. What takes long
    and is no call counts for a line behind it.
    """

    def __init__(self):
        super().__init__(name="samples", daemon=True)
        self.count, self.total, self.alone = 0, collections.Counter(), collections.Counter()
        self.calls, self._ended = Call(), threading.Event()

    def run(self):
        main, before = threading.main_thread().ident, time.monotonic()
        while not self._ended.wait(EVERY):
            frame, functions = sys._current_frames()[main], []
            now = time.monotonic()
            seconds, before = now - before, now
            self.count += 1
            self.alone[_place(frame.f_code, frame.f_lineno)] += seconds
            while frame:
                functions.append(_place(frame.f_code, frame.f_code.co_firstlineno))
                frame = frame.f_back
            for place in set(functions):
                self.total[place] += seconds
            self.calls.add(functions[::-1], seconds)

    def end(self):
        self._ended.set()
        self.join()


def _place(code, line):
    file = "/".join(code.co_filename.split(os.sep)[-PARTS:])
    return f"{file}:{line} {code.co_name}"


@contextlib.contextmanager
def shown(what, functions=80, lines=40, least=0.005):
    """Print the functions and the lines in which the main thread was most of the time of the with
    block, and the tree of all calls of at least `least` seconds.
    """
    samples, interval = Samples(), sys.getswitchinterval()
    sys.setswitchinterval(EVERY / 2)  # so that it need not wait long for the interpreter's lock
    start = time.monotonic()
    samples.start()
    try:
        yield
    finally:
        samples.end()
        sys.setswitchinterval(interval)
        print(f"--- {what}: {time.monotonic() - start:.3f} s, {samples.count} samples", flush=True)
        for name, counts, most in (("in functions, with what they call", samples.total, functions),
                                   ("at lines", samples.alone, lines)):
            print(f"milliseconds {name}:")
            for place, found in counts.most_common(most):
                print(f"{1000 * found:9.1f}  {place}")
        print("milliseconds by callers:", *samples.calls.lines(least), "", sep="\n", flush=True)
