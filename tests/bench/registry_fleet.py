#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""registry_fleet.py - simulates many hosts that start at once from one registry.

Discrete events, computed from a seed: the same options print the same table. A registry or a cache
sends to its clients at equal rates; its link or its processors limit the sum, and a client's link,
or the rate at which a pull stores, limits each. An image is cut into blocks, which a host fetches
one after the other. A cache fetches a block from above when the first of its hosts asks for it.

The defaults of --cpu, --pull, --first and --together come from tests/bench/registry.py; measure
them on machines of yours.
"""
import argparse
import heapq
import random
import sys

GIB = 1 << 30


class Events:
    """Calls in the order of their times."""

    def __init__(self):
        self.now, self.heap, self.count = 0.0, [], 0

    def at(self, time, call):
        self.count += 1
        heapq.heappush(self.heap, (time, self.count, call))

    def run(self):
        while self.heap:
            self.now, _, call = heapq.heappop(self.heap)
            call()


class Link:
    """Transfers that share @total bytes a second equally; none gets more than @each.

    @work is the number of bytes that each of them has got since the beginning, so a transfer ends
    when it has grown by its size.
    """

    def __init__(self, events, total, each):
        self.events, self.total, self.each = events, total, each
        self.work, self.since, self.heap, self.count, self.turn = 0.0, 0.0, [], 0, 0
        self.sent = 0

    def rate(self):
        return min(self.each, self.total / len(self.heap))

    def update(self):
        if self.heap:
            self.work += self.rate() * (self.events.now - self.since)
        self.since = self.events.now

    def plan(self):
        self.turn += 1
        if self.heap:
            turn = self.turn
            left = max(self.heap[0][0] - self.work, 0) / self.rate()
            self.events.at(self.events.now + left, lambda: self.end(turn))

    def end(self, turn):
        if turn != self.turn:
            return  # Others have joined or left since.
        self.update()
        done = heapq.heappop(self.heap)
        self.plan()
        done[2]()

    def send(self, size, call):
        self.update()
        self.count += 1
        self.sent += size
        heapq.heappush(self.heap, (self.work + size, self.count, call))
        self.plan()


class Origin:
    def __init__(self, events, total, each):
        self.link = Link(events, total, each)

    def get(self, _block, size, call):
        self.link.send(size, call)


class Cache:
    """@factor: bytes that it fetches from above for each byte of a block."""

    def __init__(self, events, total, each, above, factor):
        self.link, self.above, self.factor = Link(events, total, each), above, factor
        self.there, self.waiting = set(), {}

    def get(self, block, size, call):
        if block in self.there:
            self.link.send(size, call)
        elif block in self.waiting:
            self.waiting[block].append(call)
        else:
            self.waiting[block] = [call]
            self.above.get(block, size * self.factor, lambda: self.arrived(block, size))

    def arrived(self, block, size):
        self.there.add(block)
        for call in self.waiting.pop(block):
            self.link.send(size, call)


class Host:
    def __init__(self, events, a, above, ends):
        self.events, self.a, self.above, self.ends = events, a, above, ends
        self.block, self.then = 0, []

    def start(self):
        if self.block < self.a.blocks:
            self.block += 1
            self.above.get(self.block, self.a.image * GIB / self.a.blocks, self.start)
            return
        self.ends.append(self.events.now + self.a.launch)
        for call in self.then:
            call()


def rate(gbit, cores, a):
    """Bytes a second of a registry's link or processors."""
    return min(gbit * 1e9 / 8, cores / a.cpu * GIB)


def simulate(a, caches, sites, factor, first):
    """The seconds until each host can launch, and the bytes that left the origin.

    @caches, @sites: numbers of caches, and of caches above those; @first: one host of each cache
    before the others.
    """
    events, ends, rng = Events(), [], random.Random(a.seed)
    host_each = min(a.host_gbit * 1e9 / 8, a.pull * (1 << 20))
    up = a.up_gbit * 1e9 / 8
    origin = Origin(events, rate(a.origin_gbit, a.origin_cores, a), up if caches else host_each)
    tier = [origin]
    if sites:
        tier = [Cache(events, rate(a.origin_gbit, a.origin_cores, a), up, origin, 1)
                for _ in range(sites)]
    if caches:
        tier = [Cache(events, rate(a.cache_gbit, a.cache_cores, a), host_each,
                      tier[i % len(tier)], factor) for i in range(caches)]
    leaders = {}
    for i in range(a.hosts):
        above = tier[i % len(tier)]
        host = Host(events, a, above, ends)
        delay = rng.random() * a.spread
        leader = leaders.setdefault(above, host)
        if first and leader is not host:
            leader.then.append(lambda h=host, d=delay: events.at(events.now + d, h.start))
        else:
            events.at(delay, host.start)
    events.run()
    return sorted(ends), origin.link.sent


def show(a, title, *how):
    ends, sent = simulate(a, *how)
    n = len(ends)
    print(f"{title:44} {sent / GIB / a.image:9.0f} {sent / (1 << 40):8.2f} {ends[n // 2]:8.0f} "
          f"{ends[n * 99 // 100]:8.0f} {ends[-1]:8.0f}")
    sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value, text in (
            ("hosts", 10000, "hosts that start at once"),
            ("per-cache", 40, "hosts behind one cache"),
            ("per-site", 1000, "hosts behind one cache of caches"),
            ("image", 16.0, "GiB of the image"),
            ("blocks", 32, "pieces in which the simulation moves it"),
            ("origin-gbit", 40.0, "link of the registry, and of the cache of a site"),
            ("origin-cores", 32.0, "processors of each of those"),
            ("up-gbit", 25.0, "link of a cache to above"),
            ("cache-gbit", 25.0, "link of a cache to its hosts"),
            ("cache-cores", 16.0, "processors of a cache"),
            ("host-gbit", 10.0, "link of a host"),
            ("pull", 300.0, "MiB a second that a pull stores at most"),
            ("cpu", 2.6, "processor seconds of a registry for a GiB that it sends"),
            ("first", 2.0, "images that a cache fetches for its first host"),
            ("together", 1.7, "images that an empty cache fetches for each of many hosts"),
            ("spread", 5.0, "seconds in which the hosts start"),
            ("launch", 1.0, "seconds from the last byte to the first launch"),
            ("seed", 1, "of the random numbers")):
        p.add_argument("--" + name, type=type(value), default=value, help=text)
    a = p.parse_args()
    caches, sites = -(-a.hosts // a.per_cache), -(-a.hosts // a.per_site)
    print(f"{a.hosts} hosts, an image of {a.image:g} GiB, {caches} caches, {sites} sites\n"
          f"{'':44} {'images':>9} {'TiB':>8} {'seconds until hosts can launch':>26}\n"
          f"{'':44} {'from the origin':>18} {'half':>8} {'99 %':>8} {'all':>8}")
    show(a, "no cache", 0, 0, 1, False)
    show(a, "caches, empty, all hosts at once", caches, 0, a.together * a.per_cache, False)
    show(a, "caches, empty, one host of each first", caches, 0, a.first, True)
    show(a, "caches that fetch once, all hosts at once", caches, 0, 1, False)
    show(a, "the same, behind a cache of each site", caches, sites, 1, False)


main()
