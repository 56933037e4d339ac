"""What arrives at an engine instance: blocks of elements, ends of sources, and commands, which are JSON.

Commands are kept in the checkpoint, so that an instance can be rebuilt; their keys are part of its format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any, NamedTuple

from pyoxigraph import NamedNode, RdfFormat, parse, serialize

from cqels.engine.budgets import Budget, Stop
from cqels.ingest import StreamSettings
from cqels.model.errors import CqelsError
from cqels.pipeline.instance.program import Dataset, Program
from cqels.plan.algebra import Query
from cqels.plan.plan_json import read, write
from cqels.store.dataset import Store
from cqels.store.script import execute
from cqels.store.service_answers import Answers, KnownAnswers, answers_as_json, answers_of_json


class Arrival(NamedTuple):
    """A block of a source with the sequence of the source that it belongs to; or, with neither, the source's end.

    Or a command, which has no stream: `{"register": name, "query": …}` (`plan.plan_json`), with a fingerprint if it is
    the program's and the `memory` and `time` of its budget (`registration`); `{"drop": name}`; `{"heartbeat": time}`
    for all streams or one `stream`, and there for one `subject`, as N-Triples; `{"update": text}`, or what to `remove`
    and to `add` as N-Quads, and which `graphs` there are then; `{"declare": settings}`, a stream that is added, and
    `{"source": stream}`, a source that is added to the stream of this number; `{"answers": …}`, what endpoints answer
    now (`store.service_answers`); `{"finish": true}` if nothing is held back any more; `{"pass": number}` does nothing,
    and tells who waits for it that all before it was executed.  `{"stop": name, "reason": …,
    "ticks": …}` is not commanded but noted: a query took more than its budget in this micro-batch; when that is
    repeated, it is stopped after so many of its ticks.
    """

    stream: int = -1
    sequence: str = ""
    block: bytes | None = None
    command: str | None = None


def registration(query: Query, print: str = "", budget: Budget | None = None) -> str:
    """The command to register a query, which has a name; the fingerprint is that of one of the program.

    It has all of the query: an engine is made again with queries that are no longer there.
    """
    limits = {} if budget is None else {"memory": budget.memory, "time": budget.time}
    return json.dumps({"register": query.name, "print": print, "query": write(query), **limits}, separators=(",", ":"))


def passes(command: str) -> bool:
    """Whether a command is only about time: what comes of it is in snapshots, so that it is not kept beside them."""
    return command.startswith('{"heartbeat"')


def registered_query(command: str) -> Query:
    """The query that a command registers."""
    found = read(json.loads(command)["query"])
    assert isinstance(found, Query)
    return found


def program_commands(program: Program, running: Mapping[str, str]) -> list[str]:
    """The commands that make the queries those of the program; queries registered by commands alone stay.

    `running` are the names of those that run, with their fingerprints.
    """
    now = program.read()
    prints = {name: print for name, (print, _) in now.items()}
    gone = [name for name, print in reversed([*running.items()]) if print and prints.get(name) != print]
    commands = [json.dumps({"drop": name}) for name in gone]
    return commands + [
        registration(query, print, program.budgets.get(name))
        for name, (print, query) in now.items()
        if running.get(name) != print
    ]


def declaration(settings: StreamSettings) -> str:
    """The command to add a stream."""
    return json.dumps({"declare": asdict(settings)})


def settings_of_json(known: Mapping[str, Any]) -> StreamSettings:
    """The settings of a stream, of a declaration or a manifest; what an earlier release did not say is as it was."""
    return StreamSettings(**{each.name: known[each.name] for each in fields(StreamSettings) if each.name in known})


def stops_in(arrivals: Iterable[Arrival]) -> dict[str, Stop]:
    """The queries that were stopped in a micro-batch, as its log has noted them."""
    commands = (json.loads(each.command) for each in arrivals if each.command is not None)
    return {each["stop"]: Stop(each["reason"], each["ticks"]) for each in commands if "stop" in each}


def dataset_change(command: dict[str, Any]) -> Callable[[Store], object] | None:
    """The change of the dataset that a command asks for, if it does."""
    if "update" in command:
        return lambda store: execute(store, command["update"])
    if "add" in command or "remove" in command:
        return lambda store: _change_quads(store, command)
    if "answers" in command:
        return lambda store: _known_answers(store).change(answers_of_json(command["answers"]))
    return None


def difference(before: Dataset, now: Dataset) -> str:
    """The command that makes a dataset another one."""
    then, there = ({*each.quads.read().decode().splitlines()} for each in (before, now))
    removed, added = ("\n".join(sorted(each)) for each in (then - there, there - then))
    return json.dumps({"remove": removed, "add": added, "graphs": now.graphs})


def update_command(store: Store, change: str | Callable[[Store], object]) -> str | None:
    """The command of an update by a SPARQL Update or a function of the store, which is not changed; None if it is none.

    It says which quads are removed and added, so that it does the same in every engine that has the same dataset,
    whatever the text says of blank nodes, files and addresses.
    """
    if not isinstance(change, str) and not callable(change):
        raise CqelsError(
            f"an update of type {type(change).__name__} is not taken",
            hint="it is a SPARQL Update as a text, or a function of the store",
        )
    text = change if isinstance(change, str) else None
    found = store.difference(change if text is None else lambda store: execute(store, text))  # type: ignore[arg-type]
    if found is None:
        return None
    removed, added = ((serialize(each, format=RdfFormat.N_QUADS) or b"") for each in (found.removed, found.added))
    graphs = [name.value for name in found.graphs]
    return json.dumps({"remove": removed.decode(), "add": added.decode(), "graphs": graphs})


def changes_quads(command: dict[str, Any]) -> bool:
    """Whether a command changes the graphs of the dataset, and not only what endpoints answer."""
    return "answers" not in command and dataset_change(command) is not None


def _known_answers(store: Store) -> KnownAnswers:
    assert isinstance(store.services, KnownAnswers)
    return store.services


def answers_command(answers: Answers) -> str:
    """The command with what endpoints answer now."""
    return json.dumps({"answers": answers_as_json(answers)})


def _change_quads(store: Store, command: dict[str, Any]) -> None:
    """Remove and add quads, and create or drop named graphs so that they are those of the command."""
    removed, added = (list(parse(command.get(key, ""), RdfFormat.N_QUADS)) for key in ("remove", "add"))
    store.change(removed, added)
    if "graphs" in command:
        wanted, there = {*map(NamedNode, command["graphs"])}, {*store.named_graphs()}
        for name in wanted - there:
            store.create_graph(name)
        for name in there - wanted:
            store.clear_graph(name, drop=True)


def hash_commands(commands: Iterable[str], before: str = "") -> str:
    """A hash of some commands, chained to that of those before them."""
    for command in commands:
        before = sha256(f"{before}{command}".encode()).hexdigest()
    return before
