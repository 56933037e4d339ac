"""Traces of requests and batches for OpenTelemetry, where its environment variables ask for them; else nothing."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from cqels.live.run_measures import BatchDone
from cqels.model.errors import CqelsError
from cqels.model.release import RELEASE

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext

_ASK = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_INSTALL = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
_LINKED = 32
"""Pushes that the trace of a batch names at most."""
_LOG = logging.getLogger("cqels")


def tracing() -> Tracing | None:
    """What makes traces, if they are asked for."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(map(os.environ.get, _ASK)):
        return None
    if os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        return Tracing()
    except ImportError:
        _LOG.warning("traces are asked for, and OpenTelemetry is not installed; there are none: %s", _INSTALL)
        return None


class Tracing:
    """Makes spans by the tracer of this process; one that is not set up is set up by the environment."""

    def __init__(self) -> None:
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(_provider())
        self._tracer = trace.get_tracer("cqels", RELEASE)
        self._pushes: deque[SpanContext] = deque(maxlen=_LINKED)

    @contextmanager
    def request(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """A request, in the trace that its headers name."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        attributes = {"http.request.method": method, "http.route": path}
        context = extract(headers)
        name = f"{method} {path}"
        with self._tracer.start_as_current_span(name, context, SpanKind.SERVER, attributes) as span:
            yield span

    def answered(self, span: Span, status: int, *, is_push: bool) -> None:
        """The answer to a request has begun; a push that was taken is linked with the batch that comes next."""
        from opentelemetry.trace import StatusCode

        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        elif is_push and status < 300 and span.is_recording():
            self._pushes.append(span.get_span_context())

    def batch(self, done: BatchDone) -> None:
        """A batch: its evaluation and its delivery, with the pushes that were acknowledged since the one before."""
        from opentelemetry import trace

        links = [trace.Link(self._pushes.popleft()) for _ in range(len(self._pushes))]
        attributes = {"cqels.batch": done.batch, "cqels.elements": done.elements, "cqels.results": done.results}
        span = self._tracer.start_span("batch", links=links, attributes=attributes, start_time=done.began)
        context = trace.set_span_in_context(span)
        for name, began, ended in (
            ("evaluate", done.began, done.evaluated),
            ("deliver", done.evaluated, done.delivered),
        ):
            self._tracer.start_span(name, context, start_time=began).end(ended)
        span.end(done.delivered)


def _provider() -> TracerProvider:
    """The SDK with the exporters, the sampler and the resource that the environment names."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if is_named else {"service.name": "cqels"}))
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(exporter_of(name.strip())))
    return provider


def exporter_of(name: str) -> Any:
    """The exporter of a name, as installed packages offer it."""
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    for each in entry_points(group="opentelemetry_traces_exporter", name=name):
        return each.load()()
    raise CqelsError(f"there is no exporter of traces '{name[:40]}'", hint=_INSTALL)
