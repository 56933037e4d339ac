"""Pipeline files: a TOML text to the tables of options, with what is wrong at its place; `cqels.options` reads values.

Relative paths are relative to the file, `${NAME}` is a variable of the environment, and names such as `:obs` have the
prefixes of the file or of its queries.  What the command line says goes before what the file says.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cqels.model.errors import CqelsError, DataError, Source, Span
from cqels.model.toml_places import Place, nearest, toml_places
from cqels.option_tables import LIST_TABLES, TERMINAL, DeclaredQuery, is_url
from cqels.option_values import NoSuchWord, Words, in_a_file, on_the_command_line
from cqels.options import OPTION_TABLES, PLACES, PipelineOptions
from cqels.serve_options import PLACES as SERVE_PLACES
from cqels.serve_options import TABLE as SERVE

PIPELINE_FILE = "pipeline.toml"
"""What `cqels run` looks for where nothing is named."""
_VARIABLE = re.compile(r"\$(?:(\$)(?=\{)|\{([^}]*)\})")
_PREFIX = re.compile(r"\bPREFIX\s+([\w.-]*):\s*<([^<>\s]*)>", re.IGNORECASE)
_PREFIXED = re.compile(r"(?P<prefix>[\w.-]*):(?!//)(?P<local>[^<>\s]*)")
_AT = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)$")


# ---------------------------------------------------------------- the file


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The tables of a file as they are written, and where each word and value is."""

    source: Source
    tables: dict[str, Any]
    places: Mapping[Words, Place]

    @staticmethod
    def read(path: Path) -> PipelineFile:
        """Read a file; one that is not TOML is an error with its place."""
        try:
            source = Source(path.read_text("utf-8-sig").replace("\r\n", "\n"), str(path))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            hint = "cqels init NAME makes a folder with one" if isinstance(error, FileNotFoundError) else None
            raise DataError(f"the pipeline file {path} cannot be read: {reason}", hint=hint) from None
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from None
        try:
            tables = tomllib.loads(source.text)
        except tomllib.TOMLDecodeError as error:
            raise _not_toml(source, str(error)) from None
        return PipelineFile(source, tables, toml_places(source.text))

    def located(self, words: Words, error: CqelsError) -> CqelsError:
        """The error at the place of some words, unless it has one."""
        if error.source is None or not error.source.text or error.source.name.startswith("<"):
            place = nearest(self.places, words)
            error.source, error.span = self.source, None
            if place is not None:
                is_word = isinstance(error, NoSuchWord) or self.places.get(words) is not place
                error.span = place.word if is_word else place.value
        return error

    def padded(self, words: Words, text: str) -> str:
        """A text of the file, behind so many lines and blanks that its places are those of the file."""
        place = self.places[words].value
        written = self.source.text[place.start : place.end]
        quotes = 3 if written[:3] in ('"""', "'''") else 1
        begin = place.start + quotes + (written[quotes : quotes + 1] == "\n")
        line, column = self.source.position(begin)
        return "\n" * (line - 1) + " " * (column - 1) + text


def _not_toml(source: Source, reason: str) -> DataError:
    found, span = _AT.search(reason), None
    if found is not None and found[1] is not None:
        lines = source.text.split("\n")[: int(found[1]) - 1]
        start = sum(len(line) + 1 for line in lines) + int(found[2]) - 1
        span = Span(start, start + 1)
    message = _AT.sub("", reason).strip()
    return DataError(
        f"the pipeline file is not TOML: {message[:1].lower()}{message[1:]}",
        source=source,
        span=span,
        hint='texts are in quotes, as in state = "state"; tables are [pipeline] and [[streams]]',
    )


# ---------------------------------------------------------------- what is given


@dataclass
class Given:
    """What is given by a pipeline file, by the command line or by both, and what is wrong with it."""

    file: PipelineFile | None = None
    line: Mapping[str, Any] = field(default_factory=dict)
    """What the command line says, in the tables of a pipeline file."""
    folder: Path | None = None
    """What the paths of the file are relative to, if not to where the program runs."""
    errors: list[CqelsError] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """The tables that have errors."""
    serves: bool = False
    """It is for a service, whose streams may come later."""
    query_text: Callable[[Path], str] | None = None
    """Reads the file of a query, whose prefixes streams may have."""
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of the entries of lists that are the file's: their numbers there."""

    def options(self) -> PipelineOptions:
        """The options; those that are wrong have their defaults, and `errors` says why."""
        tables = {} if self.file is None else _with_variables(self.file.tables, (), self._told_of_file)
        if self.folder is not None:
            tables = relative_to(tables, self.folder)
        tables = self._merged(tables)
        tables = self._expanded(tables, self._prefixes(tables))
        options = PipelineOptions.from_mapping(
            tables,
            named=self._named,
            told=self.told,
            insisted=None if self.file is None else self._said(),
            serves=self.serves,
        )
        return options if self.file is None else self._placed(options)

    def check(self) -> None:
        """Raise the first error."""
        if self.errors:
            raise self.errors[0]

    def told(self, words: Words, error: CqelsError) -> None:
        """Keep an error, at its place in the file if what is wrong is written there."""
        self.failed.add(str(words[0]))
        if self.file is not None and (at := self._in_file(words)) is not None:
            error = self.file.located(at, error)
        self.errors.append(error)

    def _told_of_file(self, words: Words, error: CqelsError) -> None:
        assert self.file is not None
        self.failed.add(str(words[0]))
        self.errors.append(self.file.located(words, error))

    def _in_file(self, words: Words) -> Words | None:
        """The words that lead to a value in the file, None if the command line has it."""
        match words:
            case (str(table), str(word), *_) if word.replace("-", "_") in self._said(table):
                return None
            case (str(table), int(number), *inside):
                found = self._numbers.get((table, number))
                return None if found is None else (table, found, *inside)
            case _:
                return words

    def _said(self, table: str = "pipeline") -> set[str]:
        """The options of a table that the command line has."""
        return {str(word) for word in self.line.get(table, {})} if table in OPTION_TABLES else set()

    def _named(self, table: str, name: str) -> str:
        if self.file is None or (name in self._said(table) if name else table in self.line):
            return on_the_command_line(table, name)
        return in_a_file(table, name)

    def _merged(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of both: the command line's options go first.

        A stream of it stands for the file's sources of the same stream, and its data, queries and sinks for all of
        the file's.
        """
        merged: dict[str, Any] = {**tables}
        for table, said in self.line.items():
            if isinstance(said, Mapping) and isinstance(merged.get(table, {}), Mapping):
                own = merged.get(table, {})
                left = own if table not in OPTION_TABLES else _without(own, said)
                merged[table] = {**left, **said}
        for each in LIST_TABLES:
            mine, said = _list(tables.get(each.name, [])), list(self.line.get(each.name, []))
            kept = [*enumerate(mine)] if not said else []
            if each.name == "streams":
                names = {_stream_name(entry) for entry in said}
                kept = [(number, entry) for number, entry in enumerate(mine) if _stream_name(entry) not in names]
            self._numbers |= {(each.name, new): old for new, (old, _) in enumerate(kept)}
            merged[each.name] = [*(entry for _, entry in kept), *said]
        return merged

    # ------------------------------------------------------------ prefixes

    def _prefixes(self, tables: Mapping[str, Any]) -> dict[str, str]:
        """Those of the file and the command line, and of the queries where these say the same."""
        found: dict[str, str] = {}
        for word, value in (tables.get("prefixes") or {}).items() if _is_table(tables.get("prefixes", {})) else ():
            if isinstance(value, str):
                found[str(word).removesuffix(":")] = value
            else:
                self.told(
                    ("prefixes", word), CqelsError(f"prefix {word}: is not a text", hint="write an IRI in quotes")
                )
        if not _is_table(tables.get("prefixes", {})):
            self.told(
                ("prefixes",), CqelsError("prefixes is not a table", hint='[prefixes], and ex = "http://ex.org/"')
            )
        if any(_PREFIXED.match(name) for name in map(_stream_name, _list(tables.get("streams", []))) if name):
            for prefix, namespaces in self._of_queries(tables).items():
                if len(namespaces) == 1:
                    found.setdefault(prefix, *namespaces)
        return found

    def _of_queries(self, tables: Mapping[str, Any]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for entry in _list(tables.get("queries", [])):
            text = entry.get("text") if _is_table(entry) else None
            file = entry.get("file") if _is_table(entry) else entry
            if text is None and isinstance(file, str | os.PathLike) and self.query_text is not None:
                try:
                    text = self.query_text(Path(file))
                except CqelsError:
                    continue  # whoever needs it says why
            for prefix, namespace in _PREFIX.findall(text if isinstance(text, str) else ""):
                found.setdefault(prefix, set()).add(namespace)
        return found

    def _expanded(self, tables: dict[str, Any], prefixes: Mapping[str, str]) -> dict[str, Any]:
        """Have names in full where they have prefixes: of streams, of graphs, of predicates of time."""

        def full(words: Words, name: object) -> object:
            found = _PREFIXED.fullmatch(name) if isinstance(name, str) else None
            if found is None:
                return name
            if found["prefix"] in prefixes:
                return prefixes[found["prefix"]] + found["local"]
            if not found["prefix"]:
                hint = f"add :=http://… by --prefix, or write the name in full: <http://…{found['local']}>"
                if self.file is not None:
                    hint = f'[prefixes] says what it stands for: "" = "http://…"; or write <http://…{found["local"]}>'
                self.told(words, CqelsError(f"the prefix of '{name}' is not declared", hint=hint))
                return "urn:cqels:undeclared"
            return name

        changed: dict[str, list[Any]] = {}
        for table, names in {"streams": ("iri", "time"), "data": ("graph",)}.items():
            changed[table] = []
            for number, entry in enumerate(_list(tables.get(table, []))):
                if _is_table(entry):
                    entry = {
                        word: full((table, number, word), value) if word in names else value
                        for word, value in entry.items()
                    }
                elif table == "streams" and isinstance(entry, str) and (name := _stream_name(entry)):
                    iri = full((table, number), name)
                    entry = entry if iri == name else f"<{iri}>{entry[len(name) :]}"
                changed[table].append(entry)
        return {**tables, **changed}

    # ------------------------------------------------------------ texts of queries

    def _placed(self, options: PipelineOptions) -> PipelineOptions:
        """The options with texts of queries where the file has them, so that errors have the file's places."""
        assert self.file is not None
        entries = _list(self.file.tables.get("queries", []))
        texts = {each["text"]: number for number, each in enumerate(entries) if _is_table(each) and "text" in each}

        def placed(query: DeclaredQuery) -> DeclaredQuery:
            if query.text is None or query.text not in texts or self.file is None:
                return query
            text = self.file.padded(("queries", texts[query.text], "text"), query.text)
            return replace(query, text=text, within=self.file.source.name)

        return replace(options, queries=replace(options.queries, query=tuple(map(placed, options.queries.query))))


# ---------------------------------------------------------------- tables


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _without(words: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Words that others do not have, whether with dashes or underscores."""
    return {word: value for word, value in words.items() if str(word).replace("-", "_") not in others}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _stream_name(entry: object) -> str | None:
    """What a stream is called, in a table or in the text `name=path`, None if that cannot be told."""
    if isinstance(entry, Mapping):
        name = entry.get("iri")
        return name.removeprefix("<").removesuffix(">") if isinstance(name, str) else None
    if not isinstance(entry, str):
        return None
    return entry[1:].partition(">")[0] if entry.startswith("<") else entry.partition("=")[0]


def _with_variables(value: Any, words: Words, told: Callable[[Words, CqelsError], None], *, keep: bool = False) -> Any:
    """A value with those of variables of the environment in its texts; `$${` is `${`.

    With `keep` the names stay, as live sources have them: these read a variable when a connection is made, so that
    nothing else has its value.
    """

    def variable(found: re.Match[str]) -> str:
        if found[1]:
            return found[0] if keep else "$"
        if found[2] not in os.environ:
            hint = f"export {found[2]}=…, or write $${{ where no variable is meant"
            told(words, CqelsError(f"the variable {found[2]} is not set", hint=hint))
        return found[0] if keep else os.environ.get(found[2], "")

    match value:
        case str():
            return _VARIABLE.sub(variable, value)
        case list():
            return [_with_variables(each, (*words, number), told, keep=keep) for number, each in enumerate(value)]
        case dict():
            keep = keep or (words[:1] == ("streams",) and is_url(str(value.get("from"))))
            is_query = words[:1] == ("queries",)  # whose text is left as it is
            return {
                word: each if is_query and word == "text" else _with_variables(each, (*words, word), told, keep=keep)
                for word, each in value.items()
            }
        case _:
            return value


def relative_to(tables: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The tables with the paths that are relative to a folder."""

    def placed(value: object) -> object:
        if isinstance(value, list):
            return [placed(each) for each in value]
        if not isinstance(value, str | os.PathLike) or is_url(text := os.fspath(value)) or text in ("", TERMINAL):
            return value
        return os.path.join(folder, text)  # which keeps the slash that a folder ends with

    def entry_of(value: object, words: tuple[str, ...], text: Callable[[str], str]) -> object:
        if isinstance(value, Mapping):
            return {word: placed(each) if word in words else each for word, each in value.items()}
        return text(value) if isinstance(value, str) else placed(value)

    def file(text: str) -> str:
        return str(placed(text))

    def stream(text: str) -> str:
        name, equals, path = text.partition(">=" if text.startswith("<") else "=")
        path, mark, options = path.partition("?")
        template = re.sub(r"(?<=\btemplate=)[^&]+", lambda found: file(found[0]), options)
        return f"{name}{equals}{file(path)}{mark}{template}"

    paths = {"streams": ("from", "template"), "data": ("file",), "queries": ("file",), "sinks": ("to",)}
    made: dict[str, Any] = {**tables}
    if isinstance(pipeline := tables.get("pipeline"), Mapping):
        made["pipeline"] = {
            word: placed(value) if str(word).replace("-", "_") in PLACES and not _is_port(value) else value
            for word, value in pipeline.items()
        }
    if isinstance(serve := tables.get(SERVE), Mapping):
        made[SERVE] = {
            word: placed(value) if str(word).replace("-", "_") in SERVE_PLACES else value
            for word, value in serve.items()
        }
        if "streams" in serve:
            made[SERVE]["streams"] = [entry_of(each, ("template",), _file_of(file)) for each in _list(serve["streams"])]
    for table, words in paths.items():
        if table in tables:
            text = stream if table == "streams" else file
            made[table] = [entry_of(each, words, text) for each in _list(tables[table])]
    return made


def _file_of(place: Callable[[str], str]) -> Callable[[str], str]:
    """Place what is the name of a template's file, and not its text."""
    return lambda text: text if "\n" in text or not text.endswith(".toml") else place(text)


def _is_port(value: object) -> bool:
    return isinstance(value, str) and value.isdigit()
