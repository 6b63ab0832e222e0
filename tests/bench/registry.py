#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""registry.py [-r ROUNDS] [-m MIB] [-o OBJECTS] [-n HOSTS] [TABLE...] - measures push and pull.

TABLE is throughput, index or hosts; all by default. Debian's docker-registry runs on this machine,
so it shares the processors with the client.

throughput  push and pull beside curl of the same bytes, in turn, over HTTP and TLS
index       an image of more objects than one manifest holds
hosts       hosts that start at once, from one registry and through a pull-through cache; each is a
            network namespace, or a process if namespaces are not permitted
"""
import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
import registry_server  # noqa: E402
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
STORE = os.path.join(BUILD, "foundry-store")
CHUNKS = os.path.join(BUILD, "tests/cli/store_chunks")
VECADD = os.path.join(BUILD, "examples/vecadd")
CHUNK = 2 << 20
CONNECTIONS = 8
TICK = os.sysconf("SC_CLK_TCK")


def run(*command, **options):
    """The seconds that the command took, and those of its processor time."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:6])} failed with {process.returncode}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime


def store(*words, where="s", **env):
    return run(STORE, "-s", where, *words, env=os.environ | env)


# --- the registry ---


class Registry:
    """docker-registry with its data in the folder NAME.data."""

    def __init__(self, name, tls=False, proxy=None, address=None, enter=()):
        self.name, self.tls = name, tls
        self.at = address or f"127.0.0.1:{registry_server.free_port()}"
        self.url = f"http{'s' * tls}://{self.at}"
        self.oci = f"oci{'' if tls else '+http'}://{self.at}"
        with open(f"{name}.yml", "w", encoding="utf-8") as f:
            f.write(f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n"
                    f"    rootdirectory: {os.getcwd()}/{name}.data\nhttp:\n  addr: {self.at}\n")
            if tls:
                f.write(f"  tls:\n    certificate: {os.getcwd()}/tls.crt\n"
                        f"    key: {os.getcwd()}/tls.key\n")
            if proxy:
                f.write(f"proxy:\n  remoteurl: {proxy}\n")
        with open(f"{name}.log", "w", encoding="utf-8") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(
                [*enter, "docker-registry", "serve", f"{name}.yml"], stdout=log, stderr=log,
                env=os.environ | {"OTEL_TRACES_EXPORTER": "none"})
        self.wait(enter)

    def wait(self, enter):
        for _ in range(100):
            if not subprocess.call([*enter, "curl", "-sko", "/dev/null", self.url + "/v2/"]):
                return
            time.sleep(0.1)
        raise SystemExit(f"docker-registry does not start; see {self.name}.log")

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / TICK

    def empty(self):
        shutil.rmtree(f"{self.name}.data/docker", ignore_errors=True)

    def blobs(self):
        """The ids of all blobs, and the file of each."""
        top = f"{self.name}.data/docker/registry/v2/blobs/sha256"
        return {i: f"{top}/{p}/{i}/data" for p in os.listdir(top) for i in os.listdir(f"{top}/{p}")}

    def sent(self):
        """The bytes of all bodies that it sent, by its access log."""
        with open(f"{self.name}.log", encoding="utf-8") as f:
            return sum(int(n) for n in re.findall(r'"GET [^"]*" 20[06] (\d+) ', f.read()))

    def stop(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def registry(*words, **options):
    r = Registry(*words, **options)
    try:
        yield r
    finally:
        r.stop()


def tls_make():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "tls.key", "-out",
                    "tls.crt"], check=True, stderr=subprocess.DEVNULL)
    os.environ["FOUNDRY_REGISTRY_CA"] = os.path.abspath("tls.crt")


# --- throughput ---


def curl(config):
    return run("curl", "-sSfZ", "--no-progress-meter", "--parallel-max", str(CONNECTIONS),
               "--cacert", "tls.crt", "-K", config)


def download_config(r, ids, to):
    with open("get.cfg", "w", encoding="utf-8") as f:
        for i in ids:
            f.write(f"url = {r.url}/v2/m/w/blobs/sha256:{i}\n"
                    f"output = {to + '/' + i if to else '/dev/null'}\n")
    return "get.cfg"


def plus(a, b):
    return a[0] + b[0], a[1] + b[1]


def curl_get(r, ids):
    return curl(download_config(r, ids, None))


def curl_get_check(r, ids):
    """To files, hashed by one process and synchronized to the disk."""
    shutil.rmtree("files", ignore_errors=True)
    os.mkdir("files")
    took = curl(download_config(r, ids, "files"))
    names = [f"files/{i}" for i in ids]
    return plus(plus(took, run("sha256sum", *names)), run("sync", *names))


def pull(r, _ids):
    shutil.rmtree("t", ignore_errors=True)
    return store("pull", f"{r.oci}/m/w", where="t")


def curl_put(r, files):
    """PUT alone, into uploads that were opened before."""
    r.empty()
    with open("post.cfg", "w", encoding="utf-8") as f:
        for _ in files:
            f.write(f"url = {r.url}/v2/m/w/blobs/uploads/\nrequest = POST\noutput = /dev/null\n"
                    "dump-header = post.head\n")
    curl("post.cfg")
    with open("post.head", encoding="utf-8") as head:
        places = re.findall(r"(?im)^location: (\S+)", head.read())
    with open("put.cfg", "w", encoding="utf-8") as f:
        for (i, name), at in zip(files.items(), places, strict=True):
            f.write(f'url = "{at}&digest=sha256:{i}"\nupload-file = {name}\noutput = /dev/null\n'
                    'header = "Expect:"\nheader = "Content-Type: application/octet-stream"\n')
    return curl("put.cfg")


def push(r, _files):
    r.empty()
    return store("push", "--private", "w", f"{r.oci}/m/w")


def row(title, mib, own, other):
    """@own and @other: (seconds, processor seconds) of each round."""
    ratios = [b[0] / a[0] for a, b in zip(own, other)] if other else []
    rates = [mib / s for s, _ in own]
    spread = f"{min(rates):6.0f} - {max(rates):4.0f}"
    print(f"{title:34} {statistics.median(rates):6.0f} {spread:>14}"
          f" {statistics.median(c for _, c in own) / mib * 1024:9.2f}"
          + (f"   {statistics.median(ratios):5.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
             if other else ""))


def throughput(a):
    if not os.path.exists("s"):
        run(CHUNKS, "s", "w", str(a.mib * (1 << 20) // CHUNK), str(CHUNK))
    for tls in (False, True):
        with registry(f"throughput{tls:d}", tls=tls) as r:
            push(r, None)
            files = {}
            os.makedirs("keep", exist_ok=True)
            for i, name in r.blobs().items():
                if os.path.getsize(name) == CHUNK:
                    files[i] = shutil.copy(name, f"keep/{i}")
            ways = {"curl": curl_get, "check": curl_get_check, "pull": pull}
            times = {name: [] for name in (*ways, "put", "push")}
            busy = []
            for n in range(a.rounds):
                order = list(ways) if n % 2 else list(ways)[::-1]
                for name in order:
                    before = r.cpu()
                    times[name].append(ways[name](r, files))
                    busy.append(r.cpu() - before)
            for n in range(a.rounds):
                for name, way in ((("put", curl_put), ("push", push))[::1 if n % 2 else -1]):
                    times[name].append(way(r, files))
        print(f"\n{'TLS, HTTP/2' if tls else 'HTTP/1.1'}: {a.mib} MiB in objects of 2 MiB, "
              f"{a.rounds} rounds in turn, {os.cpu_count()} processors for client and registry\n"
              f"{'':34} {'MiB/s':>6} {'least - most':>14} {'CPU s/GiB':>9}   times as fast as curl")
        row("curl GET, bytes dropped", a.mib, times["curl"], None)
        row("curl GET, sha256sum, fsync", a.mib, times["check"], None)
        row("pull", a.mib, times["pull"], times["curl"])
        row("pull, beside sha256sum and fsync", a.mib, times["pull"], times["check"])
        row("curl PUT", a.mib, times["put"], None)
        row("push", a.mib, times["push"], times["put"])
        print(f"{'the registry, for each GiB it sends':34} {'':21} "
              f"{statistics.median(busy) / a.mib * 1024:9.2f}")


# --- an index ---


def index(a):
    size = 1000
    shared = a.objects - 200
    run(CHUNKS, "i", "first", str(a.objects), str(size))
    run(CHUNKS, "i", "second", str(shared), str(size))
    print(f"\nan index: {a.objects} objects of {size} bytes, and one with {shared} of them\n"
          f"{'':44} {'s':>7} {'client CPU s':>12} {'registry CPU s':>14}")

    def show(title, r, call):
        before = r.cpu()
        took = call()
        print(f"{title:44} {took[0]:7.1f} {took[1]:12.2f} {r.cpu() - before:14.1f}")

    with registry("index") as r:
        one, two = f"{r.oci}/m/w:one", f"{r.oci}/m/w:two"
        show("push into an empty registry", r, lambda: store("push", "--private", "first", one,
                                                             where="i"))
        show("push of the same image", r, lambda: store("push", "--private", "first", one,
                                                        where="i"))
        show("push of the other image", r, lambda: store("push", "--private", "second", two,
                                                         where="i"))
        show("pull into an empty store", r, lambda: store("pull", one, where="j"))
        show("pull of the other image", r, lambda: store("pull", two, where="j"))
        ids = [i for i, name in r.blobs().items() if os.path.getsize(name) == size]
        show(f"curl GET of its {len(ids)} objects, bytes dropped", r, lambda: curl_get(r, ids))


# --- many hosts ---


class Processes:
    """Nodes are processes on the loopback interface."""
    what = "processes of one host with a store each, as namespaces are not permitted"

    def __init__(self, names):
        self.names = names

    def enter(self, _name):
        return []

    def address(self, _name):
        return f"127.0.0.1:{registry_server.free_port()}"

    def stop(self):
        pass


class Namespaces:
    """Nodes are network namespaces that one bridge joins. The link of "origin" has a limit."""

    def __init__(self, names, gbit):
        self.names, self.holders = names, {}
        self.what = "network namespaces with a store each"
        self.ip("link", "set", "lo", "up")
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")
        for i, name in enumerate(names):
            self.node(i, name)
        limit = [*self.enter("origin"), "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                 f"{gbit}gbit", "burst", "1mb", "latency", "50ms"]
        if subprocess.call(limit, stderr=subprocess.DEVNULL):
            self.what += ", no limit on links"
        else:
            self.what += f"; the origin's link has {gbit} Gbit/s"

    def ip(self, *words, enter=()):
        subprocess.run([*enter, "ip", *words], check=True)

    def node(self, i, name):
        # pylint: disable-next=consider-using-with
        holder = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
        self.holders[name] = holder
        own = os.stat("/proc/self/ns/net").st_ino
        while os.stat(f"/proc/{holder.pid}/ns/net").st_ino == own:
            time.sleep(0.01)
        self.ip("link", "add", f"v{i}", "type", "veth", "peer", "name", f"e{i}")
        self.ip("link", "set", f"v{i}", "master", "br0", "up")
        self.ip("link", "set", f"e{i}", "netns", str(holder.pid), "name", "eth0")
        enter = self.enter(name)
        self.ip("addr", "add", f"10.77.{i // 250}.{i % 250 + 1}/16", "dev", "eth0", enter=enter)
        self.ip("link", "set", "eth0", "up", enter=enter)
        self.ip("link", "set", "lo", "up", enter=enter)

    def enter(self, name):
        return ["nsenter", "-t", str(self.holders[name].pid), "-n"]

    def address(self, name):
        i = self.names.index(name)
        return f"10.77.{i // 250}.{i % 250 + 1}:5000"

    def stop(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()


def namespaces_enter(a):
    """Run this table again in a namespace of its own, or say that it is not permitted."""
    for words in (["unshare", "-n"], ["unshare", "-rn"]):
        if not subprocess.call([*words, "sh", "-c", "ip link add va type veth peer name vb"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            subprocess.run([*words, sys.executable, os.path.abspath(__file__), "--inside",
                            "-m", str(a.mib), "-n", str(a.hosts), "hosts"], check=True)
            return True
    return False


def hosts_start(net, names, r):
    """Seconds until each can launch: it pulls the weights, loads vecadd through, and runs it."""
    for name in names:
        shutil.rmtree(name, ignore_errors=True)
        run(STORE, "init", name, "-q")
    script = ('"$0" -s "$2" pull -q "$3/images:weights" && FOUNDRY_REGISTRY="$3/images" '
              '"$1" load -s "$2" >/dev/null && cut -d " " -f 1 /proc/uptime')
    with open("/proc/uptime", encoding="utf-8") as f:
        start = float(f.read().split()[0])
    all_hosts = [subprocess.Popen([*net.enter(name), "sh", "-c", script, STORE, VECADD, name,
                                   r.oci], stdout=subprocess.PIPE, text=True) for name in names]
    ends = [p.communicate()[0] for p in all_hosts]
    if any(p.returncode for p in all_hosts):
        raise SystemExit("a host could not launch")
    return sorted(float(end) - start for end in ends)


def hosts_prepare(net, origin, mib):
    run(CHUNKS, "hs", "weights", str(mib * (1 << 20) // CHUNK), str(CHUNK))
    run(VECADD, "capture", "-s", "hs", "-m", os.path.join(BUILD, "sim/kernels.cubin"))
    for name in ("weights", "vecadd"):
        run(*net.enter("origin"), STORE, "-s", "hs", "push", "--private", name,
            f"{origin.oci}/images:{name}")


def hosts(a):
    if not a.inside and namespaces_enter(a):
        return
    mib = min(a.mib, 32)
    names = [f"host{i}" for i in range(a.hosts)]
    os.environ["FOUNDRY_DRIVER"] = os.path.join(BUILD, "foundry/sim/libcuda.so.1")
    nodes = ["origin", "cache", *names]
    net = Namespaces(nodes, 1) if a.inside else Processes(nodes)
    try:
        with registry("origin", address=net.address("origin"), enter=net.enter("origin")) as origin:
            hosts_prepare(net, origin, mib)
            print(f"\n{a.hosts} hosts start at once: {net.what};\nan image of {mib} MiB and "
                  f"vecadd, {os.cpu_count()} processors for all\n"
                  f"{'':34} {'MiB from the origin':>19} {'first s':>8} {'median':>8} {'last':>8}")

            def show(title, r):
                before = origin.sent()
                ends = hosts_start(net, names, r)
                time.sleep(1)
                print(f"{title:34} {(origin.sent() - before) / (1 << 20):19.1f} {ends[0]:8.2f} "
                      f"{statistics.median(ends):8.2f} {ends[-1]:8.2f}")

            show("from the registry", origin)
            with registry("cache", address=net.address("cache"), proxy=origin.url,
                          enter=net.enter("cache")) as cache:
                show("through an empty cache", cache)
                show("through a full cache", cache)
                cache.empty()
                before = origin.sent()
                first = hosts_start(net, names[:1], cache)
                print(f"{'one host, through an empty cache':34} "
                      f"{(origin.sent() - before) / (1 << 20):19.1f} {first[0]:8.2f}")
    finally:
        net.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("-r", "--rounds", type=int, default=5)
    p.add_argument("-m", "--mib", type=int, default=256)
    p.add_argument("-o", "--objects", type=int, default=10200)
    p.add_argument("-n", "--hosts", type=int, default=16)
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("table", nargs="*", choices=["throughput", "index", "hosts", []])
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not shutil.which("docker-registry") or not shutil.which("curl"):
        raise SystemExit("docker-registry and curl are missing; run .ci/setup build ci")
    with tempfile.TemporaryDirectory(prefix="foundry-registry-") as top:
        os.chdir(top)
        os.environ["HOME"] = top  # No configuration of this machine takes part.
        os.environ.pop("FOUNDRY_STORE", None)
        tls_make()
        for table in a.table or ["throughput", "index", "hosts"]:
            globals()[table](a)
            sys.stdout.flush()
        os.chdir("/")


main()
