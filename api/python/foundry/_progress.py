# SPDX-License-Identifier: Apache-2.0
"""Progress bars, and the values of the parameter `progress` of seals, loads, exports, ...

None or False: no progress is reported. True: a bar on standard error. A class or an object like
tqdm's (update(), total): it is the bar. Any other callable: it is called with the arguments that
the function documents.
"""
import sys
import time

_WIDTH = 20       # characters of the bar
_EVERY = 0.1      # seconds between two drawings on a terminal
_EVERY_LINE = 10  # seconds between two lines in a file


def size(number):
    """A number of bytes for people, such as "1.5 GB"."""
    number = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            break
        number /= 1000
    else:
        unit = "TB"
    return f"{number:.0f} {unit}" if unit == "B" or number >= 99.5 else f"{number:.1f} {unit}"


def clock(seconds):
    """Seconds for people, such as "1:05"."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Bar:
    """A bar on standard error: what is done, bytes, rate and time left.

    On a terminal it is one line that is drawn again; elsewhere a line every ten seconds and at the
    end. unit: "B" for bytes, else a word such as "objects".
    """

    def __init__(self, what, unit="B", file=None):
        self._what, self._unit = what, unit
        self._file = sys.stderr if file is None else file
        self._tty = bool(self._file) and self._file.isatty()
        self._began = self._drawn = time.monotonic()
        self._done = self._total = self._width = 0
        self._part, self._open = "", True

    def part(self, name):
        """Name the part of the work that runs now."""
        self._part = name
        self._draw(False)

    def moved(self, done, total):
        """Note how much is done."""
        self._done, self._total = done, total
        self._draw(False)

    def close(self):
        """Draw the end. Later calls do nothing."""
        if self._open:
            self._part = ""
            self._draw(True)
        self._open = False

    def _count(self, number):
        return size(number) if self._unit == "B" else f"{number} {self._unit}"

    def text(self, elapsed):
        """The line, `elapsed` seconds after the beginning."""
        rate = self._done / elapsed if elapsed > 0 else 0
        words = [self._what]
        if self._total:
            full = min(self._done / self._total, 1)
            bar = ("#" * int(full * _WIDTH)).ljust(_WIDTH, ".")
            words += [f"{int(full * 100):3}% [{bar}]",
                      f"{self._count(self._done)} of {self._count(self._total)}"]
        elif self._done:
            words.append(self._count(self._done))
        if rate:
            words.append(f"{self._count(int(rate))}/s")
        if rate and self._done < self._total:
            words.append(f"{clock((self._total - self._done) / rate)} left")
        else:
            words.append(f"{elapsed:.1f} s")
        return "  ".join(words + [self._part] * bool(self._part))

    def _draw(self, last):
        now = time.monotonic()
        if not (last or now - self._drawn >= (_EVERY if self._tty else _EVERY_LINE)):
            return
        if not self._open or not self._file:
            return
        self._drawn, line = now, self.text(now - self._began)
        if self._tty:
            end = "\n" if last else ""
            print(f"\r{line.ljust(self._width)}", end=end, file=self._file, flush=True)
            self._width = len(line)
        else:
            print(line, file=self._file, flush=True)


class _Tqdm:
    """An object like tqdm's in place of a Bar."""

    def __init__(self, bar, ours):
        self._bar, self._ours, self._done = bar, ours, 0

    def part(self, name):
        if hasattr(self._bar, "set_postfix_str"):
            self._bar.set_postfix_str(name, refresh=False)

    def moved(self, done, total):
        if total and self._bar.total != total:
            self._bar.total = total
        if done < self._done:  # the next phase counts from 0
            self._bar.reset(total)
            self._done = 0
        self._bar.update(done - self._done)
        self._done = done

    def close(self):
        if self._ours:
            self._bar.close()


class _Shown:
    """The bar of one call, which begins when the first progress is reported."""

    def __init__(self, progress, what, unit, main):
        self._asked, self._main, self._bar = (progress, what, unit), main, None

    def _make(self):
        progress, what, unit = self._asked
        if progress is True:
            return Bar(what, unit)
        if isinstance(progress, type):
            return _Tqdm(progress(desc=what, unit=unit, unit_scale=True), True)
        return _Tqdm(progress, False)

    def moved(self, done, total):
        """For calls that report (done, total)."""
        self._bar = self._bar or self._make()
        self._bar.moved(done, total)

    def phase(self, phase, done, total, *_):
        """For calls that report (phase, done, total, ...): the bar shows the phases in `main`."""
        self._bar = self._bar or self._make()
        if phase in self._main:
            self._bar.moved(done, total)
        self._bar.part("" if done == total else phase)

    def close(self):
        if self._bar:
            self._bar.close()


def opened(progress, what, main=None, unit="B"):
    """(function or None, function that ends it or None) for the parameter `progress`.

    what: of the work, for people. main: None if the function is called with (done, total). Else it
    is called with (phase, done, total, ...), and a bar shows the phases in `main`.
    """
    if progress is None or progress is False:
        return None, None
    if progress is True or hasattr(progress, "update") and hasattr(progress, "close"):
        shown = _Shown(progress, what, unit, main)
        return shown.phase if main else shown.moved, shown.close
    if not callable(progress):
        raise TypeError(f"progress: {progress!r} is of type {type(progress).__name__}; give True, "
                        "a function, or a class or object like tqdm's")
    return progress, None
