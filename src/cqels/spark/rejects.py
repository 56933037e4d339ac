"""Where rejected input of an application goes: a public name of `cqels.pipeline.sink.reject_files`."""

from __future__ import annotations

from cqels.pipeline.sink.reject_files import Rejects

__all__ = ["Rejects"]
