# SPDX-License-Identifier: Apache-2.0
"""Tests of images in container registries: push and pull, and loads that fetch what the store
lacks, from Debian's docker-registry with a server in front of it that causes faults.
"""
import http.client
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import registry_server
import suite

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRIP = 0.25  # seconds; eight times for a slow blob

CAPTURE = '''
import ctypes, sys
import foundry
from test_roundtrip import N, Array, Driver
with foundry.Capture() as cap:
    cuda = Driver()
    a, b, c = (cuda.alloc(v) for v in ([0.0] * N, [float(i) for i in range(N)], [0.0] * N))
    for i in range(6):
        block = cuda.alloc_bytes(2 << 20)
        cuda("cuMemsetD32_v2", ctypes.c_uint64(block), i + 1, ctypes.c_size_t((2 << 20) // 4))
    for key in range(4):
        cap.add_graph(key, cuda.graph(a, b, c))
    for name, address, use in ("a", a, "input"), ("b", b, "const"), ("c", c, "output"):
        cap.tensor(name, Array(address, N), use=use)
    cap.seal(sys.argv[1], "model")
'''
LOAD = '''
import json, struct, sys, time
import foundry
from test_roundtrip import N
start, seen = time.monotonic(), {}
def progress(phase, done, total, ms):
    if done == total:
        seen.setdefault(phase, time.monotonic() - start)
with foundry.load("model", store=sys.argv[1], build=True, progress=progress) as img:
    img.write("a", struct.pack(f"{N}f", *([10.0] * N)))
    img.launch(3)
    assert list(struct.unpack(f"{N}f", img.read("c"))) == [10.0 + i for i in range(N)]
print(json.dumps(seen))
'''
INTERRUPTED = '''
import sys
import foundry
print("loads", flush=True)
try:
    how = {"strict": True, "identity": "manual"} if sys.argv[2] == "load_or_capture" else {}
    getattr(foundry, sys.argv[2])("model", store=foundry.Store(sys.argv[1], create=True), **how)
except KeyboardInterrupt:
    print("interrupted")
'''
PARTS = '''
import os, struct, sys, threading, time
import foundry
from test_roundtrip import N
numbers = [10.0 + i for i in range(N)]
def use(img):
    img.write("a", struct.pack(f"{N}f", *([10.0] * N)))
    img.launch(3)
    return list(struct.unpack(f"{N}f", img.read("c")))
with foundry.Store(sys.argv[1]) as store:
    second, failed = [], []
    def load():
        try:
            second.append(foundry.load("decoder", store=store))
        except foundry.Error as e:
            failed.append(str(e))
    thread = threading.Thread(target=load)
    thread.start()
    while not os.path.exists(os.environ["ASKED"]):
        time.sleep(0.02)
    with foundry.load("model", store=store) as first:
        assert use(first) == numbers
        assert thread.is_alive() and not second
        open(os.environ["GOES_ON"], "w").close()
        thread.join()
        assert use(first) == numbers
        print(use(second[0]) == numbers if second else failed[0])
'''
PIN = '''
import json, sys
import foundry
store, group, rank, ranks, name = sys.argv[1:]
pinned = foundry.pin(name, store=store, group=group, rank=int(rank), ranks=int(ranks), wait=20)
print(json.dumps({**vars(pinned), "yes": bool(pinned)}))
'''


def answer(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={
        "Accept": "application/vnd.oci.image.manifest.v1+json"})
    data = connection.getresponse().read()
    connection.close()
    return data


def child(code, store, **env):
    """Runs the code in a process of its own; its last line of output is returned."""
    return subprocess.run([sys.executable, "-c", code, store], check=True, timeout=120,
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env},
                          cwd=os.path.join(TESTS, "python")).stdout.strip().split("\n")[-1]


def tool(store, *args):
    """The output of foundry-store."""
    program = os.path.join(os.environ.get("BUILD", "build"), "foundry-store")
    return subprocess.run([program, "-s", store, *args], check=True, capture_output=True,
                          text=True).stdout


@unittest.skipUnless(registry_server.PROGRAM, registry_server.MISSING)
class Registry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.servers = []
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.addClassCleanup(cls.stop)
        os.environ["HOME"] = cls.folder  # no settings of this machine take part
        server, cls.real = registry_server.start(cls.folder)
        cls.servers.append(server)
        cls.port = registry_server.free_port()
        os.mkdir(os.path.join(cls.folder, "bad"))
        cls.start(sys.executable, os.path.join(TESTS, "cli", "registry_hostile.py"), str(cls.port),
                  os.path.join(cls.folder, "bad"), f"127.0.0.1:{cls.real}")
        registry_server.wait_for(cls.port)
        cls.repository = f"oci+http://127.0.0.1:{cls.port}/images"
        cls.store = os.path.join(cls.folder, "sealed")
        child(CAPTURE, cls.store)

    @classmethod
    def start(cls, *command):
        cls.servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))

    @classmethod
    def stop(cls):
        for server in cls.servers:
            server.kill()
            server.wait()

    def setUp(self):
        self.fault("")

    def fault(self, line):
        with open(os.path.join(self.folder, "bad", "faults"), "w", encoding="utf-8") as f:
            f.write(line + "\n")

    def new_store(self):
        """The path of an empty store."""
        import foundry
        path = tempfile.mkdtemp(dir=self.folder)
        foundry.Store(path, create=True).close()
        return path

    def push(self):
        import foundry
        with foundry.Store(self.store) as store:
            return store.push("model", f"{self.repository}:model", private=True)

    def last_chunk(self, tag="model"):
        manifest = json.loads(answer(self.real, f"/v2/images/manifests/{tag}"))
        return [layer["digest"] for layer in manifest["layers"]
                if layer["mediaType"].endswith("chunk.v1") and layer["size"] > 1 << 20][-1]

    def test_push_and_pull(self):
        import foundry
        steps = []
        pushed = self.push()
        with foundry.Store(self.new_store()) as store:
            pulled = store.pull(f"{self.repository}:model",
                                progress=lambda done, total: steps.append((done, total)))
            self.assertEqual((pulled.id, pulled.objects, pulled.bytes),
                             (pushed.id, pushed.objects, pushed.bytes))
            self.assertEqual([name for _, name, _ in pulled.images], ["model"])
            again = store.pull(f"{self.repository}:model", ref="other")
            self.assertEqual((again.objects_moved, again.bytes_moved), (0, 0))
        self.assertEqual(steps[-1], (pulled.bytes, pulled.bytes))
        self.assertEqual(steps, sorted(steps))

    def test_a_transfer_that_its_program_stops(self):
        import foundry

        class Stopped(Exception):
            pass

        def stops(done, _total):
            done_at.append(done)
            if done:
                raise Stopped
        for kind in ("progress", "watch"):
            how, done_at = {"progress": stops} if kind == "progress" else {
                "watch": lambda seen: stops(seen.bytes, 0)}, []
            elsewhere = f"{self.repository}-{kind}:model"
            with self.subTest(kind), foundry.Store(self.store) as store:
                with self.assertRaises(Stopped):
                    store.push("model", elsewhere, private=True, **how)
                with foundry.Store(self.new_store()) as other:
                    with self.assertRaises(foundry.NotFoundError):
                        other.pull(elsewhere)
                    whole = store.push("model", elsewhere, private=True)
                    with self.assertRaises(Stopped):
                        other.pull(elsewhere, **how)
                    self.assertLess(done_at[-1], whole.bytes)
                    self.assertEqual(other.refs(), [])
                    self.assertEqual(other.pull(elsewhere).id, whole.id)

    def test_pull_by_name(self):
        import foundry
        with foundry.Store(self.store) as store, foundry.Store(self.new_store()) as other:
            with unittest.mock.patch.dict(os.environ, FOUNDRY_REGISTRY=self.repository):
                pushed = store.push("model", private=True)
                self.assertEqual(other.pull(ref="model").id, pushed.id)
                self.assertEqual([ref.name for ref in other.refs()], ["model"])
                with self.assertRaisesRegex(foundry.Error, "neither a registry nor a ref is named"):
                    other.pull()
                with self.assertRaises(foundry.NotFoundError):
                    other.pull(ref="another")
            with self.assertRaisesRegex(foundry.Error, "no registry is named"):
                other.pull(ref="model")

    def test_rate_and_time_left(self):
        import foundry
        self.push()
        seen = []
        self.fault(f"GET {self.last_chunk()} 9 drip {DRIP / 2}")
        with foundry.Store(self.new_store()) as store:
            pulled = store.pull(f"{self.repository}:model", watch=seen.append, requests=2)
        last = seen[-1]
        self.assertEqual((last.bytes, last.objects, last.bytes_moved, last.left_s),
                         (pulled.bytes, pulled.objects, pulled.bytes, 0))
        self.assertEqual((last.bytes_total, last.objects_total), (pulled.bytes, pulled.objects))
        self.assertGreater(last.elapsed_ms, 8 * DRIP / 2 * 1e3 - 100)
        self.assertGreater(last.bytes_per_s, 0)
        self.assertEqual([p.objects for p in seen], sorted(p.objects for p in seen))
        self.assertIsNone(seen[0].left_s)

    def test_files_need_a_flag(self):
        import foundry
        copy = os.path.join(self.new_store(), "copy")
        shutil.copytree(self.store, copy)
        with foundry.Store(copy) as store:
            store.attach("model", [foundry.File("cache/code.bin", b"x" * 100)])
            with self.assertRaisesRegex(foundry.Error, "carries 1 file.* 100 bytes.*private"):
                store.push("model", f"{self.repository}:files")
            store.push("model", f"{self.repository}:files", private=True)

    def test_content_that_is_not_constant_needs_a_flag(self):
        import foundry
        with foundry.Store(self.store) as store, self.assertRaisesRegex(
                foundry.Error, "no tensor declares constant"):
            store.push("model", f"{self.repository}:model")

    def test_graphs_are_built_while_content_arrives(self):
        self.push()
        self.fault(f"GET {self.last_chunk()} 9 drip {DRIP}")
        seen = json.loads(child(LOAD, self.new_store(), FOUNDRY_REGISTRY=self.repository))
        self.assertGreater(seen["content"], 8 * DRIP - 0.1)
        self.assertLess(seen["kernels"], seen["content"] - 3 * DRIP)
        self.assertLess(seen["graphs"], seen["content"] - 2 * DRIP)

    def parts(self, fault):
        """Loads an image and launches it while the last chunk of another one is withheld; then the
        fault happens to that chunk. The output of the other one.
        """
        import foundry
        self.push()
        decoder = CAPTURE.replace('"model"', '"decoder"').replace(
            "Capture()", "Capture(base=0x300000000000)").replace("i + 1", "i + 101")
        child(decoder, self.store)
        with foundry.Store(self.store) as store:
            store.push("decoder", f"{self.repository}:decoder", private=True)
        chunk = self.last_chunk("decoder")
        goes_on = os.path.join(self.new_store(), "goes-on")
        asked = os.path.join(self.folder, "bad", "waits")
        self.fault(f"GET {chunk} 1 until {goes_on}\nGET {chunk} 99 {fault}")
        try:
            return child(PARTS, self.new_store(), FOUNDRY_REGISTRY=self.repository, ASKED=asked,
                         GOES_ON=goes_on)
        finally:
            os.unlink(asked)

    def test_a_part_is_launched_before_the_last_chunk_of_another(self):
        self.assertEqual(self.parts("pass"), "True")

    def test_a_part_works_if_the_other_does_not_come(self):
        self.assertRegex(self.parts("status 403"), "decoder.*cannot be fetched.*answered 403")

    def test_an_image_is_listed_when_it_is_complete(self):
        import foundry
        self.push()
        self.fault(f"GET {self.last_chunk()} 9 drip {DRIP}")
        path = self.new_store()
        load = subprocess.Popen([sys.executable, "-c", LOAD, path], stdout=subprocess.DEVNULL,
                                env={**os.environ, "FOUNDRY_REGISTRY": self.repository},
                                cwd=os.path.join(TESTS, "python"))
        objects = []
        while load.poll() is None:
            stat = json.loads(tool(path, "stat", "--json"))
            if not tool(path, "ls", "-q"):
                objects.append(stat["kinds"]["all"]["objects"])
                tool(path, "gc", "-q")  # deletes nothing of it
            time.sleep(0.05)
        self.assertEqual(load.returncode, 0)
        self.assertGreater(max(objects), 0)
        with foundry.Store(path) as store:
            self.assertTrue(store.describe("model"))

    def test_a_fetch_that_fails_midway_fails_the_load(self):
        import foundry
        self.push()
        self.fault(f"GET {self.last_chunk()} 99 status 403")
        path = self.new_store()
        with self.assertRaises(subprocess.CalledProcessError) as failed:
            child(LOAD, path, FOUNDRY_REGISTRY=self.repository)
        self.assertRegex(failed.exception.stderr,
                         "model.*and it cannot be fetched: .*answered 403 to GET")
        tool(path, "verify", "-q")
        with foundry.Store(path) as store, self.assertRaises(foundry.Error):
            store.describe("model")

    def test_ctrl_c_ends_a_load_that_fetches(self):
        self.interrupt_two("load")

    def test_ctrl_c_ends_a_pin_that_fetches(self):
        self.interrupt_two("pin")

    def test_ctrl_c_ends_a_start_that_fetches(self):
        self.interrupt_two("load_or_capture")

    def interrupt_two(self, function):
        """Interrupt a process that waits for another one, and then that one, which fetches."""
        import foundry
        self.push()
        path, asked = self.new_store(), os.path.join(self.folder, "bad", "waits")
        goes_on = os.path.join(self.new_store(), "goes-on")
        self.fault(f"GET {self.last_chunk()} 1 until {goes_on}")

        def begin():
            load = subprocess.Popen(
                [sys.executable, "-c", INTERRUPTED, path, function], stdout=subprocess.PIPE,
                text=True, env={**os.environ, "FOUNDRY_REGISTRY": self.repository},
                cwd=os.path.join(TESTS, "python"))
            self.addCleanup(load.kill)
            self.assertEqual(load.stdout.readline(), "loads\n")
            return load

        def interrupt(load):
            load.send_signal(signal.SIGINT)
            self.assertEqual(load.communicate(timeout=20)[0], "interrupted\n")
        fetches = begin()
        while not os.path.exists(asked):
            time.sleep(0.02)
        os.unlink(asked)
        waits = begin()  # for the other process
        time.sleep(0.5)
        interrupt(waits)
        self.assertIsNone(fetches.poll())
        interrupt(fetches)
        with open(goes_on, "w", encoding="ascii"):
            pass
        with foundry.Store(path) as store:
            self.assertEqual(store.refs(), [])
        tool(path, "verify", "-q")
        child(LOAD, path, FOUNDRY_REGISTRY=self.repository)

    def pins(self, path, *names, **env):
        """The answers of a group with a rank for each name."""
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env}
        group = f"{self.id()}{time.monotonic_ns()}"
        ranks = [subprocess.Popen(
            [sys.executable, "-c", PIN, path, group, str(rank), str(len(names)), name], env=env,
            stdout=subprocess.PIPE, text=True) for rank, name in enumerate(names)]
        return [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]

    def is_pinned(self, path):
        refs = json.loads(tool(path, "ls", "--json"))["refs"]
        return [ref["pinned"] for ref in refs]

    def test_pin(self):
        import foundry
        self.push()
        path = self.new_store()
        pinned = foundry.pin("model", store=path)
        self.assertFalse(pinned)
        self.assertRegex(pinned.why, "no ref 'model'")
        with unittest.mock.patch.dict(os.environ, FOUNDRY_REGISTRY=self.repository):
            fetched = foundry.pin("model", store=path)
        self.assertTrue(fetched, fetched)
        self.assertEqual((fetched.missing, fetched.ranks_missing, fetched.why), (0, 0, ""))
        self.assertGreater(fetched.bytes, 12 << 20)
        self.assertEqual(json.loads(tool(path, "ls", "--json"))["refs"][0]["id"], fetched.id)
        self.assertEqual(self.is_pinned(path), [True])
        with foundry.Store(path) as store:
            store.unpin("model")
        other = foundry.pin("model", store=path, facts={"model": "other"})
        self.assertFalse(other)
        self.assertRegex(other.why, "'model'|other")
        self.assertEqual(self.is_pinned(path), [False])

    def test_a_pin_ends_without_those_of_other_jobs(self):
        import foundry
        self.push()
        path = self.new_store()

        def refused(meanwhile):
            """A job of two ranks, whose other rank lacks the image, and what happens before."""
            def exchange(record):
                meanwhile()
                lacks = struct.pack("<iI", -300, 0)
                return [record, record[:8] + lacks + bytes(32)]
            return foundry.pin("model", store=path, ranks=2, exchange=exchange)

        def pin():
            self.assertTrue(foundry.pin("model", store=path))
        with foundry.Store(path) as store:
            store.pull(f"{self.repository}:model")
            for meanwhile, pinned in (
                    (lambda: None, False), (pin, True), (lambda: store.pin("model"), True),
                    (lambda: self.assertFalse(refused(lambda: None)), False),
                    (lambda: (pin(), store.unpin("model")), False),
                    (lambda: (store.unpin("model"), pin()), True),
                    (lambda: self.assertFalse(refused(pin)), True)):
                self.assertFalse(refused(meanwhile))
                self.assertEqual(self.is_pinned(path), [pinned])
                store.unpin("model")
            store.pin("model")
            self.assertFalse(refused(lambda: None))
            self.assertEqual(self.is_pinned(path), [True], "it was pinned before")

    def test_a_group_gets_one_answer(self):
        import foundry
        self.push()
        path = self.new_store()
        with foundry.Store(path) as store:
            store.pull(f"{self.repository}:model")
        answers = self.pins(path, "model", "model", "none")
        self.assertEqual([a["yes"] for a in answers], [False] * 3)
        self.assertEqual([(a["ranks_missing"], a["first_missing"]) for a in answers], [(1, 2)] * 3)
        self.assertRegex(answers[0]["why"], "1 of 3 ranks lack their image, the first.*rank 2")
        self.assertRegex(answers[2]["why"], "no ref 'none'")
        self.assertEqual(self.is_pinned(path), [False])
        answers = self.pins(path, "model", "model", "model")
        self.assertEqual([a["yes"] for a in answers], [True] * 3)
        self.assertEqual(self.is_pinned(path), [True])

    def test_ranks_of_a_host_fetch_once(self):
        self.push()
        path = self.new_store()
        headers = os.path.join(self.folder, "bad", "headers")
        with open(headers, "w", encoding="utf-8"):
            pass
        answers = self.pins(path, *["model"] * 3, FOUNDRY_REGISTRY=self.repository)
        self.assertEqual([a["yes"] for a in answers], [True] * 3)
        with open(headers, encoding="utf-8") as f:
            self.assertEqual(len([line for line in f if "GET" in line and "manifests" in line]), 1)

    def test_a_failed_fetch_is_repeated_by_one_that_waited(self):
        import foundry
        stores = {version: self.new_store() for version in ("old", "new")}
        for version, path in stores.items():
            child(CAPTURE.replace('cap.seal(sys.argv[1], "model")',
                                  f'cap.fact("v", "{version}"); cap.seal(sys.argv[1], "again")'),
                  path)
        tool(stores["new"], "push", "--private", "again", f"{self.repository}:again")
        self.fault("GET manifests/again 1 stall 10")
        pinned = {}

        def pin(name):
            pinned[name] = foundry.pin("again", store=stores["old"], facts={"v": "new"})

        with unittest.mock.patch.dict(os.environ, FOUNDRY_REGISTRY=self.repository,
                                      FOUNDRY_REGISTRY_RETRIES="0", FOUNDRY_REGISTRY_TIMEOUT="2"):
            threads = [threading.Thread(target=pin, args=(name,)) for name in ("first", "second")]
            for thread in threads:
                thread.start()
                time.sleep(0.5)
            for thread in threads:
                thread.join()
        self.assertFalse(pinned["first"])
        self.assertTrue(pinned["second"], pinned["second"])

    def test_ranks_of_several_hosts(self):
        import foundry
        self.push()
        hosts = [self.new_store() for _ in range(3)]
        barrier, records, answers = threading.Barrier(3), [None] * 3, [None] * 3

        def rank(i, name):
            def exchange(record):
                records[i] = record
                barrier.wait(60)
                return list(records)
            answers[i] = foundry.pin(name, store=hosts[i], rank=i, ranks=3, exchange=exchange)

        for name, yes in ("model", True), ("none", False):
            with unittest.mock.patch.dict(os.environ, FOUNDRY_REGISTRY=self.repository):
                threads = [threading.Thread(target=rank, args=(i, name if i else "model"))
                           for i in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            self.assertEqual([bool(answer) for answer in answers], [yes] * 3, answers)

    def test_an_exchange_that_fails(self):
        import foundry
        self.push()
        path = self.new_store()
        with foundry.Store(path) as store:
            store.pull(f"{self.repository}:model")

        def exchange(_):
            raise ConnectionError("no network")
        with self.assertRaisesRegex(ConnectionError, "no network"):
            foundry.pin("model", store=path, rank=1, ranks=2, exchange=exchange)
        self.assertEqual(self.is_pinned(path), [False])
        with self.assertRaisesRegex(ValueError, "2 records of"):
            foundry.pin("model", store=path, rank=1, ranks=2, exchange=lambda record: [record])
        with self.assertRaisesRegex(foundry.Error, "rank 2 of 2 does not exist"):
            foundry.pin("model", store=path, rank=2, ranks=2, group="start")
        with self.assertRaisesRegex(foundry.Error, "ranks of a group need its name"):
            foundry.pin("model", store=path, rank=1, ranks=2)


if __name__ == "__main__":
    suite.main()
