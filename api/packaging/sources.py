# SPDX-License-Identifier: Apache-2.0
"""Fetches and unpacks what `make dist` builds from: the archives that sources.list pins by hash.

Archives come from the package index that pip is configured to use, source packages (*.dsc) from
the mirror of Debian in DEBIAN_MIRROR, or else from the one that apt is configured to use. A folder
that has them already needs neither.
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

from backend import ROOT

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The releases of Debian in which the source packages of sources.list are
SUITES = ("bookworm", "trixie")


def pinned():
    """The lines of sources.list as {name: (file, sha256)}."""
    with open(os.path.join(ROOT, "api", "packaging", "sources.list"), encoding="utf-8") as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {name: (file, sha256) for name, file, sha256 in lines}


# --- the package index ---


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


def fetch_archive(name, file, path):
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


# --- Debian ---


def run_quietly(command, **more):
    """Run a command, and return what it prints; if it fails, that is the message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    except FileNotFoundError:
        raise SystemExit(f"dist: {command[0]} is not installed") from None
    if done.returncode:
        raise SystemExit(f"dist: {command[0]} failed: {done.stderr.strip() or done.stdout}")
    return done.stdout


def debian_mirror():
    if os.environ.get("DEBIAN_MIRROR"):
        return os.environ["DEBIAN_MIRROR"]
    targets = run_quietly(["apt-get", "indextargets", "--format",
                           "$(ORIGIN) $(RELEASE) $(REPO_URI)", "Created-By: Packages"])
    for origin, release, uri in (line.split() for line in targets.splitlines()
                                 if len(line.split()) == 3):
        if origin == "Debian" and not release.endswith("-security"):
            return uri
    raise SystemExit("dist: set DEBIAN_MIRROR to a mirror of Debian")


def fetch_debian(file, folder):
    """A source package: apt-get checks Debian's signature, with lists of its own."""
    own = os.path.join(folder, "apt")
    for part in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(own, part), exist_ok=True)
    with open(os.path.join(own, "sources.list"), "w", encoding="utf-8") as f:
        f.writelines(f"deb-src [signed-by={KEYRING}] {debian_mirror()} {suite} main\n"
                     for suite in SUITES)
    settings = {"Dir::Etc::sourcelist": f"{own}/sources.list", "Dir::Etc::sourceparts": "-",
                "Dir::State": own, "Dir::State::lists": f"{own}/lists",
                "Dir::State::status": "/dev/null", "Dir::Cache": f"{own}/cache",
                "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    name, version = file[:-len(".dsc")].split("_")
    run_quietly([*apt, "update"])
    run_quietly([*apt, "source", "--download-only", f"{name}={version}"], cwd=folder)


# --- both ---


def fetch(name, file, sha256, folder):
    """The archive's path. It is fetched unless the folder has it."""
    path = os.path.join(folder, file)
    if not os.path.exists(path):
        if file.endswith(".dsc"):
            fetch_debian(file, folder)
        else:
            fetch_archive(name, file, path)
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    if found != sha256:
        raise SystemExit(f"dist: {path} has the SHA-256 {found}, not {sha256} as sources.list says")
    return path


def unpack(path, into):
    """The folder of an unpacked archive: its own top folder, or @into for the other kinds."""
    archive = path.endswith(".tar.gz")
    if not os.path.exists(into):
        shutil.rmtree(into + ".tmp", ignore_errors=True)
        if path.endswith(".dsc"):
            # It compares the package's other files with the hashes in this one, and patches.
            run_quietly(["dpkg-source", "-x", path, into + ".tmp"], cwd=os.path.dirname(path))
        else:
            shutil.unpack_archive(path, into + ".tmp", "gztar" if archive else "zip")
        os.rename(into + ".tmp", into)
    return os.path.join(into, os.path.basename(path)[:-len(".tar.gz")]) if archive else into


def fetch_all(folder):
    """{name: folder of the unpacked archive}"""
    os.makedirs(folder, exist_ok=True)
    return {name: unpack(fetch(name, file, sha256, folder), os.path.join(folder, name))
            for name, (file, sha256) in pinned().items()}
