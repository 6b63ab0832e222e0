# SPDX-License-Identifier: Apache-2.0
"""Builds the portable wheel: `make dist`. Documentation/design/packaging.rst says what is in it.

    dist.py FOLDER [ARCHITECTURE...]    x86_64 and aarch64 unless named

The wheel needs only glibc 2.28 or later. LMDB, zstd, lz4 and libcrypto are linked into the library
from the sources that sources.list pins by hash, and libcurl, OpenSSL, nghttp2 and jansson into the
client of registries; zig's C compiler links for the old glibc and for the other architecture.
FOLDER gets sources/, one folder per architecture, and dist/ with the wheels and the source archive.
It needs a network only to fill sources/.
"""
import os
import shutil
import subprocess
import sys

import backend
from sources import fetch_all

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
CLIENT = "libfoundry-registry.so.0.2"
LICENSES = {"lmdb": "LICENSE", "zstandard": "zstd/LICENSE", "lz4": "LICENSE",
            "awscrt": CRYPTO + "/LICENSE", "curl": "COPYING", "openssl": "LICENSE.txt",
            "nghttp2": "COPYING", "jansson": "LICENSE"}
# Every function in a section of its own: the linker leaves out what nobody calls, most of
# libcrypto. zig compiles with checks for undefined behaviour unless an option turns them off.
FLAGS = ["-O2", "-fPIC", "-DNDEBUG", "-fno-sanitize=undefined", "-ffunction-sections",
         "-fdata-sections"]
# Of OpenSSL: TLS 1.2 and 1.3 and signatures. It opens no other library and reads no file of
# settings.
OPENSSL = ["no-" + part for part in """
    shared apps tests docs module dso engine legacy autoload-config ui-console comp cms cmp ts ct
    quic dtls ssl-trace ssl3 tls1 tls1_1 srp psk nextprotoneg gost idea seed camellia aria bf cast
    des dsa md4 mdc2 rc2 rc4 rmd160 siphash sm2 sm3 sm4 whirlpool ocb scrypt blake2 rfc3779 ml-dsa
    slh-dsa
    """.split()]
# Of libcurl: HTTP/1.1 and HTTP/2 with TLS, proxies, and names resolved in a thread. It has no place
# of CA files: registry/client/certs.c looks for them.
CURL_ON = ["BUILD_STATIC_LIBS", "HTTP_ONLY", "CURL_USE_OPENSSL", "USE_NGHTTP2",
           "ENABLE_THREADED_RESOLVER", *("CURL_DISABLE_" + part for part in """
    OPENSSL_AUTO_LOAD_CONFIG NTLM NETRC HSTS ALTSVC COOKIES DOH WEBSOCKETS AWS""".split())]
CURL_OFF = """BUILD_CURL_EXE BUILD_EXAMPLES BUILD_LIBCURL_DOCS BUILD_MISC_DOCS ENABLE_CURL_MANUAL
    CURL_USE_PKGCONFIG CURL_USE_LIBPSL USE_LIBIDN2 CURL_USE_LIBSSH2 CURL_ZLIB CURL_BROTLI CURL_ZSTD
    ENABLE_UNIX_SOCKETS""".split()
JOBS = [f"-j{os.cpu_count() or 1}"]


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

    def cmake(self, name, source, target, *settings, flags=()):
        """Build a target of a source's folder; return the build's folder."""
        folder = os.path.join(self.folder, name)
        run(["cmake", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
             "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", "-DCMAKE_SYSTEM_NAME=Linux",
             f"-DCMAKE_SYSTEM_PROCESSOR={self.arch}", f"-DCMAKE_C_COMPILER={self.cc}",
             f"-DCMAKE_CXX_COMPILER={self.cxx}", f"-DCMAKE_AR={self.ar}",
             f"-DCMAKE_RANLIB={self.ranlib}", "-DCMAKE_C_FLAGS=" + " ".join([*FLAGS, *flags]),
             "-DBUILD_SHARED_LIBS=OFF", "-DBUILD_TESTING=OFF",
             *("-D" + setting for setting in settings)], self.log)
        run(["make", "-C", folder, *JOBS, target], self.log)
        return folder

    def crypto(self):
        """AWS-LC's libcrypto.a. The archive has neither libssl nor tests nor tools."""
        folder = self.cmake(
            "crypto", os.path.join(self.sources["awscrt"], CRYPTO), "crypto", "BUILD_LIBSSL=OFF",
            "BUILD_TOOL=OFF", "DISABLE_GO=ON", "DISABLE_PERL=ON", "ENABLE_SOURCE_MODIFICATION=OFF",
            # zig's compiler cannot compile this source of randomness; hashes need none.
            "DISABLE_CPU_JITTER_ENTROPY=ON")
        return os.path.join(folder, "crypto", "libcrypto.a")

    def openssl(self):
        """The folder of OpenSSL's libssl.a and libcrypto.a."""
        folder = os.path.join(self.folder, "openssl")
        os.makedirs(folder, exist_ok=True)
        # The library holds the compiler's name and the time: no path, no time of day.
        names = {"CC": "cc", "AR": "ar", "RANLIB": "ranlib", "SOURCE_DATE_EPOCH": "0",
                 "PATH": self.folder + os.pathsep + os.environ["PATH"]}
        env = {**os.environ, **names}
        run(["perl", os.path.join(self.sources["openssl"], "Configure"), f"linux-{self.arch}",
             *OPENSSL, "--openssldir=/etc/ssl", *FLAGS], self.log, cwd=folder, env=env)
        run(["make", *JOBS, "build_generated"], self.log, cwd=folder, env=env)
        run(["make", *JOBS, "libcrypto.a", "libssl.a"], self.log, cwd=folder, env=env)
        return folder

    def curl(self, openssl, nghttp2):
        """libcurl.a"""
        headers = os.path.join(self.sources["nghttp2"], "lib", "includes")
        folder = self.cmake(
            "curl", self.sources["curl"], "libcurl_static", *(name + "=ON" for name in CURL_ON),
            *(name + "=OFF" for name in CURL_OFF), "CURL_CA_BUNDLE=none", "CURL_CA_PATH=none",
            "OPENSSL_INCLUDE_DIR=" + ";".join(self.openssl_headers(openssl)),
            f"OPENSSL_SSL_LIBRARY={openssl}/libssl.a",
            f"OPENSSL_CRYPTO_LIBRARY={openssl}/libcrypto.a", f"NGHTTP2_INCLUDE_DIR={headers}",
            f"NGHTTP2_LIBRARY={nghttp2}/lib/libnghttp2.a",
            flags=["-DNGHTTP2_STATICLIB", f"-I{nghttp2}/lib/includes"])
        return os.path.join(folder, "lib", "libcurl.a")

    def openssl_headers(self, openssl):
        return [os.path.join(openssl, "include"), os.path.join(self.sources["openssl"], "include")]

    def client(self):
        """libfoundry-registry.so with what it needs. Its build folder is another than the
        library's, because the headers of the two libcryptos differ."""
        openssl = self.openssl()
        nghttp2 = self.cmake("nghttp2", self.sources["nghttp2"], "nghttp2_static",
                             "ENABLE_LIB_ONLY=ON", "ENABLE_STATIC_LIB=ON", "ENABLE_SHARED_LIB=OFF",
                             "ENABLE_DOC=OFF", flags=["-DNGHTTP2_STATICLIB"])
        jansson = self.cmake("jansson", self.sources["jansson"], "jansson",
                             "JANSSON_BUILD_DOCS=OFF", "JANSSON_WITHOUT_TESTS=ON",
                             "JANSSON_EXAMPLES=OFF")
        archives = [self.curl(openssl, nghttp2), f"{nghttp2}/lib/libnghttp2.a",
                    f"{openssl}/libssl.a", f"{openssl}/libcrypto.a", f"{jansson}/lib/libjansson.a"]
        headers = [*self.openssl_headers(openssl), os.path.join(self.sources["curl"], "include"),
                   os.path.join(jansson, "include")]
        return os.path.join(self.make("build-client", headers, ["-DCURL_STATICLIB"], [CLIENT],
                                      CLIENT_LIBS=archives), CLIENT)

    def make(self, name, headers, flags, files, **libraries):
        """Files of the tree's own, by its makefile; return the build's folder."""
        folder = os.path.join(self.folder, name)
        headers = [*headers, *(os.path.join(self.sources[part], where)
                               for part, (where, _) in PARTS.items())]
        run(["make", "-C", ROOT, *JOBS, f"BUILD={folder}", "SETUP=:", f"CC={self.cc}",
             f"AR={self.ar}", "LDFLAGS=-Wl,--gc-sections -Wl,-s",
             "CFLAGS=" + " ".join([*FLAGS, *flags, *("-isystem " + i for i in headers)]),
             *(f"{variable}=" + " ".join([*archives, "-ldl", "-lpthread"])
               for variable, archives in libraries.items()),
             *(os.path.join(folder, file) for file in files)], self.log)
        return folder

    def tree(self, archives):
        """The other libraries and the program."""
        made = {*backend.LIBRARIES.values(), backend.PROGRAM} - {CLIENT}
        # The name of a library without its full version is a link that comes with it.
        made = {f"{file}.{backend.version().rsplit('.', 1)[1]}"
                if file.startswith("libfoundry.so") else file for file in made}
        return self.make("build", [os.path.join(self.sources["awscrt"], CRYPTO, "include")], [],
                         sorted(made), LIBS=archives)


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
        shutil.copy(build.client(), folder)
        print(os.path.join(out, backend.pack(out, folder, strip=False, info=licenses(sources))))
    print(os.path.join(out, backend.build_sdist(out)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["x86_64", "aarch64"])
