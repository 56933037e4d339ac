"""`cqels run` with snapshots all the time, for `kills.py` to kill.

python -m tests.live.live_job run hot.rq --engine embedded --follow --state state …
"""

from __future__ import annotations

from cqels.cli import main
from cqels.pipeline.instance.durable_instance import DurableInstance

MOST_LOG = 1 << 10
"""Bytes of the log that a snapshot replaces: some batches."""


def is_due(instance: DurableInstance) -> bool:
    return instance.log_bytes > MOST_LOG


if __name__ == "__main__":
    DurableInstance._is_due = is_due  # type: ignore[method-assign]
    main()
