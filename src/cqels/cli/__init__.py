"""The command line: `cqels explain`, `cqels check`, `cqels run`, `cqels doctor`. Heavy imports happen inside the commands."""

from cqels.cli.app import main

__all__ = ["main"]
