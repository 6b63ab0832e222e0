# SPDX-License-Identifier: Apache-2.0
"""Draw what run.py measured: time to the first graph and to all of them, by their number.

    plot.py bench-gpu.json start.svg

Needs matplotlib.
"""
import io
import json
import statistics
import sys

import matplotlib
matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "foundry"  # the same figures, the same bytes
from matplotlib import pyplot  # noqa: E402


def main():
    with open(sys.argv[1], encoding="ascii") as f:
        start = json.load(f)["start"]
    counts = [int(n) for n in start if n.isdigit()]
    native = [start["native"][f"native_{n}"] for n in counts]

    def median(name):
        return [statistics.median(start[str(n)][name]) for n in counts]
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for label, ms, style in (
            ("native PyTorch: warm-up, capture, first launches", [sum(v) for v in native], "s-"),
            ("native PyTorch: capture and first launches alone", [v[1] + v[2] for v in native],
             "s--"),
            ("image: every graph built", median("all_launchable"), "o-"),
            ("the driver's own calls for these kernels and nodes",
             [k + g for k, g in zip(median("floor_kernels"), median("floor_graphs"))], "k:"),
            ("image: first graph launched", median("first_launched"), "o--")):
        axes.plot(counts, ms, style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="graphs", ylabel="milliseconds", xticks=counts,
             xticklabels=counts)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, metadata={"Date": None})
    with open(sys.argv[2], "w", encoding="utf-8") as f:  # paths have blanks at their lines' ends
        f.writelines(line.rstrip() + "\n" for line in text.getvalue().splitlines())


if __name__ == "__main__":
    main()
