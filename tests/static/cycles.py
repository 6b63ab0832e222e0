# SPDX-License-Identifier: Apache-2.0
"""cycles.py OBJECTS-FOLDER LAYER... - prints which files need each other, by the symbols of their
objects.

A line "up: FILE -> FILE: SYMBOL" is printed for each symbol that a layer uses from a layer above
it. A line "cycle: FILE FILE..." is printed for each group of files of one folder that need each
other in a circle. The LAYERs are in order, the lowest first; layers joined by "|" are on one level
and may not use each other.
"""
import glob
import os
import subprocess
import sys

# Programs and the software driver are not linked into the library.
APART = ("arch/sim/", "api/cmd/", "api/examples/")


def symbols(files, *flags):
    """Returns {file: the symbols of Foundry that nm lists for it}"""
    found = {path: set() for path in files}
    for line in subprocess.run(["nm", "-A", *flags, *files], capture_output=True, text=True,
                               check=True).stdout.splitlines():
        path, _, rest = line.partition(":")
        name = rest.split()[-1]
        if name.startswith("fdry_"):
            found[path].add(name)
    return found


def components(edges):
    """Returns groups of nodes that reach each other (Tarjan's algorithm, without recursion)."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in sorted(edges):
        work = [(root, None)] if root not in index else []
        while work:
            node, rest = work.pop()
            if rest is None:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
                rest = iter(sorted(edges[node]))
            for to in rest:
                if to not in index:
                    work += [(node, rest), (to, None)]
                    break
                if to in on:
                    low[node] = min(low[node], low[to])
            else:
                if low[node] == index[node]:
                    group = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    on.difference_update(group)
                    found.append(sorted(group))
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
    return [group for group in found if len(group) > 1]


def main(folder, layers):
    level = {name: i for i, names in enumerate(layers) for name in names.split("|")}
    sources = [path for name in level for path in sorted(glob.glob(name + "/**/*.c",
                                                                   recursive=True))]
    short = {os.path.join(folder, path[:-2] + ".o"): path for path in sources
             if not path.startswith(APART)}
    files = list(short)
    home = {symbol: path for path, names in symbols(files, "-g", "--defined-only").items()
            for symbol in names}
    needs = symbols(files, "-u")
    edges = {path: set() for path in files}
    for path in sorted(files):
        for symbol in sorted(needs[path]):
            to = home.get(symbol)
            if not to:
                continue
            mine, other = (short[p].split("/")[0] for p in (path, to))
            if level[other] > level[mine] or level[other] == level[mine] and other != mine:
                print(f"up: {short[path]} -> {short[to]}: {symbol}")
            if mine == other:
                edges[path].add(to)
    for group in sorted(components(edges), key=lambda g: short[g[0]]):
        print("cycle:", *(short[p] for p in group))


main(sys.argv[1], sys.argv[2:])
