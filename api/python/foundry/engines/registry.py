# SPDX-License-Identifier: Apache-2.0
"""The registry from which a start fetches images that its store lacks."""
import os

from . import log


def name():
    """Return its name, or None if there is none."""
    return os.environ.get("FOUNDRY_REGISTRY") or None


def fetch(store, ref):
    """Fetch the images that it has with this name."""
    log_fetch(ref)
    store.pull(ref=ref)


def log_fetch(ref):
    """Log that a fetch begins."""
    log.info("Foundry: fetching '%s' from %s", ref, name())
