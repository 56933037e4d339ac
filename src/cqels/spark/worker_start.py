"""What a Python worker of Spark does once, before its first work.

PySpark's daemon collects garbage after every task of a worker, and the next task of that worker waits for it.  Most of
what is looked at are modules, which stay: frozen, they are looked at no more (43 ms of a processor for each task).
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import TaskContext

_WORK = (
    "cqels.pipeline.lift.lift_worker",
    "cqels.pipeline.source.file_range_reader",
    "cqels.spark.operator.stateful_processor",
)
"""The modules of all work that a worker may get: what is imported later is not frozen."""
_frozen: list[bool] = []


def prepare_worker() -> None:
    """Freeze what is imported, once in a worker and never in the driver; engines are made afterwards."""
    if _frozen or TaskContext.get() is None:
        return
    _frozen.append(True)
    for name in _WORK:
        import_module(name)
    gc.collect()
    gc.freeze()
