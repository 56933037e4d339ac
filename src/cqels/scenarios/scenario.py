"""What a scenario is: sizes of data that it can make, and the queries asked of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from cqels.ingest import StreamDeclaration, parse_declaration
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare, read_query
from cqels.store.dataset import Store

Progress = Callable[[int, int], object]
"""Is told how much of how much has been made."""


@dataclass(frozen=True, slots=True)
class Data:
    """What a scenario has made: streams as they are declared on the command line, and files of static data."""

    streams: tuple[str, ...]
    static: tuple[tuple[Path, str | None], ...] = ()
    """Files, each with the IRI of its named graph, or None for the default graph."""
    until: str | None = None
    """Time goes on until then when the streams have ended."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """What to know of it: triples, elements, skipped records."""

    @property
    def declarations(self) -> tuple[StreamDeclaration, ...]:
        return tuple(parse_declaration(each) for each in self.streams)

    def store(self, path: Path | None = None) -> Store:
        """The static data in memory, or in a directory, which is made."""
        from pyoxigraph import NamedNode

        store = Store(path)
        for path, graph in self.static:
            store.load(path, None if graph is None else NamedNode(graph))
        return store


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a scenario: the name of its file in `queries/`, what it asks, and what was published about it."""

    name: str
    title: str
    published: Mapping[str, float] = field(default_factory=dict)
    """Figures by their units: `triples/s`, `ms` (an event, on average), `s` (the whole of the size `paper`),
    `delay ms` (from an event to its result), `MB`; after `anew`, those of evaluation anew at each element."""
    source: str = ""
    """Where that was published, as `JWS 2016, table 1`."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """What `$name$` stands for in its text, unless something else is asked for."""


class Scenario(ABC):
    """Makes data, the same for the same size and seed, and has queries for it."""

    name: ClassVar[str]
    title: ClassVar[str]
    sizes: ClassVar[Mapping[str, Mapping[str, int]]]
    """The sizes it has by name, `small` first, each with the numbers that `make` needs."""
    queries: ClassVar[Sequence[Asked]]
    together: ClassVar[Mapping[str, float]] = {}
    """What was published of all its queries in one run, by units."""
    experiments: ClassVar[Sequence[str]] = ()
    """Those that `cqels bench run --experiment` knows by these names."""

    @abstractmethod
    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        """Write the data of a size into a folder, which is there and empty."""

    @property
    def folder(self) -> Path:
        """Where its queries, its page and its expected results are."""
        return Path(str(files(f"cqels.scenarios.{self.name}")))

    def numbers(self, size: str) -> Mapping[str, int]:
        try:
            return self.sizes[size]
        except KeyError:
            hint = f"the sizes of {self.name} are {', '.join(self.sizes)}"
            raise CqelsError(f"there is no size '{size}'", hint=hint) from None

    def asked(self, names: Sequence[str] = ()) -> list[Asked]:
        """The queries of these names, or all."""
        known = {each.name: each for each in self.queries}
        for name in names:
            if name not in known:
                raise CqelsError(f"{self.name} has no query '{name}'", hint=f"its queries are {', '.join(known)}")
        return [known[name] for name in names] if names else list(self.queries)

    def checked(self, constants: Mapping[str, str], asked: Sequence[Asked]) -> Mapping[str, str]:
        """These constants, if each of them is in one of the queries."""
        known = dict.fromkeys(name for each in asked for name in each.constants)
        for name in constants:
            if name not in known:
                hint = f"their constants are {', '.join(known)}" if known else "they have no constants"
                raise CqelsError(f"no query that is asked for has a constant '{name}'", hint=hint)
        return constants

    def query(self, asked: Asked, *, name: str | None = None, **constants: str) -> Query:
        """A query as it is registered, with other constants than its own if there are any."""
        path = self.folder / "queries" / f"{asked.name}.rq"
        text = read_query(path)
        for constant, value in {**asked.constants, **constants}.items():
            text = text.replace(f"${constant}$", value)
        return prepare(text, source=str(path), name=name or asked.name)
