"""What a service has and keeps: streams, queries by their names, what replaces them, how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import httpx
import pytest

from cqels.serve.served_stream import ServedStream
from cqels.serve.server import Server

from .serving import PATIENCE, served

HOT = "SELECT ?s ?v WHERE { STREAM <obs> [RANGE 10s] { ?s <x:value> ?v } FILTER(?v > 30) }"
ELEMENT = "<x:a> <x:value> 35 ."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "state") as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as made:
        yield made


@contextmanager
def connected(folder: Path, **settings: Any) -> Iterator[httpx.Client]:
    with (
        served(folder / "state", **settings) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
    ):
        yield client


def results(client: httpx.Client, name: str, **parameters: str) -> list[dict[str, object]]:
    found = client.get(f"/queries/{name}/results", params={"wait": "10s", "from": "start", **parameters})
    listed: list[dict[str, object]] = found.json()["results"]
    return listed


def test_a_query_declares_its_streams_and_sees_what_is_pushed(client: httpx.Client) -> None:
    registered = client.put("/queries/hot", content=HOT)
    assert registered.status_code == 201
    assert registered.json()["declared"] == ["obs"]
    assert client.post("/streams/obs", content=ELEMENT).json() == {"accepted": 1, "rejected": 0}
    (found,) = results(client, "hot")
    assert found["id"] == "hot/0"
    assert [each["name"] for each in client.get("/streams").json()["streams"]] == ["obs"]


def test_a_stream_is_declared_by_its_first_push(client: httpx.Client) -> None:
    client.post("/streams/new", content=ELEMENT)
    assert client.get("/streams/new").json()["counts"]["elements"] == 1
    assert client.get("/streams/http%3A%2F%2Flocalhost%3A7070%2Fnew").json()["name"] == "new"


def test_what_becomes_of_a_query_of_the_same_name(client: httpx.Client) -> None:
    assert client.put("/queries/hot", content=HOT).json()["state"] == "new"
    client.post("/streams/obs", content=ELEMENT)
    assert len(results(client, "hot")) == 1
    kept = client.put("/queries/hot", content=HOT)
    assert (kept.status_code, kept.json()["state"], kept.json()["results"]) == (200, "kept", 1)
    assert client.put("/queries/hot", content=HOT.replace("30", "20")).json()["state"] == "anew"
    client.post("/streams/obs", content="<x:b> <x:value> 25 .")
    assert [each["id"] for each in results(client, "hot", after="0")] == ["hot/1"]  # numbers go on


def test_names_that_mean_two_things_are_refused(client: httpx.Client) -> None:
    own = client.put("/queries/obs", content=HOT)
    assert own.status_code == 409
    assert "the query and a stream that it reads" in own.json()["detail"]
    client.put("/queries/hot", content=HOT)
    assert client.put("/queries/obs", content=HOT.replace("<obs>", "<other>")).status_code == 409
    assert client.post("/streams/hot", content=ELEMENT).status_code == 409


def test_a_wrong_query_changes_nothing(client: httpx.Client) -> None:
    client.put("/queries/hot", content=HOT)
    wrong = client.put("/queries/hot", content="SELECT ?nothing WHERE { STREAM <obs> [RANGE 1s] { ?s ?p ?o } }")
    assert wrong.status_code == 400
    assert "did you mean" in wrong.text or "hint" in wrong.json()
    assert client.get("/queries/hot").json()["text"] == HOT


def test_a_query_that_takes_too_much_ends_its_readers_at_once(server: Server, client: httpx.Client) -> None:
    client.put("/queries/all?memory=20KB", content="SELECT ?v WHERE { STREAM <obs> [RANGE 100d] { ?s <x:value> ?v } }")
    ends: list[str] = []

    def read() -> None:
        with httpx.stream("GET", f"{server.url}/queries/all/results", timeout=PATIENCE) as answer:
            ends.extend(line for line in answer.iter_lines() if '"end"' in line)

    reader = Thread(target=read)
    reader.start()
    lines = "".join(f'<x:s{n}> <x:value> "{n}" {n} .\n' for n in range(5000))
    client.post("/streams/obs", content=lines)
    reader.join(10)  # fewer than those after which a silent reader looks again
    assert not reader.is_alive()
    assert "takes more than 20 kB" in ends[0]
    assert "takes more than 20 kB" in client.get("/queries/all").json()["stopped"]
    assert client.put("/queries/all", content=HOT).json()["stopped"] is None


def test_all_is_there_after_a_restart(tmp_path: Path) -> None:
    words = ServedStream(clock="arrival", overflow="drop-oldest")
    with connected(tmp_path, streams={"told": words}) as client:
        client.put("/streams/obs", json={"lateness": "2s"})
        client.put("/queries/hot", content=HOT)
        client.post("/sparql", data={"update": "INSERT DATA { <x:a> <x:in> <x:kitchen> }"})
        client.put("/queries/gone", content=HOT)
        client.delete("/queries/gone")
    with connected(tmp_path, base="http://elsewhere.org/") as client:
        assert client.get("/").json()["base"] == "http://localhost:7070/"  # names stay what they are
        assert client.get("/streams/obs").json()["lateness"] == "2s"
        assert client.get("/streams/told").json()["overflow"] == "drop-oldest"
        assert [each["name"] for each in client.get("/queries").json()["queries"]] == ["hot"]
        assert client.get("/sparql", params={"query": "ASK { <x:a> <x:in> ?r }"}).json()["boolean"] is True


def test_there_are_limits(tmp_path: Path) -> None:
    with connected(tmp_path, most_queries=1, most_streams=1) as client:
        assert client.put("/queries/hot", content=HOT).status_code == 201
        assert client.put("/queries/more", content=HOT).status_code == 409
        more = client.post("/streams/more", content=ELEMENT)
        assert (more.status_code, more.json()["hint"]) == (409, "--max-streams")


def test_a_template_of_the_declaration(client: httpx.Client) -> None:
    template = """
subject = "x:sensor/{sensor}"
[time]
column = "at"
[predicates]
"x:value" = { column = "t" }
"""
    assert client.put("/streams/obs", json={"template": template}).status_code == 201
    client.put("/queries/hot", content=HOT)
    record = json.dumps({"sensor": "s1", "t": 40, "at": 1_700_000_000_000})
    assert client.post("/streams/obs", content=record).json() == {"accepted": 1, "rejected": 0}
    (found,) = results(client, "hot")
    assert found["time"] == "2023-11-14T22:13:20Z"
    wrong = client.put("/streams/other", json={"template": "no = template"})
    assert wrong.status_code == 400


def test_the_plan_with_what_it_has_done(client: httpx.Client) -> None:
    client.put("/queries/hot", content=HOT)
    client.post("/streams/obs", content=ELEMENT)
    results(client, "hot")
    assert "window: 1 triples" in client.get("/queries/hot/explain").text
    assert client.get("/queries/hot/explain?format=json").json()
    assert client.get("/queries/hot/explain?format=mermaid").text.startswith("flowchart")


@pytest.mark.parametrize("clock", ["event", "arrival"])
def test_what_carries_no_time_is_never_late(server: Server, client: httpx.Client, clock: str) -> None:
    """Streams that are pushed to at once overtake each other between a push and its batch."""

    def push(stream: str) -> None:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as own:
            for number in range(60):
                assert own.post(f"/streams/{stream}", content=f'<x:s> <x:p> "{number}" .').status_code == 200

    streams = [f"s{number}" for number in range(4)]
    for stream in streams:
        client.put(f"/streams/{stream}", json={"clock": clock})
    senders = [Thread(target=push, args=[stream]) for stream in streams]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    while (status := client.get("/").json())["elements"] < 240:
        assert status["late"] == 0
        sleep(0.05)
    assert client.get("/").json()["late"] == 0


def test_elements_that_end_a_window_come_by_the_clock(client: httpx.Client) -> None:
    client.put("/streams/obs", json={"clock": "arrival"})
    absent = "SELECT (COUNT(*) AS ?n) WHERE { STREAM <obs> [RANGE 500ms] { ?s <x:value> ?v } }"
    client.put("/queries/count?emit=changes", content=absent)
    client.post("/streams/obs", content=ELEMENT)
    counts: list[tuple[object, str]] = []
    while counts[-1:] != [("+", "0")] or ("+", "1") not in counts:
        found = results(client, "count", after=str(len(counts) - 1)) if counts else results(client, "count")
        assert found, counts
        counts += [(each["sign"], each["bindings"]["n"]["value"]) for each in found]  # type: ignore[index]
