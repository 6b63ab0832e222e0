# SPDX-License-Identifier: Apache-2.0
"""Translates messages of the library to Python's names, and says how to install a missing library.
"""
import os
import re

# Python names of the library's functions: by the prefix of the C name, if the rest is the same in
# Python ...
_CLASSES = {"capture": "Capture", "image": "Image", "kernels": "Kernels", "slots": "Slots",
            "store": "Store"}
# ... and by the whole C name otherwise. Functions without a Python name are at the end, described
# in words.
FUNCTIONS = {
    "fdry_base_for_name": "base_for_name", "fdry_capture_begin": "Capture",
    "fdry_capture_free_preallocated": "free_preallocated_region",
    "fdry_capture_rng_use": "Capture.graph", "fdry_capture_graph": "Capture.add_graph",
    "fdry_capture_progress": "Capture.seal",
    "fdry_capture_preallocate": "preallocate_region",
    "fdry_capture_rng": "Capture.graph", "fdry_capture_set_offset": "Capture.offset",
    "fdry_decode_state_args": "DecodeState.token", "fdry_decode_state_free": "DecodeState.close",
    "fdry_decode_state_new": "DecodeState",
    "fdry_decode_state_set": "DecodeState.set", "fdry_decode_state_use": "DecodeState.from_device",
    "fdry_device_get": "Device", "fdry_device_caps": "Device.caps",
    "fdry_device_clean_up": "Device.clean_up",
    "fdry_device_put": "Device.close", "fdry_device_warm_up": "Device.warm_up",
    "fdry_hook_install": "activate", "fdry_hook_path": "environment",
    "fdry_image_attach": "Store.attach",
    "fdry_image_describe": "Store.describe", "fdry_image_files": "Store.files",
    "fdry_image_pin": "pin", "fdry_image_rng": "Image.generators",
    "fdry_image_fact_at": "Image.facts", "fdry_image_facts": "Store.facts",
    "fdry_image_graph": "Image.graphs",
    "fdry_image_host": "Tensor.numpy", "fdry_image_launch_rng": "Image.launch",
    "fdry_image_load": "load", "fdry_image_requirements": "Store.requirements",
    "fdry_image_rng_state": "Image.rng_state", "fdry_image_rng_set_state": "Image.set_rng_state",
    "fdry_image_tag": "Store.tag",
    "fdry_image_tensor": "Image.tensors", "fdry_image_tensor_find": "Image.tensors",
    "fdry_image_unload": "Image.close",
    "fdry_image_read_array": "Image.read", "fdry_image_write_array": "Image.write",
    "fdry_image_write_async": "Image.write", "fdry_kernels_launch": "Function.launch",
    "fdry_kernels_new": "Kernels",
    "fdry_kernels_free": "Kernels.close", "fdry_kernels_stats_reset": "Kernels.reset_stats",
    "fdry_load_or_capture": "load_or_capture",
    "fdry_memory_fingerprint": "compile",
    "fdry_repo_prune": "prune", "fdry_repo_tags": "tags", "fdry_repo_unpush": "unpush",
    "fdry_resident_free": "Device.free", "fdry_resident_new": "Device.new",
    "fdry_resident_read": "Device.read",
    "fdry_resident_view": "Device.view", "fdry_resident_write": "Device.write",
    "fdry_scalars_addr": "DeviceScalar.addr", "fdry_scalars_free": "DeviceScalar.close",
    "fdry_scalars_new": "DeviceScalar",
    "fdry_scalars_read": "DeviceScalar.read", "fdry_scalars_update": "DeviceScalar.update",
    "fdry_slots_new": "Slots", "fdry_slots_free": "Slots.close",
    "fdry_slots_invalidate_all": "Slots.invalidate", "fdry_slots_stats_reset": "Slots.reset_stats",
    "fdry_store_import": "Store.import_", "fdry_store_limit": "Store.limit",
    "fdry_store_set_limit": "Store.limit",
    "fdry_store_open": "Store", "fdry_store_repair": "repair", "fdry_store_verify": "verify",
    "fdry_sync_get": "Device.get_sync", "fdry_sync_put": "Device.put_sync",
    "fdry_sync_stats": "Device.syncs",
    "fdry_transient_get": "Device.get", "fdry_transient_set_limit": "Device.set_limit",
    "fdry_transient_put": "Device.put",
    "fdry_transient_stats": "Device.pool", "fdry_variable_at": "variables",
    "fdry_variable_check": "check_variables",
}
# Other words of messages.
OTHERS = {
    "enum fdry_transient_kind": '"device" or "pinned"',
    "enum fdry_sync_kind": '"stream", "event" or "timer"',
    "enum fdry_decode_state_source": "DecodeState.from_device",
    "enum fdry_dtype": "the types of tensors", "struct fdry_load_opts": "the options of load()",
    "without FDRY_TENSOR_HOST": "as a tensor on the device",
    "and FDRY_TENSOR_HOST": "as a tensor in host memory",
    "set FDRY_TENSOR_HOST for host memory": "give host memory as a tensor of the CPU",
    "FDRY_TENSOR_HOST": "a tensor in host memory",
    "FDRY_SLOTS_OWN_GRAPH": "0", "FDRY_STORE_CREATE": "create=True",
    "FDRY_LOAD_CHECK_AT_LAUNCH": "check_at_launch",
}
_NAMES = re.compile("|".join(re.escape(name) for name in OTHERS)
                    + r"|\bfdry_(?:load|pin)_opts\.(?P<option>[a-z_]+)"
                     + r"|\b(?P<function>fdry_[a-z_]+)(?P<call>\(\))?")

# soname: (package of Debian and Ubuntu, of Fedora and Red Hat)
PACKAGES = {"liblmdb.so.0": ("liblmdb0", "lmdb-libs"), "libzstd.so.1": ("libzstd1", "libzstd"),
            "liblz4.so.1": ("liblz4-1", "lz4-libs"),
            "libcrypto.so.3": ("libssl3", "openssl-libs")}


def function(name):
    """The Python name of a function of the library, without the package; None if there is none."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    _, prefix, *rest = name.split("_", 2)
    return f"{_CLASSES[prefix]}.{rest[0]}" if prefix in _CLASSES and rest else None


def _word(found):
    if found["option"]:
        return found["option"]
    if not found["function"]:
        return OTHERS[found[0]]
    name = function(found["function"])
    return f"{name}{found['call'] or ''}" if name else found[0]


def python(text):
    """A message of the library, in the words of Python."""
    return _NAMES.sub(_word, text)


def software_driver(library):
    """The end of a message that there is no GPU. library: the path of libfoundry.so.0.2."""
    path = os.path.join(os.path.dirname(os.path.realpath(library)), "foundry", "sim",
                        "libcuda.so.1")
    return (f"; to try Foundry without a GPU, set FOUNDRY_DRIVER={path}, the software driver"
            if os.path.exists(path) else "")


def not_loaded(library, why):
    """Why the library at a path cannot be loaded, and what to do. why: the dynamic loader's
    message.
    """
    missing = re.match(r"(\S+): cannot open shared object file", why)
    if missing and os.path.basename(missing[1]) != os.path.basename(library):
        names = PACKAGES.get(missing[1])
        how = (f"install it: apt install {names[0]} (Debian, Ubuntu) or dnf install {names[1]} "
               "(Fedora)" if names
               else "install the package that has it")
        return f"{library} needs {missing[1]}, which this host does not have; {how}"
    return (f"the library of this package cannot be loaded: {why}; install it (make install, then "
            "ldconfig; or pip install), or set "
            "FOUNDRY_LIBRARY to the full path of libfoundry.so.0.2")
