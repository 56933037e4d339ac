"""Gates: kernels that other kernels call as they call a C function, compiled once and never copied into their callers.

Numba optimises the whole tree of helpers again for each function above it, and LLVM copies helpers into their callers.
For large helpers that are called in many places that costs minutes; a gate costs two nanoseconds a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba import types
from numba.extending import overload

from cqels.kernels.jit import _FOLDER


def gate(function: Callable[..., Any]) -> Callable[..., int]:
    """Compile a function of words that gives a word, now (or from the cache), and let kernels call it by name."""
    count = function.__code__.co_argcount
    names = ", ".join(function.__code__.co_varnames[:count])
    signature = types.int64(*[types.int64] * count)
    native = numba.cfunc(
        signature, nopython=True, cache=_FOLDER is not None, nogil=True, boundscheck=False, error_model="numpy"
    )(function)
    symbol = f"{function.__module__}.{function.__qualname__}".replace(".", "_")
    binding.add_symbol(symbol, native.address)
    scope = {"external": types.ExternalFunction(symbol, signature), "native": native.ctypes}
    exec(  # an overload must have the argument names of what it stands for
        f"def {function.__name__}({names}):\n    return native({names})\n"
        f"def compiled({names}):\n    return lambda {names}: external({names})\n",
        scope,
    )
    called: Any = scope[function.__name__]
    called.__doc__, called.__module__ = function.__doc__, function.__module__
    called.native = native  # keeps the machine code alive
    overload(called)(scope["compiled"])
    return called
