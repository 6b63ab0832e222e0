# SPDX-License-Identifier: Apache-2.0
"""Tests of counters and gauges in Python, and of the text for scrapers, which a separate parser
reads.
"""
import os
import tempfile
import unittest

import prometheus
import suite
import foundry
from foundry import telemetry

LAUNCHES = 'foundry_launches_total{of="image"}'


class Parser(unittest.TestCase):
    """Tests the parser: one that accepted everything would prove nothing."""

    def test_wrong_text_is_refused(self):
        good = '# HELP a_total x\n# TYPE a_total counter\na_total{k="v"} 1\n'
        self.assertEqual(prometheus.parse(good), {("a_total", (("k", "v"),)): 1})
        for bad in (good[:-1], good.replace("counter", "gauge"), good.replace("a_total", "a"),
                    good + good, good.replace("# HELP a_total x\n", ""), good.replace('"v"', 'v'),
                    good.replace('"v"', '"v"w"'), good.replace('"v"', '"v\\x"'),
                    good + 'a_total{k="v"} 2\n', good + "b 1\n", good.replace(" 1", " one"),
                    good.replace("a_total", "a_ms_total"), good + "\n"):
            with self.assertRaises(ValueError, msg=bad):
                prometheus.parse(bad)


class Telemetry(unittest.TestCase):
    def test_snapshot_and_text_agree(self):
        with self.assertRaises(foundry.Error):
            foundry.Store("/nowhere/at/all")
        snapshot, text = telemetry.snapshot(), prometheus.parse(telemetry.text())
        self.assertEqual(len(snapshot), len(text))
        for (name, labels), value in text.items():
            key = name + ("{%s}" % ",".join(f'{k}="{v}"' for k, v in labels) if labels else "")
            self.assertEqual(snapshot[key], value, key)
        self.assertEqual(snapshot[LAUNCHES], 0)
        self.assertIsInstance(snapshot["foundry_load_seconds_total"], float)

    def test_errors_are_counted_by_blame_and_reset(self):
        telemetry.reset()
        for _ in range(3):
            with self.assertRaises(foundry.Error):
                foundry.Store("/nowhere/at/all")
        with self.assertRaises(foundry.Error):
            foundry.check_variables("NO_SUCH")
        found = {k: v for k, v in telemetry.snapshot().items()
                 if k.startswith("foundry_errors_total") and v}
        self.assertEqual(found, {'foundry_errors_total{blame="store"}': 3,
                                 'foundry_errors_total{blame="caller"}': 1})
        telemetry.reset()
        self.assertFalse(any(v for k, v in telemetry.snapshot().items() if k.endswith("_total")
                             or "_total{" in k))

    def test_gauges_of_a_store_with_its_path_escaped(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'a "quoted\\ one\nof two lines')
            with foundry.Store(path, create=True) as store:
                found = prometheus.parse(telemetry.text(store))
            with self.assertRaisesRegex(ValueError, "the store is closed"):
                telemetry.text(store)
        self.assertEqual(found["foundry_store_refs", (("store", path),)], 0)
        self.assertEqual(found["foundry_store_objects", (("kind", "kernel"), ("store", path))], 0)
        self.assertGreater(found["foundry_store_file_bytes", (("store", path),)], 0)


if __name__ == "__main__":
    suite.main()
