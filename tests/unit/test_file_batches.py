"""Files read as bytes give the elements, and the rejected lines, that files read line by line give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cqels.engine.file_replay import batches
from cqels.ingest import Rejected, StreamDeclaration, declare, read_stream
from cqels.ingest.encode import Intake
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary

S = "http://ex.org/s"
PROV = "<http://www.w3.org/ns/prov#generatedAtTime>"
Read = tuple[list[tuple[int, tuple[Any, ...]]], list[str]]


def as_bytes(declaration: StreamDeclaration) -> Read:
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    rejected: list[Rejected] = []
    elements = [
        (time, tuple(tuple(map(terms.decode, triple)) for triple in triples))
        for batch in batches(declaration, 0, Intake(terms), rejected.append, lambda waiting: None)
        for time, _, triples in batch.rows()
    ]
    return elements, list(map(str, rejected))


def as_lines(declaration: StreamDeclaration) -> Read:
    rejected: list[Rejected] = []
    elements = [(each.time, each.triples) for each in read_stream(declaration, rejected.append)]
    return elements, list(map(str, rejected))


def graphs(draw: random.Random, count: int, faults: float) -> str:
    """Graphs with their times, some of which have two, or none, or have them elsewhere; some lines are malformed."""
    lines = []
    for number in range(count):
        graph = f"<x:g{number}>" if draw.random() < 0.8 else f"_:g{number}"
        own = [f"<x:s{draw.randrange(9)}> <x:p> _:b{draw.randrange(3)} {graph} ." for _ in range(draw.randrange(4))]
        stamp = f'{graph} {PROV} "{number * 100}" {graph} .'
        if draw.random() < faults:
            stamp = draw.choice(
                [
                    "",
                    "odd",
                    stamp.replace("00", "noon"),
                    f'{graph} {PROV} "{number}" .',
                    f'{stamp}\n{graph} {PROV} "7" {graph} .',
                    f"{stamp}\n\n# a comment",
                    "<x:a> <x:p> <x:b> .",
                    stamp.replace(graph, "<x:other>", 1),
                    '<x:a> <x:p> <x:b> "5" .',
                ]
            )
        own.insert(draw.randint(0, len(own)), stamp)
        lines += own
    return "\n".join(lines)


def timed(draw: random.Random, count: int, faults: float) -> str:
    lines = []
    for number in range(count):
        line = f"<x:s{draw.randrange(3)}> <x:p> _:b{draw.randrange(3)} {number // 4} ."
        if draw.random() < faults:
            line = draw.choice(
                ["odd", "", "<x:a> <x:p> <x:b> .", f"{line} {line}", "<x:a> <x:p> <x:b> <x:g> .", f"{line}\r"]
            )
        lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("chunk", [50, 1000, 1 << 20])
@pytest.mark.parametrize("faults", [0, 0.002, 0.1])
def test_elements_of_several_lines(tmp_path: Path, chunk: int, faults: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqels.ingest.input_files.CHUNK", chunk)
    draw = random.Random(chunk + int(1000 * faults))
    for _ in range(3):
        path = tmp_path / "day.nq"
        path.write_text("\ufeff" + graphs(draw, 200, faults))
        assert as_bytes(declare(S, path, element="graph")) == as_lines(declare(S, path, element="graph"))
        by_predicate = declare(S, path, element="graph", time=PROV)
        assert as_bytes(by_predicate) == as_lines(by_predicate)
        path = tmp_path / "day.nt"
        path.write_text("<x:a> <x:p> <x:b> 0 .\n" + timed(draw, 400, faults))
        for element in ("time", "subject", "line"):
            declaration = declare(S, path, element=element)
            assert as_bytes(declaration) == as_lines(declaration)


def test_an_element_may_be_larger_than_what_is_read_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqels.ingest.input_files.CHUNK", 100)
    monkeypatch.setattr("cqels.ingest.grouped_lines.LONGEST", 1000)
    path = tmp_path / "day.nt"
    path.write_text("".join(f"<x:a> <x:p> <x:b{number}> 0 .\n" for number in range(100)))
    declaration = declare(S, path, element="time")
    assert as_bytes(declaration) == as_lines(declaration)
    assert len(as_bytes(declaration)[0]) == 1
