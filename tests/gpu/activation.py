# SPDX-License-Identifier: Apache-2.0
"""Tests captures of PyTorch under every activation, in every kind of process, and loads in another
process.

Further tests: beside the workers of a DataLoader, in a process that was forked too late, which must
get an error, and after libcuda was loaded first.
"""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:3], os.environ.get("PYTHONPATH", "")])

FEED = """\
import sys
import torch
import payload_torch

if __name__ == "__main__":
    how, store, ref = sys.argv[1:]
    torch.zeros(1, device="cuda")  # CUDA is started before the workers fork
    torch.cuda.empty_cache()  # and no native memory is left for the capture
    loader = torch.utils.data.DataLoader(payload_torch.Numbers(), batch_size=4, num_workers=2,
       pin_memory=True,
                                         multiprocessing_context=how)
    payload_torch.work(store, ref, loader)
"""

FORKED = """\
import os
import foundry
import torch
capture = foundry.Capture()
x = torch.zeros(8, device="cuda")
pid = os.fork()
if pid:
    status = os.waitpid(pid, 0)[1]
    capture.end()
    sys.exit(os.waitstatus_to_exitcode(status))
names = []
for call in (lambda: capture.fact("a", "b"), lambda: capture.offset, lambda: capture.pause(),
         foundry.Capture):
    try:
        call()
        names.append("worked")
    except foundry.Error as e:
        names.append(e.name)
capture.end()
print(names, flush=True)
os._exit(set(names) != {"FDRY_E_FORKED"})
"""

LATE = """\
import torch
torch.zeros(1, device="cuda")
import foundry
try:
    foundry.Capture()
except foundry.Error as e:
    print(e)
    raise SystemExit(e.name != "FDRY_E_LATE")
raise SystemExit("a capture began")
"""


def python(*args, **variables):
    """Runs Python and returns its output and status."""
    done = subprocess.run([sys.executable, *args], env={**os.environ, **variables},
                          capture_output=True, text=True,
                          timeout=60, check=False)
    return done.stdout + done.stderr, done.returncode


class Activation(unittest.TestCase):
    def setUp(self):
        self.began = time.monotonic()

    def tearDown(self):
        print(f"{self.id()}: {time.monotonic() - self.began:.1f} s", flush=True)

    def test_every_way_in_every_place(self):
        import ways
        cases = [(way, place) for way in ("first", "run") for place in ways.PLACES]
        cases += [("preload", "main"), ("path", "main"), ("path", "fork")]
        with tempfile.TemporaryDirectory() as folder:
            wrong = ways.matrix("payload_torch", folder, cases, jobs=7)
        self.assertEqual(wrong, {})

    def test_beside_a_data_loader(self):
        with tempfile.TemporaryDirectory() as folder:
            store, feed = os.path.join(folder, "store"), os.path.join(folder, "feed.py")
            with open(feed, "w", encoding="ascii") as f:
                f.write(FEED)
            hows = ["fork", "spawn", "forkserver"]
            with concurrent.futures.ThreadPoolExecutor() as pool:
                said = pool.map(lambda how: python("-m", "foundry", "run", feed, how, store, how),
                                hows)
            for how, (text, status) in zip(hows, said):
                self.assertEqual(status, 0, f"{how}: {text}")
            text, status = python("-c", f"import ways\nwrong = ways.load({store!r}, {hows})\n"
                                        "raise SystemExit(str(wrong) if wrong else 0)")
            self.assertEqual(status, 0, text)

    def test_doctor(self):
        text, status = python("-m", "foundry", "doctor")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"(?m)^ok +torch .*CUDA works$")
        print(text)

    def test_forked_too_late(self):
        text, status = python("-c", "import sys\n" + FORKED)
        self.assertEqual(status, 0, text)

    def test_libcuda_was_first(self):
        text, status = python("-c", LATE)
        self.assertEqual(status, 0, text)
        self.assertIn("was loaded before the interposer", text)


def main():
    parts.need()
    import suite
    suite.main()


if __name__ == "__main__":
    main()
