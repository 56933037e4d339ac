"""The streams and queries that commands have added to an application that is served: the file `served.json`.

It is written before the commands are, and says under which number they are; so a run that finds no commands of that
number writes them.  The names of its fields are its format and stay.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cqels.engine.budgets import Budget
from cqels.ingest import StreamSettings
from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.durable_files import write_durably
from cqels.pipeline.instance.instance_commands import declaration, registration, settings_of_json
from cqels.plan.algebra import Query
from cqels.plan.plan_json import read, write

VERSION = 1
_ANEW = "begin with a new checkpoint"


@dataclass(frozen=True)
class AddedSource:
    """A source that is pushed to; its stream is new, or one that the application has declared."""

    iri: str
    stream: int
    """The number of its stream."""
    settings: dict[str, Any] | None
    """Those of a stream that is new."""
    change: int
    """The number of the commands that have added it."""

    @property
    def commands(self) -> list[str]:
        new = [] if self.settings is None else [declaration(settings_of_json(self.settings))]
        return [*new, json.dumps({"source": self.stream})]


@dataclass(frozen=True)
class AddedQuery:
    """A query that commands have registered, or dropped last."""

    query: Any
    """As JSON, `plan.plan_json`."""
    memory: int | None
    time: int | None
    change: int
    """The number of the commands that have registered it, or dropped it."""

    @classmethod
    def of(cls, query: Query, budget: Budget | None, change: int) -> AddedQuery:
        memory, time = (None, None) if budget is None else (budget.memory, budget.time)
        return cls(write(query), memory, time, change)

    def read(self) -> Query:
        found = read(self.query)
        assert isinstance(found, Query)
        return found

    @property
    def budget(self) -> Budget | None:
        return Budget.of(self.memory, self.time)


@dataclass
class ServedState:
    """What commands have led to; the one who changes it writes it."""

    program_sources: int
    """How many sources there are that were declared: those that are added have the numbers behind."""
    program_streams: int
    sources: list[AddedSource] = field(default_factory=list)
    queries: dict[str, AddedQuery] = field(default_factory=dict)
    """Those that run, in the order of registration."""
    dropped: list[tuple[str, AddedQuery]] = field(default_factory=list)
    """Those whose last results may still come, by their names."""
    placed: dict[str, int] = field(default_factory=dict)
    """The instances of all names that there ever were: there the numbers of their results go on."""
    last: int = -1
    """The number of the last commands."""
    version: int = VERSION

    @classmethod
    def of(cls, path: Path) -> ServedState | None:
        """What a file has; None if it is not there."""
        try:
            content = unseal_json(path.read_bytes(), str(path), hint=_ANEW)
        except FileNotFoundError:
            return None
        known = {each.name: content[each.name] for each in fields(cls) if each.name in content}
        known["sources"] = [AddedSource(**each) for each in content["sources"]]
        known["queries"] = {name: AddedQuery(**each) for name, each in content["queries"].items()}
        known["dropped"] = [(name, AddedQuery(**each)) for name, each in content["dropped"]]
        return cls(**known)

    def keep(self, path: Path) -> None:
        write_durably(path, seal_json(asdict(self)).encode())

    # ------------------------------------------------------------ what there is

    def source(self, iri: str) -> int | None:
        """The number of the source that is pushed to for a stream; None if there is none."""
        found = (number for number, each in enumerate(self.sources, self.program_sources) if each.iri == iri)
        return next(found, None)

    @property
    def streams(self) -> dict[str, StreamSettings]:
        """The streams that were added, in the order of their numbers."""
        return {each.iri: settings_of_json(each.settings) for each in self.sources if each.settings is not None}

    def commands(self, change: int) -> tuple[list[str], int | None]:
        """The commands of a number, and the instance that they are for; None is for all."""
        found = [text for each in self.sources if each.change == change for text in each.commands]
        if found:
            return found, None
        gone = [name for name, each in self.dropped if each.change == change]
        new = {name: each for name, each in self.queries.items() if each.change == change}
        found = [json.dumps({"drop": name}) for name in gone]
        found += [registration(each.read(), "", each.budget) for each in new.values()]
        names = [*gone, *new]
        return found, self.placed[names[0]] if names else None

    # ------------------------------------------------------------ changes

    def copy(self) -> ServedState:
        """Another one, which stays as this one is now."""
        return replace(
            self,
            sources=[*self.sources],
            queries=dict(self.queries),
            dropped=[*self.dropped],
            placed=dict(self.placed),
        )

    def add_source(self, settings: StreamSettings, stream: int | None, change: int) -> None:
        """Have a source for a stream, which is new if it has no number yet."""
        new = self.program_streams + len(self.streams)
        added = asdict(settings) if stream is None else None
        self.sources.append(AddedSource(settings.iri, new if stream is None else stream, added, change))

    def register(self, name: str, query: AddedQuery, instance: int) -> None:
        self.queries[name], self.placed[name] = query, instance

    def drop(self, name: str, change: int) -> None:
        self.dropped.append((name, replace(self.queries.pop(name), change=change)))

    def forget_dropped(self, done: int) -> None:
        """Those that were dropped by numbers up to this one have sent all."""
        self.dropped = [(name, each) for name, each in self.dropped if each.change > done]
