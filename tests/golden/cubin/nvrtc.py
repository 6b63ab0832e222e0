# SPDX-License-Identifier: Apache-2.0
"""Compile a file with NVRTC: nvrtc.py FILE ARCH OUTPUT."""
import ctypes
import os
import sys

lib = ctypes.CDLL(os.environ.get("NVRTC", "libnvrtc.so.13"))


def check(result):
    if result:
        raise SystemExit(f"NVRTC failed: {result}")


program, size = ctypes.c_void_p(), ctypes.c_size_t()
with open(sys.argv[1], "rb") as source:
    check(lib.nvrtcCreateProgram(ctypes.byref(program), source.read(), b"vars.cu", 0, None, None))
options = (ctypes.c_char_p * 1)(f"-arch={sys.argv[2]}".encode())
check(lib.nvrtcCompileProgram(program, 1, options))
check(lib.nvrtcGetCUBINSize(program, ctypes.byref(size)))
cubin = ctypes.create_string_buffer(size.value)
check(lib.nvrtcGetCUBIN(program, cubin))
with open(sys.argv[3], "wb") as output:
    output.write(cubin.raw)
