"""Metrics of a pipeline, which the driver counts from the reports of its engines and of Spark."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from cqels.model.errors import CqelsError
from cqels.model.time import format_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUANTILES = (0.5, 0.95, 0.99)
RECENT = 30.0
"""Seconds over which rates are taken."""
_LEAST, _RATIO, _BINS = 0.001, 1.2, 80
_LIMITS = [_LEAST * _RATIO**number for number in range(_BINS)]
"""From a millisecond to half an hour."""


@dataclass
class Histogram:
    """Times in seconds, each counted in one of a fixed number of bins: a quantile is right within a fifth."""

    counts: list[int] = field(default_factory=lambda: [0] * (_BINS + 1))
    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(_LIMITS, seconds)] += times
        self.count += times
        self.total += seconds * times
        self.most = max(self.most, seconds)

    def quantile(self, share: float) -> float | None:
        """The time that this share of all does not exceed; None of nothing."""
        if not self.count:
            return None
        left = share * self.count
        for limit, count in zip(_LIMITS, self.counts, strict=False):
            left -= count
            if left <= 0:
                return min(limit, self.most)
        return self.most


@dataclass
class QueryCounts:
    """A query: the elements of its streams, its results, and how long these took."""

    read: int = 0
    sent: int = 0
    latency: Histogram = field(default_factory=Histogram)


@dataclass
class Totals:
    """Everything since the process began, and the state of things after the last micro-batch."""

    batch: int = -1
    elements: int = 0
    triples: int = 0
    rejected: int = 0
    late: int = 0
    results: int = 0
    rebuilt: int = 0
    instances: int = 0
    watermark: int | None = None
    time: int | None = None
    """Of the last element that was given to the queries."""
    held: int = 0
    state_bytes: int = 0
    log_bytes: int = 0
    snapshot_bytes: int = 0
    engine_seconds: float = 0.0
    batch_seconds: float = 0.0
    trigger_seconds: float | None = None
    store_bytes: int | None = None
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    ended: bool = False
    stopped: dict[str, str] = field(default_factory=dict)
    """The queries that took more than their budgets, and the reasons."""
    queries: dict[str, QueryCounts] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)


class Metrics:
    """Counts, and writes what it counts: a line of JSON for each micro-batch, and a text for Prometheus.

    The latency of a result is the time from when Spark has planned its micro-batch, and begins to read and evaluate
    it, to its delivery to the sinks.  A micro-batch that is repeated after a crash is counted by the process that
    repeats it; in the file it may have two lines.
    """

    def __init__(
        self,
        lines: str | Path | None = None,
        prometheus: str | Path | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`lines` is a file to append to, `prometheus` one that is rewritten with each micro-batch."""
        self.totals = Totals()
        self.batches = 0
        """How many were added."""
        self.watchers: list[Callable[[Metrics], None]] = []
        self._lines = _appended(lines)
        self._prometheus = None if prometheus is None else Path(prometheus)
        self._clock = clock
        self._recent: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])
        self._latest: dict[int, Mapping[str, Any]] = {}
        self._waiting: dict[str, Any] | None = None
        self._listens = False
        self._lock = Lock()

    # ------------------------------------------------------------ input

    def keep(self, instances: Collection[int]) -> None:
        """There are only these instances any more."""
        with self._lock:
            self._latest = {each: report for each, report in self._latest.items() if each in instances}

    def add(self, batch: int, reports: Iterable[Mapping[str, Any]], duration: float) -> None:
        """The reports of all engines on a micro-batch, whose results were delivered `duration` after it began.

        A batch that is added again is not counted again.
        """
        with self._lock:
            if batch <= self.totals.batch:
                return
            self._flush()
            self.batches += 1
            self._waiting = self._fold(batch, list(reports), duration)
            if not self._listens:
                self._flush()
        self._publish()

    def progress(self, progress: Mapping[str, Any]) -> None:
        """What Spark reports of a micro-batch when it is over: `StreamingQuery.lastProgress`, or a listener's event."""
        operators = progress["stateOperators"]
        more = {
            "trigger_seconds": progress["durationMs"].get("triggerExecution", 0) / 1000,
            "store_bytes": sum(each["memoryUsedBytes"] for each in operators),
            "input_rows_per_second": _number(progress["inputRowsPerSecond"]),
            "processed_rows_per_second": _number(progress["processedRowsPerSecond"]),
        }
        with self._lock:
            for name, value in more.items():
                setattr(self.totals, name, value)
            if self._waiting is not None and self._waiting["batch"] == progress["batchId"]:
                self._waiting |= more
                self._flush()
        self._publish()

    def listen(self, spark: SparkSession, query: str) -> Callable[[], None]:
        """Listen to the progress of the streaming query with an id; call what is returned to stop listening."""
        from pyspark.sql.streaming import StreamingQueryListener

        metrics = self

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:  # noqa: N802
                pass

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                if str(event.progress.id) == query:
                    metrics.progress(json.loads(event.progress.json))

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                pass

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                pass

        listener = Listener()
        spark.streams.addListener(listener)
        self._listens = True

        def end() -> None:
            self._listens = False
            with suppress(Exception):  # Java may have been killed: then there is nothing to hear
                spark.streams.removeListener(listener)

        return end

    def close(self) -> None:
        with self._lock:
            self._flush()
            if self._lines is not None:
                self._lines.close()
                self._lines = None

    # ------------------------------------------------------------ figures

    @property
    def elements_per_second(self) -> float:
        return self._rate(1)

    @property
    def results_per_second(self) -> float:
        return self._rate(2)

    def prometheus(self) -> str:
        """All of it in the text format of Prometheus."""
        from cqels.spark.driver.metrics_export import exposition

        with self._lock:
            return exposition(self.totals)

    # ------------------------------------------------------------ folding

    def _fold(self, batch: int, reports: list[Mapping[str, Any]], duration: float) -> dict[str, Any]:
        """Add to the totals; what is written of the batch.

        Each element goes to all engines: the one that has read most has read all.
        """
        line = {
            "batch": batch,
            "elements": max((each["elements"] for each in reports), default=0),
            "triples": sum(each["triples"] for each in reports),
            "rejected": sum(each["rejected"] for each in reports),
            "late": max((each["late"] for each in reports), default=0),
            "results": sum(counts["out"] for each in reports for counts in each["queries"].values()),
            "rebuilt": sum(each["rebuilt"] for each in reports),
        }
        totals = self.totals
        for name, value in line.items():
            setattr(totals, name, value if name == "batch" else getattr(totals, name) + value)
        self._latest |= {each["instance"]: each for each in reports}
        latest = self._latest.values()  # an engine that had nothing to do says nothing
        totals.instances = len(latest)
        totals.watermark = min((each["watermark"] for each in latest if each["watermark"] is not None), default=None)
        totals.time = max((each["time"] for each in reports if each.get("time") is not None), default=totals.time)
        totals.held = max((each["held"] for each in latest), default=0)
        totals.state_bytes = sum(each["state_bytes"] for each in latest)
        totals.log_bytes = sum(each["log_bytes"] for each in latest)
        totals.snapshot_bytes = sum(each.get("snapshot_bytes", 0) for each in latest)
        totals.ended = bool(latest) and all(each["ended"] for each in latest)
        totals.stopped |= {name: reason for each in reports for name, reason in each.get("stopped", {}).items()}
        totals.engine_seconds = max((each["seconds"] for each in reports), default=0.0)
        totals.batch_seconds = duration
        totals.latency.add(duration, line["results"])
        self._recent.append((self._clock(), line["elements"], line["results"]))
        while len(self._recent) > 2 and self._recent[-1][0] - self._recent[0][0] > RECENT:
            self._recent.popleft()
        queries = {}
        for report in reports:
            for name, counts in report["queries"].items():
                known = totals.queries.setdefault(name, QueryCounts())
                known.read += counts["in"]
                known.sent += counts["out"]
                known.latency.add(duration, counts["out"])
                queries[name] = {"in": counts["in"], "out": counts["out"], "latency": _quantiles(known.latency)}
        return line | {
            "watermark": totals.watermark,
            "held": totals.held,
            "state_bytes": totals.state_bytes,
            "log_bytes": totals.log_bytes,
            "seconds": round(duration, 6),
            "engine_seconds": round(totals.engine_seconds, 6),
            "latency": _quantiles(totals.latency),
            "ended": totals.ended,
            "stopped": dict(totals.stopped),
            "queries": queries,
        }

    def _rate(self, column: int) -> float:
        recent = list(self._recent)
        seconds = recent[-1][0] - recent[0][0]
        return sum(each[column] for each in recent[1:]) / seconds if seconds > 0 else 0.0

    def _flush(self) -> None:
        if self._waiting is None:
            return
        if self._lines is not None:
            self._lines.write(json.dumps(self._waiting) + "\n")
            self._lines.flush()
        self._waiting = None

    def _publish(self) -> None:
        if self._prometheus is not None:
            part = self._prometheus.with_name(f".{self._prometheus.name}.tmp")
            part.write_text(self.prometheus(), encoding="utf-8")
            part.replace(self._prometheus)
        for watcher in self.watchers:
            watcher(self)


def status_line(metrics: Metrics) -> str:
    """One line for a terminal.

    batch 41 · 182 k elements/s in · 3.1 k results/s out · up to 2026-01-31T12:00:00Z · 3 late · 0 rejected · 0.21 s a
    batch · state 14 MB
    """
    totals = metrics.totals
    words = [
        f"batch {totals.batch}",
        f"{_short(metrics.elements_per_second)} elements/s in",
        f"{_short(metrics.results_per_second)} results/s out",
    ]
    if totals.watermark is not None:
        words.append(f"up to {format_time(totals.watermark)}")
    words += [f"{totals.late:,} late", f"{totals.rejected:,} rejected", f"{totals.batch_seconds:.2g} s a batch"]
    words.append(f"state {' '.join(_scaled(totals.state_bytes))}B")
    if totals.stopped:
        words.append(f"{len(totals.stopped)} stopped")
    return " · ".join(words)


def _short(number: float) -> str:
    """Three digits at most, and a unit.

    >>> _short(182_345), _short(3_120), _short(41)
    ('182 k', '3.1 k', '41')
    """
    return " ".join(filter(None, _scaled(number)))


def _scaled(number: float) -> tuple[str, str]:
    for unit in ("", "k", "M", "G"):
        if number < 999.5 or unit == "G":
            break
        number /= 1000
    return f"{number:.1f}" if unit and number < 9.95 else f"{number:.0f}", unit


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    if not histogram.count:
        return None
    return {f"p{share * 100:.0f}": round(histogram.quantile(share) or 0.0, 6) for share in QUANTILES}


def _number(value: Any) -> float | None:
    """Spark writes rates that are no numbers as texts, or not at all."""
    return value if isinstance(value, int | float) else None


def _appended(path: str | Path | None) -> IO[str] | None:
    if path is None:
        return None
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise CqelsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
