# SPDX-License-Identifier: Apache-2.0
"""Debian's docker-registry as a server of tests, on a port of this machine alone."""
import os
import shutil
import socket
import subprocess
import time

PROGRAM = os.environ.get("FOUNDRY_TEST_REGISTRY") or shutil.which("docker-registry")
MISSING = "no docker-registry; run .ci/setup build ci"


def free_port():
    """Return a port that no program uses now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    """Wait until a server answers on a port."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"no server on port {port}")


def start(folder):
    """Start PROGRAM, which keeps its data, its settings and its log in `folder`. Return the process
    and its port, as soon as it answers.
    """
    port, config = free_port(), os.path.join(folder, "registry.yml")
    with open(config, "w", encoding="utf-8") as f:
        f.write(f"version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\n"
                f"storage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
                f"http:\n  addr: 127.0.0.1:{port}\n")
    with open(os.path.join(folder, "registry.log"), "w", encoding="utf-8") as log:
        # pylint: disable-next=consider-using-with
        server = subprocess.Popen([PROGRAM, "serve", config], stdout=log, stderr=log,
                                  env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})
    try:
        wait_for(port)
    except RuntimeError:
        server.kill()
        server.wait()
        raise
    return server, port
