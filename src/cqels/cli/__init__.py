"""The command line: `cqels explain`, `check`, `run` and `doctor`. Heavy imports happen inside the commands."""

from cqels.cli.app import main

__all__ = ["main"]
