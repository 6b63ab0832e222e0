# SPDX-License-Identifier: Apache-2.0
"""Starts of serving engines as processes of a script that has a limited time.

When the time is over, the script ends the starts and prints what it has.
"""
import json
import os
import signal
import subprocess
import sys
import time

TAIL = 60  # lines of the log of a start that failed


class Limit:
    """The time of a script. Takes `--limit SECONDS` out of its arguments."""

    def __init__(self, arguments, seconds):
        if "--limit" in arguments:
            at = arguments.index("--limit")
            seconds = float(arguments[at + 1])
            del arguments[at:at + 2]
        self.end = time.monotonic() + seconds
        signal.signal(signal.SIGTERM, _ended)  # the starts must end, too

    def left(self):
        return max(0.0, self.end - time.monotonic())


def _ended(_signal, _frame):
    raise SystemExit("ended by a signal")


def end(process):
    """End a process that leads a group, and all of the group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()


class Start:
    """A start of an engine in a process group of its own, with its log in a file.

    With `gate`, it imports at once, and begins its engine when open() is called.
    """

    def __init__(self, limit, title, arguments, log, gate=None, **variables):
        self.limit, self.title, self.path, self.gate = limit, title, log, gate
        if gate:
            variables["ENGINE_START_GATE"] = gate
        self.began = time.monotonic()
        self.process = None
        if limit.left() <= 0:
            return
        with open(log, "w", encoding="utf-8") as f:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=f, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **variables})

    def open(self):
        """Let it begin its engine."""
        with open(self.gate, "w", encoding="utf-8"):
            pass

    def log(self):
        if not os.path.exists(self.path):
            return ""
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def ended(self):
        return self.process is None or self.process.poll() is not None

    def wait_for(self, text):
        """Wait until its log has a text, it ends, or the time is over."""
        while text not in self.log() and not self.ended() and self.limit.left() > 0:
            time.sleep(0.02)

    def kill(self):
        """End it and its processes."""
        if self.process is not None:
            end(self.process)

    def kill_at(self, text):
        """Kill it and its processes when its log has a text. Return whether that ended it."""
        self.wait_for(text)
        self.kill()
        return self.process is not None and self.process.returncode == -signal.SIGKILL

    def wait(self):
        """Return its status: None if it did not end in time."""
        if self.process is None:
            return None
        try:
            return self.process.wait(self.limit.left())
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()

    def said(self):
        """Return Foundry's lines with the seconds of a start."""
        return [line[line.index("Foundry: "):] for line in self.log().splitlines()
                if "Foundry: " in line and "; seconds:" in line]

    def says(self, ranks, text):
        """Return whether each rank's line with the seconds has a text."""
        return len([line for line in self.said() if text in line]) == ranks

    def result(self, every_line=False):
        """Wait for it. Print Foundry's lines and its own last one, or the log's end if it failed.
        Return what it printed last, or an empty dictionary.
        """
        status = self.wait()
        lines = self.log().splitlines()
        print(f"--- {self.title}: " + (
            "no time was left for it" if self.process is None else
            "ended by the limit" if status is None else f"status {status}")
            + f", {time.monotonic() - self.began:.1f} s", flush=True)
        for line in lines if every_line else self.said():
            print(line[:700], flush=True)
        last = next((line for line in reversed(lines) if line.startswith('{"mode"')), "")
        if status != 0 or not last:
            print("\n".join(line[:300] for line in lines[-TAIL:]), flush=True)
            return {}
        print(last, flush=True)
        return json.loads(last)


def remove(store, name):
    """Remove a ref from a store."""
    import foundry
    with foundry.Store(store) as opened:
        opened.remove(name)


def together(begun, gated):
    """Return the results of starts by title: first wait for all of `begun`, which run side by side,
    then let those of `gated` run, one after the other.
    """
    found = {}
    try:
        for one in begun:
            found[one.title] = one.result()
        for one in gated:
            one.open()
            found[one.title] = one.result()
    finally:
        for one in (*begun, *gated):
            one.kill()
    return found
