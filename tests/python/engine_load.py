# SPDX-License-Identifier: Apache-2.0
"""Common parts of scripts that compare serving engines under load.

Each engine lives in a process of its own, which does what standard input says and prints the
results. The script lets the engines work in turns, and compares them.
"""
import argparse
import collections
import cProfile
import gc
import itertools
import json
import os
import pstats
import queue
import random
import statistics
import subprocess
import sys
import threading
import time

import engine_child
from engine_start import digest, model_in, nothing_done, notes

BATCHES = (1, 2, 7, 32, 100)
COLUMNS = ("tokens a second", "requests a second", "first token p50", "first token p99",
           "answer p50", "answer p99")
NAME = "load-test"  # of the image


def parser(limit):
    """Return a parser of the common options. limit: the default, in seconds."""
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=("plain", "first", "next"))
    p.add_argument("--model")
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--rate", type=float, default=150, help="requests a second")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--later", type=int, default=1, help="engines of the later start")
    p.add_argument("--limit", type=float, default=limit,
                   help="seconds, then an engine ends with a traceback")
    p.add_argument("--caches", help="the folder of all caches")
    return p


def request(rng, longest):
    """Return a prompt, how many tokens its answer has, and the seed of its sampling: None if it is
    greedy. Half of the prompts begin like others.
    """
    prompt = [rng.randrange(100000) for _ in range(rng.choice((3, 17, 60, 200, longest)))]
    if rng.random() < 0.5:
        prompt = [1000 * rng.randrange(4) + i for i in range(96)] + prompt
    greedy = rng.random() < 0.4
    return prompt, rng.randrange(8, 96), None if greedy else rng.randrange(1 << 30)


def batch(size):
    """Return the requests of a batch that arrives at once."""
    rng = random.Random(size)
    return [request(rng, 1200) for _ in range(size)]


def arrivals(seed, count, rate):
    """Yield (when it arrives, *request()) of `count` requests, at `rate` of them per unit of time
    on average.
    """
    rng, at = random.Random(seed), 0.0
    for _ in range(count):
        at += rng.expovariate(rate)
        yield at, *request(rng, 400)


def measured(served, took):
    """Return what a user would measure.

    served: for each request when it arrived, its first token and its last one came, in seconds, and
    the tokens. took: the seconds of all.
    """
    begin, first, last, tokens = zip(*served)
    wait = sorted(x - y for x, y in zip(first, begin))
    whole = sorted(x - y for x, y in zip(last, begin))
    return {"tokens a second": sum(map(len, tokens)) / took,
            "requests a second": len(served) / took,
            "first token p50": wait[len(wait) // 2] * 1e3,
            "first token p99": wait[len(wait) * 99 // 100] * 1e3,
            "answer p50": whole[len(whole) // 2] * 1e3,
            "answer p99": whole[len(whole) * 99 // 100] * 1e3,
            "answers": list(map(digest, tokens))}


def serve(began, does):
    """Do what standard input says, one name of `does` a line; each result is a line of JSON.

    began: when the engine began. does: {name: function of the number of the turn}.
    """
    def say(found):
        print("@" + json.dumps(found), flush=True)
    say({"engine": time.monotonic() - began, **notes()})
    for turn, line in enumerate(sys.stdin):
        say(does[line.strip()](turn))


class Child:
    """An engine in a process of its own.

    name: its mode, and a number. folder: of the model and the store. end: when the time is over.
    caches: the folder of all caches.
    """

    def __init__(self, name, folder, end, caches):
        self.name, self.end = name, end
        self.gate = os.path.join(folder, "gate") if name.startswith("next") else ""
        mode = name.partition(" ")[0]
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        self.process = subprocess.Popen(
            [sys.executable, *pre, os.path.abspath(sys.argv[0]), "--mode", mode, "--model",
             model_in(folder), "--caches", caches, *sys.argv[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
            env={**os.environ, "FOUNDRY_STORE": os.path.join(folder, "store"),
                 "ENGINE_START_GATE": self.gate})
        self.tail, self.results = collections.deque(maxlen=60), queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                self.results.put(json.loads(line[1:]))
                continue
            self.tail.append(line[:300].rstrip())
            if "Foundry: " in line and "; seconds:" in line:
                print(f"{self.name}: {line[:700]}", end="", flush=True)
        self.results.put({})  # it has ended

    def result(self):
        """Return its next result; nothing if it has ended, or if the time is over."""
        try:
            found = self.results.get(timeout=max(0, self.end - time.monotonic()))
        except queue.Empty:
            found = {}
            print(f"{self.name}: the time is over", flush=True)
        if not found:
            print("\n".join([f"--- the end of the log of {self.name}", *self.tail]), flush=True)
            self.tail.clear()
            self.results.put({})
        return found

    def open(self):
        """Let it begin its engine."""
        with open(self.gate, "w", encoding="utf-8"):
            pass

    def say(self, what):
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended

    def ask(self, what):
        self.say(what)
        return self.result()

    def kill(self):
        engine_child.end(self.process)

    def close(self):
        """Return whether it ends well."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has ended
        try:
            return self.process.wait(max(0, self.end - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()


def compare(answers):
    """Print how many answers to timed requests are equal in pairs of turns, from the fewest to the
    most, and how many of the first batches if the engines note them. Return whether all answers
    are equal.
    """
    for one, other in (*itertools.combinations(answers, 2), ("next 1", "next 1"),
                       ("plain 1", "plain 1")):
        pairs = list(itertools.combinations(answers[one], 2) if one == other else
                     itertools.product(answers[one], answers[other]))
        if not pairs:
            continue
        equal = sorted(sum(map(str.__eq__, x["answers"], y["answers"])) / len(x["answers"])
                       for x, y in pairs)
        print(f"{one} and {other}, {len(pairs)} pairs of turns: {100 * equal[0]:.1f} to "
              f"{100 * equal[-1]:.1f} % of the answers are equal", end="")
        batches = [[each.get("batches", []) for each in pair] for pair in pairs]
        if all(map(all, batches)):
            first = sorted(len(os.path.commonprefix(both)) for both in batches)
            whole = sum(x == y for x, y in batches)
            print(f", and the first {first[0]} to {first[-1]} batches, all of them in {whole}",
                  end="")
        print(flush=True)
    every = [each["answers"] for found in answers.values() for each in found]
    return bool(every) and all(each and each == every[0] for each in every)


def ratios(answers):
    """Print what an engine measured beside another of the same round, for each pair of engines, and
    later ones beside plain ones: medians of the ratios, with the least and the greatest.
    """
    def show(title, pairs, name):
        found = [x[name] / y[name] for pair in pairs
                 for x, y in zip(*(answers[each] for each in pair)) if x and y]
        if found:
            print(f"{title}: {name}: {statistics.median(found):.3f} "
                  f"({min(found):.3f} to {max(found):.3f})", flush=True)
    pairs = list(itertools.combinations(sorted(answers), 2))
    of_kinds = [pair for pair in pairs if "next" in pair[0] and "plain" in pair[1]]
    for name in COLUMNS:
        for pair in pairs:
            show(" / ".join(pair), [pair], name)
        show("each next / each plain", of_kinds, name)


class Cost:
    """What a process spends from now on."""

    def __init__(self):
        import torch
        self._torch, self._collecting, self._collections = torch, 0.0, 0
        gc.callbacks.append(self._collected)
        self._begin = self._now()

    def _now(self):
        device = self._torch.cuda.memory_stats()
        return [time.monotonic(), time.thread_time(), time.process_time(), self._collecting,
                self._collections, device["num_device_alloc"] + device["num_device_free"]]

    def _collected(self, phase, _info):
        if phase == "start":
            self._since = time.monotonic()
            return
        self._collecting += time.monotonic() - self._since
        self._collections += 1

    def of(self, steps):
        """Return {what: number}, the times in milliseconds a step."""
        *times, collections_, allocations = (now - then for now, then in zip(
            self._now(), self._begin))
        gc.callbacks.remove(self._collected)
        return {**{name: 1e3 * t / steps for name, t in zip(
            ("time", "processor, thread", "processor, all", "collections"), times)},
            "count of collections": collections_, "device allocations": allocations}


def in_turns(children, rounds):
    """Yield the engines in turns, in every second round in the other order."""
    for i in range(rounds):
        yield from children[::(-1) ** i]


def costs(found):
    """Print what a step of each engine costs in the median, and the ratios to the first engine of
    the same turn.

    found: {name: [Cost.of() or {}, for each turn]}.
    """
    first = next(iter(found.values()))
    for name, each in found.items():
        for what in next(filter(None, each), {}):
            numbers = [one[what] for one in each if one]
            ratios_ = sorted(one[what] / other[what] for one, other in zip(each, first)
                             if one and other and other[what])
            print(f"by steps, {name:8} {what:22} {statistics.median(numbers):10.3f} "
                  f"({min(numbers):.3f} to {max(numbers):.3f})", end="")
            if ratios_ and each is not first:
                print(f", ratio {statistics.median(ratios_):.3f} "
                      f"({ratios_[0]:.3f} to {ratios_[-1]:.3f})", end="")
            print(flush=True)


def profiled(does, turn):
    """Return {function: [calls, milliseconds in it alone]} of a turn."""
    profile = cProfile.Profile()
    profile.runcall(does, turn)
    return {f"{os.path.basename(os.path.dirname(file))}/{os.path.basename(file)}:{line} {name}":
            [calls, 1e3 * alone]
            for (file, line, name), (_, calls, alone, _, _) in pstats.Stats(profile).stats.items()}


def compare_profiles(found, rows=40):
    """Print the functions whose times differ most between the later start and the first plain one.

    found: {name of the engine: profiled()}.
    """
    one, other, third = (found[name] for name in ("next 1", "plain 1", "plain 2"))
    def at(profile, function):
        return profile.get(function, [0, 0.0])
    print(f"{'calls':>16} {'ms: next':>9} {'plain 1':>9} {'plain 2':>9}", flush=True)
    for function in sorted({*one, *other}, key=lambda f: -abs(at(one, f)[1] - at(other, f)[1]))[
            :rows]:
        print(f"{at(one, function)[0]:>8}{at(other, function)[0]:>8} "
              + " ".join(f"{at(p, function)[1]:>9.1f}" for p in (one, other, third)), function)
    print(f"{'':16} " + " ".join(f"{sum(ms for _, ms in p.values()):>9.1f}"
                                 for p in (one, other, third)), "all", flush=True)


def turns(children, rounds, invariant):
    """Let the engines serve timed requests in turns, in every second round in the other order.
    Return whether each turn was served and, if answers do not depend on batches (invariant),
    whether all are equal.
    """
    print(f"{'':8} " + " ".join(f"{name:>16}" for name in COLUMNS), flush=True)
    answers = {child.name: [] for child in children}
    for child in in_turns(children, rounds):
        found = child.ask("timed")
        if found:
            numbers = " ".join(f"{found.get(name, 0):>16.1f}" for name in COLUMNS)
            print(f"{child.name:8} {numbers}", flush=True)
        answers[child.name].append(found)
    ratios(answers)
    answers = {name: list(filter(None, found)) for name, found in answers.items()}
    same = compare(answers)
    return [*(len(found) == rounds for found in answers.values()), same or not invariant]


def whole(begin, then, zero=None, later=1):
    """Start all engines, and let them answer what arrives at once; then go on with those of two
    plain starts and of `later` later ones. Return what is as it should be, as a list.

    begin: a function of a name that makes a Child. then: a function of all but the first start,
    which returns a list of the same kind. zero: the names of what a later start does not count;
    None: all.
    """
    names = ["first", "plain 1", "next 1", "plain 2"]
    children = [begin(name) for name in names + [f"next {i + 2}" for i in range(later - 1)]]
    first, loading = children[0], [child for child in children if child.gate]
    try:
        noted, at_once = {}, {}
        for child in children:
            if child not in loading:
                noted[child.name] = child.result()
                child.say("at once")
        at_once["first"] = first.result()
        ended = first.close()
        loading[0].open()  # they wait for the same file
        for child in loading:
            noted[child.name] = child.result()
            child.say("at once")
        for child in children[1:]:
            at_once[child.name] = child.result()
        for name, each in noted.items():
            print(name, json.dumps(each), flush=True)
        for name, each in at_once.items():
            print(f"at once, {name}: {each}", flush=True)
        good = then(children[1:])
        closed = [child.close() for child in children[1:]]
    finally:
        for child in children:
            child.kill()
    return [ended, *closed, *good, *(bool(each) and each == at_once["plain 1"]
                                     for each in at_once.values()),
            *(nothing_done(noted[child.name], zero) for child in loading)]
