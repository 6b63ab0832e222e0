# SPDX-License-Identifier: Apache-2.0
"""Tests that data common to several models is stored once: three models, each at two sets of batch
sizes, in one store.

The models are those of second_model.py, in different shapes, with weights in the images. Each is
captured in a process of its own at the same time, and sealed one after the other. The script prints
the objects that each added, by kind, and those that existed already. It also captures the first
model again with its weights at other addresses, which adds no weights, and once more unchanged, to
show differences between processes. Each model is sealed twice in its process, which adds nothing
and gives the same id.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

SHAPES = {"qwen3_moe": {"hidden_size": 768},
          "llama": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2}}
SETS = {"small": (1, 2, 4, 8), "large": (1, 3, 8, 32)}
# The seals in their order: model, batch sizes, bytes that are allocated before the model is made.
IMAGES = [(family, name, 0) for family in ("qwen3", "qwen3_moe", "llama") for name in SETS]
IMAGES += [("qwen3", "small", 3 << 20), ("qwen3", "small", 0)]
NOTES = {6: "weights elsewhere", 7: "as the first"}
KINDS = ("kernel", "graph", "chunk")  # and a manifest each


def capture(store, family, batches, pad):
    """Captures, prints that, waits for a line, and seals twice."""
    import foundry
    import second_model
    import torch
    second_model.SHAPES, second_model.BATCHES = SHAPES, SETS[batches]
    second_model.LAYERS = SHAPES.get(family, {}).get("num_hidden_layers", second_model.LAYERS)
    with foundry.Capture() as cap:
        before = torch.full((int(pad) or 1,), 1, dtype=torch.uint8, device="cuda")
        d = second_model.decoder_of(family)
        stream = torch.cuda.Stream()
        d.warm_up(sorted(second_model.BATCHES, reverse=True), stream)
        torch.cuda.empty_cache()
        logits = {}
        for batch in sorted(second_model.BATCHES, reverse=True):
            with cap.graph(batch, stream=stream):
                logits[batch] = d.step(batch)
        second_model.name_state(cap, d, logits)
        for name, p in d.model.named_parameters():
            cap.tensor("weight/" + name, p, use="const")
        print("captured", flush=True)
        ref = sys.stdin.readline().strip()
        first = cap.seal(foundry.Store(store), ref)
        weights = sum(p.nbytes for p in d.model.parameters())
        print("sealed", json.dumps({"id": first.id, "weights": weights}), flush=True)
        sys.stdin.readline()
        again = cap.seal(foundry.Store(store), ref + "/again")
        print("sealed", json.dumps({"id": again.id, "new": again.objects_new,
                                    "stored": again.stored_new}), flush=True)
    del before


def said(process, what):
    """Returns the process' next output after the word, or None if it ended."""
    for line in process.stdout:
        if line.split()[:1] == [what]:
            return line[len(what):].strip() or "{}"
    return None


def send_line(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()


def command(store, *args):
    """Returns the JSON of a foundry-store command."""
    out = subprocess.run([os.path.join(parts.BUILD, "foundry-store"), "-s", store, "--json", *args],
                         stdout=subprocess.PIPE,
                         text=True, check=True).stdout
    return json.loads(out)


def objects(store):
    return {o["id"]: o for o in command(store, "ls", "--objects")["objects"]}


def table_head():
    print(f"{'':34s}" + "".join(f"{k + 's: new':>14s}{'at rest':>12s}{'shared':>8s}{'at rest':>12s}"
                                for k in KINDS), flush=True)


def table_row(title, new, reaches):
    """Returns a row with, by kind, the number and bytes of new objects, and those of objects that
    existed already.
    """
    row = {}
    for kind in KINDS:
        mine = [o for o in new if o["kind"] == kind]
        stored = sum(o["stored"] for o in mine)
        row[kind] = (len(mine), stored, reaches[kind]["objects"] - len(mine),
                     reaches[kind]["stored"] - stored)
    print(f"{title:34s}" + "".join("{:14d}{:12,d}{:8d}{:12,d}".format(*row[k]) for k in KINDS),
          flush=True)
    return row


def seal(process, store, ref, title):
    """Seals twice. Returns the row of the first seal, the bytes of the model's weights, and whether
    the second seal was the same.
    """
    before = objects(store)
    send_line(process, ref)
    first = json.loads(said(process, "sealed") or "null")
    after = objects(store)
    send_line(process, "")
    again = json.loads(said(process, "sealed") or "null")
    process.stdin.close()
    if process.wait() or not again:
        return None, False
    row = table_row(title, [o for i, o in after.items() if i not in before],
                    command(store, "show", first["id"])["reaches"])
    row["weights"] = first["weights"]
    same = again["id"] == first["id"] and again["new"] == 0 and again["stored"] == 0 and \
        len(objects(store)) == len(after)
    return row, same


def judge(rows):
    """Checks the sharing that any hardware must show."""
    def has_weights(i):  # norms are small, and share chunks with adjacent memory
        return rows[i]["chunk"][3] > 0.95 * rows[i]["weights"]

    return {"a second set of batch sizes adds no weights": all(has_weights(i) for i in (1, 3, 5)),
            "and shares kernels": all(rows[i]["kernel"][2] > 0 for i in (1, 3, 5)),
            "other models share kernels": rows[2]["kernel"][2] > 0 and rows[4]["kernel"][2] > 0,
            "and no weights": not has_weights(2) and not has_weights(4),
            "weights elsewhere in memory are stored once": has_weights(6),
            "the same in another process adds no kernels, and no weights": rows[7]["kernel"][0] == 0
            and has_weights(7)}


def differences(store):
    """Prints the differences between two processes' images of the same work."""
    done = subprocess.run([os.path.join(parts.BUILD, "foundry-store"), "-s", store, "diff",
                           "image-0", "image-7"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print("\nimages of two processes:", *done.stdout.splitlines()[:24], sep="\n  ", flush=True)
    return done.returncode == (command(store, "show", "image-0")["id"]
                               != command(store, "show", "image-7")["id"])


def run(store):
    processes = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "capture", store,
                                   *map(str, image)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for image in IMAGES]
    captured = [said(p, "captured") is not None for p in processes]
    if not all(captured):
        return captured
    rows, results = [], []
    table_head()
    for i, (process, image) in enumerate(zip(processes, IMAGES)):
        title = f"{image[0]}, {','.join(map(str, SETS[image[1]]))}" + (
            f", {NOTES[i]}" if i in NOTES else "")
        row, same = seal(process, store, f"image-{i}", title)
        rows.append(row)
        results.append(same)
    print(f"sealed again in the same process, nothing added and the same id: {results}", flush=True)
    if None in rows:
        return results
    judged = judge(rows)
    for what, good in judged.items():
        print(f"{'ok' if good else 'NOT'}: {what}", flush=True)
    verified = subprocess.run([os.path.join(parts.BUILD, "foundry-store"), "-s", store, "-q",
                               "verify"], check=False).returncode == 0
    return results + list(judged.values()) + [differences(store), verified]


def whole():
    parts.need("transformers")
    import foundry
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        foundry.Store(store, create=True).close()
        return run(store)


if __name__ == "__main__":
    parts.main((capture,), whole)
