"""A change of the static data of a live run as a command: repeated after a crash it gives what it gave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

from cqels.pipeline.instance.instance_commands import difference
from cqels.pipeline.instance.program import Dataset
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions
from cqels.store.script import execute

Change: TypeAlias = str | Callable[[Store], object]
"""Of the dataset: SPARQL Update, or a function of the store."""
_NOT_REPEATABLE = re.compile(
    r"_:|\[|\b(LOAD|NOW|RAND|UUID|STRUUID|BNODE|SERVICE|CREATE|DROP|CLEAR|ADD|MOVE|COPY)\b", re.IGNORECASE
)
"""What may make an update give other data when it is repeated, or fail, which depends on the graphs that there are."""


def update_command(change: Change, before: Dataset, permissions: Permissions) -> str:
    """The command of a change: the update itself where that may be repeated, else what it removes and adds."""
    if isinstance(change, str) and not _NOT_REPEATABLE.search(change):
        execute(Store(), change)  # which refuses what is no update
        return json.dumps({"update": change})
    changed = before.store()
    changed.services.permissions = permissions
    if isinstance(change, str):
        execute(changed, change)
    else:
        change(changed)
    return difference(before, Dataset.of(changed))
