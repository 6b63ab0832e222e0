# SPDX-License-Identifier: Apache-2.0
"""Pushes and pulls by the wheel's client of registries, between and beside requests of Python's ssl
module and of the package requests.

    beside_ssl.py HOST:PORT CA      a registry, and the file with its authority

The store in FOUNDRY_STORE has the image "vecadd". wheels.sh runs it in an environment that has
nothing else than the wheel, and prints nothing if all is well.
"""
import os
import ssl
import sys
import tempfile
import threading
import urllib.request

try:
    import requests
except ImportError:
    requests = None
import foundry

host, ca = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)


def ask():
    with urllib.request.urlopen(f"https://{host}/v2/", context=context, timeout=20) as answer:
        assert answer.status == 200
    if requests:
        assert requests.get(f"https://{host}/v2/", verify=ca, timeout=20).status_code == 200


def push_and_pull(repository, **variables):
    os.environ.update(variables)
    with foundry.Store(os.environ["FOUNDRY_STORE"]) as store:
        store.push("vecadd", f"oci://{host}/{repository}:1", private=True)
    ask()
    with tempfile.TemporaryDirectory() as folder:
        with foundry.Store(folder, create=True) as store:
            store.pull(f"oci://{host}/{repository}:1")
            assert "vecadd" in [ref.name for ref in store.refs()]
    for name in variables:
        del os.environ[name]


ask()
try:
    push_and_pull("none", SSL_CERT_FILE="/dev/null", SSL_CERT_DIR="/none")
except foundry.Error as error:
    assert "no secure connection" in str(error), error
else:
    raise AssertionError("an unknown authority was accepted")
push_and_pull("own", FOUNDRY_REGISTRY_CA=ca)
push_and_pull("system", SSL_CERT_FILE=ca)
ask()

# Both at once, each in threads of its own
os.environ["FOUNDRY_REGISTRY_CA"] = ca
failed = []


def repeat(work, *args):
    try:
        for _ in range(5):
            work(*args)
    except BaseException as error:
        failed.append(error)
        raise


threads = [threading.Thread(target=repeat, args=args)
           for args in ((ask,), (push_and_pull, "one"), (push_and_pull, "two"), (ask,))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
assert not [line for line in open("/proc/self/maps", encoding="utf-8")
            if "libcurl" in line or "libjansson" in line]
