# SPDX-License-Identifier: Apache-2.0
"""Compile a kernel with Triton, without a GPU: triton_axpy.py OUTPUT."""
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def axpy(x, y, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y + i, a * tl.load(x + i, mask) + tl.load(y + i, mask), mask)


signature = {"x": "*fp32", "y": "*fp32", "a": "fp32", "n": "i32", "BLOCK": "constexpr"}
source = ASTSource(axpy, signature=signature, constexprs={"BLOCK": 256})
with open(sys.argv[1], "wb") as output:
    output.write(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"])
