"""What goes wrong between a client and a service: readers go on, each result once, and no gap in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from time import monotonic
from typing import Any

import pytest

import cqels
from cqels.client import (
    AccessDenied,
    Conflict,
    ConnectionLost,
    NotFound,
    ResultsMissed,
    ServiceBusy,
    ServiceFailed,
    ServiceUnavailable,
    connection,
    following,
    taking,
)
from cqels.model.errors import CqelsError, DataError, QueryError, QueryStopped

from .clients import KINDS, Reader, connected, ended, eventually
from .scripted_service import (
    CUT,
    SILENT,
    Answer,
    ScriptedService,
    info,
    line,
    lines,
    numbers,
    page,
    part,
    problem,
    said,
)

RESULTS, HOT = "/queries/hot/results", "/queries/hot"
DROPPED = b'{"end": "the query was dropped"}\n'
STOPS = b'{"end": "the service stops"}\n'
PUSHED = said({"accepted": 1, "rejected": 0})
Connect = Callable[..., Any]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(connection, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(taking, "_LAG", 0.05)


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as made:
        yield made


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, service: ScriptedService) -> Iterator[Connect]:
    """What makes clients of the service, of each kind."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(connected(request.param, service.url, **options))
        return made[-1]

    yield make
    for each in made:
        ended(each)


def busy(after: str) -> Answer:
    return problem(429, "too much is pushed", headers={"Retry-After": after})


# ---------------------------------------------------------------- readers


def test_a_reader_goes_on_behind_its_last_result(service: ScriptedService, connect: Connect) -> None:
    """The connection is lost in the middle of a line, at the end of one, and where the service stops."""
    service.on("GET", HOT, info(9))
    service.on(
        "GET",
        RESULTS,
        lines(line(0), line(1) + line(2)[:20], cut=True),
        lines(line(2), line(3)),
        lines(line(4), b"\n", line(5), STOPS),
        CUT,
        problem(503, "not yet"),
        page("<html>bad gateway", 502),
        lines(line(6), line(7), line(8), DROPPED),
    )
    assert numbers([*connect().results("hot", after=-1)]) == [*range(9)]
    begins = [each.params.get("after", "start") for each in service.requests("GET", RESULTS)]
    assert begins == ["start", "1", "3", "5", "5", "5", "5"]


def test_a_result_that_comes_again_is_left_out(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(5))
    service.on("GET", RESULTS, lines(line(3), cut=True), lines(line(2), line(3), line(4), DROPPED))
    assert numbers([*connect().results("hot", after=2)]) == [3, 4]


def test_results_that_are_gone_are_an_error(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(9))
    missed = b'{"missed": 3, "next": 4}\n'
    service.on("GET", RESULTS, lines(line(0), missed, line(4)))
    reader = connect().results("hot", after=-1)
    assert numbers([next(reader)]) == [0]
    with pytest.raises(ResultsMissed, match="3 results of query hot are gone, those up to number 3") as caught:
        next(reader)
    assert (caught.value.count, caught.value.after) == (3, 3)


@pytest.mark.parametrize("is_said", [True, False])
def test_results_that_are_gone_can_be_told_of(service: ScriptedService, connect: Connect, *, is_said: bool) -> None:
    """The same whether the service says that there is a gap, or the numbers show it."""
    told: list[ResultsMissed] = []
    service.on("GET", HOT, info(6))
    gap = b'{"missed": 3, "next": 4}\n' if is_said else b""
    service.on("GET", RESULTS, lines(line(0) + gap + line(4), line(5), DROPPED))
    results = [*connect().results("hot", after=-1, on_missed=told.append)]
    assert numbers(results) == [0, 4, 5]
    assert [(each.count, each.after) for each in told] == [(3, 3)]


def test_from_the_start_is_the_oldest_that_there_is(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(9))
    service.on("GET", RESULTS, lines(line(7), line(8), DROPPED))
    assert numbers([*connect().results("hot", from_start=True)]) == [7, 8]


def test_a_query_that_was_dropped_meanwhile(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(1), info(1), problem(404, "there is no query hot"))
    service.on("GET", RESULTS, lines(line(0), cut=True))
    reader = connect().results("hot", after=-1)
    assert numbers([next(reader)]) == [0]
    with pytest.raises(NotFound, match="cannot be read on: there is no query hot") as caught:
        next(reader)
    assert caught.value.hint == "what it sent from number 1 on was not read"


def test_a_query_that_is_stopped(service: ScriptedService, connect: Connect) -> None:
    """Its last results come, then the reason."""
    stopped = info(2, stopped="it took more memory than 1 MB")
    service.on("GET", HOT, info(1), info(1), stopped)
    service.on("GET", RESULTS, lines(line(0), line(1), b"\n"))
    reader = connect().results("hot", after=-1)
    assert numbers([*islice(reader, 2)]) == [0, 1]
    with pytest.raises(QueryStopped, match="more memory than 1 MB"):
        next(reader)


def test_numbers_that_begin_anew(service: ScriptedService, connect: Connect) -> None:
    """The service has lost its state; one that has only just started may lag behind its reader for a moment."""
    service.on("GET", HOT, info(9))
    service.on("GET", RESULTS, lines(line(8), cut=True), lines(b"\n"))
    reader = connect().results("hot", after=7)
    assert numbers([next(reader)]) == [8]
    service.on("GET", HOT, info(2))
    with pytest.raises(Conflict, match="have begun anew: 9 were read, and the service has 2"):
        next(reader)


def test_a_service_that_lags_behind_its_reader(service: ScriptedService, connect: Connect) -> None:
    """It ended while a reader asked whether there is more, and delivers its last results again when it is back."""
    service.on("GET", HOT, info(9), info(9), CUT, info(5))
    service.on("GET", RESULTS, lines(line(8), b"\n", cut=True), lines(line(8), line(9), DROPPED))
    assert numbers([*connect().results("hot", after=7)]) == [8, 9]


def test_a_reader_gives_up_after_its_patience(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(1))
    service.on("GET", RESULTS, lines(line(0)), CUT)
    reader = connect().results("hot", after=-1, patience=0.3)
    assert numbers([next(reader)]) == [0]
    began = monotonic()
    with pytest.raises(ConnectionLost, match="was lost"):
        next(reader)
    assert 0.3 <= monotonic() - began < 5


def test_a_reader_says_once_that_it_waits(
    service: ScriptedService, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    service.on("GET", HOT, info(1))
    service.on("GET", RESULTS, CUT, CUT, CUT, lines(line(0), DROPPED))
    with caplog.at_level(logging.WARNING, "cqels"):
        assert numbers([*connect().results("hot", after=-1)]) == [0]
    told = [each.message for each in caplog.records if each.name == "cqels"]
    assert told == [f"results of query hot: the connection to {service.url} was lost; trying again"]


def test_what_is_no_service_is_an_error(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(1))
    service.on("GET", RESULTS, lines(b"<html>\n"))
    with pytest.raises(CqelsError, match="a line of results is not a JSON object"):
        next(connect().results("hot", after=-1))
    service.on("GET", "/", page("<html>hello"))
    with pytest.raises(CqelsError, match="the answer is not JSON"):
        connect().status()


def test_closing_ends_readers(service: ScriptedService, connect: Connect) -> None:
    """At once, and without an error: where nothing comes, and where they wait to connect again."""
    service.on("GET", HOT, info(1))
    service.on("GET", RESULTS, lines(line(0), hang=True), CUT)
    client = connect()
    reading, trying = Reader(client.results("hot", after=-1)), Reader(client.results("hot", after=-1))
    eventually(lambda: len(service.requests("GET", RESULTS)) > 4)
    began = monotonic()
    client.close()
    for reader in (reading, trying):
        reader.join()
        assert reader.error is None
    assert monotonic() - began < 3
    with pytest.raises(CqelsError, match="the client is closed"):
        client.status()


# ---------------------------------------------------------------- handles


def test_a_handle_moves_with_what_is_read(service: ScriptedService, connect: Connect) -> None:
    service.on("PUT", HOT, info(2))
    service.on("GET", HOT, info(2))
    service.on("GET", RESULTS, lines(line(2), line(3), line(4)))
    query = connect().register("SELECT …", name="hot")
    with closing(query.results()) as results:
        assert numbers([*islice(results, 2)]) == [2, 3]
    assert query.number == 4
    service.on("GET", RESULTS, part(4, 5, last=5), part(last=5))
    assert numbers(query.take()) == [4, 5]
    assert query.number == 6
    assert [each.params["after"] for each in service.requests("GET", RESULTS)] == ["1", "3", "5"]


def test_taking_over_a_gap(service: ScriptedService, connect: Connect) -> None:
    """What is before it, the error, and what is behind it."""
    service.on("GET", HOT, info(0))
    behind = part(5, last=5, missed=4)
    service.on("GET", RESULTS, part(0, last=0), behind)
    query = connect().query("hot")
    assert numbers(query.take()) == [0]
    with pytest.raises(ResultsMissed, match="4 results") as caught:
        query.take()
    assert (caught.value.count, caught.value.after) == (4, 4)
    service.on("GET", RESULTS, part(5, last=5), part(last=5))
    assert numbers(query.take()) == [5]


def test_taking_where_nothing_will_come(service: ScriptedService, connect: Connect) -> None:
    service.on("GET", HOT, info(3, stopped="it took too much time"))
    service.on("GET", RESULTS, part(last=2))
    with pytest.raises(QueryStopped, match="it took too much time"):
        connect().query("hot").take()
    service.on("GET", HOT, info(3), info(1))
    with pytest.raises(Conflict, match="have begun anew"):
        connect().query("hot").take()


# ---------------------------------------------------------------- requests


def test_a_busy_service_is_asked_again_when_it_says(service: ScriptedService, connect: Connect) -> None:
    service.on("POST", "/streams/obs", busy("1"), busy("0"), PUSHED)
    began = monotonic()
    assert connect().push("obs", "<x:s> <x:p> 1 .").accepted == 1
    assert 1 <= monotonic() - began < 5
    assert len({each.body for each in service.requests("POST", "/streams/obs")}) == 1
    assert len(service.asked) == 3


def test_a_service_that_stays_busy(service: ScriptedService, connect: Connect) -> None:
    service.on("POST", "/streams/obs", busy("7"))
    with pytest.raises(ServiceBusy, match="too much is pushed") as caught:
        connect(patience=5).push("obs", "<x:s> <x:p> 1 .")
    assert caught.value.after == 7
    assert len(service.asked) == 1


def test_a_push_is_not_repeated_in_silence(service: ScriptedService, connect: Connect) -> None:
    """It may have arrived; with `retry` it arrives at least once."""
    service.on("POST", "/streams/obs", CUT, PUSHED)
    with pytest.raises(ConnectionLost) as caught:
        connect().push("obs", "<x:s> <x:p> 1 .")
    assert caught.value.hint == "it is not known whether the service has done what was asked"
    assert len(service.asked) == 1
    service.on("POST", "/streams/obs", CUT, problem(503, "it stops"), PUSHED)
    assert connect().push("obs", "<x:s> <x:p> 1 .", retry=True).accepted == 1
    assert len(service.asked) == 4


def test_what_only_reads_is_repeated(service: ScriptedService, connect: Connect) -> None:
    """Where there is a service: else it is said at once that there is none."""
    service.on("GET", "/", said({"service": "cqels"}), CUT, problem(503, "it stops"), said({"a": 1}))
    client = connect()
    assert client.status() == {"service": "cqels"}
    assert client.status() == {"a": 1}
    service.on("GET", "/", problem(503, "it stops"))
    with pytest.raises(ServiceUnavailable, match="it stops"):
        connect(patience=0.3).status()


@pytest.mark.parametrize("kind", KINDS)
def test_no_service(kind: str) -> None:
    with ScriptedService() as gone:
        pass
    client = connected(kind, gone.url)
    began = monotonic()
    with pytest.raises(ConnectionLost, match="no service answers at") as caught:
        client.push("obs", "<x:s> <x:p> 1 .")
    assert not caught.value.is_sent
    assert caught.value.hint == "`cqels serve` starts one"
    assert monotonic() - began < 2
    ended(client)


def test_an_answer_that_takes_too_long(service: ScriptedService, connect: Connect) -> None:
    service.on("POST", "/checkpoint", SILENT)
    with pytest.raises(ConnectionLost, match=r"has not answered within 0\.2 s"):
        connect(timeout=0.2).checkpoint()


def test_errors_of_the_service(service: ScriptedService, connect: Connect) -> None:
    client = connect(token="a-token-that-is-not-known")
    kinds = {401: AccessDenied, 403: AccessDenied, 404: NotFound, 409: Conflict, 413: DataError, 500: ServiceFailed}
    for status, kind in kinds.items():
        service.on("POST", "/streams/obs", problem(status, "that is not so", hint="do it otherwise"))
        with pytest.raises(kind) as caught:
            client.push("obs", "<x:s> <x:p> 1 .")
        assert str(caught.value) == "that is not so\n   = hint: do it otherwise"
    assert {each.headers["authorization"] for each in service.asked} == {"Bearer a-token-that-is-not-known"}
    service.on("POST", "/streams/obs", page("<html>no", 500))
    with pytest.raises(ServiceFailed, match="the service answered with 500"):
        client.push("obs", "<x:s> <x:p> 1 .")


def test_the_place_of_an_error_is_in_the_text_as_it_is_here(service: ScriptedService, connect: Connect) -> None:
    text = "window :v does not exist\n  --> hot:2:3\n   | \t :v\n   | \t ^^\n   = hint: there is :w"
    service.on("PUT", HOT, problem(400, "window :v does not exist", hint="there is :w", text=text))
    with pytest.raises(QueryError) as caught:
        connect().register("SELECT\n\t :v\n}", name="hot")
    assert caught.value.span is not None
    assert (caught.value.span.start, caught.value.span.end) == (9, 11)
    assert "  --> <query>:2:3\n   | \t :v\n   | \t ^^\n   = hint: there is :w" in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:7070", "ftp://x", "http://", "http://x:99999", "http://[::1", None])
@pytest.mark.parametrize("connect", [cqels.connect, cqels.connect_async])
def test_addresses(connect: Any, url: Any) -> None:
    with pytest.raises(CqelsError, match="is not the address of a service"):
        connect(url)
