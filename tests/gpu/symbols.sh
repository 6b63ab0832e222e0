#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The interposer's list of symbols has all that this machine's driver exports. With the interposer
# in place, a program cannot link to a function that the list lacks, and dlsym() does not find it.
. "$(dirname "$0")/../lib.sh"

nvidia-smi -L >/dev/null 2>&1 || t_skip "no GPU"

# The driver that the interposer has found is the other libcuda that the process has mapped.
cat >find.py <<'END'
import ctypes
import foundry
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
for line in open("/proc/self/maps"):
    path = line.split()[-1]
    if "libcuda.so" in path and "/foundry/hook/" not in path:
        print(path)
        break
END
driver=$(python3 find.py)
nm -D --defined-only "$driver" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
	LC_ALL=C sort -u >exports
LC_ALL=C sort "$ROOT/hook/symbols.list" >list

# Debuggers look their variables up in the driver itself.
missing() { grep '^cu[A-Z]' exports | LC_ALL=C comm -23 - list; }

# cuGetProcAddress finds all functions, also those that the list lacks.
cat >ask.py <<'END'
import ctypes
import sys
import foundry
cuda, real = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
version, bad, found = ctypes.c_int(), [], 0
cuda.cuInit(0)
cuda.cuDriverGetVersion(ctypes.byref(version))
for name in open("exports").read().split():
    got = []
    for lib in cuda, real:
        p, status = ctypes.c_void_p(), ctypes.c_int()
        result = lib.cuGetProcAddress_v2(name.encode(), ctypes.byref(p), version,
                                         ctypes.c_uint64(0), ctypes.byref(status))
        got.append((result, status.value, bool(p)))
    found += got[0][2]
    if got[0] != got[1]:
        bad.append(name)
print(*bad)
sys.exit(bool(bad) or found < 300)
END

t "the driver was found" test -s exports
echo "$driver: $(wc -l <exports) symbols; not in the list: $(missing | xargs)"
t "the list has every function that the driver exports" prints "" missing
t "cuGetProcAddress finds what the driver's own finds" python3 ask.py "$driver"
t_done
