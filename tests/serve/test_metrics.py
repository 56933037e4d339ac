"""What Prometheus reads of a service: the numbers are those of what was done, under names of which there are few."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as families_of

from cqels.ingest import Rejected
from cqels.live.live_run import LiveSettings
from cqels.live.run_measures import BOUNDS, BatchDone, Histogram, Measured, Measuring
from cqels.pipeline.instance.driven_instance import Outcome
from cqels.pipeline.instance.engine_instance import Report
from cqels.serve.backend import Pipeline
from cqels.serve.guard import Limits
from cqels.serve.http_app import HttpSettings
from cqels.serve.metrics import TEXT, Exposition
from cqels.serve.served_stream import ServedStream
from cqels.serve.server import Address, Server
from cqels.serve.service import Service, ServiceSettings
from cqels.serve.subscriptions import Subscriptions
from cqels.store.dataset import Store

HOT = "SELECT ?s ?t WHERE { STREAM <obs> [RANGE 10s] { ?s <http://ex.org/temp> ?t } FILTER(?t > 30) }"
SENSORS = "SELECT (COUNT(DISTINCT ?s) AS ?n) WHERE { STREAM <obs> [RANGE 10m] { ?s <http://ex.org/temp> ?t } }"
TRIPLES = {"Content-Type": "application/n-triples"}
"""Without times, all triples of a push are one element."""
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def reading(number: int, degrees: int) -> str:
    return f"<http://ex.org/s{number}> <http://ex.org/temp> {degrees} ."


def a_service(state: Path, **settings: Any) -> Service:
    pipeline = Pipeline(store=Store(), settings=LiveSettings(lasting=True))
    return Service(pipeline, state, ServiceSettings(**settings))


def eventually(check: Callable[[], bool], seconds: float = 10.0) -> None:
    limit = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < limit, "it has not happened"
        time.sleep(0.01)


def samples_of(text: str) -> Samples:
    """What a text has, after a parser of others has read it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families_of(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """A sample; a number that nothing is equal to where there is none."""
    return samples.get((name, frozenset(labels.items())), float("nan"))


class Client:
    """Asks a service as others do."""

    def __init__(self, server: Server) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=10)

    def push(self, *lines: str) -> httpx.Response:
        return self.http.post("/streams/obs", content="\n".join(lines), headers=TRIPLES)

    def samples(self) -> Samples:
        answer = self.http.get("/metrics")
        assert answer.status_code == 200
        return samples_of(answer.text)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(a_service(tmp_path / "state"), Address(port=0)) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server)
    with client.http:
        yield client


def test_streams_and_queries(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    client.http.put("/queries/sensors", content=SENSORS)
    for number, degrees in enumerate((31, 20, 32)):
        assert client.push(reading(number, degrees)).status_code == 200
    assert client.push("this is no element").status_code == 400
    eventually(lambda: value(client.samples(), "cqels_stream_read_total", stream="obs") == 3)
    eventually(lambda: value(client.samples(), "cqels_query_state_bytes", query="hot") > 0)
    found = client.samples()

    assert value(found, "cqels_stream_elements_total", stream="obs") == 3
    assert value(found, "cqels_stream_rejected_total", stream="obs") == 1
    assert value(found, "cqels_stream_pushes_total", stream="obs") == 4
    sent = sum(len(reading(number, degrees)) for number, degrees in enumerate((31, 20, 32)))
    assert value(found, "cqels_stream_bytes_total", stream="obs") == sent + len("this is no element")
    assert value(found, "cqels_stream_waiting_bytes", stream="obs") == 0
    assert abs(value(found, "cqels_stream_last_element_timestamp_seconds", stream="obs") - time.time()) < 60
    assert value(found, "cqels_results_total", query="hot") == 2
    assert value(found, "cqels_results_total", query="sensors") == 3
    assert value(found, "cqels_query_elements_total", query="hot") == 3
    assert value(found, "cqels_query_state_bytes", query="sensors") > 0
    assert value(found, "cqels_query_stopped", query="hot") == 0
    assert value(found, "cqels_query_subscribers", query="hot") == 0
    assert (value(found, "cqels_queries"), value(found, "cqels_streams"), value(found, "cqels_ready")) == (2, 1, 1)


def test_times_are_counted_in_histograms(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    for _ in range(3):
        client.push(reading(1, 31), reading(2, 20))
    eventually(lambda: value(client.samples(), "cqels_push_delivery_seconds_count") == 3)
    found = client.samples()
    assert value(found, "cqels_push_delivery_seconds_bucket", le="+Inf") == 3
    assert 0 < value(found, "cqels_push_delivery_seconds_sum") < 10
    assert 1 <= value(found, "cqels_latency_seconds_count", query="hot") <= 3
    assert 0 < value(found, "cqels_latency_seconds_sum", query="hot") < 10
    batches = value(found, "cqels_batches_total")
    assert value(found, "cqels_batch_seconds_count") == value(found, "cqels_batch_seconds_bucket", le="+Inf") == batches
    counts = [value(found, "cqels_batch_seconds_bucket", le=str(bound)) for bound in BOUNDS]
    assert counts == sorted(counts)
    assert value(found, "cqels_push_elements_count") == 3


def test_counters_only_grow(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    before: Samples = {}
    for _ in range(3):
        client.push(reading(1, 31), "no element")
        found = client.samples()
        text = client.http.get("/metrics").text
        counters = {family.name for family in families_of(text) if family.type in ("counter", "histogram")}
        for (name, labels), old in before.items():
            family = name.removesuffix("_total").removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            if family in counters:
                assert found[name, labels] >= old, name
        before = found


def test_subscribers(server: Server, client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    with client.http.stream("GET", "/queries/hot/results", headers={"Accept": "text/event-stream"}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        other = Client(server)
        with other.http:
            eventually(lambda: value(other.samples(), "cqels_query_subscribers", query="hot") == 1)
            assert value(other.samples(), "cqels_http_requests_in_progress") == 2  # the reader, and who asks
    eventually(lambda: value(client.samples(), "cqels_query_subscribers", query="hot") == 0)
    assert value(client.samples(), "cqels_results_missed_total") == 0


def test_results_that_readers_have_missed(tmp_path: Path) -> None:
    service = a_service(tmp_path / "state")
    service.start()
    try:
        service.register("hot", HOT)
        loop = asyncio.new_event_loop()
        subscriptions = Subscriptions(service, loop)
        subscriptions.missed, subscriptions.readers = 7, {"http://localhost:7070/hot": 3}
        found = samples_of(Exposition(service).text(subscriptions)[0].decode())
        loop.close()
    finally:
        service.stop()
    assert value(found, "cqels_results_missed_total") == 7
    assert value(found, "cqels_query_subscribers", query="hot") == 3


def test_requests_by_route_and_never_by_path(client: Client) -> None:
    for name in ("a", "b", "c", "http://ex.org/d"):
        client.http.put(f"/queries/{name}", content=HOT)
        client.http.get(f"/queries/{name}")
    for path in ("/nothing", "/streams/../../etc", "/x/y/z", "/queries/none"):
        client.http.get(path)
    client.http.request("DELETE", "/streams/obs")
    client.http.request("BREW", "/")
    found = client.samples()
    requests = {
        tuple(dict(labels)[name] for name in ("method", "path", "status")): count
        for (name, labels), count in found.items()
        if name == "cqels_http_requests_total"
    }
    assert requests["PUT", "/queries/{name}", "201"] == 4
    assert requests["GET", "/queries/{name}", "200"] == 4
    assert requests["GET", "/queries/{name}", "404"] == 1
    assert requests["GET", "other", "404"] >= 2
    assert requests["DELETE", "/streams/{name}", "405"] == 1
    paths = {path for _, path, _ in requests}
    assert paths <= {"/queries/{name}", "/streams/{name}", "/metrics", "/", "other"}
    assert value(found, "cqels_http_request_duration_seconds_count", method="PUT", path="/queries/{name}") == 4
    assert value(found, "cqels_http_requests_in_progress") == 1  # that which asks


def test_refused_pushes_are_counted(tmp_path: Path) -> None:
    service = a_service(tmp_path / "state", stream=ServedStream(inbox="64KB"))
    with Server(service, Address(port=0)) as server:
        client, free = Client(server), threading.Event()
        with client.http:
            client.http.put("/queries/hot", content=HOT)
            holding = threading.Thread(target=lambda: service.run.look(lambda _: free.wait(20)))  # type: ignore[attr-defined]
            holding.start()
            statuses = set()
            lines = [reading(number, 20) for number in range(500)]
            for part in range(100):
                statuses.add(client.push(*(line.replace("/s", f"/p{part}x") for line in lines)).status_code)
                if 429 in statuses:
                    break
            waiting = value(client.samples(), "cqels_stream_waiting_bytes", stream="obs")
            free.set()
            holding.join()
            found = client.samples()
    assert statuses == {200, 429}
    assert 0 < waiting <= 64 << 10
    assert value(found, "cqels_stream_refused_total", stream="obs") == 1


def test_a_refusal_at_the_door_is_a_request_too(tmp_path: Path) -> None:
    http = HttpSettings(limits=Limits(body=100))
    with Server(a_service(tmp_path / "state"), Address(port=0), http) as server:
        client = Client(server)
        with client.http:
            assert client.push(*[reading(1, 31)] * 10).status_code == 413
            found = client.samples()
    labels = {"method": "POST", "path": "/streams/{name}", "status": "413"}
    assert value(found, "cqels_http_requests_total", **labels) == 1


def test_text_and_open_metrics(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    client.push(reading(1, 31))
    plain = client.http.get("/metrics", headers={"Accept": "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"})
    assert plain.headers["content-type"] == TEXT
    other = client.http.get(
        "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    )
    assert other.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in open_metrics(other.text)}
    assert {"cqels_results", "cqels_batch_seconds", "cqels", "process_resident_memory_bytes"} <= names
    for accept in ("text/plain;version=abc", "application/openmetrics-text;version=;escaping=x", "", ",;,"):
        assert client.http.get("/metrics", headers={"Accept": accept}).status_code == 200


def test_names_follow_the_conventions(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    client.push(reading(1, 31))
    for family in families_of(client.http.get("/metrics").text):
        assert family.documentation, family.name
        if family.name.startswith("cqels"):
            assert not family.name.endswith(("_milliseconds", "_ms", "_kb", "_mb", "_count")), family.name
            assert family.type == "counter" or not family.name.endswith("_total"), family.name


def test_two_services_share_nothing(tmp_path: Path) -> None:
    one, two = a_service(tmp_path / "one"), a_service(tmp_path / "two")
    one.start()
    two.start()
    try:
        first, second = Exposition(one), Exposition(two)
        one.register("hot", HOT)
        first.answered("GET", "/", 200, 0.1)
        assert ("cqels_queries", frozenset()) in samples_of(first.text()[0].decode())
        assert value(samples_of(first.text()[0].decode()), "cqels_queries") == 1
        other = samples_of(second.text()[0].decode())
        assert value(other, "cqels_queries") == 0
        assert not [name for name, _ in other if name == "cqels_http_requests_total"]
        assert not [family.name for family in REGISTRY.collect() if family.name.startswith("cqels")]
    finally:
        one.stop()
        two.stop()


def test_a_dropped_query_has_no_series(client: Client) -> None:
    client.http.put("/queries/hot", content=HOT)
    client.push(reading(1, 31))
    eventually(lambda: value(client.samples(), "cqels_results_total", query="hot") == 1)
    client.http.delete("/queries/hot")
    found = client.samples()
    assert not [name for name, labels in found if ("query", "hot") in labels]
    assert value(found, "cqels_queries") == 0


def test_late_and_rejected_elements_of_streams() -> None:
    measuring = Measuring()
    late = (Rejected("http://ex.org/obs", "", "it is late", ""),) * 2
    outcome = Outcome(1, Report(queries={"hot": {"in": 5, "out": 1}}), (), late, {})
    rejected = [Rejected("http://ex.org/other", "line 1", "no element", "x")]
    measuring.done(outcome, (), rejected, {}, lambda _: 0, began=time.monotonic(), now=12.5)
    found = measuring.measures
    assert found.streams["http://ex.org/obs"].late == 2
    assert found.streams["http://ex.org/other"].rejected == 1
    assert found.queries["hot"].elements == 5
    assert sum(found.queries["hot"].latency.counts) == 1


def test_pushes_are_timed_until_the_batch_that_has_them() -> None:
    measuring, began = Measuring(), time.monotonic()
    for number in range(1, 4):
        measuring.pushed("obs", 100 * number, began - number)
    outcome = Outcome(1, Report(queries={"hot": {"in": 2, "out": 1}}), (), (), {})
    measuring.done(outcome, (), (), {}, {"obs": 200}.__getitem__, began=began, now=1.0)
    assert sum(measuring.measures.push.counts) == 2
    assert measuring.measures.push.total == pytest.approx(3, abs=0.5)
    assert measuring.measures.queries["hot"].latency.total == pytest.approx(1, abs=0.5)
    silent = replace(outcome, report=Report(queries={"hot": {"in": 2, "out": 0}}))
    measuring.done(silent, (), (), {}, {"obs": 300}.__getitem__, began=began, now=2.0)
    assert sum(measuring.measures.push.counts) == 3
    assert sum(measuring.measures.queries["hot"].latency.counts) == 1


def test_a_copy_of_measures_stays_as_it_is() -> None:
    histogram = Histogram()
    copy = histogram.copy()
    for seconds in (0.0, 0.001, 0.0011, 61.0):
        histogram.note(seconds)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[-1]) == (2, 1, 1)
    assert sum(copy.counts) == 0


def test_batches_can_be_followed(tmp_path: Path) -> None:
    service = a_service(tmp_path / "state")
    assert isinstance(service.run, Measured)
    done: list[BatchDone] = []
    service.run.follow(done.append)
    with Server(service, Address(port=0)) as server:
        client = Client(server)
        with client.http:
            client.http.put("/queries/hot", content=HOT)
            client.push(reading(1, 31), reading(2, 32))
            eventually(lambda: sum(each.results for each in done) == 2)
    assert sum(each.elements for each in done) == 1
    assert all(each.began <= each.evaluated <= each.delivered for each in done)
    assert [each.batch for each in done] == sorted({each.batch for each in done})
