"""How kernels are compiled: once, generic, and kept on disk between runs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def _cache_folder() -> str | None:
    """A writable folder named by the text of all kernels.

    Numba looks only at the file of the function it compiles: a change of a helper in another file would go unnoticed.
    """
    stamp = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        stamp.update(path.read_bytes())
    name = f"cqels-kernels-{stamp.hexdigest()[:16]}"
    roots = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"), "~/.cache", tempfile.gettempdir()]
    for root in roots:
        if root is None:
            continue
        folder = Path(root).expanduser() / name
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (OSError, RuntimeError):
            continue
        # what is in the cache is run: a folder that another user made must not be trusted
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return str(folder)
    return None


_FOLDER = _cache_folder()
if _FOLDER is not None:
    os.environ["NUMBA_CACHE_DIR"] = _FOLDER  # read by Numba when it is imported

import numba  # noqa: E402


def address_of(function: Callable[[int, int, int], int]) -> int:
    """The address of a kernel of three words, compiled on its own.

    What calls a kernel by its address (`memory.call`) does not have to be compiled together with it.  A kernel that
    calls another one by name is optimised with all of its code, and so is whoever calls that one in turn.
    """
    signature = numba.int64(numba.int64, numba.int64, numba.int64)
    compiled = numba.cfunc(signature, cache=_FOLDER is not None, nopython=True, error_model="numpy")(function)
    _KEPT.append(compiled)
    return int(compiled.address)


_KEPT: list[Any] = []
"""Compiled kernels whose addresses are in use: they must not be collected."""


def kernel(function: Function) -> Function:
    """Compile a kernel at its first call, without bounds checks, and free of the interpreter's lock."""
    return numba.njit(cache=_FOLDER is not None, nogil=True, boundscheck=False, error_model="numpy")(function)
