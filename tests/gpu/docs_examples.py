# SPDX-License-Identifier: Apache-2.0
"""The examples of the start pages and of the README that need a GPU and PyTorch.

    docs_examples.py [--limit SECONDS]

The pages run side by side. It runs each page's blocks in their order, in a folder of its own, with
the package of this tree in place of an installed one. Blocks that need an engine, a model or a
network are left out; tests/gpu/vllm_serve.py and sglang_start.py run the engines.
"""
import functools
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/python"))
import parts  # noqa: E402
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PAGES = ("Documentation/start/pytorch.rst", "Documentation/start/c.rst", "README.md")


def tools(folder):
    """A folder for PATH: pip installs nothing, and a virtual environment is the present Python."""
    path = os.path.join(folder, "bin")
    os.makedirs(path)
    venv = '[ "$1 $2" != "-m venv" ] || { mkdir -p "$3/bin"; : >"$3/bin/activate"; exit; }'
    scripts = {
        "python3": f'{venv}\nexec "{sys.executable}" "$@"',
        "pip": "exit 0",
        "make": f'exec {shutil.which("make")} -o all "$@"',
    }
    for name, text in scripts.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\n{text}\n")
        os.chmod(os.path.join(path, name), 0o755)
    return path


def prepare(folder):
    """The files that a reader of any page has: the source archive, and a tree that was built."""
    os.symlink(ROOT, os.path.join(folder, "foundry-0.2.0"))
    subprocess.run(["tar", "czf", "foundry-0.2.0.tar.gz", "foundry-0.2.0"], cwd=folder, check=True)
    os.makedirs(os.path.join(folder, "build"))
    for name in ("include", "api"):
        os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    for name in os.listdir(BUILD):
        if name.startswith("libfoundry") or name == "foundry":
            os.symlink(os.path.join(BUILD, name), os.path.join(folder, "build", name))
    subprocess.run([os.path.join(BUILD, "examples/vecadd"), "capture", "-s",
                    os.path.join(folder, "build/demo-store")], check=True, capture_output=True)


def follow(page, until):
    with tempfile.TemporaryDirectory() as folder:
        path = tools(folder)
        env = {**os.environ, "PATH": f"{path}:{BUILD}:{os.environ['PATH']}", "BUILD": BUILD,
               "SETUP": ":", "FOUNDRY_STORE": os.path.join(folder, "own-store"),
               "PYTHONPATH": os.path.join(ROOT, "api/python"),
               "FOUNDRY_LIBRARY": os.path.join(BUILD, "libfoundry.so.0.2"),
               "FOUNDRY_HOOK": os.path.join(BUILD, "foundry/hook/libcuda.so.1")}
        prepare(folder)
        return parts.shown(page, [sys.executable, "-u", os.path.join(ROOT, "tests/examples.py"),
                                  "run", "-g", os.path.join(ROOT, page)], until, cwd=folder,
                           env=env)


def main():
    until = parts.deadline()
    if not os.path.exists("/dev/nvidiactl"):
        parts.skip("no GPU")
    pages = [page for page in PAGES if page.endswith("pytorch.rst") or shutil.which("cc")]
    for page in sorted(set(PAGES) - set(pages)):
        print(f"{page}: left out, since there is no compiler")
    parts.finish(parts.side_by_side(*([functools.partial(follow, page, until)]
                                      for page in pages)))


main()
