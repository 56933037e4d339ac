"""The entries of a pipeline: its streams, files of static data, queries and sinks, and the words that each has.

In a pipeline file each kind is a list of tables; the rest is in `cqels.options`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from cqels.model.choices import Dialect, Emission, Policy, ResultFormat
from cqels.model.errors import CqelsError
from cqels.option_values import (
    Naming,
    Reader,
    Told,
    Words,
    choice_of,
    flag_of,
    path_of,
    read_words,
    refused,
    several,
    text_of,
)

if TYPE_CHECKING:
    from pyoxigraph import NamedNode

    from cqels.ingest import StreamDeclaration

TERMINAL = "-"
"""What a sink is called that is standard output."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|kafka:")


_SETTINGS = re.compile(r"(?<=/)\?[a-z][a-z0-9.=&-]*$")
"""Those of a folder (`cqels.pipeline.sink.sink_settings`)."""


def is_url(place: str) -> bool:
    """Whether a place is that of a server, not of a file.

    >>> is_url("mqtt://localhost/rooms"), is_url("rooms.csv")
    (True, False)
    """
    return _URL.match(place) is not None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of static RDF, its format where that is given, and the graph that it is for (None: the default graph).

    One that is to `watch` changes the dataset when it has changed while a run goes on.
    """

    path: str
    format: str | None = None
    graph: NamedNode | None = None
    watch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQuery:
    """A query: its file or its text, and what is said of it alone; None is what is said of all."""

    file: Path | None = None
    text: str | None = None
    within: str | None = None
    """The file that the text is in, at the place that it has there."""
    name: str | None = None
    dialect: Dialect | None = None
    emit: Emission | None = None
    policy: Policy | None = None
    lenient: bool | None = None
    memory: str | None = None
    time: str | None = None
    spread: bool | None = None


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """Where results go, in which format if that is said, and of which queries; of all where none is named."""

    to: str = TERMINAL
    format: ResultFormat | None = None
    queries: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.to in (TERMINAL, "console")

    @property
    def is_file(self) -> bool:
        """Whether it is a file, or a folder with one for each query."""
        return not self.is_terminal and not self.is_url and self.to != "memory"

    @property
    def as_given(self) -> DeclaredSink:
        """Without a format that only files have, unless it is given."""
        return replace(self, format=None) if self.is_url and self.format == "text" else self

    @property
    def is_url(self) -> bool:
        """Whether it is neither the terminal nor a file."""
        return is_url(self.to)

    @property
    def scheme(self) -> str:
        """Of a URL, as `kafka`."""
        return self.to.partition(":")[0]

    def takes(self, query: str) -> bool:
        """Whether the results of a query go there."""
        return not self.queries or query in self.queries

    @property
    def is_folder(self) -> bool:
        """Results go to a file for each query."""
        return not self.is_url and (self._path.endswith("/") or Path(self._path).is_dir())

    @property
    def has_settings(self) -> bool:
        """Whether settings stand behind it, as in `results/?parts`."""
        return self._path != self.to

    @property
    def _path(self) -> str:
        return _SETTINGS.sub("", self.to)

    def check_name(self, otherwise: ResultFormat | None = None) -> None:
        """Refuse the name of a file that ends like one of another format; a name without an end is of text."""
        from cqels.results import format_of_file

        end = Path(self._path).suffix
        if end and self.is_file and not self.is_folder and not (self.format or otherwise or format_of_file(self._path)):
            known = ", ".join(get_args(ResultFormat))
            raise CqelsError(f"{self.to}: there is no format for results in {end} files", hint=f"--format {known}")

    def chosen_format(self, otherwise: ResultFormat | None = None) -> ResultFormat:
        """The format that is given, or that the name of the file tells; else text, in a folder CSV."""
        from cqels.results import format_of_file

        found = self.format or otherwise or format_of_file(self._path)
        return cast(ResultFormat, found or ("csv" if self.is_folder else "text"))


class ListTable:
    """A table of a pipeline file that is there several times: `[[streams]]`, `[[data]]` …

    An entry is a table of words, or a text as the command line has it.
    """

    name: str
    required: tuple[str, ...] = ()

    def words(self, entry: Mapping[str, object] | None = None) -> Mapping[str, Reader]:
        """The words of an entry, and how each is read; what they are may depend on what it says."""
        raise NotImplementedError

    def of_text(self, text: str) -> Any:
        raise NotImplementedError

    def of_words(self, values: dict[str, Any], told: Callable[[str, CqelsError], None]) -> Any:
        """An entry; errors are told of one of its words."""
        raise NotImplementedError

    def read(self, mapping: Mapping[str, object], named: Naming, told: Told) -> tuple[Any, ...]:
        """All entries that are right; of the others it is told what is wrong."""
        value = mapping.get(self.name, ())
        entries = value if isinstance(value, list | tuple) else [value]
        read = (self._entry(each, named, (self.name, number), told) for number, each in enumerate(entries))
        return tuple(each for each in read if each is not None)

    def _entry(self, value: object, named: Naming, path: Words, told: Told) -> Any:
        option = named(self.name, "")
        if isinstance(value, str | os.PathLike):
            try:
                return self.of_text(os.fspath(value))
            except ValueError as error:
                told(path, CqelsError(f"{option}: {error}"))
            except CqelsError as error:
                told(path, error)
            return None
        if not isinstance(value, Mapping):
            told(path, refused(option, value, f"a text or a table, [[{self.name}]]"))
            return None
        failed: list[CqelsError] = []

        def note(words: Words, error: CqelsError) -> None:
            failed.append(error)
            told(words, error)

        given = {str(word).replace("-", "_"): word for word in value}
        values = read_words(self.name, value, self.words(value), named, path, note)
        for word in self.required:
            if word not in given:
                hint = f"an entry of {self.name} has {' and '.join(self.required)}"
                note(path, CqelsError(f"{option} has no {word}", hint=hint))
        if failed:
            return None
        made = self.of_words(values, lambda word, error: note((*path, given.get(word, word)), error))
        return None if failed else made


def _words(option: str, value: object) -> str | list[str]:
    """A word, or a list of words."""
    return [_word(option, each) for each in value] if isinstance(value, list) else _word(option, value)


def _word(option: str, value: object) -> str:
    """A text, or what is written without quotes: a number, true or false."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else text_of(option, value)


class _Streams(ListTable):
    name, required = "streams", ("iri", "from")

    def words(self, entry: Mapping[str, object] | None = None) -> Mapping[str, Reader]:
        from cqels.ingest.declarations import option_names

        place, own = (entry or {}).get("from"), option_names("")
        try:
            names = option_names(place if isinstance(place, str) else "", map(str, entry or ()))
        except ValueError:  # there is no such source, which is told of its place
            names = own
        readers = {each.replace("-", "_"): _word if each in own else _words for each in names}
        return {"iri": text_of, "from": text_of, **readers}

    def of_text(self, text: str) -> StreamDeclaration:
        from cqels.ingest import parse_declaration

        return parse_declaration(text)

    def of_words(self, values: dict[str, Any], told: Callable[[str, CqelsError], None]) -> StreamDeclaration | None:
        from cqels.ingest import declare

        iri, path = values.pop("iri").removeprefix("<").removesuffix(">"), values.pop("from")
        if (fault := _option_inside(path)) is not None:
            told("from", fault)
            return None
        each_alone: dict[str, dict[str, Any]] = {"iri": {}} | {word: {word: value} for word, value in values.items()}
        right = True
        for word, options in each_alone.items():
            try:
                declare(iri, path, **options)
            except CqelsError as error:
                right = False
                if word == "iri":
                    told(word if "is not an IRI" in error.message else "from", error)
                    break
                told(word, error)
        try:
            return declare(iri, path, **values) if right else None
        except CqelsError as error:  # of words that do not go together
            told("from", error)
            return None


def _option_inside(path: str) -> CqelsError | None:
    """What is wrong with a place that has options behind it, as on the command line."""
    from cqels.ingest.declarations import option_names
    from cqels.ingest.source_options import scheme_of

    place, mark, rest = path.partition("?")
    word = rest.partition("=")[0]
    try:
        if not mark or scheme_of(path).query or word not in option_names(place):
            return None
    except ValueError:  # there is no such source
        return None
    hint = f'from = "{place}" and {word} = "…", each on a line of its own'
    return CqelsError(f"'{word}' is a word of the stream, not of its place", hint=hint)


class _Data(ListTable):
    name, required = "data", ("file",)

    def words(self, entry: Mapping[str, object] | None = None) -> Mapping[str, Reader]:
        return {"file": text_of, "graph": text_of, "format": text_of, "watch": flag_of}

    def of_text(self, text: str) -> DataFile:
        from cqels.ingest.dataset_files import file_and_options

        path, format, watch = file_and_options(text)
        return DataFile(path, format, watch=watch)

    def of_words(self, values: dict[str, Any], told: Callable[[str, CqelsError], None]) -> DataFile | None:
        from pyoxigraph import NamedNode

        file, graph = self.of_text(values["file"]), values.get("graph")
        try:
            name = None if graph is None else NamedNode(graph.removeprefix("<").removesuffix(">"))
        except ValueError:
            told("graph", CqelsError(f"'{graph}' is not an IRI", hint="write it in full, or with one of the prefixes"))
            return None
        format, watch = values.get("format", file.format), values.get("watch", file.watch)
        return replace(file, graph=name, format=format, watch=watch)


def graph_and_file(text: str) -> dict[str, str]:
    """An entry of `data`, from `<iri>=file.ttl`.

    >>> graph_and_file("<http://ex.org/g>=g.ttl")
    {'file': 'g.ttl', 'graph': '<http://ex.org/g>'}
    """
    iri, separator, file = text.partition(">=" if text.startswith("<") else "=")
    if not separator or not file:
        raise CqelsError(f"--graph {text}: this is not an IRI and a file", hint="write --graph '<iri>=file.ttl'")
    return {"file": file, "graph": f"{iri}{separator[:-1]}"}


class _Queries(ListTable):
    name = "queries"

    def words(self, entry: Mapping[str, object] | None = None) -> Mapping[str, Reader]:
        return {
            "file": path_of,
            "text": text_of,
            "name": text_of,
            "dialect": choice_of(Dialect),
            "emit": choice_of(Emission),
            "policy": choice_of(Policy),
            "lenient": flag_of,
            "memory": text_of,
            "time": text_of,
            "spread": flag_of,
        }

    def of_text(self, text: str) -> DeclaredQuery:
        return DeclaredQuery(file=Path(text))

    def of_words(self, values: dict[str, Any], told: Callable[[str, CqelsError], None]) -> DeclaredQuery | None:
        if ("file" in values) == ("text" in values):
            told("file", CqelsError("an entry of queries has a file or a text", hint='file = "hot.rq"'))
            return None
        return DeclaredQuery(**values)


class _Sinks(ListTable):
    name, required = "sinks", ("to",)

    def words(self, entry: Mapping[str, object] | None = None) -> Mapping[str, Reader]:
        return {"to": text_of, "format": choice_of(ResultFormat), "queries": several(text_of)}

    def of_text(self, text: str) -> DeclaredSink:
        return DeclaredSink(text)

    def of_words(self, values: dict[str, Any], told: Callable[[str, CqelsError], None]) -> DeclaredSink:
        return DeclaredSink(**values)


STREAMS, DATA, QUERIES, SINKS = _Streams(), _Data(), _Queries(), _Sinks()
LIST_TABLES: tuple[ListTable, ...] = (STREAMS, DATA, QUERIES, SINKS)
