"""The log of results that subscriptions read: by number, through restarts, with what is gone told."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from shutil import copytree
from threading import Event, Thread

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.pipeline.sink import result_log
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.result_log import Found, ResultLog
from cqels.pipeline.sink.text_formats import json_lines_with_ids, lines_of, lines_with_ids
from cqels.pipeline.source.inbox import Inbox
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result


def query(name: str) -> Query:
    return prepare("SELECT ?v WHERE { STREAM <x:s> [NOW] { ?s ?p ?v } }", name=name)


def sent(asked: Query, first: int, count: int) -> Sent:
    results = [
        Result(asked.name or "", 1000, number, "+", (Literal(str(number)),), variables=("v",))
        for number in range(first, first + count)
    ]
    return Sent.of(asked, results, first)


def values(found: Found) -> list[int]:
    lines = [json.loads(line) for part in found.parts for line in part.lines]
    assert [line["id"] for line in lines] == [f"{line['query']}/{line['bindings']['v']['value']}" for line in lines]
    return [int(line["bindings"]["v"]["value"]) for line in lines]


def test_readers_get_what_is_behind_their_number(tmp_path: Path) -> None:
    log, asked = ResultLog(tmp_path), query("a")
    log.open([asked])
    assert log.read("a", 0) == Found((), 0)
    log.write(1, {"a": sent(asked, 0, 3)})
    log.write(2, {"a": sent(asked, 3, 2)})
    assert values(log.read("a", 0)) == [0, 1, 2, 3, 4]
    assert values(log.read("a", 2)) == [2, 3, 4]
    assert log.read("a", 5) == Found((), 5)
    part = log.read("a", 4).parts[0]
    assert part.events.startswith(b"id: 4\ndata: {")
    assert part.events.endswith(b"}\n\n")
    log.close()


def test_a_batch_that_comes_again_is_known(tmp_path: Path) -> None:
    asked = query("a")
    log = ResultLog(tmp_path)
    log.open([asked])
    log.write(1, {"a": sent(asked, 0, 3)})
    log.close()
    log = ResultLog(tmp_path)
    log.open([asked])
    assert log.end("a") == 3
    log.write(1, {"a": sent(asked, 0, 3)})
    log.write(2, {"a": sent(asked, 2, 3)})  # of which the log has one
    assert values(log.read("a", 0)) == [0, 1, 2, 3, 4]
    log.close()


def test_what_is_gone_is_told() -> None:
    log, asked, other = ResultLog(memory=2000), query("a"), query("b")
    log.open([asked, other])
    for number in range(100):
        log.write(number, {"a": sent(asked, number, 1), "b": sent(other, number, 1)})
    found = log.read("a", 0)
    assert found.missed > 80
    assert values(found) == [*range(found.missed, 100)]
    assert found.next == 100
    assert log.first("a") == found.missed


def test_the_disk_has_what_memory_has_not(tmp_path: Path) -> None:
    """Whatever is read from wherever, in whatever order: each number once, or told to be missed."""
    random = Random(5)
    queries = [query(name) for name in "abc"]
    log = ResultLog(tmp_path, limit=60_000, memory=3000)
    log.open(queries)
    ends = dict.fromkeys("abc", 0)
    for batch in range(400):
        chosen = [each for each in queries if random.random() < {"a": 1.0, "b": 0.3, "c": 0.01}[each.name or ""]]
        given = {}
        for each in chosen:
            count = random.randint(1, 5)
            given[each.name or ""] = sent(each, ends[each.name or ""], count)
            ends[each.name or ""] += count
        log.write(batch, given)
        if random.random() < 0.02:
            log.close()
            log = ResultLog(tmp_path, limit=60_000, memory=3000)
            log.open(queries)
            assert {name: log.end(name) for name in "abc" if ends[name]} == {n: e for n, e in ends.items() if e}
        name = random.choice("abc")
        at = random.randint(0, ends[name])
        while at < ends[name]:
            found = log.read(name, at, 5000)
            assert values(found) == [*range(at + found.missed, found.next)]
            assert found.next > at
            at = found.next
        assert sum(path.stat().st_size for path in tmp_path.glob("*.inbox")) < 80_000
    log.close()


def test_numbers_outlive_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash behind the removal of a segment, which had all that there was of a query."""
    commit, crashes = Inbox.commit, []

    def committed(inbox: Inbox, offset: int) -> None:
        first = inbox.first
        commit(inbox, offset)
        if inbox.first != first:
            crashes.append(copytree(inbox.folder, tmp_path / f"crash-{len(crashes)}"))

    monkeypatch.setattr(Inbox, "commit", committed)
    rare, often = query("rare"), query("often")
    log = ResultLog(tmp_path / "log", limit=20_000)
    log.open([rare, often])
    log.write(0, {"rare": sent(rare, 0, 7)})
    for batch in range(1, 300):
        log.write(batch, {"often": sent(often, 3 * batch - 3, 3)})
    log.close()
    assert len(crashes) > 5
    for folder in crashes:
        log = ResultLog(folder)
        log.open([rare, often])
        assert log.end("rare") == 7
        log.close()


def test_what_readers_had_before_the_disk_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between memory and the disk: the batch is delivered once more, and has the numbers that readers know."""
    asked, copies = query("a"), []
    log: ResultLog

    def notified(names: object) -> None:
        copies.append((copytree(tmp_path / "log", tmp_path / f"crash-{len(copies)}"), log.read("a", 0)))

    log = ResultLog(tmp_path / "log", notify=notified)
    log.open([asked])
    for batch in range(4):
        log.write(batch, {"a": sent(asked, 3 * batch, 3)})
    log.close()
    for batch, (folder, found) in enumerate(copies):
        log = ResultLog(folder)
        log.open([asked])
        assert log.end("a") == 3 * batch
        assert log.recent("a", found.next) == Found((), found.next)  # who has read more waits
        log.write(batch, {"a": sent(asked, 3 * batch, 3)})
        assert values(log.read("a", 0)) == values(found)
        log.close()


def test_a_batch_that_memory_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are woken when they find all of it."""
    monkeypatch.setattr(result_log, "_PART", 5)
    asked, found = query("a"), []
    log = ResultLog(tmp_path, memory=3000, notify=lambda names: found.append(log.read("a", 0)))
    log.open([asked])
    log.write(0, {"a": sent(asked, 0, 200)})
    log.close()
    assert values(found[0]) == [*range(200)]
    assert found[0].missed == 0


def test_readers_of_what_is_being_removed(tmp_path: Path) -> None:
    """They are told what they miss, whatever goes while they read."""
    asked, stop = query("a"), Event()
    faults: list[BaseException] = []
    log = ResultLog(tmp_path, limit=20_000, memory=2000)
    log.open([asked])

    def read() -> None:
        while not stop.is_set():
            try:
                found = log.read("a", 0, 2000)
                assert values(found) == [*range(found.missed, found.next)]
            except BaseException as error:
                faults.append(error)
                return

    readers = [Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for batch in range(400):
        log.write(batch, {"a": sent(asked, 5 * batch, 5)})
    stop.set()
    for reader in readers:
        reader.join()
    log.close()
    assert not faults, faults[0]


@pytest.mark.parametrize("count", [1, 16, 17])
def test_few_results_are_written_as_many_are(count: int) -> None:
    """Quotes, languages, what is unbound, empty snapshots, names of any kind: the bytes are the same."""
    terms = [Literal('a "b"\\\n', language="en"), NamedNode("x:é"), BlankNode("b"), Literal("1.5"), None]
    asked = prepare("SELECT ?v ?w WHERE { STREAM <x:s> [NOW] { ?s ?p ?v , ?w } }", name='o"q')
    results = [
        Result(asked.name or "", 10**18 + 7 * n, n, "+-"[n % 2], (terms[n % 5], terms[n % 3]), variables=("v", "w"))
        for n in range(count)
    ]
    if count > 1:
        results[1] = Result(asked.name or "", 10**18, 1, "", (), empty=True, variables=("v", "w"))
    made = Sent.of(asked, results, 5)
    assert lines_with_ids(made) == lines_of(json_lines_with_ids(made))
