# SPDX-License-Identifier: Apache-2.0
"""Builds the portable wheel: `make dist`. Documentation/design/packaging.rst says what is in it.

    dist.py FOLDER [ARCHITECTURE...]    x86_64 and aarch64 unless named

The wheel needs only glibc 2.28 or later. LMDB, zstd, lz4 and libcrypto are linked into the library
from the sources that sources.list pins by hash; zig's C compiler links for the old glibc and for
the other architecture. FOLDER gets sources/, one folder per architecture, and dist/ with the wheels
and the source archive. It needs a network only to fill sources/.
"""
import hashlib
import html.parser
import os
import shutil
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request

import backend

GLIBC = "2.28"
ROOT = backend.ROOT
# The files of each archive that are compiled, and the folder with its headers
PARTS = {
    "lmdb": ("lib", ["lib/mdb.c", "lib/midl.c"]),
    "zstandard": ("zstd", ["zstd/zstd.c"]),
    "lz4": ("lz4libs", ["lz4libs/lz4.c"]),
}
# awscrt carries AWS-LC, a libcrypto that is built as it is in the archive.
CRYPTO = "crt/aws-lc"
# The client of registries needs libcurl, which no archive of the package index carries.
LIBRARIES = {name: file for name, file in backend.LIBRARIES.items()
             if not file.startswith("libfoundry-registry")}
LICENSES = {"lmdb": "LICENSE", "zstandard": "zstd/LICENSE", "lz4": "LICENSE",
            "awscrt": CRYPTO + "/LICENSE"}
# Every function in a section of its own: the linker leaves out what nobody calls, most of
# libcrypto. zig compiles with checks for undefined behaviour unless told not to.
FLAGS = ["-O2", "-fPIC", "-DNDEBUG", "-fno-sanitize=undefined", "-ffunction-sections",
         "-fdata-sections"]


def pinned():
    """The lines of sources.list as {name: (file, sha256)}."""
    with open(os.path.join(ROOT, "api", "packaging", "sources.list"), encoding="utf-8") as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {name: (file, sha256) for name, file, sha256 in lines}


# --- fetching ---


class Links(html.parser.HTMLParser):
    """The addresses on an index page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href"]


def index_url():
    """The package index that pip is configured to use."""
    setting = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                             capture_output=True, text=True, check=False).stdout.strip()
    if os.environ.get("PIP_INDEX_URL") or setting:
        return os.environ.get("PIP_INDEX_URL") or setting
    from pip._internal.models.index import PyPI
    return PyPI.simple_url


def read_url(url):
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    with urllib.request.urlopen(url, timeout=180, context=context) as answer:
        return answer.read()


def fetch(name, file, sha256, folder):
    """The archive's path. It is fetched unless the folder has it."""
    path = os.path.join(folder, file)
    if not os.path.exists(path):
        page = f"{index_url().rstrip('/')}/{name}/"
        links = Links()
        links.feed(read_url(page).decode())
        link = next((a for a in links.found
                     if urllib.parse.urlparse(a).path.endswith("/" + file)), None)
        if not link:
            raise SystemExit(f"dist: the package index has no {file}")
        data = read_url(urllib.parse.urljoin(page, link))
        with open(path + ".tmp", "wb") as f:
            f.write(data)
        os.rename(path + ".tmp", path)
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    if found != sha256:
        raise SystemExit(f"dist: {path} has the SHA-256 {found}, not {sha256} as sources.list says")
    return path


def unpack(path, into):
    """The folder of an unpacked archive: its own top folder, or @into for a wheel."""
    wheel = path.endswith(".whl")
    if not os.path.exists(into):
        shutil.unpack_archive(path, into + ".tmp", "zip" if wheel else "gztar")
        os.rename(into + ".tmp", into)
    return into if wheel else os.path.join(into, os.path.basename(path)[:-len(".tar.gz")])


def fetch_all(folder):
    """{name: folder of the unpacked archive}"""
    os.makedirs(folder, exist_ok=True)
    return {name: unpack(fetch(name, file, sha256, folder), os.path.join(folder, name))
            for name, (file, sha256) in pinned().items()}


# --- building ---


def run(command, log, **more):
    """Run a command; its output goes to a file, and to the terminal if it fails."""
    with open(log, "ab") as f:
        if not subprocess.run(command, stdout=f, stderr=f, check=False, **more).returncode:
            return
    with open(log, encoding="utf-8", errors="replace") as f:
        sys.stderr.writelines(f.readlines()[-30:])
    raise SystemExit(f"dist: {command[0]} failed; {log} has its output")


class Build:
    """One architecture's libraries, in a folder of its own."""

    def __init__(self, top, sources, arch):
        self.top, self.sources, self.arch = top, sources, arch
        self.folder = os.path.join(top, arch)
        self.log = os.path.join(self.folder, "log")
        os.makedirs(self.folder, exist_ok=True)
        zig = os.path.join(sources["ziglang"], "ziglang", "zig")
        os.chmod(zig, 0o755)
        self.cc, self.cxx, self.ar, self.ranlib = (
            self.script(name, zig, arguments) for name, arguments in (
                ("cc", f"cc -target {arch}-linux-gnu.{GLIBC}"),
                ("c++", f"c++ -target {arch}-linux-gnu.{GLIBC}"), ("ar", "ar"),
                ("ranlib", "ranlib")))

    def script(self, name, zig, arguments):
        """cmake and make take a compiler as one word. No path of this machine enters a file."""
        path = os.path.join(self.folder, name)
        prefix = f" -ffile-prefix-map={self.top}=." if name in ("cc", "c++") else ""
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR="{self.top}/zig-cache"\n'
                    f'export ZIG_LOCAL_CACHE_DIR="{self.folder}/zig-cache"\n'
                    f'exec "{zig}" {arguments}{prefix} "$@"\n')
        os.chmod(path, 0o755)
        return path

    def compress_and_store(self):
        """LMDB, zstd and lz4 as one archive."""
        archive = os.path.join(self.folder, "libparts.a")
        objects = []
        for name, (_, files) in PARTS.items():
            for file in files:
                obj = os.path.join(self.folder, os.path.basename(file)[:-1] + "o")
                run([self.cc, *FLAGS, "-fvisibility=hidden", "-pthread", "-w", "-c", "-o", obj,
                     os.path.join(self.sources[name], file)], self.log)
                objects.append(obj)
        run([self.ar, "rcsD", archive, *objects], self.log)
        return archive

    def crypto(self):
        """AWS-LC's libcrypto.a."""
        folder = os.path.join(self.folder, "crypto")
        cmake = ["cmake", "-S", os.path.join(self.sources["awscrt"], CRYPTO), "-B", folder,
                 "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
                 "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={self.arch}",
                 f"-DCMAKE_C_COMPILER={self.cc}", f"-DCMAKE_CXX_COMPILER={self.cxx}",
                 f"-DCMAKE_AR={self.ar}", f"-DCMAKE_RANLIB={self.ranlib}",
                 "-DCMAKE_C_FLAGS=" + " ".join(FLAGS), "-DBUILD_SHARED_LIBS=OFF",
                 # The archive has neither libssl nor tests nor tools.
                 "-DBUILD_LIBSSL=OFF", "-DBUILD_TESTING=OFF", "-DBUILD_TOOL=OFF",
                 "-DDISABLE_GO=ON", "-DDISABLE_PERL=ON", "-DENABLE_SOURCE_MODIFICATION=OFF",
                 # zig's compiler cannot compile this source of randomness; hashes need none.
                 "-DDISABLE_CPU_JITTER_ENTROPY=ON"]
        run(cmake, self.log)
        run(["make", "-C", folder, f"-j{os.cpu_count() or 1}", "crypto"], self.log)
        return os.path.join(folder, "crypto", "libcrypto.a")

    def tree(self, archives):
        """The tree's own libraries and program, by its makefile."""
        folder = os.path.join(self.folder, "build")
        include = [os.path.join(self.sources[name], headers)
                   for name, (headers, _) in PARTS.items()]
        include.append(os.path.join(self.sources["awscrt"], CRYPTO, "include"))
        made = {*LIBRARIES.values(), backend.PROGRAM}
        # The name of a library without its full version is a link that comes with it.
        made = {f"{file}.{backend.version().rsplit('.', 1)[1]}"
                if file.startswith("libfoundry.so") else file for file in made}
        run(["make", "-C", ROOT, f"-j{os.cpu_count() or 1}", f"BUILD={folder}", "SETUP=:",
             f"CC={self.cc}", f"AR={self.ar}",
             "CFLAGS=" + " ".join([*FLAGS, *("-isystem " + i for i in include)]),
             "LDFLAGS=-Wl,--gc-sections -Wl,-s",
             "LIBS=" + " ".join([*archives, "-ldl", "-lpthread"]),
             *(os.path.join(folder, file) for file in sorted(made))], self.log)
        return folder


def licenses(sources):
    """The licenses of what is linked in, for the wheel: {name in the wheel: bytes}."""
    found = {}
    for name, file in LICENSES.items():
        with open(os.path.join(sources[name], file), "rb") as f:
            found[f"licenses/{name}"] = f.read()
    return found


def main(top, architectures):
    top = os.path.abspath(top)
    out = os.path.join(top, "dist")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    sources = fetch_all(os.path.join(top, "sources"))
    for arch in architectures:
        build = Build(top, sources, arch)
        folder = build.tree([build.compress_and_store(), build.crypto()])
        print(os.path.join(out, backend.pack(out, folder, LIBRARIES, strip=False,
                                           info=licenses(sources))))
    print(os.path.join(out, backend.build_sdist(out)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["x86_64", "aarch64"])
