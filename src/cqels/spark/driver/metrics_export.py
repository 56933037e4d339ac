"""Metrics of a pipeline for others: the text format of Prometheus, a page that has it, and a line on the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock, Thread
from typing import Any, TextIO, TypeAlias, cast

from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.spark.driver.metrics import QUANTILES, Histogram, Metrics, Totals, status_line

_Sample: TypeAlias = tuple[str, Mapping[str, str], float]
_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS = {
    "elements": "elements that were read",
    "triples": "triples that were read and some query can match, once for each engine",
    "rejected": "lines and records that are no elements",
    "late": "elements that came too late",
    "rebuilt": "engines that were made again from their state",
}
_GAUGES = {
    "batch": "the number of the last micro-batch",
    "instances": "engines",
    "held": "elements that wait for their time",
    "state_bytes": "memory of all engines",
    "log_bytes": "logs of all engines since their snapshots",
    "store_bytes": "memory of Spark's state stores",
    "engine_seconds": "time of the slowest engine in the last micro-batch",
    "batch_seconds": "time to evaluate and deliver the last micro-batch",
    "trigger_seconds": "time of the last micro-batch as Spark tells it, with all it writes down",
    "input_rows_per_second": "rows that arrive, as Spark tells it",
    "processed_rows_per_second": "rows that are processed, as Spark tells it",
}


def exposition(totals: Totals) -> str:
    """The text format of Prometheus, version 0.0.4."""
    return "".join(_families(totals))


def _families(totals: Totals) -> Iterator[str]:
    for name, help in _COUNTERS.items():
        yield from _family(f"cqels_{name}_total", "counter", help, [("", {}, getattr(totals, name))])
    for name, help in _GAUGES.items():
        value = getattr(totals, name)
        if value is not None:
            yield from _family(f"cqels_{name}", "gauge", help, [("", {}, value)])
    if totals.watermark is not None:
        help = "all elements before this time have been read"
        yield from _family("cqels_watermark_seconds", "gauge", help, [("", {}, totals.watermark / SECOND)])
    if not totals.queries:
        return
    named = [({"query": name}, counts) for name, counts in totals.queries.items()]
    help = "elements of a query's streams"
    yield from _family("cqels_query_elements_total", "counter", help, [("", name, each.read) for name, each in named])
    help = "results of a query"
    yield from _family("cqels_results_total", "counter", help, [("", name, each.sent) for name, each in named])
    help = "1 if a query was stopped because it took more than its budget"
    stops = [("", {"query": name}, int(name in totals.stopped)) for name in totals.queries]
    yield from _family("cqels_query_stopped", "gauge", help, stops)
    help = "time from the evaluation of a micro-batch to the delivery of its results"
    samples = [sample for name, each in named for sample in _summary(name, each.latency)]
    yield from _family("cqels_latency_seconds", "summary", help, samples)


def _summary(labels: Mapping[str, str], histogram: Histogram) -> Iterator[_Sample]:
    for share in QUANTILES:
        value = histogram.quantile(share)
        yield "", {**labels, "quantile": str(share)}, float("nan") if value is None else value
    yield "_sum", labels, histogram.total
    yield "_count", labels, histogram.count


def _family(name: str, kind: str, help: str, samples: Iterable[_Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help}\n# TYPE {name} {kind}\n"
    for suffix, labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        shown = "NaN" if value != value else repr(value)
        yield f"{name}{suffix}{{{inside}}} {shown}\n" if inside else f"{name}{suffix} {shown}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Endpoint:
    """A page `/metrics` for Prometheus, in a thread of its own. Other machines see it if `host` says so."""

    def __init__(self, metrics: Metrics, port: int, host: str = "127.0.0.1") -> None:
        """With port 0, `port` is one that was free."""

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                body = metrics.prometheus().encode()
                self.send_response(200)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        try:
            self._server = ThreadingHTTPServer((host, port), Page)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CqelsError(f"metrics cannot be shown at {host}:{port}: {reason}") from None
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="cqels metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Status:
    """A line on standard error that says what the pipeline does, below all else; nothing where that is no terminal."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._stream = sys.stderr if sys.stderr.isatty() else None
        self._text = ""
        self._shown = False
        self._lock = RLock()

    def __enter__(self) -> Status:
        if self._stream is not None:
            self._metrics.watchers.append(self._update)
        return self

    def __exit__(self, *fault: object) -> None:
        if self._stream is not None:
            self._metrics.watchers.remove(self._update)
        self.show("")

    def show(self, text: str) -> None:
        """Another text, cut to what the terminal is wide."""
        with self._lock:
            self._clear()
            self._text = text
            self._draw()

    def above(self, stream: TextIO) -> TextIO:
        """A stream to the same terminal, what is written to which appears above the line."""
        return cast(TextIO, _Above(self, stream)) if self._stream is not None and stream.isatty() else stream

    def _update(self, metrics: Metrics) -> None:
        self.show(status_line(metrics))

    def _draw(self) -> None:
        if self._stream is not None and self._text:
            width = shutil.get_terminal_size().columns
            self._stream.write(self._text if len(self._text) < width else f"{self._text[: width - 2]}…")
            self._stream.flush()
            self._shown = True

    def _clear(self) -> None:
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


class _Above:
    """Takes the line away before something is written, and brings it back when that is complete."""

    def __init__(self, status: Status, stream: TextIO) -> None:
        self._status, self._stream = status, stream

    def write(self, text: str) -> int:
        with self._status._lock:
            self._status._clear()
            return self._stream.write(text)

    def flush(self) -> None:
        with self._status._lock:
            self._stream.flush()
            if not self._status._shown:
                self._status._draw()
