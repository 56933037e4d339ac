"""The release of this package, which is written beside state."""

from __future__ import annotations

RELEASE = "0.2.0"
