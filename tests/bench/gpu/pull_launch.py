# SPDX-License-Identifier: Apache-2.0
"""From a registry to the first launch: the decoder of 64 graphs, an empty store.

    pull_launch.py [--graphs 64] [--rounds 3] [--store STORE]

The registry is docker-registry on this machine, which FOUNDRY_TEST_REGISTRY names or PATH finds;
it needs libcurl and libjansson here, too. Prints native warm-up and capture, and then for each way
to an image the time of each phase until all graphs are built and the first was launched, in
milliseconds since the process opened its empty store; the median of the rounds, each a process of
its own. --store: the image bench/GRAPHS is there already; otherwise it is captured first.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
import registry_server  # noqa: E402
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
TOOL = os.path.join(BUILD, "foundry-store")
ENV = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "api", "python"),
       "FOUNDRY_LIBRARY": os.path.join(BUILD, "libfoundry.so.0.2"),
       "FOUNDRY_REGISTRY_LIBRARY": os.path.join(BUILD, "libfoundry-registry.so.0.2")}
PHASES = ("fetched", "manifest", "kernels", "graphs", "content", "launched")
TITLES = ("all here", "manifest", "kernels", "built", "content", "launched")


def child(way, path, name, arg):
    """One way from an empty store to a launch; prints its phases."""
    sys.path.insert(0, os.path.join(ROOT, "api", "python"))
    import foundry
    start, seen = time.perf_counter(), {}

    def note(phase):
        seen[phase] = (time.perf_counter() - start) * 1e3

    def progress(phase, done, total, _):
        if done == total:
            note(phase)
    store = foundry.Store(path, create=True)
    if way == "pull":
        store.pull(arg)
        note("fetched")
    elif way == "import":
        with subprocess.Popen([TOOL, "-q", "-s", arg, "export", name],
                              stdout=subprocess.PIPE) as export:
            store.import_(export.stdout)
        note("fetched")
    elif way == "through":
        os.environ["FOUNDRY_REGISTRY"] = arg
    with foundry.load(name, store=store, build=True, progress=progress) as img:
        img.filled()
        img.launch(min(img.graphs()))
        img.synchronize()
        note("launched")
    print(json.dumps(seen))


def run_way(args, way, arg, keep=None):
    """The median of each phase."""
    rounds = []
    for _ in range(args.rounds):
        path = keep or tempfile.mkdtemp(dir=args.tmp)
        out = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", way, path,
                              args.name, arg], check=True, env=ENV, stdout=subprocess.PIPE,
                             text=True).stdout
        rounds.append(json.loads(out.strip().split("\n")[-1]))
        if not keep:
            shutil.rmtree(path)
    return {p: statistics.median(r[p] for r in rounds) for p in PHASES if p in rounds[0]}


def model(*words):
    """The lines "name value ..." of model.py as {name: values}."""
    out = subprocess.run([sys.executable, os.path.join(HERE, "model.py"), *words], check=True,
                         env=ENV, stdout=subprocess.PIPE, text=True).stdout
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}


def push(args, port):
    env = {**ENV, "FOUNDRY_REGISTRY": f"oci+http://127.0.0.1:{port}/images"}
    start = time.perf_counter()
    out = subprocess.run([TOOL, "--json", "-s", args.store, "push", "--private", args.name],
                         check=True, env=env, stdout=subprocess.PIPE, text=True).stdout
    report = json.loads(out)
    seconds = time.perf_counter() - start
    print(f"push: {report['objects']} objects, {report['bytes'] / 1e6:.1f} MB in {seconds:.2f} s, "
          f"{report['bytes'] / 1e9 / seconds:.2f} GB/s")
    tag = "".join(c if c.isalnum() or c in ".-" else f"_{ord(c):02X}" for c in args.name)
    return env["FOUNDRY_REGISTRY"], f"{env['FOUNDRY_REGISTRY']}:{tag}"


def show(what, phases):
    print(f"{what:22}", *(f"{phases[p]:10.1f}" if p in phases else " " * 10 for p in PHASES),
          flush=True)


def measure(args):
    native = model("native", str(args.graphs))[f"native_{args.graphs}"]
    print("native: warm-up {}, capture {}, first launches {} ms".format(
        *(f"{float(v):.0f}" for v in native[:3])))
    if not args.store:
        args.store = os.path.join(args.tmp, "sealed")
        model("capture", str(args.graphs), args.store)
    server, port = registry_server.start(args.tmp) if registry_server.PROGRAM else (None, 0)
    try:
        if server:
            repository, tagged = push(args, port)
        print(f"{'':22}", *(f"{t:>10}" for t in TITLES))
        show("export | import, load", run_way(args, "import", args.store))
        if server:
            show("pull, then load", run_way(args, "pull", tagged))
            show("load through", run_way(args, "through", repository))
        else:
            print(registry_server.MISSING)
        show("load from the store", run_way(args, "store", "", args.store))
    finally:
        if server:
            server.kill()
            server.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--graphs", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--store")
    p.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        child(*args.child)
        return 0
    if not os.path.exists("/dev/nvidiactl"):
        print("SKIP: no GPU")
        return 77
    args.name = f"bench/{args.graphs}"
    with tempfile.TemporaryDirectory() as args.tmp:
        measure(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
