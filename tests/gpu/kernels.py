# SPDX-License-Identifier: Apache-2.0
"""Tests kernels without graphs on a GPU: real PTX, real NVRTC, and a second process that loads
without compiling.

The script does not use PyTorch. Each part runs, also after failures of others, and prints its
findings. The script prints two tables: the times of a first and a second process with one store,
and the cost of a function from memory beside cuModuleGetFunction.
"""
import ctypes
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import PTR, SIZE, U64, call, context_set, driver  # noqa: E402

os.environ["CUDA_CACHE_DISABLE"] = "1"  # otherwise the driver's own cache would find the code
N = 1000
ROUNDS = 20000

CUDA = """
extern "C" __global__ void scale(float *x, float by, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] = x[i] * by;
}
"""
# Many kernels of one shape, so that the compiler's time is visible.
CUDA_LARGE = CUDA + "".join(f"""
extern "C" __global__ void work{k}(float *x, int n)
{{
	float a = x[threadIdx.x];
	#pragma unroll
	for (int i = 0; i < 32; i++)
		a = a * {k + 1}.0f + __expf(a) * n;
	x[threadIdx.x] = a;
}}
""" for k in range(12))

PTX = """.version 8.0
.target {target}
.address_size 64

.visible .entry scale(.param .u64 p_x, .param .f32 p_by, .param .u32 p_n)
{{
	.reg .pred %p<2>;
	.reg .f32 %f<4>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p_x];
	ld.param.f32 %f1, [p_by];
	ld.param.u32 %r1, [p_n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.s32 %p1, %r5, %r1;
	@%p1 bra DONE;
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.s32 %rd3, %r5, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.f32 %f2, [%rd4];
	mul.f32 %f3, %f2, %f1;
	st.global.f32 [%rd4], %f3;
DONE:
	ret;
}}
"""


def check_scale(kernel):
    """Launches the kernel, in the device's own context, and compares its results."""
    context_set()
    address, numbers = U64(), (ctypes.c_float * N)(*range(N))
    call("cuMemAlloc_v2", ctypes.byref(address), SIZE(4 * N))
    call("cuMemcpyHtoD_v2", address, numbers, SIZE(4 * N))
    kernel.launch((N + 127) // 128, 128, [address, ctypes.c_float(3), ctypes.c_int(N)])
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", numbers, address, SIZE(4 * N))
    call("cuMemFree_v2", address)
    assert list(numbers) == [3.0 * i for i in range(N)], list(numbers)[:8]


def nvrtc():
    """Returns the NVRTC of the dynamic linker, the toolkit or a Python package, or None."""
    places = ["libnvrtc.so.13", "libnvrtc.so.12",
              *glob.glob("/usr/local/cuda*/lib64/libnvrtc.so.1[23]")]
    for folder in sys.path:
        places += glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.1[23]"))
    for place in places:
        try:
            ctypes.CDLL(place)
            return place
        except OSError:
            pass
    return None


# --- parts, each in a process of its own ---

def use(store_path, what):
    """Runs in one process: gets a function of `what` from the store or a compiler, and prints the
    time.
    """
    import foundry
    start = time.perf_counter()
    with foundry.Store(store_path, create=True) as store, \
            foundry.Kernels(store, nvrtc=nvrtc()) as kernels:
        opened = time.perf_counter()
        how = {"source": True} if what.startswith("cuda") else {}
        code = {"ptx": PTX.format(target="sm_80"), "cuda": CUDA, "cuda-large": CUDA_LARGE}[what]
        function = kernels.function(code, "scale", **how)
        got = time.perf_counter()
        check_scale(function)
        stats = kernels.stats()
        print(json.dumps({"open": 1e3 * (opened - start), "get": 1e3 * (got - opened),
                          "compilations": stats.ptx_compilations +
                          stats.source_compilations, **stats._asdict()}))


def pair(store, what):
    rows = []
    for turn in ("first", "second"):
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "use", store, what],
                              capture_output=True, text=True,
                              check=False, timeout=60)
        assert done.returncode == 0, done.stderr[-2000:]
        row = json.loads(done.stdout.splitlines()[-1])
        print(f"  {what:10} {turn:6} get {row['get']:9.2f} ms  compile {row['compile_ms']:9.2f}  "
              f"store {row['store_ms']:7.2f}  load "
              f"{row['load_ms']:7.2f}  compilations {row['compilations']}  {row['bytes']} bytes",
              flush=True)
        rows.append(row)
    assert rows[0]["compilations"] >= 1 and rows[0]["store_saves"] == 1, rows[0]
    assert rows[1]["compilations"] == 0 and rows[1]["store_hits"] == 1, rows[1]


def refused(kernels, says, code, **how):
    import foundry
    try:
        kernels.function(code, "scale", **how)
    except foundry.Error as e:
        print(f"  {e.name}: {e}", flush=True)
        assert all(word in str(e) for word in says), f"it does not say {says}"
        return e
    raise AssertionError("it was not refused")


def errors():
    import foundry
    with foundry.Kernels() as kernels:
        target = kernels.target()
        print(f"  target {target}", flush=True)
        broken = PTX.format(target="sm_80").replace("mul.f32 %f3, %f2, %f1;", "mull.f32 %f3, %f2;")
        assert refused(kernels, ["broken.ptx", "line"], broken,
                       name="broken.ptx").name == "FDRY_E_COMPILE"
        log = kernels.log()
        print(f"  the whole log:\n{log}", flush=True)
        assert "mull" in log or "error" in log.lower(), log
        refused(kernels, ["sm_999", target.arch], PTX.format(target="sm_999"))
        refused(kernels, ["exactly", "sm_80a"], PTX.format(target="sm_80a"))
        newer = PTX.format(target="sm_80").replace(".version 8.0", ".version 99.0")
        refused(kernels, ["99.0", f"{target.driver // 1000}.{target.driver % 1000 // 10}"], newer)
        # Code for the target that target() returns can be loaded.
        highest = PTX.format(target=target.exact or target.arch).replace(
            ".version 8.0", f".version {target.ptx // 10}.{target.ptx % 10}")
        check_scale(kernels.function(highest, "scale"))
        function = kernels.function(PTX.format(target="sm_80"), "scale",
                                    options=["-O1", "--maxrregcount=32"])
        check_scale(function)
        for args in ([], [ctypes.c_uint64(), ctypes.c_double(), ctypes.c_int()]):
            try:
                function.launch(1, 1, args)
                raise AssertionError("wrong arguments were taken")
            except foundry.Error as e:
                print(f"  {e}", flush=True)
        try:
            function.launch(1 << 24, 128, [ctypes.c_uint64(), ctypes.c_float(), ctypes.c_int()],
                            cooperative=True)
            raise AssertionError("a cooperative grid that does not fit was taken")
        except foundry.Error as e:
            print(f"  {e}", flush=True)
            assert "holds" in str(e)


def errors_of_source():
    import foundry
    with foundry.Kernels(nvrtc=nvrtc()) as kernels:
        e = refused(kernels, ["bad.cu", "error"], CUDA.replace("int i =", "in t ="), source=True,
                    name="bad.cu")
        assert e.name == "FDRY_E_COMPILE"
        for how in ({"target": kernels.target().exact}, {"target": "compute_80"},
                    {"options": ["--use_fast_math", "-DX=1"]}):
            if how.get("target") != "":
                check_scale(kernels.function(CUDA, "scale", source=True, **how))
        print(f"  {kernels.stats()}", flush=True)


def ahead():
    import foundry
    with foundry.Kernels(nvrtc=nvrtc()) as kernels:
        codes = [foundry.Code(CUDA_LARGE, source=True, options=[f"-DX={i}"]) for i in range(4)]
        start = time.perf_counter()
        kernels.prepare([(code, "scale") for code in codes], threads=4)
        returned = time.perf_counter() - start
        kernels.wait()
        ready = time.perf_counter() - start
        start = time.perf_counter()
        check_scale(kernels.function(codes[3], "scale"))
        print(f"  4 sources on 4 threads: returned in {1e3 * returned:.2f} ms, ready in "
              f"{1e3 * ready:.1f}; spent compiling "
              f"{kernels.stats().compile_ms:.1f}; first use "
              f"{1e3 * (time.perf_counter() - start):.2f}", flush=True)
        assert kernels.stats().source_compilations == 4


def costs():
    """Measures both through ctypes, so that the difference is the library's. tests/bench/gpu
    measures without ctypes.
    """
    import foundry
    from foundry import _lib
    context_set()
    cuda = driver()
    with foundry.Kernels() as kernels:
        code = foundry.Code(PTX.format(target="sm_80"))
        handle = kernels.function(code, "scale").handle
        module, function = PTR(), PTR()
        call("cuFuncGetModule", ctypes.byref(module), PTR(handle))
        key = _lib.KernelsKey((ctypes.c_ubyte * 32)(*kernels.key(code)))
        ways = {
            "cuModuleGetFunction": lambda: cuda.cuModuleGetFunction(ctypes.byref(function), module,
                                                                    b"scale"),
            "fdry_kernels_find": lambda: _lib.lib.fdry_kernels_find(kernels._handle,
                                                                    ctypes.byref(key), b"scale",
                                                                    ctypes.byref(function)),
            "fdry_kernels_function": lambda: _lib.lib.fdry_kernels_function(
                kernels._handle, ctypes.byref(code.raw), b"scale", ctypes.byref(function)),
        }
        for name, way in ways.items():
            start = time.perf_counter()
            for _ in range(ROUNDS):
                way()
            print(f"  {name:22} {1e9 * (time.perf_counter() - start) / ROUNDS:8.0f} ns, ctypes "
                  f"included", flush=True)


def start():
    """Returns 77 if there is no GPU."""
    import foundry
    try:
        foundry.Kernels().close()
    except foundry.Error as e:
        print(e)
        sys.exit(77 if e.name in ("FDRY_E_NODRIVER", "FDRY_E_NOGPU") else 1)


PARTS = {"errors": errors, "errors-of-source": errors_of_source, "ahead": ahead, "costs": costs,
         "start": start}


def part(title, *arguments):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *arguments], check=False,
                          timeout=60)
    print(f"{'ok' if done.returncode == 0 else 'NOT OK'}: {title}", flush=True)
    return done.returncode == 0


def tried(title, function, *arguments):
    try:
        function(*arguments)
        good = True
    except Exception:
        traceback.print_exc(file=sys.stdout)
        good = False
    print(f"{'ok' if good else 'NOT OK'}: {title}", flush=True)
    return good


def main():
    begun = subprocess.run([sys.executable, os.path.abspath(__file__), "start"], check=False,
                           capture_output=True, text=True)
    if begun.returncode == 77:
        parts.skip("no GPU")
    print(begun.stdout + begun.stderr, end="")
    print(f"NVRTC: {nvrtc()}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        whats = ["ptx"] + (["cuda", "cuda-large"] if nvrtc() else [])
        for what in whats:
            results.append(tried(f"{what}: the second process does not compile", pair, store, what))
    results.append(part("PTX that is refused, and what is taken", "errors"))
    if nvrtc():
        results.append(part("source that is refused, targets", "errors-of-source"))
        results.append(part("ahead", "ahead"))
    results.append(part("costs", "costs"))
    parts.finish(results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["use"]:
        use(*sys.argv[2:])
    elif len(sys.argv) == 2:
        PARTS[sys.argv[1]]()
    else:
        main()
