"""What is counted of a pipeline, and how it is shown; no Spark is started here."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.spark.driver.metrics import Histogram, Metrics, _short, status_line
from cqels.spark.driver.metrics_export import Endpoint, Status

NOON = 1769860800 * SECOND


def report(instance: int, elements: int, results: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "instance": instance,
        "elements": elements,
        "triples": 2 * elements,
        "rejected": 1 if instance == 0 else 0,
        "late": 3,
        "watermark": NOON + instance,
        "held": 5,
        "state_bytes": 7_000_000,
        "log_bytes": 100,
        "seconds": 0.1 + instance,
        "rebuilt": False,
        "ended": False,
        "queries": {name: {"in": elements, "out": count} for name, count in results.items()},
        **more,
    }


PROGRESS = {
    "batchId": 0,
    "durationMs": {"triggerExecution": 1250, "addBatch": 1000},
    "stateOperators": [{"memoryUsedBytes": 1000}, {"memoryUsedBytes": 24}],
    "inputRowsPerSecond": "NaN",
    "processedRowsPerSecond": 12.5,
}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def filled(**options: Any) -> Metrics:
    clock = Clock()
    metrics = Metrics(clock=clock, **options)
    clock.now += 2
    metrics.add(0, [report(0, 1000, {"hot": 10}), report(1, 1000, {"cold": 0})], 0.5)
    clock.now += 2
    metrics.add(1, [report(0, 3000, {"hot": 30}), report(1, 3000, {"cold": 0})], 0.25)
    return metrics


@given(st.lists(st.floats(0.001, 1500), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_are_right_within_a_fifth(times: list[float], share: float) -> None:
    histogram = Histogram()
    for each in times:
        histogram.add(each)
    exact = sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]
    found = histogram.quantile(share)
    assert found is not None
    assert exact * 0.999 <= found <= exact * 1.201


def test_reports_of_engines_are_folded() -> None:
    metrics = filled()
    totals = metrics.totals
    assert (totals.batch, totals.elements, totals.triples, totals.results) == (1, 4000, 16000, 40)
    assert (totals.rejected, totals.late, totals.held, totals.instances) == (2, 6, 5, 2)
    assert (totals.watermark, totals.state_bytes) == (NOON, 14_000_000)
    assert totals.queries["hot"].sent == 40
    assert metrics.elements_per_second == 1000
    metrics.add(1, [report(0, 3000, {"hot": 30})], 0.25)
    assert totals.elements == 4000
    metrics.add(2, [report(1, 5, {}, ended=True, state_bytes=1)], 0.25)  # the other engine has nothing to say
    assert (totals.instances, totals.state_bytes, totals.ended) == (2, 7_000_001, False)


def test_a_status_line() -> None:
    assert status_line(filled()) == (
        "batch 1 · 1.0 k elements/s in · 10 results/s out · up to 2026-01-31T12:00:00Z · 6 late · 2 rejected · "
        "0.25 s a batch · state 14 MB"
    )
    assert status_line(Metrics()).startswith("batch -1 · 0 elements/s in")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999.4, "999"),
        (999.6, "1.0 k"),
        (3120, "3.1 k"),
        (9960, "10 k"),
        (182_345, "182 k"),
        (5e12, "5000 G"),
    ],
)
def test_short_numbers(number: float, text: str) -> None:
    assert _short(number) == text


def test_a_line_for_each_micro_batch(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    filled(lines=path).close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["batch"], first["elements"], first["results"], first["seconds"]) == (0, 1000, 10, 0.5)
    assert first["queries"]["hot"]["latency"] == {"p50": 0.5, "p95": 0.5, "p99": 0.5}
    assert second["queries"]["hot"]["latency"]["p50"] < 0.31
    assert second["queries"]["cold"] == {"in": 3000, "out": 0, "latency": None}
    with pytest.raises(CqelsError, match="cannot be written"):
        Metrics(tmp_path)


def test_a_line_waits_for_what_spark_says(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    metrics._listens = True
    metrics.add(0, [report(0, 10, {"hot": 1})], 0.5)
    assert path.read_text() == ""
    metrics.progress(PROGRESS)
    metrics.add(1, [], 0.5)
    metrics.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["trigger_seconds"], first["store_bytes"], first["input_rows_per_second"]) == (1.25, 1024, None)
    assert (second["batch"], second["elements"], second["latency"]["p50"]) == (1, 0, 0.5)


def test_prometheus_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cqels.prom"
    metrics = filled(prometheus=path)
    metrics.progress(PROGRESS)
    metrics.add(2, [report(0, 1, {'a "b"\n': 0})], 0.25)
    text = metrics.prometheus()
    assert path.read_text() == text
    lines = text.splitlines()
    assert "# TYPE cqels_elements_total counter" in lines
    assert "cqels_elements_total 4001" in lines
    assert 'cqels_results_total{query="hot"} 40' in lines
    assert 'cqels_results_total{query="a \\"b\\"\\n"} 0' in lines
    assert 'cqels_latency_seconds{query="cold",quantile="0.5"} NaN' in lines
    assert 'cqels_latency_seconds_count{query="hot"} 40' in lines
    assert "cqels_store_bytes 1024" in lines
    assert f"cqels_watermark_seconds {NOON / SECOND!r}" in lines
    assert not [line for line in lines if "input_rows" in line]


def test_prometheus_can_fetch_it() -> None:
    endpoint = Endpoint(filled(), 0)
    try:
        with urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as page:
            assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"cqels_elements_total 4000" in page.read()
        with pytest.raises(HTTPError, match="404") as caught:
            urlopen(f"http://127.0.0.1:{endpoint.port}/")
        caught.value.close()
        with pytest.raises(CqelsError, match="cannot be shown at"):
            Endpoint(filled(), endpoint.port)
    finally:
        endpoint.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_status_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with Status(metrics):
        metrics.add(0, [report(0, 1, {})], 0.5)
    assert plain.getvalue() == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Status(metrics):
        metrics.add(1, [report(0, 1, {})], 0.5)
    assert "batch 1" in terminal.getvalue()
    assert metrics.watchers == []


def test_what_is_written_appears_above_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Status(Metrics()) as status:
        assert status.above(file) is file
        status.show("busy")
        above = status.above(terminal)
        above.write("a result\n")
        above.write("another\n")
        above.flush()
        status.show("x" * 500)
    assert terminal.getvalue().startswith("busy\r\x1b[Ka result\nanother\nbusy\r\x1b[Kxxx")
    assert terminal.getvalue().endswith("x…\r\x1b[K")
