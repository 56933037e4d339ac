"""What Prometheus reads of a service: streams, queries, the run, requests and the process, as they are then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from cqels.live.run_measures import Histogram, Measured, Measures
from cqels.model.release import RELEASE
from cqels.model.time import SECOND
from cqels.serve.memory import resident_memory
from cqels.serve.reception import Outcome
from cqels.serve.service import Service

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPEN = "application/openmetrics-text"
_SIZES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Elements of a push up to which pushes are counted together."""

_OF_RUN = {
    "batches": "Batches that were done",
    "elements": "Elements that were given to the queries",
    "rejected": "Elements of sources that could not be used",
    "late": "Elements that came too late",
    "snapshots": "Snapshots of the state that were completed",
}
"""Counters that a run may have, by its own names for them."""
_NOW = {
    "batch": ("cqels_batch", "The number of the last batch"),
    "lag": ("cqels_lag_seconds", "How far the watermark is behind the clock"),
    "held": ("cqels_held", "Elements that wait for their time or for a silent stream"),
    "state_bytes": ("cqels_state_bytes", "Memory of the engines"),
    "log_bytes": ("cqels_log_bytes", "The log of what has come since the last snapshot"),
    "snapshot_bytes": ("cqels_snapshot_bytes", "The last snapshot"),
    "pause": ("cqels_snapshot_pause_seconds", "How long the last snapshot has stopped the run"),
}
"""Gauges that a run may have, by its own names for them."""
_OF_STREAM = {
    "elements": "Elements that were pushed and accepted",
    "bytes": "Bytes of the bodies that were pushed",
    "pushes": "Pushes that were taken",
    "rejected": "Elements that were pushed and are none",
    "refused": "Pushes that were refused because too much waits",
    "dropped": "Elements that newer ones have replaced because too much waits",
    "left_out": "Elements that were not in the sample that is taken because too much waits",
}
"""Counters of what is pushed to a stream, by the names of its counts."""


class Readers(Protocol):
    """Those who read results: `Subscriptions`."""

    readers: dict[str, int]
    missed: int


class Exposition:
    """The metrics of one service, in a registry of their own."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._service, self._http = _ServiceCollector(service), _HttpCollector()
        self._registry.register(self._service)
        self._registry.register(self._http)
        ProcessCollector(registry=self._registry)

    def pushed(self, outcome: Outcome) -> None:
        """A push was taken."""
        self._http.sizes.note(outcome.accepted)

    def began(self) -> None:
        """A request has come."""
        self._http.open += 1

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """An answer has begun; `path` is a template, of which there are few."""
        http = self._http
        http.requests[method, path, status] = http.requests.get((method, path, status), 0) + 1
        if (times := http.seconds.get((method, path))) is None:
            times = http.seconds[method, path] = Histogram()
        times.note(seconds)

    def ended(self) -> None:
        """An answer has ended, or nobody waits for it any more."""
        self._http.open -= 1

    def text(self, subscriptions: Readers | None = None, accept: str = "") -> tuple[bytes, str]:
        """All of it and its media type: the text format of Prometheus, or OpenMetrics for those who ask for it."""
        self._service.readers = subscriptions
        if _OPEN in accept:
            made: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return made, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), TEXT


class _HttpCollector(Collector):
    """What has been counted of requests; one event loop counts."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.seconds: dict[tuple[str, str], Histogram] = {}
        self.sizes = Histogram(_SIZES)
        self.open = 0

    def collect(self) -> Iterator[Metric]:
        counts = {(method, path, str(status)): count for (method, path, status), count in [*self.requests.items()]}
        yield _counter("cqels_http_requests", "Requests that were answered", ("method", "path", "status"), counts)
        help = "From a request to the beginning of its answer"
        yield _histogram("cqels_http_request_duration_seconds", help, ("method", "path"), dict(self.seconds))
        help = "Requests whose answers have not ended"
        yield GaugeMetricFamily("cqels_http_requests_in_progress", help, value=self.open)
        yield _histogram("cqels_push_elements", "Elements of a push", (), {(): self.sizes})


class _ServiceCollector(Collector):
    """What the service and its run know anyway: read when somebody asks, so that it costs nothing else."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.readers: Readers | None = None

    def collect(self) -> Iterator[Metric]:
        run = self._service.run
        measures = run.measures if isinstance(run, Measured) else Measures()
        yield from self._of_service()
        yield from _of_run(run.metrics)
        yield _histogram("cqels_batch_seconds", "From reading a batch to its delivery", (), {(): measures.batch})
        help = "From when a push is given to the run to the delivery of the batch that it is in"
        yield _histogram("cqels_push_delivery_seconds", help, (), {(): measures.push})
        yield from self._of_streams(measures)
        yield from self._of_queries(measures)

    def _of_service(self) -> Iterator[Metric]:
        service, readers = self._service, self.readers
        yield InfoMetricFamily("cqels", "The release that runs", value={"release": RELEASE})
        yield GaugeMetricFamily("cqels_ready", "1 while the run goes on", value=service.is_ready())
        yield GaugeMetricFamily("cqels_queries", "Queries that there are", value=len(service.run.queries))
        help = "Memory of the process, without pages of files"
        yield GaugeMetricFamily("cqels_memory_bytes", help, value=resident_memory())
        if service.settings.memory is not None:
            yield GaugeMetricFamily("cqels_memory_limit_bytes", "What it may have", value=service.settings.memory)
        if readers is not None:
            help = "Results that readers were told to have missed"
            yield CounterMetricFamily("cqels_results_missed", help, value=readers.missed)

    def _of_streams(self, measures: Measures) -> Iterator[Metric]:
        streams, label = self._service.streams(), ("stream",)
        yield GaugeMetricFamily("cqels_streams", "Streams that there are", value=len(streams))
        for word, help in _OF_STREAM.items():
            values = {(each["name"],): each["counts"][word] for each in streams if word in each["counts"]}
            yield _counter(f"cqels_stream_{word}", help, label, values)
        waiting = {(each["name"],): each["waiting"] for each in streams}
        yield _gauge("cqels_stream_waiting_bytes", "What was pushed and waits in the inbox", label, waiting)
        read = {(self._service.names.short(iri),): found for iri, found in measures.streams.items()}
        help = "Elements that were given to the queries, whatever they come from"
        yield _counter("cqels_stream_read", help, label, {key: each.elements for key, each in read.items()})
        help = "Elements that came too late"
        yield _counter("cqels_stream_late", help, label, {key: each.late for key, each in read.items()})
        help = "Elements of other sources than pushes that could not be used"
        rejected = {key: each.rejected for key, each in read.items()}
        yield _counter("cqels_stream_source_rejected", help, label, rejected)
        help = "When the last element was read"
        last = {key: each.last for key, each in read.items() if each.last is not None}
        yield _gauge("cqels_stream_last_element_timestamp_seconds", help, label, last)

    def _of_queries(self, measures: Measures) -> Iterator[Metric]:
        service, label = self._service, ("query",)
        names = {name: (service.names.short(name),) for name in service.run.queries}
        known = {key: measures.queries[name] for name, key in names.items() if name in measures.queries}
        help = "Results of a query, those of earlier runs with the same state among them"
        yield _counter("cqels_results", help, label, {key: service.results.end(name) for name, key in names.items()})
        help = "Elements of the streams of a query"
        yield _counter("cqels_query_elements", help, label, {key: each.elements for key, each in known.items()})
        help = "Memory of a query; what several queries share counts for each"
        yield _gauge("cqels_query_state_bytes", help, label, {key: each.bytes for key, each in known.items()})
        stopped = service.run.stopped
        help = "1 if a query was stopped because it took more than its budget"
        yield _gauge("cqels_query_stopped", help, label, {key: name in stopped for name, key in names.items()})
        help = "From the first push of a batch, or its beginning, to the delivery of the results that a query has in it"
        yield _histogram("cqels_latency_seconds", help, label, {key: each.latency for key, each in known.items()})
        if self.readers is not None:
            readers = dict(self.readers.readers)
            following = {key: readers.get(name, 0) for name, key in names.items()}
            yield _gauge("cqels_query_subscribers", "Readers that follow the results of a query", label, following)


def _of_run(metrics: Mapping[str, Any]) -> Iterator[Metric]:
    """What a run says; what one has no number for is left out."""
    for word, help in _OF_RUN.items():
        if metrics.get(word) is not None:
            yield CounterMetricFamily(f"cqels_{word}", help, value=metrics[word])
    for word, (name, help) in _NOW.items():
        if metrics.get(word) is not None:
            yield GaugeMetricFamily(name, help, value=metrics[word])
    if metrics.get("watermark") is not None:
        help = "All elements before this time have been read"
        yield GaugeMetricFamily("cqels_watermark_seconds", help, value=metrics["watermark"] / SECOND)


def _counter(name: str, help: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, help: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, help: str, labels: Sequence[str], found: Mapping[Any, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=labels)
    for key, each in found.items():
        edges = [*map(str, each.bounds), "+Inf"]
        family.add_metric(key, [*zip(edges, accumulate(each.counts), strict=True)], each.total)
    return family
