"""The layouts of all records in an arena, as one hash: it changes by itself when a layout does.

Every integer constant of every module of kernels is in it, one that only tunes something too: after a change of any of
them, state of before is rebuilt from what windows hold (`engine.state.window_contents`), not taken as it is.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from hashlib import sha256
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from cqels import kernels
from cqels.model import ids


@cache
def layouts() -> str:
    """A hash of the constants of kernels and of words: where fields are, how wide records are, what codes mean.

    It is that of the constants by their names, module by module, whatever modules are called.
    """
    modules = walk_packages(kernels.__path__, f"{kernels.__name__}.")
    found = [import_module(each.name) for each in modules if not each.ispkg]
    written = sorted(json.dumps(_constants(each)) for each in (ids, *found))
    return sha256("\n".join(written).encode()).hexdigest()


def _constants(module: ModuleType) -> list[tuple[str, int]]:
    constants = [
        (name, value) for name, value in vars(module).items() if name.lstrip("_").isupper() and type(value) is int
    ]
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, IntEnum):
            constants += [(f"{name}.{each.name}", int(each)) for each in kind]
    return sorted(constants)
