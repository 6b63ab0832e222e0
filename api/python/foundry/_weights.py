# SPDX-License-Identifier: Apache-2.0
"""The parameters and buffers of a torch module, and their memory.

Parameters may share memory, and a parameter may be a part of a larger storage. So whole storages
are moved, one behind the other in one piece of memory, and each tensor keeps its place in its
storage. Objects stay the same: only `data` of each tensor changes.
"""
import ctypes
import hashlib
import itertools
import operator

from . import _lib, _torch
from ._lib import lib
from ._nest import Refused

ALIGN = 512
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_trains = operator.attrgetter("training")
_form, _stride = operator.attrgetter("shape", "dtype"), operator.methodcaller("stride")
_values = operator.methodcaller("values")
_wants_grad = operator.attrgetter("requires_grad")


def aligned(nbytes):
    return -(-nbytes // ALIGN) * ALIGN


def extent(shape, stride, itemsize):
    """The bytes from a tensor's first element to its last."""
    if 0 in shape:
        return 0
    return itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, stride)))


def typed(torch, flat, offset, like):
    """A tensor of the type, shape and strides of `like`, `offset` bytes behind the start of `flat`.

    flat: a tensor of bytes. like: anything with dtype, shape and stride (a tuple).
    """
    nbytes = extent(like.shape, like.stride, like.dtype.itemsize)
    return flat[offset:offset + nbytes].view(like.dtype).as_strided(like.shape, like.stride)


def _members(dicts):
    return itertools.chain.from_iterable(map(_values, dicts))


def _same_value(value, was):
    """Whether an attribute's value is the same object, or an equal number or text. Zeros of
    different signs differ.
    """
    return value is was or (type(value) is type(was) and type(value) in (bool, int, float, str)
                            and repr(value) == repr(was))


def _lazy(tensor):
    """Whether a tensor's elements are those of its memory, but conjugated or negated."""
    return any(getattr(tensor, each, bool)() for each in ("is_conj", "is_neg"))


def _guards(torch, tensors):
    """Torch's guards of these tensors, for calls in inference mode (True) and others (False); an
    empty dict if it has none.
    """
    kind = torch
    for name in ("_C", "_dynamo", "guards", "TensorGuards"):
        kind = getattr(kind, name, None)
    if kind is None or not tensors:
        return {}
    found = {}
    for mode in (False, True):
        with torch.inference_mode(mode):
            found[mode] = kind(*tensors, dynamic_dims_sizes=[list(t.shape) for t in tensors],
                               dynamic_dims_strides=[list(t.stride()) for t in tensors])
    return found


class Place:
    """A tensor's type and place: dtype, shape, stride, and the offset in its storage in bytes."""

    def __init__(self, tensor):
        self.dtype, self.shape = tensor.dtype, tuple(tensor.shape)
        self.stride = tuple(tensor.stride())
        self.offset = tensor.storage_offset() * tensor.dtype.itemsize


class _Storage:
    """A storage of parameters. constant: whether no forward has changed it. name: of its first
    tensor.
    """

    def __init__(self, storage, name, kind):
        self.storage, self.name, self.kind = storage, name, kind
        self.nbytes, self.offset = storage.nbytes(), 0
        self.constant = True


class Weights:
    """The parameters and buffers of a model, which may have none.

    device: the ordinal of their GPU, or None. storages: a list of _Storage. nbytes: of all.
    caller: a weak reference of the object that calls the model's graphs, which may become its
    forward().
    Raises Refused for parameters whose memory is not a piece of one GPU's memory.
    """

    def __init__(self, torch, model):
        self._torch = torch
        self._modules = list(model.modules()) if hasattr(model, "modules") else []
        self._tensors, self._found = {}, {}  # id -> (name, tensor, its _Storage)
        self._listing, self.device, self._flat, self.caller = [], None, None, object
        for prefix, module in model.named_modules() if self._modules else ():
            for kind in ("_parameters", "_buffers"):
                for key, tensor in getattr(module, kind).items():
                    if tensor is not None:
                        self._add(f"{prefix}.{key}" if prefix else key, tensor, kind[1:-1])
        self.storages, self.nbytes = list(self._found.values()), 0
        self._refuse_overlaps()
        for each in self.storages:
            each.offset, self.nbytes = self.nbytes, self.nbytes + aligned(each.nbytes)
        self.note()

    def _add(self, name, tensor, kind):
        torch = self._torch
        plain = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))
        if type(tensor) not in plain:
            raise Refused(f"{kind} '{name}' is a {type(tensor).__qualname__}, which is no plain "
                          "tensor")
        if tensor.device.type != "cuda" or tensor.device.index != (
                tensor.device.index if self.device is None else self.device):
            raise Refused(f"{kind} '{name}' lies on {tensor.device}; all parameters must lie on "
                          "one GPU")
        if not _torch.strided(torch, tensor):
            raise Refused(f"{kind} '{name}' is {tensor.layout}, not strided memory")
        if _lazy(tensor) or getattr(tensor, "is_inference", bool)():
            raise Refused(f"{kind} '{name}' is a view that conjugates or negates, or was made in "
                          "inference mode")
        self.device = tensor.device.index
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._found:
            self._found[storage.data_ptr()] = _Storage(storage, name, kind)
        kept = self._found[storage.data_ptr()]
        if kept.nbytes != storage.nbytes():
            raise Refused(f"'{kept.name}' and '{name}' share memory in two storages")
        place = Place(tensor)
        self._tensors.setdefault(id(tensor), (name, tensor, kept))
        self._listing.append((name, kind, kept.name, place.offset, str(place.dtype), place.shape,
                              place.stride))

    def _refuse_overlaps(self):
        """Refuse memory that two tensors share in a way that a move would end."""
        ranges = sorted((each.storage.data_ptr(), each.nbytes, each.name)
                        for each in self.storages if each.nbytes)
        for (begin, size, name), (after, _, other) in zip(ranges, ranges[1:]):
            if after < begin + size:
                raise Refused(f"'{name}' and '{other}' share memory in two storages")
        for module in self._modules:
            for name, value in vars(module).items():
                if (_torch.is_tensor(value) and id(value) not in self._tensors
                        and type(value) in (self._torch.Tensor, self._torch.nn.Parameter)
                        and value.untyped_storage().data_ptr() in self._found):
                    raise Refused(f"the attribute {type(module).__name__}.{name} shares memory "
                                  "with a parameter or a buffer")

    def fact(self):
        """Names, shapes, types and places of all tensors, in one line."""
        digest = hashlib.sha256(repr(self._listing).encode()).hexdigest()
        return f"{len(self._listing)} tensors, {self.nbytes} bytes, {digest}"

    def digest(self):
        """A digest of all bytes, computed on the GPU from fingerprints of 128 bits."""
        ranges = [(self.bytes_of(each).data_ptr(), each.nbytes)
                  for each in self.storages if each.nbytes]
        found = (ctypes.c_uint64 * (2 * len(ranges) + 2))()
        lib.fdry_memory_fingerprint(self.device or 0, _torch.stream(self.device or 0) or None,
                                    (_lib.Memory * len(ranges))(*ranges), len(ranges), found)
        return hashlib.sha256(bytes(found)).hexdigest()

    # --- moving ---

    def bytes_of(self, each):
        """The bytes of a storage as a tensor."""
        if self._flat is not None:
            return self._flat[each.offset:each.offset + each.nbytes]
        torch = self._torch
        empty = torch.empty((0,), dtype=torch.uint8, device=f"cuda:{self.device}")
        return empty.set_(each.storage, 0, (each.nbytes,), (1,))

    def move(self, flat, copy=True):
        """Move all tensors into `flat`, a tensor of at least `nbytes` bytes. copy: with their
        bytes. A tensor that the program has given other memory since stays there.
        """
        for each in self.storages if copy else ():
            flat[each.offset:each.offset + each.nbytes].copy_(self.bytes_of(each))
        for _, tensor, kept in self._tensors.values():
            own, start = ((kept.storage, kept.offset) if self._flat is None
                          else (self._flat.untyped_storage(), 0))
            if tensor.untyped_storage().data_ptr() == own.data_ptr() and not _lazy(tensor):
                place = Place(tensor)
                tensor.data = typed(self._torch, flat, start + place.offset, place)
        for each in self.storages:
            each.storage = None
        self._flat = flat
        self.note()

    def owns(self, tensor):
        """Whether a tensor lies in the memory to which the model was moved."""
        return 0 <= tensor.data_ptr() - self._flat.data_ptr() < self.nbytes

    # --- what a call checks ---

    def note(self):
        """Remember the addresses of all tensors, the structure of the modules, and their
        attributes.
        """
        self._each = [tensor for _, tensor, _ in self._tensors.values()]
        self._addresses = list(map(self._torch.Tensor.data_ptr, self._each))
        self._forms = list(map(_form, self._each)), list(map(_stride, self._each))
        self._guards = _guards(self._torch, self._each)
        self._dicts = [d for m in self._modules
                       for d in (m._parameters, m._buffers, m._modules,
                                 *(getattr(m, h, {}) for h in _HOOKS))]
        self._sizes = list(map(len, self._dicts))
        self._full = [d for d in self._dicts if d]
        self._members = list(_members(self._full))
        self._note_attributes()

    def _note_attributes(self):
        self._vars = list(map(vars, self._modules))
        self._counts = list(map(len, self._vars))
        self._values, self._then = list(_members(self._vars)), list(map(dict, self._vars))

    def changed(self):
        """What was replaced since note(), in words, or None."""
        if (list(map(self._torch.Tensor.data_ptr, self._each)) != self._addresses
                or not self._same_forms()
                or list(map(len, self._dicts)) != self._sizes
                or not all(map(operator.is_, _members(self._full), self._members))):
            return "a parameter, a module or a hook was replaced"
        if list(map(len, self._vars)) == self._counts and all(
                map(operator.is_, _members(self._vars), self._values)):
            return None
        name = self._changed_attribute()
        if name:
            return f"the attribute {name} was changed"
        self._note_attributes()
        return None

    def _changed_attribute(self):
        """The name of an attribute that has another value than at note(), else None.

        An attribute that a forward adds, such as a value that it computes once, is no change,
        unless it hides one of the class.
        """
        for module, before in zip(self._modules, self._then):
            now, cls = vars(module), type(module)
            for name in [*now, *(before.keys() - now.keys())]:
                same = (_same_value(now[name], before[name]) if name in now and name in before
                        else name in now and not hasattr(cls, name)
                        or name == "forward" and now.get(name) in (None, self.caller()))
                if not same:
                    return f"{cls.__name__}.{name}"
        return None

    def _same_forms(self):
        """Whether shapes, types and strides are those of note(). Torch's own guards compare them
        in one call, and may say no without a reason.
        """
        if self._guards and self._guards[self._torch.is_inference_mode_enabled()].check(
                *self._each):
            return True
        return ((list(map(_form, self._each)), list(map(_stride, self._each))) == self._forms
                and not any(map(_lazy, self._each)))

    def trains(self):
        """The name of a module that is in training mode; None if there is none."""
        if not any(map(_trains, self._modules)):
            return None
        return next(type(m).__name__ for m in self._modules if m.training)

    def wants_grad(self):
        """Whether autograd would record the model's outputs."""
        return any(map(_wants_grad, self._each))

    def hooked(self):
        """The class of a module with hooks, or None."""
        return next((type(m).__name__ for m in self._modules
                     for h in _HOOKS if getattr(m, h, None)), None)

    # --- what a forward changes ---

    def versions(self):
        return [tensor._version for tensor in self._each]

    def written(self, versions):
        """[(name, _Storage)] of the tensors that were changed since versions()."""
        return [(name, kept) for (name, tensor, kept), was
                in zip(self._tensors.values(), versions) if tensor._version != was]

    def attributes(self):
        """The plain attributes of all modules: {(module's number, name): value}."""
        found = {}
        for i, module in enumerate(self._modules):
            for name, value in vars(module).items():
                size = len(value) if isinstance(value, (list, dict, set)) else None
                found[i, name] = value, size
        return found

    def assigned(self, before):
        """The name of an attribute that differs from those of attributes(), else None."""
        now = self.attributes()
        for key in [*now, *(before.keys() - now.keys())]:
            (value, size), (was, had) = now.get(key, (None, -1)), before.get(key, (None, -1))
            if not _same_value(value, was) or size != had:
                return f"{type(self._modules[key[0]]).__name__}.{key[1]}"
        return None
