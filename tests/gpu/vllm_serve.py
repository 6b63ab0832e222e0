#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with a plain, a first and a later start: times until it answers, and its answers.

    python3 tests/gpu/vllm_serve.py [--mode3]

The plain and the first start run side by side. Each server gets the same requests over HTTP: one by
one, and all at once. All starts give the same answers to the former. With --mode3, vLLM compiles
the model, its default, but Inductor chooses its kernels without measuring them.
"""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = ("import vllm_start, sys; sys.argv[0] = 'vllm'; "
           "from vllm.entrypoints.cli.main import main; main()")
LIMIT = 150
MODE0 = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
MODE3 = {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE",
         "inductor_compile_config": vllm_start.UNMEASURED}


def tokenizer(folder, size):
    """Write a tokenizer with a word for each number."""
    words = {f"w{i}": i for i in range(size)}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                   "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                   "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0",
                   "eos_token": "w1", "model_max_length": 2048}, f)


class Server:
    """A server in a process of its own."""

    def __init__(self, name, mode, folder, compilation):
        self.name, self.began = name, time.monotonic()
        self.path = os.path.join(folder, name + ".log")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{s.getsockname()[1]}"
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        program = os.path.join(folder, "serve.py")
        with open(program, "w", encoding="utf-8") as f:
            f.write("if __name__ == '__main__':\n    " + PROGRAM + "\n")
        env = {**vllm_start.SETTINGS, **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
               "FOUNDRY_STORE": os.path.join(folder, "store"), "VLLM_USE_V2_MODEL_RUNNER": "1",
               "FOUNDRY_VLLM": "" if mode == "plain" else "serve"}
        env.update(vllm_start.cache_folders(os.path.join(folder, "caches")))
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, *pre, program, "serve", vllm_start.model_in(folder),
                 "--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "2048",
                 "--max-num-seqs", "32", "--gpu-memory-utilization", "0.1",
                 "--kv-cache-memory-bytes", str(4 << 30), "--attention-backend", "FLASH_ATTN",
                 "--seed", "0", "--no-enable-prefix-caching",
                 "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2],
                 "--compilation-config", json.dumps(compilation)],
                stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)

    def log(self):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def get(self, path, data=None):
        asked = urllib.request.Request(self.url + path, json.dumps(data).encode() if data else None,
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def wait(self):
        """Wait until it is ready. Returns the seconds, or None if it is not."""
        while self.process.poll() is None and time.monotonic() - self.began < LIMIT:
            try:
                self.get("/health")
                return time.monotonic() - self.began
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        return None

    def ask(self, prompt):
        found = self.get("/v1/completions", {
            "model": self.model(), "prompt": prompt, "max_tokens": 32, "temperature": 0.7,
            "seed": 5, "ignore_eos": True, "logprobs": 2, "return_token_ids": True})
        choice = found["choices"][0]
        return [choice.get("token_ids"), choice["text"], choice["logprobs"]["token_logprobs"]]

    def model(self):
        return self.process.args[self.process.args.index("serve") + 1]

    def end(self):
        """End the server's own group of processes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def serve(name, mode, folder, compilation):
    """One server: what it answers, one by one, and whether its log has Foundry's line."""
    server = Server(name, mode, folder, compilation)
    try:
        ready = server.wait()
        if ready is None:
            print("\n".join(line[:300] for line in server.log().splitlines()[-40:]), flush=True)
            return [], ""
        prompts = [[(17 * i + 13 * j) % 150000 for j in range(5 + 11 * i)] for i in range(9)]
        begin = time.monotonic()
        server.ask([1, 2, 3])
        first = time.monotonic() - begin
        alone = [server.ask(prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            begin = time.monotonic()
            list(pool.map(server.ask, prompts * 8))
            many = time.monotonic() - begin
        print(f"{name}: ready after {ready:.2f} s, first answer {first:.3f} s, 72 requests at once "
              f"{many:.2f} s, answers {vllm_start.digest(alone)}, {len(set(map(str, alone)))} "
              "different", flush=True)
    finally:
        server.end()
    said = "".join(line[line.index("Foundry: "):] for line in server.log().splitlines()
                   if "Foundry: " in line and "; seconds:" in line)
    print(f"{name}: {said[:500]}", flush=True)
    return alone, said


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import parts
    parts.need("vllm")
    compilation = MODE0
    if "--mode3" in sys.argv[1:]:
        compilation = MODE3
        os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"
    vllm_start.plug_in()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, vllm_start.QWEN3)
        tokenizer(vllm_start.model_in(folder), vllm_start.QWEN3["vocab_size"])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            plain, first = (pool.submit(serve, mode, mode, folder, compilation)
                            for mode in ("plain", "first"))
            (plain, _), (first, sealed) = plain.result(), first.result()
        later, loaded = serve("next", "next", folder, compilation)
    parts.finish([bool(plain), plain == first, plain == later, "captured and sealed" in sealed,
                  "loaded" in loaded, len(set(map(str, plain))) > 1])


if __name__ == "__main__":
    main()
