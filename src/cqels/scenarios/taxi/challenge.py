"""The lists of the two queries as lines of the challenge, and a program that answers it for a file of trips.

A line has the pickup and the drop-off of the trip that changed the list, its ten entries, and the delay in
milliseconds. An entry is the two cells of a route; or a cell, its empty taxis, its median and its profit. One that is
missing is NULL.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from csv import DictReader
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import perf_counter

from cqels.engine.engine import Engine
from cqels.engine.file_replay import batches
from cqels.ingest import Rejected, StreamSettings
from cqels.ingest.input_files import files_of, open_bytes
from cqels.model.errors import DataError, Source
from cqels.plan.algebra import Query
from cqels.results import Result
from cqels.results.result import lexical
from cqels.scenarios.scenario import Data
from cqels.scenarios.taxi import SCENARIO

ENTRIES = 10
Times = tuple[str, str]
"""Pickup and drop-off of a trip, as the file has them."""


def route(values: Sequence[str]) -> str:
    """An entry of the list of routes.

    >>> route(["159", "161", "160", "155"])
    '159.161,160.155'
    """
    return "{}.{},{}.{}".format(*values)


def area(values: Sequence[str]) -> str:
    """An entry of the list of areas.

    >>> area(["317322", "2", "9.5", "4.75"])
    '317.322,2,9.5,4.75'
    """
    east, south = divmod(int(values[0]), 1000)
    return ",".join((f"{east}.{south}", *values[1:]))


FORMS: Mapping[str, Callable[[Sequence[str]], str]] = {"routes": route, "profit": area}


class Lines:
    """Makes lines of the results of a query, as they come. Trips and ticks have the same numbers, from 1 on."""

    def __init__(self, query: str, times: Iterable[Times]) -> None:
        self._form = FORMS[query]
        self._times = enumerate(times, 1)

    def of(self, results: Iterable[Result], delay: float = 0.0) -> Iterator[str]:
        """The lines of whole lists, `delay` milliseconds after their trips."""
        for tick, rows in groupby(results, attrgetter("tick")):
            times = next(times for number, times in self._times if number == tick)
            entries = [self._form([lexical(value) for value in row.values]) for row in rows if not row.empty]
            entries += ["NULL"] * (ENTRIES - len(entries))
            yield ",".join((*times, *entries, f"{delay:.3f}"))


def times_of(data: Data) -> Iterator[Times]:
    """The times of the trips."""
    for path in files_of(data.declarations[0].path):
        with path.open(encoding="utf-8", newline="") as file:
            for row in DictReader(file):
                yield row["pickup_datetime"], row["dropoff_datetime"]


def answer(queries: Sequence[Query], data: Data, write: Callable[[str, str], object]) -> None:
    """Feed the trips to the queries, block by block; `write` gets the name of a query and a line of it.

    The delay of a line is the time from before its trip's block is read until it is written.
    """
    (trips,) = data.declarations
    with Engine() as engine:
        engine.internals.declare(StreamSettings(trips.iri))
        running = [
            (engine.register(query, declare=False), Lines(query.name or "", times_of(data))) for query in queries
        ]
        began = perf_counter()
        for batch in batches(trips, 0, engine.internals.intake, _refuse, engine.internals.hold):
            engine.internals.push_batch(batch)
            for standing, lines in running:
                for line in lines.of(standing.take(), 1000 * (perf_counter() - began)):
                    write(standing.name, line)
            began = perf_counter()


def _refuse(rejected: Rejected) -> None:
    """Without one of them, trips would not have the numbers of ticks any more."""
    raise DataError(f"the trip cannot be read: {rejected.reason}", source=Source("", rejected.place))


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer the challenge for its file: a folder gets the clean trips, `routes.txt` and `profit.txt`."""
    parser = ArgumentParser(prog="python -m cqels.scenarios.taxi.challenge", description=main.__doc__)
    parser.add_argument("file", type=Path, help="trips in the challenge's 17 columns, without a header; may be .gz")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window", default="30m", help="of the routes and of the empty taxis")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    with open_bytes(given.file) as file:
        data = SCENARIO.read((line.decode().rstrip("\r\n") for line in file), given.folder)
    with ExitStack() as stack:
        out = {name: stack.enter_context((given.folder / f"{name}.txt").open("w")) for name in FORMS}
        queries = [SCENARIO.query(each, window=given.window) for each in SCENARIO.queries]
        answer(queries, data, lambda name, line: out[name].write(line + "\n"))


if __name__ == "__main__":
    main()
