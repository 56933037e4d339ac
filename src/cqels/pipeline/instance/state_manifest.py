"""What the folder of a `DurableInstance` is of: the file `state.json`, and the static data as it was in the beginning.

A run goes on from a folder with the same streams, or more, the same static data, and the same queries, more or fewer;
anything else is refused, with the differences.  The names of files and fields are its format and stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from cqels.model.checksummed import seal, seal_json, unseal, unseal_json
from cqels.model.durable_files import write_durably
from cqels.model.errors import CqelsError, Damaged
from cqels.model.release import RELEASE
from cqels.pipeline.instance.instance_commands import declaration, settings_of_json
from cqels.pipeline.instance.program import Dataset, Program, ShippedBytes
from cqels.plan.algebra import Query
from cqels.plan.plan_json import fingerprint
from cqels.plan.prepare import is_same

VERSION = 1
_DATA = "DS"
"""The kind of the static data under its seal."""
_ANEW = "restore the folder from a copy, or begin with a new one"
_OTHER = "begin with a new folder, or run what it is of; queries and streams may be added, and queries dropped"


@dataclass
class Manifest:
    """The file `state.json`."""

    id: str
    """What stays the same when a run goes on: sinks know their results by it."""
    start: int
    streams: list[dict[str, Any]]
    """In the order of their numbers: those that there were in the beginning, then those that were added."""
    sources: list[int]
    """The stream of each source."""
    bounded: list[int]
    """The sources that end."""
    began: list[int]
    """How many streams and sources there were in the beginning."""
    data: str
    """The digest of the static data."""
    queries: dict[str, str] = field(default_factory=dict)
    """Names and fingerprints of the queries that were last asked for."""
    names: list[str] = field(default_factory=list)
    """Those of the sources, as the one who drives the instance knows them."""
    outputs: list[str] = field(default_factory=list)
    """Files and folders that results were written to."""
    delivered: int = -1
    """The last batch of a run that was stopped: all sinks have its results."""
    finished: bool = False
    """All sources have ended, and all is done."""
    release: str = RELEASE
    """That which wrote it."""
    version: int = VERSION

    @staticmethod
    def of(program: Program) -> Manifest:
        sources = list(program.sources or range(len(program.streams)))
        return Manifest(
            uuid4().hex,
            program.start,
            [asdict(each) for each in program.streams],
            sources,
            sorted(program.bounded),
            [len(program.streams), len(sources)],
            program.dataset.digest,
        )

    def initial(self, program: Program) -> Program:
        """A program as it was in the beginning: what was added since is in the log."""
        streams, sources = self.began
        return replace(
            program,
            streams=tuple(settings_of_json(each) for each in self.streams[:streams]),
            sources=tuple(self.sources[:sources]),
        )

    def faults(self, program: Program) -> list[str]:
        """How a program differs from what the folder is of, in words; what is added is no difference."""
        now = [asdict(each) for each in program.streams]
        there = {each["iri"]: each for each in now}
        faults = []
        for each in self.streams:
            iri = each["iri"]
            if iri not in there:
                faults.append(f"there is no stream <{iri}> any more")
                continue
            words = [word for word in there[iri] if word in each and each[word] != there[iri][word]]
            faults += [f"{word} of stream <{iri}> was {each[word]} and is {there[iri][word]}" for word in words]
        if not faults and [each["iri"] for each in now[: len(self.streams)]] != [each["iri"] for each in self.streams]:
            faults.append("the streams are in another order")
        sources = list(program.sources or range(len(program.streams)))
        if not faults and sources[: len(self.sources)] != self.sources:
            faults.append("a stream has other sources")
        if sorted(each for each in program.bounded if each < len(self.sources)) != self.bounded:
            faults.append("the files were waited for at their end, and are not (--follow), or the other way round")
        if self.start != program.start:
            faults.append(f"the start was {self.start} and is {program.start}")
        return faults

    def extend(self, program: Program) -> None:
        """Know the streams, the sources and the queries of a program, which has no faults."""
        self.streams = [asdict(each) for each in program.streams]
        self.sources = list(program.sources or range(len(program.streams)))
        self.queries = {name: print for name, (print, _) in program.read().items()}


class StateFolder:
    """The manifest and the static data in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._data = path / "state.json", path / "data"
        self.is_new = True
        self.manifest = Manifest("", 0, [], [], [], [0, 0], "")

    def peek(self) -> Manifest | None:
        """What the folder is of, if it is of something."""
        return self._read()

    def open(self, program: Program) -> Dataset:
        """Read what the folder is of, which fits the program, or begin one: the static data as it was."""
        if (self.path / "cqels.json").exists():
            raise CqelsError(
                f"the folder {self.path} is the checkpoint of a run on Spark",
                hint="name another one, or run on Spark",
            )
        manifest = self._read()
        self.is_new = manifest is None
        if manifest is None:
            self.manifest = Manifest.of(program)
            parts = [program.dataset.quads.read(), json.dumps(program.dataset.graphs).encode()]
            write_durably(self._data, seal(_DATA, parts))
            return program.dataset
        self.manifest = manifest
        faults = manifest.faults(program)
        if manifest.data != program.dataset.digest:
            faults.append("the static data has changed")
        self.refuse(faults)
        return self._dataset()

    def refuse(self, faults: list[str]) -> None:
        if faults:
            raise CqelsError(f"the state {self.path} is of another run: {'; '.join(faults)}", hint=_OTHER)

    def save(self, program: Program) -> None:
        """Write what the folder is of: this program."""
        self.manifest.extend(program)
        self.write()

    def write(self) -> None:
        self.is_new = False
        write_durably(self._file, seal_json(asdict(self.manifest), indent=1).encode())

    def _read(self) -> Manifest | None:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            logs = [path for path in self.path.glob("log-*") if path.stat().st_size > _EMPTY]
            if logs or [*self.path.glob("snapshot-*")]:
                raise Damaged(f"{self._file} is gone, which says what the folder is of", hint=_ANEW) from None
            return None
        content = unseal_json(text, str(self._file), hint=_ANEW)
        if content["version"] > VERSION:
            raise CqelsError(
                f"the state {self.path} was written by cqels {content['release']}, and this is {RELEASE}",
                hint=f"go on with cqels {content['release']} or newer",
            )
        known = {each.name: content[each.name] for each in fields(Manifest) if each.name in content}
        return Manifest(**known | {"version": VERSION, "release": RELEASE})

    def _dataset(self) -> Dataset:
        """The static data as it was: its blank nodes, which the state refers to, have names."""
        try:
            content = self._data.read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{self._data} is gone, which has the static data as it was", hint=_ANEW) from None
        quads, graphs = unseal(_DATA, content, str(self._data), hint=_ANEW)
        return Dataset(ShippedBytes(bytes(quads)), tuple(json.loads(bytes(graphs))))


_EMPTY = 20
"""Bytes of a segment of the log that has no record."""


def additions(program: Program, streams: int, sources: int) -> list[str]:
    """The commands that add the streams and sources that a program has beyond so many."""
    commands = [declaration(each) for each in program.streams[streams:]]
    known = program.sources or tuple(range(len(program.streams)))
    return commands + [json.dumps({"source": each}) for each in known[sources:]]


def recognized(program: Program, running: Mapping[str, Query], prints: Mapping[str, str]) -> tuple[Program, list[str]]:
    """A program with the fingerprints by which the state knows its queries, and those that have changed, in words.

    A query whose text is as it was is the same, though another release planned it in another way.
    """
    known: dict[str, list[Any]] = json.loads(program.queries.read())
    faults = []
    for name, (print, query) in program.read().items():
        if name not in running or prints[name] == print or _times(prints[name]) != _times(print):
            continue
        if fingerprint(running[name]) == fingerprint(query) or is_same(running[name].text, query):
            known[name][0] = prints[name]
        else:
            faults.append(f"query {name} has changed")
    return replace(program, queries=ShippedBytes(json.dumps(known).encode())), faults


def _times(print: str) -> str:
    """How often a query of a name was dropped before the one of a fingerprint (`Program.of`): that is another one."""
    return print.partition("-")[2]
