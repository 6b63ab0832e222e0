# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel, as PEP 517 asks for it: with make, tar and zip alone. pip fetches one package
to build, CUDA's headers, and only if make finds no cuda.h: .ci/setup could not fetch them itself,
because an isolated build has no pip.

Settings (pip install --config-settings NAME=VALUE .):

    build   a folder that make has filled: its libraries are taken as they are, and nothing is built
    make    arguments for make, such as CUDA_HOME=/opt/cuda

What is packed decides the wheel's tag: manylinux with the glibc version that the libraries ask for
where they need nothing but glibc, else linux, which promises nothing: the other libraries must be
on the machine then.
"""
import base64
import gzip
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build-wheel")
PACKAGE = os.path.join(ROOT, "api", "python", "foundry")

# In the wheel: from the build folder. Both names of the interposer; of the software driver the one
# that FOUNDRY_DRIVER names.
LIBRARIES = {
    "foundry/lib/libfoundry.so.0.2": "libfoundry.so.0.2",
    "foundry/lib/libfoundry-registry.so.0.2": "libfoundry-registry.so.0.2",
    "foundry/lib/foundry/hook/libcuda.so.1": "foundry/hook/libcuda.so.1",
    "foundry/lib/foundry/hook/libcuda.so": "foundry/hook/libcuda.so",
    "foundry/lib/foundry/sim/libcuda.so.1": "foundry/sim/libcuda.so.1",
}
PROGRAM = "foundry-store"

# e_machine of ELF files, by the names that wheels have for it
MACHINES = {62: "x86_64", 183: "aarch64"}

# vLLM and SGLang find their plug-ins by these groups of entry points.
ENTRY_POINTS = ("[vllm.general_plugins]\nfoundry = foundry.vllm:register\n\n"
                "[sglang.srt.plugins]\nfoundry = foundry.sglang:register\n")
# Python reads this when it starts. If a variable is set, the interposer is in place before a
# program imports torch, in every process of an engine.
PTH = ('import os; all(os.environ.get(name, "0") in ("", "0") for name in '
       '("FOUNDRY_VLLM", "FOUNDRY_SGLANG")) or __import__("foundry")\n')


def value_in(path, pattern):
    """What stands in a file of the tree, so that it stands there alone."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return re.search(pattern, f.read(), re.M).group(1)


def version():
    return value_in("GNUmakefile", r"^VERSION := (\S+)$")


def headers_package():
    """The requirement that set-up, too, takes CUDA's headers from."""
    return value_in(".ci/setup", r"^cuda_wheel='([^']+)'")


def make(settings, *arguments, stdout=None):
    """Run make on the wheel's build folder; give what it prints, unless a file for it is given."""
    command = ["make", "-s", "--no-print-directory", "-C", ROOT,
               *shlex.split(settings.get("make", "")), f"BUILD={BUILD}", *arguments]
    try:
        return subprocess.run(command, stdout=stdout or subprocess.PIPE, check=True).stdout
    except FileNotFoundError:
        raise SystemExit("foundry is built with make, which is not installed (on Debian and "
                         "Ubuntu: apt-get install make)") from None
    except subprocess.CalledProcessError:
        raise SystemExit(f"foundry's libraries could not be built: {shlex.join(command)}") from None


def lacks_headers(settings):
    """Whether make finds no cuda.h."""
    return not make(settings, "cuda-home").strip()


def take_headers():
    """Copy the headers that pip has brought for this build to where set-up puts those that it
    fetches."""
    name = re.match(r"[\w-]+", headers_package()).group()
    try:
        files = importlib.metadata.files(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return  # Without build isolation there may be none; set-up fetches them then.
    include = next((f.locate().parent for f in files if f.match("include/cuda.h")), None)
    if not include:
        raise SystemExit(f"the package {name} has no include/cuda.h")
    tmp, to = os.path.join(BUILD, "cuda.tmp"), os.path.join(BUILD, "cuda", "include")
    for folder in (tmp, to):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(include, tmp)
    os.renames(tmp, to)


def built(settings):
    """The folder with libraries and programs, made now unless the settings name one."""
    if settings.get("build"):
        return os.path.abspath(settings["build"])
    if lacks_headers(settings):
        take_headers()
    # Standard output is pip's.
    make(settings, f"-j{os.cpu_count() or 1}", "all", stdout=sys.stderr)
    return BUILD


def read_built(path, folder, strip):
    """The bytes of a built file; without what only debuggers read if @strip, and if there is a
    strip."""
    if strip and shutil.which("strip"):
        copy = os.path.join(folder, path.replace(os.sep, "_"))
        shutil.copyfile(path, copy)
        subprocess.run(["strip", "--strip-unneeded", copy], check=True)
        path = copy
    with open(path, "rb") as f:
        return f.read()


def needed(data):
    """What an ELF file of 64 bits needs, as in DT_NEEDED."""
    def word(at, size):
        return int.from_bytes(data[at:at + size], "little")

    segments = [word(32, 8) + i * word(54, 2) for i in range(word(56, 2))]
    loads = [(word(at + 16, 8), word(at + 8, 8), word(at + 32, 8)) for at in segments
             if word(at, 4) == 1]
    dynamic = next(word(at + 8, 8) for at in segments if word(at, 4) == 2)
    entries = []
    while word(dynamic, 8):
        entries.append((word(dynamic, 8), word(dynamic + 8, 8)))
        dynamic += 16
    strings = dict(entries)[5]
    strings = next(strings - addr + offset for addr, offset, size in loads
                   if addr <= strings < addr + size)
    return [data[strings + at:data.index(b"\0", strings + at)].decode() for tag, at in entries
            if tag == 1]


def platform_tag(files):
    """manylinux_2_NN_ARCH or linux_ARCH."""
    arch = MACHINES[int.from_bytes(files[0][18:20], "little")]
    others = {n for data in files for n in needed(data)
              if not re.match(r"(lib(c|m|dl|pthread|rt)|ld-linux.*|libcuda)\.so", n)}
    if others:
        return f"linux_{arch}"
    minor = max(int(m) for data in files for m in re.findall(rb"GLIBC_2\.([0-9]+)", data))
    return f"manylinux_2_{minor}_{arch}"


def metadata():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    return (f"Metadata-Version: 2.1\nName: foundry\nVersion: {version()}\n"
            "Summary: Seals captured GPU work as an image and loads it by hash\n"
            "License: Apache-2.0\n"
            "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + readme)


class Wheel:
    """Files of a wheel with their hashes. Equal contents give equal bytes: no time of day is in
    it."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, executable=False):
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name)
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info):
        record = f"{info}/RECORD"
        self.add(record, "\n".join([*self.record, f"{record},,", ""]))
        self.zip.close()


def package_files():
    """The files of the package, as paths in it."""
    found = []
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = [d for d in folders if d != "__pycache__"]
        found += [os.path.relpath(os.path.join(folder, name), PACKAGE) for name in names
                  if name.endswith((".py", ".pyi")) or name == "py.typed"]
    return sorted(found)


def get_requires_for_build_wheel(config_settings=None):
    settings = config_settings or {}
    return [headers_package()] if not settings.get("build") and lacks_headers(settings) else []


def shared_data():
    """What a wheel puts under the environment's share/: {path there: bytes}."""
    found = {}
    for name, source in (("man/man1/foundry-store.1", "Documentation/man/foundry-store.1"),
                         ("bash-completion/completions/foundry-store",
                          "api/cmd/completion.bash"),
                         ("zsh/site-functions/_foundry-store", "api/cmd/completion.zsh"),
                         ("fish/vendor_completions.d/foundry-store.fish",
                          "api/cmd/completion.fish")):
        with open(os.path.join(ROOT, source), "rb") as f:
            found[f"share/{name}"] = f.read()
    return found


def pack(wheel_directory, folder, libraries=LIBRARIES, strip=True, info=None):
    """Pack what make has built in @folder, and the files @info ({name: bytes}) beside the
    metadata. Returns the wheel's name."""
    with tempfile.TemporaryDirectory() as tmp:
        packed = {name: read_built(os.path.join(folder, source), tmp, strip)
                  for name, source in libraries.items()}
        program = read_built(os.path.join(folder, PROGRAM), tmp, strip)
    stem = f"foundry-{version()}"
    tag = f"py3-none-{platform_tag([*packed.values(), program])}"
    file = f"{stem}-{tag}.whl"
    wheel = Wheel(os.path.join(wheel_directory, file))
    for name in package_files():
        with open(os.path.join(PACKAGE, name), "rb") as f:
            wheel.add(f"foundry/{name}", f.read())
    wheel.add("foundry_engines.pth", PTH)
    for name, data in packed.items():
        wheel.add(name, data, executable=True)
    wheel.add(f"{stem}.data/scripts/{PROGRAM}", program, executable=True)
    for name, data in shared_data().items():
        wheel.add(f"{stem}.data/data/{name}", data)
    metadata_folder = f"{stem}.dist-info"
    wheel.add(f"{metadata_folder}/METADATA", metadata())
    wheel.add(f"{metadata_folder}/entry_points.txt", ENTRY_POINTS)
    wheel.add(f"{metadata_folder}/WHEEL", "Wheel-Version: 1.0\nGenerator: foundry\n"
              f"Root-Is-Purelib: false\nTag: {tag}\n")
    with open(os.path.join(ROOT, "LICENSE"), "rb") as f:
        wheel.add(f"{metadata_folder}/LICENSE", f.read())
    for name, data in (info or {}).items():
        wheel.add(f"{metadata_folder}/{name}", data)
    wheel.close(metadata_folder)
    return file


def install_engines(folder):
    """Write the files by which engines find the package, as the wheel has them, for `make install`.

    A wheel's installer would write a RECORD, too; without it, pip leaves the package alone.
    """
    info = os.path.join(folder, f"foundry-{version()}.dist-info")
    os.makedirs(info, exist_ok=True)
    for path, text in ((os.path.join(folder, "foundry_engines.pth"), PTH),
                       (os.path.join(info, "METADATA"), metadata()),
                       (os.path.join(info, "entry_points.txt"), ENTRY_POINTS)):
        with open(path, "w", encoding="utf-8") as f:
            os.fchmod(f.fileno(), 0o644)
            f.write(text)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return pack(wheel_directory, built(config_settings or {}))


def sources():
    """The tree's files, without what was made."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(d for d in folders if d not in (".git", "__pycache__", "build")
                            and not d.startswith("build-"))
        for name in sorted(set(names) - {".git"}):  # in a worktree it is a file
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def build_sdist(sdist_directory, config_settings=None):
    """Equal files give equal bytes: no owner and no time of day is in it."""
    stem = f"foundry-{version()}"
    path = os.path.join(sdist_directory, stem + ".tar.gz")

    def anonymous(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.mode & 0o100 else 0o644
        return info

    with tempfile.TemporaryDirectory() as tmp, open(path, "wb") as f, \
            gzip.GzipFile("", "wb", fileobj=f, mtime=0) as zipped, \
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = os.path.join(tmp, "PKG-INFO")
        with open(info, "w", encoding="utf-8") as out:
            out.write(metadata())
        tar.add(info, f"{stem}/PKG-INFO", filter=anonymous)
        for name in sources():
            tar.add(os.path.join(ROOT, name), f"{stem}/{name}", filter=anonymous)
    return stem + ".tar.gz"
