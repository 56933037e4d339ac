"""Packages that only some installations have, and the words that say how to get them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cqels.model.errors import CqelsError


def optional(module: str, extra: str) -> Any:
    """A module that comes with an extra; an error that names the extra, if it is not there."""
    try:
        return import_module(module)
    except ImportError:
        raise CqelsError(f"{module} is not installed", hint=f"pip install 'cqels[{extra}]'") from None
