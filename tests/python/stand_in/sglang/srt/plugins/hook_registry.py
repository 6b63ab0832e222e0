# SPDX-License-Identifier: Apache-2.0
import enum
import functools
import pkgutil


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    _hooks = {}
    _patched = set()

    @classmethod
    def register(cls, target, hook, hook_type):
        assert hook_type is HookType.AROUND
        cls._hooks[target] = hook

    @classmethod
    def apply_hooks(cls):
        for target, hook in cls._hooks.items():
            owner, name = target.rsplit(".", 1)
            owner = pkgutil.resolve_name(owner)
            if target not in cls._patched:
                cls._patched.add(target)
                is_static = isinstance(vars(owner).get(name), staticmethod)
                around = cls._around(getattr(owner, name), hook)
                setattr(owner, name, staticmethod(around) if is_static else around)

    @staticmethod
    def _around(original, hook):
        return functools.wraps(original)(lambda *args, **kwargs: hook(original, *args, **kwargs))
