"""How things are measured: in turn with their rivals, in processor time, medians of five; no engine lives here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cqels.scenarios.report import machine as machine

REPEATS = 5
CONSOLE = Console(highlight=False)
Words = np.ndarray[Any, np.dtype[np.int64]]


def timed_in_turn(*runs: Callable[[int], Any], repeats: int = REPEATS) -> list[float]:
    """The median CPU time of five runs of each, after one that is not counted.

    They run in turn, so that the machine's moods fall on all; each gets its number, for a fresh part of the input.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(repeats + 1):
        for run, spent in zip(runs, times, strict=True):
            start = process_time()
            run(number)
            spent.append(process_time() - start)
    return [median(spent[1:]) for spent in times]


def progress() -> Progress:
    """A line that says what is being measured; it goes when all is done, and is not there in a file."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    return Progress(*columns, TimeElapsedColumn(), console=CONSOLE, transient=True)


def resident() -> int:
    """Bytes of memory of this process that are there now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def per_second(value: float) -> str:
    """A speed: `1.25 M/s`, `48.1 k/s`, `3.20 /s`."""
    for size, name in ((1e6, " M/s"), (1e3, " k/s")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g} /s"


def nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:,.0f} ns"
