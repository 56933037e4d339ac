"""The command line: `cqels explain`, `cqels check`, `cqels run`. Heavy imports happen inside the commands."""

from cqels.cli.app import main

__all__ = ["main"]
