# SPDX-License-Identifier: Apache-2.0
"""python -m foundry: run programs under the interposer; report what would work here."""
import os
import signal
import subprocess
import sys

from . import _lib
from ._lib import Error
from .activate import environment
from .doctor import doctor

USAGE = """\
usage: python -m foundry run [--driver PATH] [--log LEVEL]
                             (SCRIPT | -m MODULE | -c CODE) [ARGUMENT...]
       python -m foundry doctor [--json]
       python -m foundry --version

run   starts Python with the interposer for libcuda.so.1 in place (LD_PRELOAD), so that the program
      may import torch before foundry; so may every program and worker that it starts
      --driver PATH   the driver behind it (FOUNDRY_DRIVER)
      --log LEVEL     error, warn, info or debug messages on standard error (FOUNDRY_LOG)

doctor   tries what a load and a capture need, and each way to put the interposer in place, and
         reports what works here; its status is 0 if everything that is needed works, else 1
         --json          one JSON document

foundry-store, another command of this package, maintains the store: foundry-store --help
"""
HELP = ("-h", "--help")
VARIABLES = {"--driver": "FOUNDRY_DRIVER", "--log": "FOUNDRY_LOG"}


class Usage(Exception):
    """The command line is not valid."""


def split(args):
    """The options in front of the program, as variables, and the program with its arguments."""
    found = {}
    while args and args[0] not in ("-", "-m", "-c") and args[0].startswith("-"):
        name, equals, value = args.pop(0).partition("=")
        if name not in VARIABLES:
            raise Usage(f"run has no option {name}")
        if not equals:
            if not args:
                raise Usage(f"{name} needs a value")
            value = args.pop(0)
        found[VARIABLES[name]] = value
    if not args or args[0] in ("-m", "-c") and len(args) < 2:
        raise Usage("run needs a program: a script, -m module or -c code")
    return found, args


def python_options():
    """The options of this Python in front of "-m foundry"."""
    if not hasattr(sys, "orig_argv"):  # before Python 3.10: as multiprocessing passes them on
        return subprocess._args_from_interpreter_flags()
    before = sys.orig_argv[1:len(sys.orig_argv) - len(sys.argv) + 1]
    if before and before[-1] == "foundry":
        before.pop()
    else:
        before[-1] = before[-1].removesuffix("foundry")
    last = before.pop().removesuffix("m")
    return before + [last] * (last != "-")


def run(args):
    """Replace this process by the program. Returns only if that fails."""
    variables, program = split(args)
    os.execve(sys.executable, [sys.executable, *python_options(), *program],
              environment({**os.environ, **variables}))


def examine(args):
    """Print what works here. Returns the exit status."""
    if args not in ([], ["--json"]):
        raise Usage("doctor takes no arguments but --json")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends it, as it ends other tools
    return 0 if doctor(as_json=bool(args)) else 1


COMMANDS = {"run": run, "doctor": examine}


def main(args):
    """The exit status of one command."""
    if not args or args[0] in (*HELP, "help") or args[0] in COMMANDS and args[1:2] and (
            args[1] in HELP):
        print(USAGE, end="")
        return 0 if args else 2
    try:
        if args[0] == "--version":
            print(f"foundry {_lib.lib.fdry_version().decode()}")
            return 0
        if args[0] not in COMMANDS:
            raise Usage(f"there is no command {args[0]}")
        return COMMANDS[args[0]](args[1:])
    except Usage as e:
        print(f"python -m foundry: {e}\n{USAGE}", end="", file=sys.stderr)
        return 2
    except (Error, ImportError, ValueError, OSError) as e:
        print(f"python -m foundry: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
