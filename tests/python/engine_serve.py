# SPDX-License-Identifier: Apache-2.0
"""Servers of engines, as the scripts of tests/gpu start them, and what they answer over HTTP."""
import concurrent.futures
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from engine_child import Limit, Start
from engine_start import digest

LIMIT = 150  # seconds until a server is ready
PROMPTS = [[(17 * i + 13 * j) % 150000 for j in range(5 + 11 * i)] for i in range(9)]


def free_port():
    """Return a port that is free. SGLang adds 10,000 to it for another one."""
    with socket.socket() as s:
        for port in random.sample(range(20000, 32000), 100):
            with contextlib.suppress(OSError):
                s.bind(("127.0.0.1", port))
                return port
    raise OSError("none of 100 ports is free")


class Server:
    """A server in a process of its own.

    name: of its log in `folder`. mode: "plain", else it has Foundry's interposer. arguments: of
    Python, a function of the port. ask: a function of a server and a prompt, which returns the
    answer. variables: more of its environment.
    """

    def __init__(self, name, mode, folder, arguments, ask, variables):
        self.name, self._ask = name, ask
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        self.run = Start(Limit([], LIMIT), name, [*pre, *arguments(port)],
                         os.path.join(folder, name + ".log"), **variables)

    def get(self, path, data=None):
        """Return what the server answers to a request, sent as JSON if there are data."""
        asked = urllib.request.Request(self.url + path, json.dumps(data).encode() if data else None,
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def ask(self, prompt):
        return self._ask(self, prompt)

    def wait(self):
        """Wait until it is ready. Returns the seconds, or None if it is not."""
        while not self.run.ended() and self.run.limit.left() > 0:
            try:
                self.get("/health")
                return time.monotonic() - self.run.began
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        return None

    def end(self):
        """End the server's own group of processes."""
        if not self.run.ended():
            self.run.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run.process.wait(20)
        self.run.kill()


def serve(server):
    """Ask a server one by one, then all at once. Return its answers to the former, and the line of
    Foundry in its log.
    """
    try:
        ready = server.wait()
        if ready is None:
            print("\n".join(line[:300] for line in server.run.log().splitlines()[-40:]), flush=True)
            return [], ""
        begin = time.monotonic()
        server.ask([1, 2, 3])
        first = time.monotonic() - begin
        alone = [server.ask(prompt) for prompt in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            begin = time.monotonic()
            list(pool.map(server.ask, PROMPTS * 8))
            many = time.monotonic() - begin
        print(f"{server.name}: ready after {ready:.2f} s, first answer {first:.3f} s, "
              f"{8 * len(PROMPTS)} requests at once {many:.2f} s, answers {digest(alone)}, "
              f"{len(set(map(str, alone)))} different", flush=True)
    finally:
        server.end()
    said = "".join(server.run.said())
    print(f"{server.name}: {said[:500]}", flush=True)
    return alone, said


def starts(make):
    """Serve with a plain and a first start side by side, then with a later one. Return what is as
    it should be, as a list. make: a function of a mode that makes a Server.
    """
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        plain, first = (pool.submit(serve, make(mode)) for mode in ("plain", "first"))
        (plain, _), (first, sealed) = plain.result(), first.result()
    later, loaded = serve(make("next"))
    return [bool(plain), plain == first, plain == later, "captured and sealed" in sealed,
            "loaded" in loaded, len(set(map(str, plain))) > 1]
