# SPDX-License-Identifier: Apache-2.0
"""Prints what a package that is installed requires, one requirement a line, as pip reads it.

    required.py PACKAGE [alone]

Leaves out packages that only a GPU needs, and which are large or compiled at installation. With
"alone", prints those whose Python files are needed, but not what they require themselves.
"""
import importlib.metadata
import re
import sys

from packaging.requirements import Requirement

LEFT_OUT = re.compile(
    "cuda-|nvidia-(?!ml-py)|flashinfer-cubin|flash-attn|fastsafetensors|humming-kernels|"
    "pynvvideocodec|quack-kernels|runai|sgl-deep-gemm|sglang-kernel|smg-grpc|tilelang|"
    "tokenspeed|torchaudio|torchcodec")
ALONE = ("flashinfer-python",)


def name_of(requirement):
    return re.sub("[-_.]+", "-", requirement.name).lower()


def main():
    package, alone = sys.argv[1], sys.argv[2:] == ["alone"]
    for requirement in map(Requirement, importlib.metadata.requires(package) or ()):
        name = name_of(requirement)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if alone != (name in ALONE) or LEFT_OUT.match(name):
            continue
        requirement.marker = None
        requirement.extras = set() if alone else requirement.extras
        print(requirement)


if __name__ == "__main__":
    main()
