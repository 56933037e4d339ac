"""The release of this package, which is written beside state."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    RELEASE = version("cqels")
except PackageNotFoundError:  # the sources alone, not installed
    RELEASE = "unknown"
