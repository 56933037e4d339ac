"""A service at full rate for a long time: is its memory level, and its state folder?

`bench/serve.py --minutes 120` calls this.  A client pushes bodies as fast as they are taken, as timed N-Triples and as
JSON lines in turn: observations with IRIs that never come again.  Two queries run all the time (groups over a sliding
window, and what is hot), each of which a reader follows; every few seconds one more is registered, read for a while and
dropped.  Where the service answers 429, the client waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Event, Thread
from typing import Any

import numpy as np
from lines import BEGINNING, EX, XSD_INTEGER, Part, written
from live_soak import SAMPLE, Sample, _size, _told, quarters
from measure import CONSOLE
from serve_load import Connection, Reader, Served, serving

__all__ = ["quarters", "soak"]

TEMPLATE = f"""
subject = "{EX}observation/{{id}}"

[time]
column = "at"

[predicates]
"{EX}temperature" = {{ column = "t" }}
"{EX}room" = {{ iri = "{EX}room/{{room}}" }}
"""
QUERIES = {
    "rooms": f"""SELECT ?room (COUNT(*) AS ?n) (AVG(?t) AS ?mean) WHERE {{
  STREAM <obs> [RANGE 10s SLIDE 5s] {{ ?o <{EX}room> ?room ; <{EX}temperature> ?t }} }} GROUP BY ?room""",
    "hot": f"SELECT ?o ?t WHERE {{ STREAM <obs> [RANGE 10s] {{ ?o <{EX}temperature> ?t }} FILTER(?t > 997) }}",
}
COUNT = 8_000
"""Elements in a body, one each millisecond."""
INBOX = "256MB"
_STAY = 5.0
"""Seconds for which a query stays that comes and goes."""


def lines(first: int) -> bytes:
    numbers = np.arange(first, first + COUNT)
    parts: list[Part] = [f"<{EX}observation/".encode(), (numbers, 12), f'> <{EX}temperature> "'.encode()]
    parts += [(100 + numbers * 7 % 900, 3), f'"^^<{XSD_INTEGER}> '.encode(), (numbers + BEGINNING, 13), b" .\n"]
    return written(parts, COUNT)


def records(first: int) -> bytes:
    numbers = np.arange(first, first + COUNT)
    parts: list[Part] = [b'{"id": "', (numbers, 12), b'", "room": "r', (numbers % 50, 2), b'", "t": ']
    parts += [(100 + numbers * 7 % 900, 3), b', "at": ', (numbers + BEGINNING, 13), b"}\n"]
    return written(parts, COUNT)


BODIES: tuple[tuple[Callable[[int], bytes], str], ...] = (
    (lines, "application/n-triples"),
    (records, "application/x-ndjson"),
)


def feed(port: int, sent: Any, refused: Any) -> None:
    """Push bodies for ever, in a process of its own."""
    first = 0
    with Connection(port) as connection:
        while True:
            make, media = BODIES[first // COUNT % 2]
            status, answer = connection.ask("POST", "/streams/obs", make(first), media)
            if status == 429:
                refused.value += 1
                time.sleep(0.5)
                continue
            if status != 200 or json.loads(answer)["accepted"] != COUNT:
                raise SystemExit(f"not taken: {status} {answer.decode()[:500]}")
            first += COUNT
            sent.value = first


class Followers:
    """Readers of the queries that stay, and queries that come and go."""

    def __init__(self, service: Served) -> None:
        self._service = service
        self._ending = Event()
        self.bytes = 0
        """Of results that were read."""
        self.guests = 0
        """Queries that have come and gone."""
        self._threads = [Thread(target=self._read, args=(name,), daemon=True) for name in QUERIES]
        self._threads.append(Thread(target=self._come_and_go, daemon=True))
        for each in self._threads:
            each.start()

    def _read(self, query: str) -> None:
        reader = Reader(self._service.port, query).socket
        with reader:
            while not self._ending.is_set() and (data := reader.recv(1 << 18)):
                self.bytes += len(data)

    def _come_and_go(self) -> None:
        while not self._ending.is_set():
            name = f"guest{self.guests}"
            value = f"{100 + self.guests % 900}"
            text = f"SELECT ?o WHERE {{ STREAM <obs> [NOW] {{ ?o <{EX}temperature> {value} }} }}"
            self._service.register(name, text)
            reader = Reader(self._service.port, name).socket
            limit = time.monotonic() + _STAY
            while time.monotonic() < limit:
                reader.settimeout(1)
                try:
                    self.bytes += len(reader.recv(1 << 16))
                except TimeoutError:
                    continue
            self._service.ask("DELETE", f"/queries/{name}")
            reader.close()
            self.guests += 1

    def close(self) -> None:
        self._ending.set()
        self._threads[-1].join(2 * _STAY)


@contextmanager
def fed(service: Served) -> Iterator[tuple[Any, Any]]:
    """How many observations a process has sent, and how many bodies were refused."""
    context = get_context("spawn")
    sent, refused = context.Value("q", 0, lock=False), context.Value("q", 0, lock=False)
    process = context.Process(target=feed, args=(service.port, sent, refused), daemon=True)
    process.start()
    try:
        yield sent, refused
    finally:
        process.terminate()
        process.join()


def soak(minutes: float, engine: str) -> list[Sample]:
    """Run so long, and say what was seen; samples while it got warm are the first."""
    samples: list[Sample] = []
    with serving(engine) as service:
        service.declare("obs", template=TEMPLATE, inbox=INBOX)
        for name, text in QUERIES.items():
            service.register(name, text)
        followers = Followers(service)
        with fed(service) as (sent, refused):
            began = time.monotonic()
            while (now := time.monotonic() - began) < 60 * minutes:
                time.sleep(min(SAMPLE, 60 * minutes / 8))
                if service.process.poll() is not None:
                    raise SystemExit("the service has ended")
                samples.append(Sample(now, sent.value, service.resident, _size(service.state)))
                if len(samples) % 30 == 0:
                    CONSOLE.print(_told(samples[-30:]))
        followers.close()
        status = json.loads(service.ask("GET", "/"))
        CONSOLE.print(
            f"{status['elements']:,} processed, {status['results']:,} results, {status['late']:,} late, "
            f"{refused.value:,} bodies refused, {followers.bytes / 1e6:,.0f} MB read, "
            f"{followers.guests:,} queries came and went"
        )
    return samples
