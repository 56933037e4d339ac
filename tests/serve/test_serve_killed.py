"""`cqels serve` is killed at random moments while elements are pushed, results are read, and queries and data change.

What was acknowledged is there: elements, queries, updates.  Who reads results gets each number once, without a gap, and
always with the same content.  `CQELS_SERVE_KILLS` says how often it is killed, and `CQELS_SERVE_SPARK_KILLS` on Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from time import sleep
from traceback import format_exc
from typing import Any

import httpx
import pytest

from cqels.ingest import parse_declaration
from cqels.plan.prepare import prepare
from cqels.reference.reference_replay import replay
from cqels.store.dataset import Store

from ..live.kills import Job, kill_often
from ..live.servers import eventually
from ..spark.jobs import kill, tagged
from .senders import BASE, EX, HttpSender, Sender, SocketSender, line_of, promise
from .serving import PATIENCE, ClientReader, EventReader, lasting_port, tried

pytestmark = pytest.mark.chaos

ROUND = 100
"""Elements of each stream of a second; there are whole seconds."""
SPAN = 2 * ROUND
"""Elements in a window."""
BASIC = {"clock": "arrival"}
ORDERED = {"idle": "1h"}


def _seen(stream: str) -> str:
    return f"SELECT ?n WHERE {{ STREAM <{stream}> [NOW] {{ ?s <{EX}number> ?n }} }}"


def _both(name: str) -> str:
    return f"STREAM <left> [RANGE 2s] {{ ?a <{EX}number> ?n }} STREAM <right> [RANGE 2s] {{ ?b <{EX}number> ?n }}"


ARRIVING = {"seen": _seen("pushed")}
TIMED = {
    "left-seen": _seen("left"),
    "right-seen": _seen("right"),
    "both": f"SELECT DISTINCT ?n WHERE {{ {_both('n')} }}",
    "sum": f"""SELECT (COUNT(DISTINCT ?n) AS ?count) (SUM(DISTINCT ?n) AS ?sum)
        WHERE {{ STREAM <left> [RANGE 2s SLIDE 1s] {{ ?s <{EX}number> ?n }} }}""",
}
"""`sum` and `both` are exact: an element that comes again, at its time, does not change them."""


# ---------------------------------------------------------------- changes


class Changes:
    """Registers, replaces and drops queries and changes the data, one after the other, and knows what was answered."""

    NAMES = ("first", "second", "third")

    def __init__(self, load: Load, stream: str, seed: int) -> None:
        self._load, self._stream, self._draw = load, stream, Random(seed)
        self.queries: dict[str, str | None] = dict.fromkeys(self.NAMES)
        """The text of each that runs; `changing` always does."""
        self.triples: set[str] = set()
        self.made: Counter[str] = Counter()

    def run(self) -> None:
        with httpx.Client(base_url=self._load.url, timeout=10) as client:
            while not self._load.is_enough(0):
                self._draw.choice([self._change_query, self._change_query, self._replace, self._update])(client)
                self._load.stop.wait(0.05)
            self.check(client)

    def text(self, version: int) -> str:
        """A query whose results say which it is."""
        return (
            f"SELECT ?n ?v{version} WHERE {{ STREAM <{self._stream}> [NOW] {{ ?s <{EX}number> ?n }} "
            f"BIND({version} AS ?v{version}) FILTER(?n > {version}) }}"
        )

    def _replace(self, client: httpx.Client) -> None:
        self._put(client, "changing", self.text(self._draw.randrange(1000)))

    def _change_query(self, client: httpx.Client) -> None:
        name = self._draw.choice(self.NAMES)
        if self.queries[name] is not None and self._draw.random() < 0.4:
            answer = tried(lambda: client.delete(f"/queries/{name}"), self._load.stop.is_set)
            assert answer.status_code in (204, 404), answer.text  # of an attempt that was not answered
            self.queries[name] = None
            self.made["drop"] += 1
        else:
            self._put(client, name, self.text(self._draw.randrange(1000)))
        self.check(client, [name])

    def _put(self, client: httpx.Client, name: str, text: str) -> None:
        before = self.queries.get(name)
        answer = tried(lambda: client.put(f"/queries/{name}", content=text), self._load.stop.is_set)
        state = {200: ("kept", "anew"), 201: ("new",)}[answer.status_code]
        assert answer.json()["state"] in state, answer.text
        if before is None:
            assert answer.json()["state"] in ("new", "kept"), answer.text
        self.queries[name] = text
        self.made["replace" if before is not None else "register"] += 1

    def _update(self, client: httpx.Client) -> None:
        number = len(self.triples)
        triple = f"<{EX}item/{number}> <{EX}in> <{EX}room/{number % 7}>"
        form = {"update": f"INSERT DATA {{ {triple} }}"}
        answer = tried(lambda: client.post("/sparql", data=form), self._load.stop.is_set)
        assert answer.status_code == 204, answer.text
        self.triples.add(triple)
        self.made["update"] += 1

    def check(self, client: httpx.Client, names: Sequence[str] | None = None) -> None:
        """The queries and the data are what was answered."""
        for name in names or self.queries:
            answer = tried(lambda name=name: client.get(f"/queries/{name}"), self._load.stop.is_set)  # type: ignore[misc]
            text = answer.json()["text"] if answer.status_code == 200 else None
            assert text == self.queries[name], name
        query = {"query": f"SELECT * WHERE {{ ?s <{EX}in> ?o }}"}
        answer = tried(lambda: client.get("/sparql", params=query), self._load.stop.is_set)
        rows = answer.json()["results"]["bindings"]
        found = {f"<{row['s']['value']}> <{EX}in> <{row['o']['value']}>" for row in rows}
        assert found == self.triples


# ---------------------------------------------------------------- the load


class Load:
    """All who use a service while it is killed."""

    def __init__(self, folder: Path, *, rate: int = 60) -> None:
        self.folder, self._rate = folder, rate
        self.has_killed: Callable[[], bool] = lambda: False
        """Whether the service was killed as often as it should be."""
        self.port = lasting_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.stop = Event()
        self.senders: list[Sender] = []
        self.changes: Changes | None = None
        self.readers: dict[str, EventReader] = {}
        self.clients: dict[str, ClientReader] = {}
        self.faults: list[str] = []
        self.is_complete = False
        self.ends: dict[str, int] = {}
        """How many results each query has sent in the end."""
        self._enough: int | None = None
        self._lock = Lock()

    def arguments(self) -> list[str]:
        return ["serve", "--port", f"{self.port}", "--state", f"{self.folder}/state"]

    def is_enough(self, sent: int) -> bool:
        """Whether a sender that has sent so many has sent all: all send the same number, of whole seconds."""
        with self._lock:
            if self._enough is None and self.has_killed():
                most = max(each.sent for each in self.senders)
                self._enough = (most // ROUND + 1) * ROUND
            return self._enough is not None and (sent >= self._enough or not sent)

    def pause(self, count: int) -> None:
        self.stop.wait(count / self._rate)

    # ------------------------------------------------------------ as the feed of a job

    def feed(self, stop: Event) -> None:
        self.stop = stop
        try:
            with httpx.Client(base_url=self.url, timeout=10) as client:
                self._begin(client)
                self._work()
                self._end(client)
            self.is_complete = True
        except BaseException:
            self.faults.append(format_exc())

    def _begin(self, client: httpx.Client) -> None:
        raise NotImplementedError

    def _end(self, client: httpx.Client) -> None:
        """Look at the service once more when all is sent."""

    def _declare(self, client: httpx.Client, stream: str, words: dict[str, str]) -> None:
        answer = tried(lambda: client.put(f"/streams/{stream}", json=words), self.stop.is_set)
        assert answer.status_code in (200, 201), answer.text

    def _register(self, client: httpx.Client, name: str, text: str) -> None:
        answer = tried(lambda: client.put(f"/queries/{name}", content=text), self.stop.is_set)
        assert answer.status_code in (200, 201), answer.text
        self.readers[name] = EventReader(self.url, name)

    def _work(self) -> None:
        runs = [each.run for each in self.senders]
        if self.changes is not None:
            runs.append(self.changes.run)
        threads = [Thread(target=self._guarded, args=[run], daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.faults, "\n".join(self.faults)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:
            self.faults.append(format_exc())
            self.stop.set()

    # ------------------------------------------------------------ what has come

    def progress(self) -> int:
        assert not self.faults, "\n".join(self.faults)
        return sum(len(each.lines) for each in [*self.readers.values()])

    def is_done(self) -> bool:
        """Whether the readers have all results that the service has."""
        assert not self.faults, "\n".join(self.faults)
        return self.is_complete and all(len(self.readers[name].lines) >= end for name, end in self.ends.items())

    def finish(self) -> None:
        """End the readers; what they got is checked."""
        for reader in self.readers.values():
            reader.stop()
        for reader in self.readers.values():
            reader.join()
            assert not reader.faults, reader.faults
        for name, client in self.clients.items():
            client.join()
            assert client.fault is None
            records = self.readers[name].records()
            assert [each.number for each in client.results] == [*range(len(client.results))], name
            assert [_row(each) for each in client.results] == [_row_of(each) for each in records], name

    def values(self, name: str) -> list[list[int]]:
        return [[int(each["value"]) for each in record["bindings"].values()] for record in self.readers[name].records()]

    def check_stored(self, client: httpx.Client) -> None:
        """The service has what was sent to readers, number by number, on the disk as in memory."""
        for name, end in self.ends.items():
            reader = self.readers[name]
            eventually(lambda reader=reader, end=end: len(reader.lines) >= end, PATIENCE)  # type: ignore[misc]
            params = {"from": "start", "limit": f"{end}"}
            headers = {"Accept": "application/x-ndjson"}
            with client.stream("GET", f"/queries/{name}/results", params=params, headers=headers) as answer:
                assert [*answer.iter_lines()] == reader.lines[:end], name

    def check_seen(self, name: str, senders: Sequence[Sender]) -> tuple[int, int]:
        """Each acknowledged element is there, none more often than it was sent: how many, and how many came again."""
        found = Counter(number for number, *_ in self.values(name))
        attempts: Counter[int] = Counter()
        acknowledged: set[int] = set()
        for sender in senders:
            attempts.update(sender.elements.attempts)
            acknowledged |= sender.elements.acknowledged
        assert {*range(len(acknowledged))} == acknowledged
        assert found.keys() == acknowledged
        more = {number: times for number, times in found.items() if times > attempts[number]}
        assert not more
        return len(acknowledged), found.total() - len(acknowledged)


def _row(result: Any) -> tuple[object, ...]:
    values = {name: str(value) for name, value in zip(result.variables, map(_plain, result.values), strict=True)}
    return result.number, values


def _row_of(record: dict[str, Any]) -> tuple[object, ...]:
    return int(record["id"].rpartition("/")[2]), {name: each["value"] for name, each in record["bindings"].items()}


def _plain(term: Any) -> str:
    return str(term.value)


class ArrivingLoad(Load):
    """Several push to one stream whose elements have the times at which they come; queries and data change."""

    def _begin(self, client: httpx.Client) -> None:
        self._declare(client, "pushed", BASIC)
        for name, text in ARRIVING.items():
            self._register(client, name, text)
            self.clients[name] = ClientReader(self.url, name)
        self.changes = Changes(self, "pushed", 5)
        self._register(client, "changing", self.changes.text(0))
        self.changes.queries["changing"] = self.changes.text(0)
        self.senders = [
            HttpSender(self, "pushed", 0, 4, size=1),
            HttpSender(self, "pushed", 1, 4, size=20),
            HttpSender(self, "pushed", 2, 4, size=20, chunked=True),
            SocketSender(self, "pushed", 3, 4),
        ]

    def _end(self, client: httpx.Client) -> None:
        count = sum(len(each.elements.acknowledged) for each in self.senders)
        eventually(lambda: len({number for number, *_ in self.values("seen")}) >= count, PATIENCE)
        self.ends = {name: _settled(client, name) for name in ("seen", "changing")}
        self.check_stored(client)

    def check(self) -> str:
        self.finish()
        count, again = self.check_seen("seen", self.senders)
        for record in self.readers["changing"].records():
            (version,) = [name for name in record["bindings"] if name != "n"]
            assert version == f"v{record['bindings'][version]['value']}"
        assert self.changes is not None
        made = ", ".join(f"{count:,} × {what}" for what, count in sorted(self.changes.made.items()))
        return f"{count:,} elements, lost 0, {again:,} that were not acknowledged are twice; {made}"


class TimedLoad(Load):
    """Two streams with times of their own, which are joined; what windows have is exact, whatever comes again."""

    def _begin(self, client: httpx.Client) -> None:
        for stream in ("left", "right"):
            self._declare(client, stream, ORDERED)
        for name, text in TIMED.items():
            self._register(client, name, text)
        self.clients["both"] = ClientReader(self.url, "both")
        self.senders = [HttpSender(self, "left", size=10), SocketSender(self, "right", 0, 1)]

    def _end(self, client: httpx.Client) -> None:
        count = self.senders[0].sent
        for stream in ("left", "right"):
            line = promise(stream, count)
            assert tried(lambda: client.post(f"/streams/{stream}", content=line)).status_code == 200  # noqa: B023
        rows = expected(count)
        for name in ("both", "sum"):
            eventually(lambda: self.values(name)[-1:] == rows[name][-1:], PATIENCE)  # noqa: B023
        self.ends = {name: _settled(client, name) for name in TIMED}
        self.check_stored(client)

    def check(self) -> str:
        self.finish()
        count = self.senders[0].sent
        assert {name: self.values(name) for name in ("both", "sum")} == expected(count)
        again = sum(self.check_seen(f"{each.stream}-seen", [each])[1] for each in self.senders)
        return f"{count:,} elements of each of two streams, lost 0, {again:,} that were not acknowledged are twice"


def expected(count: int) -> dict[str, list[list[int]]]:
    """What `TIMED` queries send of so many elements of each stream."""
    sums = []
    for end in range(0, count + 1, ROUND):
        window = range(max(0, end - SPAN), end)
        sums.append([len(window), sum(window)])
    return {"both": [[number] for number in range(count)], "sum": sums}


def _settled(client: httpx.Client, name: str) -> int:
    """How many results a query has sent when no more come."""
    before = -1
    while True:
        end = int(tried(lambda: client.get(f"/queries/{name}")).json()["results"])
        if end == before:
            return end
        before = end
        sleep(2)


# ---------------------------------------------------------------- the kills


def test_what_is_expected_is_what_the_reference_sends(tmp_path: Path) -> None:
    declared = []
    for stream in ("left", "right"):
        lines = [*(line_of(stream, number) for number in range(300)), promise(stream, 300)]
        (tmp_path / f"{stream}.nt").write_text("\n".join(lines) + "\n")
        declared.append(parse_declaration(f"<{BASE}{stream}>={tmp_path}/{stream}.nt?idle=1h"))
    queries = [prepare(TIMED[name], name=name, base=BASE) for name in ("both", "sum")]
    rows: dict[str, list[list[int]]] = {"both": [], "sum": []}
    for query, result in replay(queries, declared, Store()):
        rows[query.name or ""].append([int(getattr(each, "value", "")) for each in result.values])
    assert rows == expected(300)


def _kill(
    load: Load,
    made: type[Job],
    options: Sequence[str],
    count: int,
    seed: int,
    capsys: pytest.CaptureFixture[str],
    *,
    longest: float,
    **settings: float,
) -> None:
    job = made([*load.arguments(), *options], load.folder, load.feed, load.progress, load.is_done, **settings)
    load.has_killed = lambda: job.kills >= count
    kill_often(job, count, Random(seed), longest=longest)
    told = load.check()
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(options)}: {job.told()}; {told}\n")


@pytest.mark.parametrize("kind", [ArrivingLoad, TimedLoad])
def test_embedded(kind: type[Load], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get("CQELS_SERVE_KILLS", "8"))
    options = ["--engine", "embedded"]
    _kill(kind(tmp_path), Job, options, count, 11, capsys, patience=60.0, early=2.0, longest=1.0)


class SparkJob(Job):
    """`cqels serve` on Spark, whose Java is killed with it, or has to end by itself."""

    draw = Random(6)

    def start(self) -> subprocess.Popen[bytes]:
        os.environ["CQELS_CHAOS"] = str(self.folder)
        return super().start()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        java = [each for each in tagged(str(self.folder)) if each.java]
        super().kill(process)
        if self.draw.random() < 0.5:
            for each in java:
                kill(each)


@pytest.mark.parametrize("kind", [ArrivingLoad, TimedLoad])
def test_on_spark(kind: type[Load], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    if find_spec("cqels.cli.serve_spark") is None:
        pytest.skip("the service runs on Spark in a later release")
    count = int(os.environ.get("CQELS_SERVE_SPARK_KILLS", "3"))
    load = kind(tmp_path, rate=20)
    options = ["--engine", "spark", "--master", "local[2]", "--instances", "1"]
    _kill(load, SparkJob, options, count, 12, capsys, patience=300.0, early=20.0, longest=10.0)
