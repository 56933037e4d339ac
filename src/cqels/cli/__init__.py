"""The command line: `cqels run`, `demo`, `explain`, `check` and `doctor`. Heavy imports happen inside the commands."""

from cqels.cli.app import main

__all__ = ["main"]
