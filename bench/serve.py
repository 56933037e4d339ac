"""The service over HTTP on loopback: elements a second in, and the delay until their results are out.

    python bench/serve.py
    python bench/serve.py --parts single delay --rounds 5
    python bench/serve.py --minutes 120        # a run at full rate: is its memory level? (bench/serve_soak.py)

The service is a process of its own, `cqels serve` with a state on the disk; the clients are loops over raw sockets in
other processes, whose processor time is shown beside that of the service.  All share the machine: each figure is the
best of several rounds, and what is compared runs in turn.

batches   bodies of about 1 MB, against `Engine.push` of the same triples: acknowledged when they are on the disk,
          worked off when their results are out
single    one element in each request over connections that are kept open, or in each message of a WebSocket
delay     from when an element is due, at a fixed rate, to its server-sent event
readers   many who follow one query: until all have all, the delay at 100 results a second, and one who never reads
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.process import BaseProcess

import numpy as np
from lines import EX, XSD_INTEGER, Part, readings, written
from measure import CONSOLE, Words, machine, per_second, progress
from rich.table import Table
from serve_load import (
    BASE,
    Connection,
    Load,
    Reader,
    Served,
    at_a_rate,
    by_websocket,
    many_readers,
    one_by_one,
    open_files,
    pushed,
    serving,
)
from serve_soak import quarters, soak

import cqels

LATENESS = "180s"
"""Of streams that several connections push to: their bodies overtake each other."""
SENSORS = 10_000
TEMPLATE = f"""
subject = "{EX}s{{sensor}}"

[time]
column = "at"

[predicates]
"{EX}temp" = {{ column = "t" }}
"{EX}damp" = {{ column = "d" }}
"""
ALL = f"SELECT ?n WHERE {{ STREAM <obs> [NOW] {{ ?s <{EX}n> ?n }} }}"
Percentiles = tuple[float, ...]


def hot(stream: str) -> str:
    return f"SELECT ?s ?v WHERE {{ STREAM <{stream}> [RANGE 10s] {{ ?s <{EX}temp> ?v }} FILTER(?v > 990) }}"


def one(sensor: int) -> str:
    return f"SELECT ?v WHERE {{ STREAM <obs> [NOW] {{ <{EX}s{sensor}> <{EX}n> ?v }} }}"


def element(number: int) -> bytes:
    return f'<{EX}s{number % 100}> <{EX}n> "{number}"^^<{XSD_INTEGER}> .'.encode()


def request(number: int) -> bytes:
    return pushed("obs", element(number))


def milliseconds(times: Sequence[float], *parts: float) -> Percentiles:
    return tuple(float(each) * 1e3 for each in np.percentile(np.array(times), parts))


def shown(value: float) -> str:
    return f"{value:.1f} ms"


def verdict(*, met: bool) -> str:
    return "[green]met[/]" if met else "[red]not met[/]"


# ---------------------------------------------------------------- bodies


@dataclass(frozen=True)
class Body:
    """A body and the same for `Engine.push`."""

    media: str
    content: bytes
    path: str
    elements: int
    triples: int
    block: bytes
    time: str | None = None


def _numbers(block: int, count: int, low: int, high: int) -> Words:
    return np.random.default_rng(block).integers(low, high, count)


def ntriples(block: int) -> Body:
    """10,000 lines, one each millisecond."""
    count = 10_000
    times = np.arange(block * count, (block + 1) * count)
    sensors, values = _numbers(block, count, 0, SENSORS), _numbers(block + 1, count, 100, 1000)
    lines = readings(sensors, times, values, ("temp", "damp"))
    return Body("application/n-triples", lines, "", count, count, lines)


def json_lines(block: int) -> Body:
    """18,000 records, one each millisecond, of which the template makes two triples each."""
    count = 18_000
    times = np.arange(block * count, (block + 1) * count)
    sensors = _numbers(block, count, 0, SENSORS)
    hot, damp = _numbers(block + 1, count, 100, 1000), _numbers(block + 2, count, 100, 1000)
    at: tuple[Words, int] = times + 1_700_000_000_000, 13
    parts: list[Part] = [
        b'{"sensor": "',
        (sensors, 9),
        b'", "t": ',
        (hot, 3),
        b', "d": ',
        (damp, 3),
        b', "at": ',
        at,
        b"}\n",
    ]
    twice = np.repeat(sensors, 2), np.repeat(times, 2), np.column_stack([hot, damp]).ravel()
    return Body("application/x-ndjson", written(parts, count), "", count, 2 * count, readings(*twice, ("temp", "damp")))


def turtle(block: int) -> Body:
    """One element of 40,000 triples."""
    count = 20_000
    hot, damp = _numbers(block, count, 100, 1000), _numbers(block + 1, count, 100, 1000)
    parts: list[Part] = [
        b":s",
        (np.arange(count), 9),
        b" :temperature ",
        (hot, 3),
        b" ; :humidity ",
        (damp, 3),
        b" .\n",
    ]
    text = f"@prefix : <{EX}> .\n".encode() + written(parts, count)
    text = text.replace(b":temperature", b":temp").replace(b":humidity", b":damp")
    when = f"{10 * (block + 1)}s"
    return Body("text/turtle", text, f"?time={when}", 1, 2 * count, text, when)


BODIES: dict[str, Callable[[int], Body]] = {"N-Triples": ntriples, "JSON lines": json_lines, "Turtle": turtle}


# ---------------------------------------------------------------- batches


def _ignore(result: object) -> None:
    """Results are made, and nobody wants them."""


class Rival:
    """`Engine.push` in this process, with the same query."""

    def __init__(self, stream: str, lateness: str) -> None:
        self._stream = BASE + stream
        self._engine = cqels.Engine()
        self._engine.stream(self._stream, lateness=lateness)
        self._engine.register(hot(self._stream), callback=_ignore)

    def push(self, bodies: Sequence[Body]) -> tuple[float, float]:
        """Seconds on the clock, and of processor time."""
        began, spent = time.perf_counter(), time.process_time()
        for body in bodies:
            if body.time is None:
                self._engine.push(self._stream, body.block)
            else:
                self._engine.push(self._stream, body.block.decode(), time=body.time)
        return time.perf_counter() - began, time.process_time() - spent

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True)
class Taken:
    """What became of some bodies that were pushed over HTTP."""

    acknowledged: float
    done: float
    processor: float


def push_all(service: Served, stream: str, bodies: Sequence[Body], connections: int) -> Taken:
    """Push bodies by so many connections at once, and wait until all are worked off."""
    wanted = service.elements + sum(each.elements for each in bodies)
    opened = [Connection(service.port) for _ in range(connections)]

    waiting = deque(bodies)

    def push(number: int) -> None:
        while waiting:
            try:
                body = waiting.popleft()
            except IndexError:  # another has taken the last
                return
            status, answer = opened[number].ask("POST", f"/streams/{stream}{body.path}", body.content, body.media)
            if status != 200 or json.loads(answer)["accepted"] != body.elements:
                raise SystemExit(f"not taken: {answer.decode()[:500]}")

    spent, began = service.processor, time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        [*pool.map(push, range(connections))]
    acknowledged = time.perf_counter() - began
    while service.elements < wanted:
        time.sleep(0.005)
    done = time.perf_counter() - began
    for each in opened:
        each.socket.close()
    status = json.loads(service.ask("GET", "/"))
    if status["late"] or status["rejected"]:
        raise SystemExit(f"{status['late']} are late, {status['rejected']} are rejected")
    return Taken(acknowledged, done, service.processor - spent)


def batches(options: argparse.Namespace) -> Iterator[Table]:
    title = f"batches: {options.megabytes} bodies of about 1 MB, triples a second; best of {options.rounds} rounds"
    names = "bodies", "at once", "Engine.push", "acknowledged", "worked off", "of it", "≥ 30 %", "processor time"
    table = Table(*names, title=title)
    for kind in options.bodies:
        for connections in (1, options.connections):
            if connections == 1 or kind != "Turtle":  # an element of a later time makes the one before late
                table.add_row(kind, str(connections), *_batches(kind, connections, options))
    yield table


def _batches(kind: str, connections: int, options: argparse.Namespace) -> tuple[str, ...]:
    """Each kind has a service of its own: all streams of one have the same time."""
    stream, lateness = "obs", LATENESS if connections > 1 else "0s"
    rival, ours, theirs, triples = Rival(stream, lateness), list[Taken](), list[tuple[float, float]](), 0
    with serving(options.engine) as service:
        service.declare(stream, lateness=lateness, **({"template": TEMPLATE} if kind == "JSON lines" else {}))
        service.register("hot", hot(stream))
        for number in range(options.rounds + 1):
            first = number * options.megabytes
            bodies = [BODIES[kind](each) for each in range(first, first + options.megabytes)]
            triples = sum(each.triples for each in bodies)
            theirs.append(rival.push(bodies))
            ours.append(push_all(service, stream, bodies, connections))
    rival.close()
    fastest, least = (min(each) for each in zip(*theirs[1:], strict=True))
    taken = min(ours[1:], key=lambda each: each.done)
    spent = min(each.processor for each in ours[1:])
    ratio = fastest / taken.done
    return (
        per_second(triples / fastest),
        per_second(triples / min(each.acknowledged for each in ours[1:])),
        per_second(triples / taken.done),
        f"{ratio:.0%}",
        verdict(met=ratio >= 0.3),
        f"{least / triples * 1e9:,.0f} and {spent / triples * 1e9:,.0f} ns: {least / spent:.0%}",
    )


# ---------------------------------------------------------------- one by one


def single(service: Served, options: argparse.Namespace) -> Iterator[Table]:
    title = f"one element at a time, for {options.seconds:g} s; best of {options.rounds} rounds"
    table = Table("way", "at once", "elements", "≥ 3 k/s", "p50", "p99", "service", "client", title=title)
    service.register("all", ALL)

    def row(way: str, width: int, load: Callable[[], Load]) -> None:
        found: list[tuple[Load, float]] = []
        for _ in range(options.rounds):
            before = service.processor
            found.append((load(), service.processor - before))
            _worked_off(service)
        best, spent = max(found, key=lambda each: each[0].count / each[0].seconds)
        rate = best.count / best.seconds
        quantiles = map(shown, milliseconds(best.times, 50, 99)) if best.times else ("", "")
        costs = f"{spent / best.count * 1e6:.0f} µs", f"{best.processor / best.count * 1e6:.0f} µs"
        table.add_row(way, str(width), per_second(rate), verdict(met=rate >= 3000), *quantiles, *costs)

    for width in (16, 64):
        row("HTTP, connections kept open", width, lambda w=width: one_by_one(service.port, request, w, options.seconds))  # type: ignore[misc]
    for width in (1, 4):
        row("WebSocket", width, lambda w=width: by_websocket(service.port, "obs", element, w, options.seconds))  # type: ignore[misc]
    service.ask("DELETE", "/queries/all")
    yield table


def _worked_off(service: Served) -> None:
    """Wait until nothing more is processed, so that the next figure is of what is measured next."""
    before = -1
    while (now := service.elements) != before:
        before = now
        time.sleep(0.3)


# ---------------------------------------------------------------- delay


def delay(service: Served, options: argparse.Namespace) -> Iterator[Table]:
    title = (
        f"{options.rate:,} elements/s, each to its event, for {options.seconds:g} s; best of {options.rounds} rounds"
    )
    names = "queries", "p50", "p95", "p99", "longest", "p99 < 20 ms", "service", "client"
    table = Table(*names, title=title)
    registered = ["all"]
    service.register("all", ALL)
    at_a_rate(service.port, request, "all", options.rate, 1)
    for queries in options.queries:
        for number in range(len(registered), queries):
            service.register(f"one{number}", one(number % 100))
            registered.append(f"one{number}")
        rounds: list[tuple[Percentiles, float, float]] = []
        for _ in range(options.rounds):
            before = service.processor
            load = at_a_rate(service.port, request, "all", options.rate, options.seconds)
            spent = service.processor - before
            rounds.append(
                (milliseconds(load.times, 50, 95, 99, 100), spent / load.seconds, load.processor / load.seconds)
            )
            _worked_off(service)
        best, ours, client = min(rounds, key=lambda each: each[0][2])
        shares = f"{ours:.0%} of a core", f"{client:.0%}"
        table.add_row(str(queries), *map(shown, best), verdict(met=best[2] < 20), *shares)
    for name in registered:
        service.ask("DELETE", f"/queries/{name}")
    yield table


# ---------------------------------------------------------------- readers


class Readers:
    """Readers of a query, in processes of their own."""

    def __init__(self, port: int, query: str, count: int) -> None:
        context = get_context("spawn")
        self._end: PipeEnd
        self._end, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=many_readers, args=(port, query, count, theirs), daemon=True
        )
        self._process.start()
        self._end.recv()

    def follow(self, wanted: int, began: float, rate: float) -> None:
        """What comes from now on is followed."""
        self._end.send((wanted, began, rate))

    def found(self) -> tuple[float, Sequence[float], float]:
        """When all have all, the delays, and the processor time of reading."""
        found: tuple[float, Sequence[float], float] = self._end.recv()
        return found

    def close(self) -> None:
        self._end.send(None)
        self._process.join(30)


def readers(service: Served, options: argparse.Namespace) -> Iterator[Table]:
    title = f"{options.readers:,} readers of one query; best of {options.rounds} rounds"
    table = Table("what", "figure", "service", title=title)
    service.register("all", ALL)
    before = service.resident
    many = Readers(service.port, "all", options.readers)
    table.add_row("memory of a reader that waits", f"{(service.resident - before) / options.readers / 1e3:.1f} kB", "")
    _burst(service, many, options, table)
    for title, slow in (("", None), (", one of them never reads", Reader(service.port, "all", buffer=4096))):
        rounds: list[tuple[Percentiles, float]] = []
        for _ in range(options.rounds):
            began, spent, count = time.monotonic() + 0.5, service.processor, round(100 * options.seconds)
            many.follow(count, began, 100)
            at_a_rate(service.port, request, None, 100, options.seconds, began=began)
            ended, delays, _ = many.found()
            rounds.append((milliseconds(delays, 50, 95, 99), (service.processor - spent) / (ended - began)))
        best, share = min(rounds, key=lambda each: each[0][2])
        figures = ", ".join(f"p{part} {shown(each)}" for part, each in zip((50, 95, 99), best, strict=True))
        table.add_row(f"100 results/s{title}", figures, f"{share:.0%} of a core")
        if slow is not None:
            slow.socket.close()
    table.add_row("memory of all, behind that", f"{service.resident / 1e6:.0f} MB, {before / 1e6:.0f} MB before", "")
    many.close()
    service.ask("DELETE", "/queries/all")
    yield table


def _burst(service: Served, many: Readers, options: argparse.Namespace, table: Table) -> None:
    """Results that come all at once, until all have all."""
    count, rates = options.burst, []
    for number in range(options.rounds):
        time_now = b" %d ." % (time.time_ns() // 10**6)
        elements = map(element, range(number * count, (number + 1) * count))  # what stays the same is no new result
        body = b"\n".join(each.removesuffix(b" .") + time_now for each in elements)
        began, spent = time.monotonic(), service.processor
        many.follow(count, began, float("inf"))
        service.ask("POST", "/streams/obs", body)
        ended, _, theirs = many.found()
        rates.append((count * options.readers / (ended - began), service.processor - spent, theirs))
    rate, ours, theirs = max(rates)
    events = count * options.readers
    table.add_row(
        f"{count:,} results at once, until all have all",
        f"{per_second(rate)} events",
        f"{ours / events * 1e6:.2f} µs an event (reading: {theirs / events * 1e6:.2f} µs)",
    )


# ---------------------------------------------------------------- all of them

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Table]]] = {
    "batches": batches,
    "single": lambda options: served(single, options),
    "delay": lambda options: served(delay, options),
    "readers": lambda options: served(readers, options),
}


def served(
    part: Callable[[Served, argparse.Namespace], Iterator[Table]], options: argparse.Namespace
) -> Iterator[Table]:
    with serving(options.engine) as service:
        yield from part(service, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--engine", choices=["embedded", "spark"], default="embedded", help="what runs the queries")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of a round, where it is not counted")
    parser.add_argument("--megabytes", type=int, default=20, help="bodies of a round of batches")
    parser.add_argument("--bodies", nargs="+", choices=[*BODIES], default=[*BODIES], help="kinds of them")
    parser.add_argument("--connections", type=int, default=4, help="that push batches at once")
    parser.add_argument("--rate", type=int, default=1000, help="elements a second, of delay")
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 100], help="how many there are, of delay")
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--burst", type=int, default=500, help="results that readers get at once")
    parser.add_argument("--minutes", type=float, help="run so long at full rate instead, and look at the memory")
    options = parser.parse_args()
    open_files()
    if options.minutes is not None:
        CONSOLE.print(quarters(soak(options.minutes, options.engine)))
        CONSOLE.print(machine())
        return
    with progress() as bar:
        task = bar.add_task("", total=len(options.parts))
        for name in options.parts:
            bar.update(task, description=name)
            for table in PARTS[name](options):
                bar.console.print(table)
            bar.advance(task)
    CONSOLE.print(machine())


if __name__ == "__main__":
    main()
