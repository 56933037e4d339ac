"""The log of a service: lines that people and machines read, requests among them, and no secrets; and its traces."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cqels.live.live_run import LiveSettings
from cqels.model.errors import CqelsError
from cqels.serve.access import Access
from cqels.serve.backend import Pipeline
from cqels.serve.http_app import HttpSettings
from cqels.serve.logs import ACCESS, FIELDS, JsonLines, log_to
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.serve.tracing import exporter_of, tracing
from cqels.store.dataset import Store

TOKEN = "0123456789-secret-token"
HOT = "SELECT ?s ?t WHERE { STREAM <obs> [RANGE 10s] { ?s <http://ex.org/temp> ?t } }"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
TURTLE = {"Content-Type": "text/turtle"}
LOG = logging.getLogger("cqels")


def a_server(state: Path, *, token: str | None = None) -> Server:
    pipeline = Pipeline(store=Store(), settings=LiveSettings(lasting=True))
    access = (
        Access() if token is None else Access(((token.encode(), frozenset({"read", "push", "register", "admin"})),))
    )
    return Server(Service(pipeline, state), Address(port=0), HttpSettings(access=access))


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_text() -> None:
    stream = io.StringIO()
    with log_to(stream):
        LOG.warning("the inbox %s is full", "obs")
    assert re.fullmatch(rf"{TIME} warning cqels: the inbox obs is full\n", stream.getvalue())


def test_what_comes_from_outside_stays_in_its_line() -> None:
    stream = io.StringIO()
    with log_to(stream):
        LOG.info("rejected: %s", "x\n2026-11-18T10:00:00.000Z error cqels: forged\x1b[31m\u2028\x85")
    assert len(stream.getvalue().splitlines()) == 1
    assert r"x\n2026" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_half_a_character_can_be_written() -> None:
    record = logging.makeLogRecord({"msg": "rejected: \ud800"})
    assert json.loads(JsonLines().format(record).encode())["message"] == "rejected: \ud800"


def test_json() -> None:
    stream = io.StringIO()
    with log_to(stream, "json"):
        LOG.info("up to\n%s", "2 lines – é", extra={FIELDS: {"path": "/", "status": 200}})
        try:
            raise ValueError("an accident")
        except ValueError:
            LOG.exception("a request has failed")
    first, second = lines_of(stream)
    assert first["message"] == "up to\n2 lines – é"
    assert (first["level"], first["logger"], first["path"], first["status"]) == ("info", "cqels", "/", 200)
    assert re.fullmatch(TIME, first["time"])
    assert second["exception"].startswith("Traceback")
    assert "an accident" in second["exception"]
    assert "exception" not in first


def test_other_loggers_and_warnings() -> None:
    stream = io.StringIO()
    with log_to(stream, "json"):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("uvicorn.error").info("Started server process")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("something is old", stacklevel=1)
    assert [each["logger"] for each in lines_of(stream)] == ["uvicorn.error", "py.warnings"]


def test_afterwards_logging_is_as_before() -> None:
    before = LOG.level, logging.getLogger().handlers[:]
    with log_to(io.StringIO()):
        assert LOG.isEnabledFor(logging.INFO)
    assert (LOG.level, logging.getLogger().handlers) == before


@pytest.mark.parametrize("format", ["text", "json"])
def test_secrets_are_hidden(format: Any) -> None:
    stream = io.StringIO()
    with log_to(stream, format):
        LOG.info("GET /queries/hot/results?access_token=%s&after=1", TOKEN)
        LOG.info("Authorization: Bearer %s", TOKEN)
        logging.getLogger("cqels.live").warning("mqtt://me:%s@broker/building/+ does not answer", TOKEN)
        try:
            raise ValueError(f"http://ex.org/?token={TOKEN}")
        except ValueError:
            LOG.exception("failed", extra={FIELDS: {"url": f"http://me:{TOKEN}@ex.org/"}})
    assert TOKEN not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) >= 4


# ---------------------------------------------------------------- requests


def requests_of(stream: io.StringIO) -> list[tuple[str, str, int]]:
    return [(each["method"], each["path"], each["status"]) for each in lines_of(stream) if each["logger"] == ACCESS]


def test_requests(tmp_path: Path) -> None:
    stream = io.StringIO()
    with log_to(stream, "json"), a_server(tmp_path / "state") as server, httpx.Client(base_url=server.url) as client:
        client.put("/queries/hot", content=HOT)
        client.post("/streams/obs", content="<http://ex.org/s> <http://ex.org/temp> 1 .")
        client.get("/metrics")
        client.get("/health")
        client.get("/queries/none")
        client.post("/streams/obs", content="this is no element", headers=TURTLE)
    found = requests_of(stream)
    assert ("PUT", "/queries/{name}", 201) in found
    assert ("GET", "/queries/{name}", 404) in found
    assert ("POST", "/streams/{name}", 400) in found
    assert ("POST", "/streams/{name}", 200) not in found
    assert not [path for _, path, _ in found if path in ("/metrics", "/health")]
    entry = next(each for each in lines_of(stream) if each.get("path") == "/queries/{name}")
    assert entry["client"] == "127.0.0.1"
    assert 0 < entry["ms"] < 30_000


def test_all_requests_of_a_verbose_log(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs = log_to(stream, "json", verbose=True)
    with logs, a_server(tmp_path / "state") as server, httpx.Client(base_url=server.url) as client:
        client.post(
            "/streams/obs",
            content="<http://ex.org/s> <http://ex.org/temp> 1 .",
            headers=TURTLE,
        )
        client.get("/health")
    assert requests_of(stream) == [("POST", "/streams/{name}", 200), ("GET", "/health", 200)]


def test_tokens_are_in_no_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    server = a_server(tmp_path / "state", token=TOKEN)
    with log_to(stream, "json", verbose=True), server, httpx.Client(base_url=server.url) as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        client.put("/queries/hot", content=HOT, headers=headers)
        parameters = {"access_token": TOKEN, "wait": "1ms"}
        answer = client.get("/queries/hot/results", params=parameters, headers={"Accept": "application/json"})
        assert answer.status_code == 200
        assert client.get(f"/queries/hot/results?access_token=wrong-{TOKEN}").status_code == 401
        assert client.get(f"/nothing?access_token={TOKEN}").status_code in (400, 401, 404)
        assert client.get(f"/queries/{TOKEN}", headers=headers).status_code == 404
    assert TOKEN not in stream.getvalue()
    assert ("GET", "/queries/{name}/results", 401) in requests_of(stream)


# ---------------------------------------------------------------- traces


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """What was traced, by the SDK; its provider is that of the process, so it is the same for all tests."""
    pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    exporter = InMemorySpanExporter()
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))  # type: ignore[attr-defined]
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    yield lambda: list(exporter.get_finished_spans())
    exporter.shutdown()


def test_traces_of_requests_and_batches(tmp_path: Path, spans: Callable[[], list[Any]]) -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with a_server(tmp_path / "state") as server, httpx.Client(base_url=server.url) as client:
        client.put("/queries/hot", content=HOT)
        headers = {"traceparent": caller, **TURTLE}
        client.post("/streams/obs", content="<http://ex.org/s> <http://ex.org/temp> 1 .", headers=headers)
        polled = {"Accept": "application/json"}
        assert client.get("/queries/hot/results?from=start&wait=5s", headers=polled).json()["results"]
        client.post("/streams/obs", content="<http://ex.org/s> <http://ex.org/temp> 2 .", headers=headers)
    found = spans()
    pushes = [each for each in found if each.name == "POST /streams/{name}"]
    assert {each.attributes["http.response.status_code"] for each in pushes} == {200}
    assert {format(each.context.trace_id, "032x") for each in pushes} == {"0af7651916cd43dd8448eb211c80319c"}
    batches = [each for each in found if each.name == "batch"]
    assert sum(each.attributes["cqels.elements"] for each in batches) == 2
    assert sum(each.attributes["cqels.results"] for each in batches) == 2
    linked = {link.context.span_id for each in batches for link in each.links}
    assert linked <= {each.context.span_id for each in pushes}
    for batch in batches:
        parts = [each for each in found if each.parent is not None and each.parent.span_id == batch.context.span_id]
        assert sorted(each.name for each in parts) == ["deliver", "evaluate"]
        assert all(batch.start_time <= each.start_time <= each.end_time <= batch.end_time for each in parts)


@pytest.mark.parametrize(
    "settings",
    [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}],
)
def test_no_traces_unless_they_are_asked_for(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert tracing() is None


def run(script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", script], env=others | settings, capture_output=True, text=True, timeout=60
    )


def test_opentelemetry_is_not_imported_unless_it_is_asked_for() -> None:
    script = (
        "import sys; import cqels.serve.server; from cqels.serve.tracing import tracing; "
        "print(tracing(), 'opentelemetry' in sys.modules)"
    )
    assert run(script).stdout.split() == ["None", "False"]


def test_traces_without_opentelemetry_are_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert tracing() is None
    assert "OpenTelemetry is not installed" in caplog.text


def test_the_environment_sets_up_what_is_not_set_up() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk")
    script = (
        "from cqels.serve.tracing import tracing; from cqels.live.run_measures import BatchDone; "
        "tracing().batch(BatchDone(7, 1, 2, 3, 4, 5))"
    )
    done = run(script, OTEL_TRACES_EXPORTER="console", OTEL_RESOURCE_ATTRIBUTES="deployment=test")
    assert done.returncode == 0, done.stderr
    assert '"cqels.batch": 7' in done.stdout
    assert '"service.name": "cqels"' in done.stdout
    assert '"deployment": "test"' in done.stdout


def test_an_exporter_that_is_not_there() -> None:
    with pytest.raises(CqelsError, match="there is no exporter of traces 'nothing'"):
        exporter_of("nothing")
