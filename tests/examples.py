#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples.py check PAGE... | run [-g] PAGE - the examples of the documentation.

A page is reStructuredText, with `.. code-block:: LANGUAGE` and the options :caption: and :class:,
or Markdown, with fences, and a line `<!-- FILE CLASS -->` above a fence in place of the options. A
block with a caption is a file of that name. Others of shell and Python are run. A block of class
`output` is what the block above prints; `...` stands for any text. The other classes:

    gpu      needs a GPU and torch: run with -g alone
    engine   needs vLLM or SGLang with a model: never run
    shown    a part of something, a choice, or a command that needs a network: never run

check: each block of C, Python and shell is correct syntax, whatever its class; C that is a part of
a program is not checked. run: one shell runs the blocks of the page in their order, in the current
folder.
"""
import os
import re
import subprocess
import sys
import tempfile

CLASSES = {"gpu", "engine", "shown", "output"}
SHELL = ("sh", "bash", "console")


class Block:
    def __init__(self, page, line, language, text, name, classes):
        self.page, self.line, self.language, self.text = page, line, language, text
        self.name, self.classes = name, set(classes.split())
        unknown = self.classes - CLASSES
        if unknown:
            raise SystemExit(f"{self}: there is no class {', '.join(unknown)}")

    def __str__(self):
        return f"{self.page}:{self.line}"


def of_rst(page, lines):
    at = 0
    while at < len(lines):
        found = re.match(r"( *)\.\. code-block:: (\w+)$", lines[at])
        at += 1
        if not found:
            continue
        start, options, body = at, {}, []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith(found[1] + "   ")):
            option = re.match(r" *:(\w+): (.*)", lines[at])
            if option and not body:
                options[option[1]] = option[2]
            elif body or lines[at].strip():
                body.append(lines[at][len(found[1]) + 3:])
            at += 1
        yield Block(page, start, found[2], "\n".join(body).rstrip() + "\n", options.get("caption"),
                    options.get("class", ""))


def of_markdown(page, lines):
    for start, line in enumerate(lines):
        if not re.match(r"```\w", line):
            continue
        end = lines.index("```", start)
        told = re.match(r"<!-- (.*) -->", lines[start - 1])
        words = told[1].split() if told else []
        names = [word for word in words if word not in CLASSES]
        yield Block(page, start + 1, line[3:], "\n".join(lines[start + 1:end]) + "\n",
                    names[0] if names else None, " ".join(w for w in words if w in CLASSES))


def blocks(page):
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    return list((of_markdown if page.endswith(".md") else of_rst)(page, lines))


def wrong(block):
    """What is wrong with the syntax of a block, or ""."""
    if block.language == "python":
        try:
            compile(block.text, str(block), "exec")
        except SyntaxError as error:
            return f"{block}: {error}"
    elif block.language in SHELL:
        done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
        return f"{block}: {done.stderr}" if done.returncode else ""
    elif block.language == "c" and "int main(" in block.text:
        flags = [f"-I{path}" for path in ("include", os.environ.get("CUDA_INC", "")) if path]
        done = subprocess.run([os.environ.get("CC", "cc"), "-fsyntax-only", "-Wall", "-Wextra",
                               *flags, "-x", "c", "-"], input=block.text, text=True,
                              capture_output=True)
        return f"{block}: {done.stderr}" if done.stderr else ""
    return ""


def like(want, got):
    """Whether a text is what the page shows, with `...` for any text."""
    pattern = ".*?".join(re.escape(part) for part in want.strip().split("..."))
    return re.fullmatch(pattern, got.strip(), re.S)


BEGIN = """set -e
exec 3>&1 4>&2 </dev/null
trap 'rc=$?; exec >&3 2>&4; [ $rc = 0 ] || { echo "$at, status $rc:"; cat "$out"; }' EXIT
"""


def run(page, gpu):
    """Runs a page; returns the number of faults."""
    skip = {"engine", "shown", *(() if gpu else ("gpu",))}
    script, shown, last, count = BEGIN, [], None, 0
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(page):
            if "output" in block.classes:
                shown += [(last, block)] if last else []
                continue
            last = None
            if block.classes & skip:
                continue
            if block.name:
                script += f"cat >'{block.name}' <<'THE END'\n{block.text}THE END\n"
            elif block.language in (*SHELL, "python"):
                last = os.path.join(folder, str(block.line))
                command = block.text if block.language in SHELL else \
                    f"python3 - <<'THE END'\n{block.text}THE END\n"
                script += f"at='{block}' out='{last}'\nexec >'{last}' 2>&1\n{command}" \
                    "exec >&3 2>&4\n"
                count += 1
        faults = int(subprocess.run(["bash", "-c", script]).returncode != 0)
        for path, block in shown if not faults else ():
            with open(path, encoding="utf-8") as file:
                got = file.read()
            if not like(block.text, got):
                faults += 1
                print(f"{block}: the page shows\n{block.text}\nand the commands printed\n{got}")
    print(f"{page}: {count} block(s) of commands run, {len(shown)} output(s) compared")
    return faults


def main(how, *arguments):
    if how == "run":
        sys.exit(1 if run(arguments[-1], "-g" in arguments) else 0)
    found = [(block, wrong(block)) for page in arguments for block in blocks(page)]
    for _, fault in found:
        print(fault, end="")
    checked = sum(block.language in (*SHELL, "python", "c") for block, _ in found)
    print(f"{checked} blocks", file=sys.stderr)
    sys.exit(1 if any(fault for _, fault in found) else 0)


main(*sys.argv[1:])
