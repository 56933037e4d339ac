"""A webhook gets each result at least once, from a server that fails at random, and what it refuses is said."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

import pytest

pytest.importorskip("httpx", reason="pip install 'cqels[http]'")
pytest.importorskip("pyarrow", reason="pip install 'cqels[http]'")

from cqels.model.errors import CqelsError
from cqels.pipeline.sink.retried_delivery import Delivery, Patience, TryAgain
from cqels.pipeline.sink.sink_protocol import DeliveryStopped
from cqels.pipeline.sink.webhook_sink import Webhook
from cqels.pipeline.sinks import sink_of

from ..spark.sending import SELECT, batch

BATCHES = range(30)
SOON = Patience(limit=20, first_pause=0.002)


@dataclass
class Receiver:
    """A server: `answer` says the status and headers of a request, by its number."""

    answer: Callable[[int], tuple[int, dict[str, str]]] = lambda number: (200, {})
    taken: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """The requests that it took."""
    asked: int = 0
    url: str = ""


@contextmanager
def serving(receiver: Receiver) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.asked += 1
            status, headers = receiver.answer(receiver.asked - 1)
            if status == 0:
                self.close_connection = True
                return
            if status in (200, 0) or headers.get("X-Taken"):
                receiver.taken.append((dict(self.headers), body))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def results(numbers: range = BATCHES) -> dict[str, dict[str, Any]]:
    """What is sent, by ids."""
    return {
        f"hot/{each.number + place}": {"n": result.values[1].value, "tick": result.tick}  # type: ignore[union-attr]
        for number in numbers
        for each in batch(number).values()
        for place, result in enumerate(each.results())
    }


def posted(receiver: Receiver) -> list[dict[str, Any]]:
    return [result for _, body in receiver.taken for result in json.loads(body)]


def test_a_server_that_fails_at_random_has_each_result() -> None:
    """500, 503, 429 with Retry-After, broken connections; some requests were taken before the answer was lost."""
    random = Random(7)

    def answer(number: int) -> tuple[int, dict[str, str]]:
        return random.choice(
            [
                (200, {}),
                (202, {"X-Taken": "1"}),
                (500, {}),
                (503, {"Retry-After": "0"}),
                (429, {"Retry-After": formatdate(usegmt=True)}),
                (502, {"X-Taken": "1"}),
                (0, {}),
            ]
        )

    with serving(Receiver(answer)) as receiver:
        sink = Webhook(receiver.url, patience=SOON)
        sink.open([SELECT], run="r")
        for number in BATCHES:
            sink.write(number, batch(number))
        sink.close()
    found = posted(receiver)
    by_id = {each["id"]: {"n": each["bindings"]["n"]["value"], "tick": each["tick"]} for each in found}
    assert by_id == results()
    assert len(found) > len(by_id)  # at least once
    keys = [headers["Idempotency-Key"] for headers, _ in receiver.taken]
    assert {*keys} == {f"r/hot/{number}" for number in BATCHES if batch(number)}
    assert {headers["Content-Type"] for headers, _ in receiver.taken} == {"application/json"}
    assert sink.refused == sink.dropped == 0


def test_lines_and_large_batches() -> None:
    with serving(Receiver()) as receiver:
        sink = Webhook(receiver.url, "jsonl", most=3, headers={"X-Of": "me"})
        sink.open([SELECT], run="r")
        for _ in range(2):  # a process that goes on drops what it has sent
            sink.write(0, batch(0))
        sink.close()
    bodies = [body.decode().splitlines() for _, body in receiver.taken]
    assert [[json.loads(line)["id"] for line in lines] for lines in bodies] == [["hot/0", "hot/1", "hot/2"], ["hot/3"]]
    assert [headers["Idempotency-Key"] for headers, _ in receiver.taken] == ["r/hot/0", "r/hot/0/1"]
    assert receiver.taken[0][0]["X-Of"] == "me"


def test_what_is_refused_is_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    def answer(number: int) -> tuple[int, dict[str, str]]:
        return (422, {}) if number == 0 else (200, {})

    with serving(Receiver(answer)) as receiver, caplog.at_level(logging.WARNING, "cqels"):
        sink = Webhook(receiver.url)
        sink.open([SELECT], run="r")
        for number in (0, 1):
            sink.write(number, batch(number))
        sink.close()
    assert receiver.asked == 2
    assert sink.refused == 4
    refused = sink.take_refused()
    assert [json.loads(each.text)["id"] for each in refused] == [f"hot/{n}" for n in range(4)]
    assert refused[0].reason == "the webhook answers 422 Unprocessable Entity"
    assert sink.take_refused() == []
    assert "refused 4 results of query hot: 422" in caplog.text
    assert len(posted(receiver)) == 4


def test_when_nobody_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The run stops, drops and counts, or waits until someone ends it."""
    with serving(Receiver(lambda number: (503, {}))) as receiver, caplog.at_level(logging.WARNING, "cqels"):
        stops = Webhook(receiver.url, patience=Patience(0.05, "stop", 0.002))
        stops.open([SELECT])
        with pytest.raises(CqelsError, match="has not taken results for 0 s: it answers 503"):
            stops.write(0, batch(0))
        drops = Webhook(receiver.url, patience=Patience(0.05, "drop", 0.002))
        drops.open([SELECT])
        drops.write(0, batch(0))
        assert drops.dropped == 4
        assert "4 dropped, 4 in all" in caplog.text
        waits = Webhook(receiver.url, patience=Patience(0.05, "wait", 0.002))
        waits.open([SELECT])
        threading.Timer(0.3, waits.stop_waiting).start()
        with pytest.raises(DeliveryStopped):
            waits.write(0, batch(0))
        assert "the run waits" in caplog.text
        for sink in (stops, drops, waits):
            sink.close()


def test_a_server_that_is_not_there() -> None:
    with serving(Receiver()) as receiver:
        url = receiver.url
    sink = Webhook(url, patience=Patience(0.02, "stop", 0.002), timeout=1)
    sink.open([SELECT])
    with pytest.raises(CqelsError, match="ConnectError"):
        sink.write(0, batch(0))


def test_settings_behind_the_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "very-secret")
    with serving(Receiver()) as receiver:
        sink = sink_of(f"{receiver.url}?room=1&token=abc#token-env=HOOK_TOKEN&timeout=2s&most=2", format="jsonl")
        sink.open([SELECT], run="r")
        sink.write(0, batch(0))
        sink.close()
    assert [headers["Authorization"] for headers, _ in receiver.taken] == ["Bearer very-secret"] * 2
    assert "abc" not in sink.place
    assert "secret" not in sink.place


def test_pauses_grow_and_what_the_server_asks_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    delivery = Delivery("x", Patience(1e9), random=Random(1))
    monkeypatch.setattr(delivery._stop, "wait", lambda pause: pauses.append(pause))
    tries = iter([None, None, None, None, 5.0, 1e6, *[None] * 10])

    def attempt() -> None:
        for after in tries:
            raise TryAgain("no", after)

    assert delivery.deliver(attempt, 1)
    assert [0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(pauses[:4])] == [True] * 4
    assert pauses[4:6] == [5.0, 600.0]
    assert 15 <= pauses[-1] <= 30


def test_a_slow_server_times_out() -> None:
    def answer(number: int) -> tuple[int, dict[str, str]]:
        if number == 0:
            time.sleep(0.3)
        return 200, {}

    with serving(Receiver(answer)) as receiver:
        sink = Webhook(receiver.url, timeout=0.1, patience=SOON)
        sink.open([SELECT], run="r")
        sink.write(0, batch(0))
        sink.close()
        time.sleep(0.3)
    assert receiver.asked == 2
