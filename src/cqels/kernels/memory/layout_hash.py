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

_SPLIT = {
    "compiler.value_codegen": "compiler.codegen",
    "memory.mapped_memory": "memory.arena",
    "operators.join_setup": "operators.join",
    "operators.topk_setup": "operators.topk",
    "readers.line_blocks": "terms.arena_dictionary",
}
"""Modules that were a part of another one: their constants count there, so that state of before is still taken."""


@cache
def layouts() -> str:
    """A hash of the constants of kernels and of words: where fields are, how wide records are, what codes mean.

    It is that of the constants by their names, module by module, whatever modules are called.
    """
    names = [each.name for each in walk_packages(kernels.__path__, f"{kernels.__name__}.") if not each.ispkg]
    found: dict[str, set[tuple[str, int]]] = {ids.__name__: _constants(ids)}
    for name in names:
        short = name.removeprefix(f"{kernels.__name__}.")
        found.setdefault(_SPLIT.get(short, short), set()).update(_constants(import_module(name)))
    written = sorted(json.dumps(sorted(constants)) for constants in found.values())
    return sha256("\n".join(written).encode()).hexdigest()


def _constants(module: ModuleType) -> set[tuple[str, int]]:
    constants = {
        (name, value) for name, value in vars(module).items() if name.lstrip("_").isupper() and type(value) is int
    }
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, IntEnum):
            constants |= {(f"{name}.{each.name}", int(each)) for each in kind}
    return constants
