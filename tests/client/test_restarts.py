"""Readers and pushes while the service restarts: nothing that was acknowledged is lost, and no result comes twice."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

from cqels.client import ConnectionLost, NotFound

from .clients import KINDS, Reader, connected, ended, eventually
from .served import EX, OBS, PREFIX, served

EACH = PREFIX + "SELECT ?t { STREAM :obs [NOW] { ?s :temp ?t } }"
COUNT = PREFIX + "SELECT (COUNT(*) AS ?n) { STREAM :obs [ALL] { ?s :temp ?t } }"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def element(number: int) -> str:
    return f'<{EX}s1> <{EX}temp> "{number}"^^<http://www.w3.org/2001/XMLSchema#integer> "{number}" .'


class Pusher:
    """Pushes elements one by one, until it is stopped; what it has pushed was acknowledged."""

    def __init__(self, client: Any) -> None:
        self.count = 0
        self._client, self._stopping = client, Event()
        self.error: Exception | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._client.push(OBS, element(self.count))
            except ConnectionLost:  # nobody knows whether it has arrived: here it can be looked up
                eventually(lambda: self._client.status()["uptime"] > 0)
                sleep(0.2)  # what has arrived is processed
                if self._client.query("each").info["results"] == self.count:
                    continue
            except Exception as error:
                self.error = error
                return
            self.count += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def test_the_service_restarts_under_readers_and_pushes(kind: str, tmp_path: Path) -> None:
    """On the same address with the same state, three times: what is read is all that was pushed, once, in order."""
    with served(tmp_path) as server:
        port = server.port
        client, pushing = connected(kind, server.url), connected(kind, server.url)
        each = client.register(EACH, name="each")
        client.register(COUNT, name="count", emit="changes")
        readers = [Reader(each.results()), Reader(client.results("each", after=-1)), Reader(client.results("count"))]
        pusher = Pusher(pushing)
        eventually(lambda: len(readers[0].results) > 20)
    for _ in range(2):
        sleep(0.05)
        seen = len(readers[0].results)
        with served(tmp_path, port=port):
            eventually(lambda seen=seen: len(readers[0].results) > seen + 20)  # type: ignore[misc]
    with served(tmp_path, port=port):
        pusher.stop()
        count = pusher.count
        eventually(lambda: all(len(reader.results) >= count for reader in readers[:2]))
        for reader in readers[:2]:
            assert [int(result.t.value) for result in reader.results] == [*range(count)]
            assert [result.number for result in reader.results] == [*range(count)]
        counted = readers[2]
        eventually(lambda: [int(each.n.value) for each in counted.results if each.sign == "+"][-1:] == [count])
        assert [int(each.n.value) for each in counted.results if each.sign == "+"] == [*range(1, count + 1)]
        assert [each.number for each in counted.results] == [*range(len(counted.results))]
        client.drop("each")
        client.drop("count")
        for reader in readers:
            reader.join()
            assert reader.error is None
        for each_client in (client, pushing):
            ended(each_client)


def test_a_reader_whose_query_is_gone_after_a_restart(kind: str, tmp_path: Path) -> None:
    with served(tmp_path / "first") as server:
        client, port = connected(kind, server.url), server.port
        reader = Reader(client.register(EACH, name="each").results())
        client.push(OBS, element(1))
        eventually(lambda: len(reader.results) == 1)
    with served(tmp_path / "second", port=port):
        reader.join()
        assert isinstance(reader.error, NotFound)
        assert reader.error.message == "the results of query each cannot be read on: there is no query each"
    ended(client)
