"""More than a service can take: senders wait, the oldest goes, a sample is taken; memory has a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from time import sleep

import httpx
import pytest

from cqels.live.live_run import LiveRun, LiveSettings
from cqels.serve.backend import Pipeline
from cqels.serve.memory import MemoryLimit, machine_memory, resident_memory
from cqels.serve.server import Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

from .serving import PATIENCE, served

INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { STREAM <obs> [RANGE 1000d] { ?s <x:value> ?v } }"


def lines(first: int, count: int) -> str:
    """Elements, each with a text of its own that does not compress."""
    numbers = range(first, first + count)
    return "".join(f'<x:s{n * 7919 % 1000003}> <x:value> "{n}"^^<{INTEGER}> {1000 + n} .\n' for n in numbers)


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Event]]:
    """A service whose run does no batch until an event is set."""
    go = Event()
    step = LiveRun._step

    def waiting(run: LiveRun) -> bool:
        if run._inboxes and run.queries and not go.is_set():  # what declares and registers is done
            go.wait(0.05)
            return False
        return step(run)

    monkeypatch.setattr(LiveRun, "_step", waiting)
    with served(tmp_path / "state", Pipeline(store=Store(), settings=LiveSettings(lasting=True))) as server:
        yield server, go
        go.set()


def filled(server: Server, overflow: str, pushes: int) -> tuple[httpx.Client, list[httpx.Response]]:
    client = httpx.Client(base_url=server.url, timeout=PATIENCE)
    assert client.put("/streams/obs", json={"overflow": overflow, "inbox": "64KB"}).status_code == 201
    assert client.put("/queries/count", content=COUNT).status_code == 201
    return client, [client.post("/streams/obs", content=lines(500 * n, 500)) for n in range(pushes)]


def counted(client: httpx.Client) -> int:
    """The elements that the window has in the end."""
    last = 0
    while True:
        answer = client.get("/queries/count/results", params={"from": "start", "wait": "1s", "limit": 10_000})
        found = [int(each["bindings"]["n"]["value"]) for each in answer.json()["results"]]
        if (now := max(found, default=0)) == last and last:
            return now
        last = now


def test_senders_are_told_to_wait(held: tuple[Server, Event]) -> None:
    server, go = held
    client, answers = filled(server, "block", 40)
    with closing(client):
        codes = {each.status_code for each in answers}
        assert codes == {200, 429}
        refused = next(each for each in answers if each.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert "have not been processed" in refused.json()["detail"]
        counts = client.get("/streams/obs").json()["counts"]
        taken = 500 * sum(each.status_code == 200 for each in answers)
        assert counts["elements"] == taken
        assert counts["refused"] == sum(each.status_code == 429 for each in answers)
        assert client.get("/streams/obs").json()["waiting"] <= 64 << 10
        go.set()
        assert counted(client) == taken


def test_the_oldest_are_dropped_and_counted(held: tuple[Server, Event]) -> None:
    server, go = held
    client, answers = filled(server, "drop-oldest", 40)
    with closing(client):
        assert {each.status_code for each in answers} == {200}
        assert client.get("/streams/obs").json()["waiting"] <= 64 << 10
        go.set()
        left = counted(client)
        dropped = client.get("/streams/obs").json()["counts"]["dropped"]
        assert dropped > 0
        assert left + dropped == 40 * 500


def test_a_sample_is_taken_and_counted(held: tuple[Server, Event]) -> None:
    server, go = held
    client, answers = filled(server, "sample", 60)
    with closing(client):
        assert {each.status_code for each in answers} == {200}
        told = [each.json().get("sample", 1) or 1000 for each in answers]  # 0: nothing was kept
        assert told[0] == 1
        assert 1 < told[len(told) // 2] <= told[-1]
        counts = client.get("/streams/obs").json()["counts"]
        assert counts["left_out"] > 0
        assert counts["elements"] + counts["left_out"] == 60 * 500
        assert client.get("/streams/obs").json()["waiting"] <= 64 << 10
        go.set()
        assert counted(client) == counts["elements"]


# ---------------------------------------------------------------- memory


def test_memory_that_there_is() -> None:
    assert 1 << 28 < machine_memory() < 1 << 50
    assert 1 << 20 < resident_memory() < machine_memory()


def test_what_is_done_close_to_the_limit() -> None:
    dropped: list[tuple[str, str]] = []
    sizes = {"small": 10, "large": 400}
    now = 100

    limit = MemoryLimit(1000, lambda: sizes, lambda name, why: dropped.append((name, why)), resident=lambda: now)
    limit.look()
    assert not limit.is_close
    now = 870
    limit.look()
    assert limit.is_close
    assert not dropped
    now = 820  # it is not far enough from the limit to go back and forth
    limit.look()
    assert limit.is_close
    now = 930
    limit.look()
    assert [name for name, _ in dropped] == ["large"]
    assert "nearly all of its memory" in dropped[0][1]
    sizes.pop("large")
    limit.look()
    assert len(dropped) == 1  # the others do not have what is missing
    now = 700
    limit.look()
    assert not limit.is_close


def test_the_largest_query_is_dropped_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path / "state", memory=1 << 40) as server, httpx.Client(base_url=server.url) as client:
        service = server.service
        assert service.memory is not None
        client.put("/queries/large", content=COUNT)
        client.put("/queries/small", content="SELECT ?v WHERE { STREAM <obs> [NOW] { ?s <x:value> ?v } }")
        assert client.post("/streams/obs", content=lines(0, 3000)).json()["accepted"] == 3000
        counted_until(client, "large", 3000)
        held = {"large": 0, "small": 0}
        while held["large"] <= held["small"]:  # it is looked at from time to time
            held |= {service.names.short(name): size for name, size in service._query_bytes().items()}
            sleep(0.05)
        service.memory.stop()  # it is looked at here
        service.memory.limit = held["large"] * 10
        monkeypatch.setattr(service.memory, "_resident", lambda: held["large"] * 10)
        service.memory.look()
        assert client.post("/streams/obs", content=lines(3000, 1)).status_code == 429
        monkeypatch.setattr(service.memory, "_resident", lambda: 0)
        service.memory.look()
        assert [each["name"] for each in client.get("/queries").json()["queries"]] == ["small"]
        gone = client.get("/queries/large")
        assert gone.status_code == 404
        assert "this query's state was the largest" in gone.json()["detail"]
        assert client.post("/streams/obs", content=lines(3000, 1)).status_code == 200
        assert client.put("/queries/large", content=COUNT).status_code == 201


def test_why_a_query_was_dropped_is_known_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path / "state") as server:
        service: Service = server.service
        service.register("hot", COUNT)
        service._drop_for(service.result_name("hot"), "it was too large")
    with served(tmp_path / "state") as server, httpx.Client(base_url=server.url) as client:
        assert "it was too large" in client.get("/queries/hot").json()["detail"]


def counted_until(client: httpx.Client, name: str, count: int) -> None:
    number = -1
    while True:
        answer = client.get(
            f"/queries/{name}/results",
            params={"after": number, "wait": "5s"} if number >= 0 else {"from": "start", "wait": "5s"},
        )
        found = answer.json()
        if any(int(each["bindings"]["n"]["value"]) >= count for each in found["results"]):
            return
        assert found["results"], "there are fewer"
        number = found["last"]
